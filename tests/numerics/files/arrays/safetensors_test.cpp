// safetensors: round trips, the bytes of the format, and one clear error for everything that is not it.
#include "numerics/files/arrays/safetensors.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <array>
#include <cstring>
#include <fstream>
#include <limits>
#include <set>

#include "numerics/files/disk/read_file.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/temporary_folder.hpp"

namespace fp16lab {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using testing_support::message_of;

template <class T>
SafetensorsSource source(std::string name, DType type, std::vector<std::uint64_t> shape,
                         const std::vector<T>& values) {
  return safetensors_source(std::move(name), type, std::move(shape), std::as_bytes(std::span(values)));
}

std::vector<SafetensorsSource> small_sources() {
  return {source<std::uint8_t>("flags", DType::u8, {3}, {1, 0, 255}),
          source<float>("fc1.weight", DType::f32, {2, 3}, {1, 2, 3, 4, 5, 6}),
          source<double>("scale", DType::f64, {}, {65536.0}),
          source<std::int32_t>("empty", DType::i32, {0, 7}, {}),
          source<std::uint16_t>("half", DType::f16, {2}, {0x3c00, 0x7bff})};
}

class Safetensors : public ::testing::Test {
 protected:
  /// A file of this header and so many data bytes.
  std::filesystem::path write(const std::string& header, std::size_t data_bytes) const {
    return write_raw(length(header.size()) + header + std::string(data_bytes, '\x7e'));
  }
  std::filesystem::path write_raw(const std::string& bytes) const {
    std::filesystem::remove(file);  // replacing a file's content may wait for the disk, a new file does not
    std::ofstream(file, std::ios::binary) << bytes;
    return file;
  }
  static std::string length(std::uint64_t count) {
    std::string bytes;
    for (unsigned shift = 0; shift < 64; shift += 8) bytes += static_cast<char>(count >> shift & 0xff);
    return bytes;
  }
  std::string error() const {
    std::string message = message_of([&] { SafetensorsReader reader(file); });
    EXPECT_THAT(message, StartsWith(file.string() + ": "));
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    return message.substr(file.string().size() + 2);
  }
  /// The error of a header over 8 data bytes.
  std::string error_of(const std::string& header, std::size_t data_bytes = 8) const {
    write(header, data_bytes);
    return error();
  }

  testing_support::TemporaryFolder temporary;
  const std::filesystem::path file = temporary.path() / "t.safetensors";
};

TEST_F(Safetensors, BytesAreThoseOfTheFormat) {
  write_safetensors(
      file,
      {source<std::uint16_t>("b", DType::bf16, {1}, {0x3f80}), source<float>("a", DType::f32, {}, {1.0f})},
      {{"format", "pt"}});
  // Larger elements first; the header is padded with spaces to a multiple of 8 (132 + 4).
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
      R"("b":{"dtype":"BF16","shape":[1],"data_offsets":[4,6]}})";
  std::string padded = header;
  while (padded.size() % 8 != 0) padded += ' ';
  const std::string data{"\x00\x00\x80\x3f\x80\x3f", 6};
  EXPECT_EQ(read_file(file), length(padded.size()) + padded + data);
}

TEST_F(Safetensors, RoundTripKeepsNamesTypesShapesBytesAndMetadata) {
  const SafetensorsMetadata metadata{{"config", "[train]\nsteps = 3\n"}, {"note", "\"\xc3\xbc\\"}};
  write_safetensors(file, small_sources(), metadata);
  const SafetensorsReader reader(file);
  EXPECT_EQ(reader.metadata(), metadata);
  ASSERT_EQ(reader.entries().size(), 5u);
  for (const SafetensorsSource& expected : small_sources()) {
    const SafetensorsEntry* entry = reader.find(expected.name);
    ASSERT_NE(entry, nullptr) << expected.name;
    EXPECT_EQ(entry->type, expected.type);
    EXPECT_EQ(entry->shape, expected.shape);
    EXPECT_EQ(entry->begin % size_of(*entry->type), 0u) << "every tensor is aligned to its elements";
    std::vector<std::byte> bytes(entry->byte_count());
    expected.fetch(bytes);
    EXPECT_EQ(reader.read(*entry), bytes);
  }
  EXPECT_EQ(reader.find("fc1"), nullptr);
  EXPECT_THAT(reader.find("fc1.weight")->describe(), "F32 (2, 3)");
}

TEST_F(Safetensors, BytesDoNotDependOnTheOrderOfTheSources) {
  write_safetensors(file, small_sources());
  const std::string first = read_file(file);
  std::vector<SafetensorsSource> reversed = small_sources();
  std::reverse(reversed.begin(), reversed.end());
  write_safetensors(file, reversed);
  EXPECT_EQ(read_file(file), first);
}

TEST_F(Safetensors, EveryTypeHasItsSizeAndComesBack) {
  using enum DType;
  const std::vector<std::tuple<DType, const char*, std::size_t>> expected{{f64, "F64", 8},
                                                                          {f32, "F32", 4},
                                                                          {f16, "F16", 2},
                                                                          {bf16, "BF16", 2},
                                                                          {e4m3, "F8_E4M3", 1},
                                                                          {e5m2, "F8_E5M2", 1},
                                                                          {i64, "I64", 8},
                                                                          {i32, "I32", 4},
                                                                          {i16, "I16", 2},
                                                                          {i8, "I8", 1},
                                                                          {u64, "U64", 8},
                                                                          {u32, "U32", 4},
                                                                          {u16, "U16", 2},
                                                                          {u8, "U8", 1},
                                                                          {boolean, "BOOL", 1},
                                                                          {e2m1, "F4", 1},
                                                                          {e4m3fnuz, "F8_E4M3FNUZ", 1},
                                                                          {e5m2fnuz, "F8_E5M2FNUZ", 1},
                                                                          {e8m0, "F8_E8M0", 1}};
  std::set<std::string_view> seen;
  for (const auto& [type, name, size] : expected) {
    EXPECT_EQ(file_name_of(type), name);
    EXPECT_EQ(size_of(type), size);
    write_safetensors(file,
                      {source<char>("x", type, {3}, std::vector<char>(type == e2m1 ? 2 : 3 * size, 'y'))});
    EXPECT_EQ(SafetensorsReader(file).entries().at(0).type, type);
    EXPECT_THAT(read_file(file), HasSubstr(std::string("\"dtype\":\"") + name + "\""));
    seen.insert(file_name_of(type));
  }
  EXPECT_EQ(seen.size(), expected.size());
  EXPECT_EQ(seen.size(), dtypes<is_file_type>.size());
  EXPECT_THAT(message_of([&] { write_safetensors(file, {source<float>("x", tf32, {1}, {1.0f})}); }),
              HasSubstr("tensor 'x': safetensors has no type for tf32"));
}

TEST_F(Safetensors, FilesOfOtherWritersAreRead) {
  // Any order of keys and entries, white space inside, data in another order than the names.
  write(R"({ "b" : {"data_offsets":[0,4], "dtype":"F32","shape":[1]}, "a":{"shape":[2,1],)"
        R"("dtype":"F16","data_offsets":[4,8]}}   )",
        8);
  const SafetensorsReader reader(file);
  EXPECT_EQ(reader.entries().at(0).name, "b");
  EXPECT_EQ(reader.entries().at(1).name, "a");
  EXPECT_THAT(reader.entries().at(1).shape, ElementsAre(2, 1));
  write("{}", 0);
  EXPECT_TRUE(SafetensorsReader(file).entries().empty());
  write(R"({"__metadata__":{}})", 0);
  EXPECT_TRUE(SafetensorsReader(file).metadata().empty());
}

TEST_F(Safetensors, TheWriterHoldsOneTensorAtATime) {
  // 64 tensors of 4 MiB: all of them would be 256 MiB, one of them is 4.
  constexpr std::uint64_t count = 1 << 20;
  std::vector<SafetensorsSource> sources;
  sources.reserve(64);
  for (int i = 0; i < 64; ++i) {
    sources.push_back({"x" + std::to_string(i), DType::f32, {count}, [](std::span<std::byte> out) {
                         std::fill(out.begin(), out.end(), std::byte{1});
                       }});
  }
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  write_safetensors(file, sources);
  getrusage(RUSAGE_SELF, &after);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 32 * 1024) << "KiB";
  EXPECT_EQ(SafetensorsReader(file).entries().size(), 64u);
}

TEST_F(Safetensors, AFailingSourceLeavesTheOldFile) {
  write_safetensors(file, small_sources());
  const std::string before = read_file(file);
  std::vector<SafetensorsSource> sources = small_sources();
  sources[1].fetch = [](std::span<std::byte>) { throw std::runtime_error("device lost"); };
  EXPECT_THAT(message_of([&] { write_safetensors(file, sources); }), "device lost");
  EXPECT_EQ(read_file(file), before);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(temporary.path()), {}), 1)
      << "no temporary file stays";
}

TEST_F(Safetensors, TheWriterRefusesWhatTheReaderWould) {
  const auto one = [](const std::string& name) { return source<float>(name, DType::f32, {1}, {1.0f}); };
  EXPECT_THAT(message_of([&] {
                write_safetensors(file, {one("a"), one("a")});
              }),
              HasSubstr("two tensors of the name 'a'"));
  EXPECT_THAT(message_of([&] { write_safetensors(file, {one("")}); }), HasSubstr("without a name"));
  EXPECT_THAT(message_of([&] { write_safetensors(file, {one("__metadata__")}); }), HasSubstr("reserves"));
  EXPECT_THAT(message_of([&] { write_safetensors(file, {one("\xff")}); }), HasSubstr("UTF-8"));
  EXPECT_THAT(message_of([&] { write_safetensors(file, {one("a")}, {{"k", "\xff"}}); }), HasSubstr("UTF-8"));
  EXPECT_THAT(message_of([&] { (void)source<float>("a", DType::f32, {2}, {1.0f}); }),
              HasSubstr("tensor 'a'"));
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST_F(Safetensors, LengthsAndForeignFilesAreErrors) {
  EXPECT_THAT(message_of([&] { SafetensorsReader reader(file); }),
              AllOf(HasSubstr(file.string()), HasSubstr("No such file")));
  EXPECT_THAT(message_of([&] { SafetensorsReader reader(temporary.path()); }),
              HasSubstr("not a regular file"));
  write_raw("");
  EXPECT_THAT(error(), HasSubstr("0 bytes, expected the 8-byte length"));
  write_raw("1234567");
  EXPECT_THAT(error(), HasSubstr("7 bytes"));
  write_raw(length(100'000'001) + "{}");
  EXPECT_THAT(error(), HasSubstr("a header of 100000001 bytes, but safetensors allows 100000000"));
  write_raw(length(std::numeric_limits<std::uint64_t>::max()) + "{}");
  EXPECT_THAT(error(), HasSubstr("allows 100000000"));
  write_raw(length(3) + "{}");
  EXPECT_THAT(error(), HasSubstr("a header of 3 bytes in a file of 10"));
  write_raw(length(0));
  EXPECT_THAT(error(), HasSubstr("does not begin with '{'"));
  write_raw("PK\x03\x04 a zip archive, as torch.save writes");
  EXPECT_THAT(error(), HasSubstr("another format"));
}

TEST_F(Safetensors, MalformedHeadersAreErrorsNamingTheTensor) {
  EXPECT_THAT(error_of("[]"), HasSubstr("does not begin with '{'"));
  EXPECT_THAT(error_of(" {}"), HasSubstr("does not begin with '{'"));
  EXPECT_THAT(error_of("{"), HasSubstr("not valid JSON at its byte"));
  EXPECT_THAT(error_of("{}x"), HasSubstr("not valid JSON at its byte 3"));
  EXPECT_THAT(error_of(std::string("{}\0", 3)), HasSubstr("not valid JSON: it holds a zero byte"));
  EXPECT_THAT(error_of("{\"\xff\":1}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of(R"({"w":3})"), "tensor 'w' is 3, expected an object");
  EXPECT_THAT(error_of(R"({"w":[]})"), "tensor 'w' is an array, expected an object");
  EXPECT_THAT(error_of(R"({"w":{}})"), "tensor 'w': no dtype");
  EXPECT_THAT(error_of(R"({"w":{"dtype":"F32","shape":[2]}})"), "tensor 'w': no data_offsets");
  EXPECT_THAT(error_of(R"({"w":{"dtype":"F32","dtype":"F32"}})"), "tensor 'w': the key dtype occurs twice");
  EXPECT_THAT(error_of(R"({"w":{"dtype":"F32","extra":1}})"), HasSubstr("tensor 'w': unknown key 'extra'"));
  EXPECT_THAT(error_of(R"({"w":{"dtype":"F31"}})"), "tensor 'w': no shape");
  EXPECT_THAT(error_of(R"({"w":{"dtype":7}})"), "tensor 'w': dtype is 7, expected a string");
  EXPECT_THAT(error_of(R"({"w":{"dtype":["F32"]}})"), "tensor 'w': dtype is an array, expected a string");
  EXPECT_THAT(error_of(R"({"w":{"shape":"2"}})"), HasSubstr("tensor 'w': shape is \"2\", expected an array"));
  for (const char* bad : {"-1", "1.0", "1e400", "18446744073709551616", "null", "true", "\"2\"", "[]", "{}"})
    EXPECT_THAT(
        error_of(std::string(R"({"w":{"dtype":"F32","shape":[)") + bad + R"(],"data_offsets":[0,8]}})"),
        ::testing::AnyOf(AllOf(HasSubstr("tensor 'w'"), HasSubstr("shape")), HasSubstr("not valid JSON")))
        << bad;
  for (const char* bad : {"[0]", "[0,8,8]", "[0,-8]", "[0,8.0]", "[]", "[0,null]", "8"})
    EXPECT_THAT(error_of(std::string(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":)") + bad + "}}"),
                AllOf(HasSubstr("tensor 'w'"), HasSubstr("data_offsets")))
        << bad;
  EXPECT_THAT(error_of(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                       R"("w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})"),
              "tensor 'w' occurs twice");
  EXPECT_THAT(error_of(R"({"__metadata__":{"a":1}})", 0), "__metadata__: 'a' is 1, expected a string");
  EXPECT_THAT(error_of(R"({"__metadata__":{"a":{}}})", 0), HasSubstr("'a' is an object, expected a string"));
  EXPECT_THAT(error_of(R"({"__metadata__":"a"})", 0), HasSubstr("__metadata__ is \"a\", expected an object"));
  EXPECT_THAT(error_of(R"({"__metadata__":{"a":"1","a":"1"}})", 0), HasSubstr("'a' occurs twice"));
  EXPECT_THAT(error_of(R"({"__metadata__":{},"__metadata__":{}})", 0), "__metadata__ occurs twice");
}

TEST_F(Safetensors, LayoutsWithOverlapsHolesRestsOrOverflowAreErrors) {
  const auto header = [](const std::vector<std::array<std::string, 3>>& tensors) {
    std::string text = "{";
    for (const auto& [name, shape, offsets] : tensors) {
      text.append(text.size() > 1 ? ",\"" : "\"").append(name).append(R"(":{"dtype":"F32","shape":)");
      text.append(shape).append(R"(,"data_offsets":)").append(offsets).append("}");
    }
    return text + "}";
  };
  EXPECT_THAT(error_of(header({{"w", "[3]", "[0,8]"}})),
              "tensor 'w': data_offsets [0, 8] are 8 bytes, but F32 (3) needs 12");
  EXPECT_THAT(error_of(header({{"w", "[2]", "[8,0]"}})), "tensor 'w': data_offsets [8, 0] run backwards");
  EXPECT_THAT(error_of(header({{"w", "[3]", "[0,12]"}})), HasSubstr("reach beyond the file's 8 data bytes"));
  EXPECT_THAT(error_of(header({{"w", "[1]", "[0,4]"}})), "4 bytes after the last tensor, expected none");
  EXPECT_THAT(error_of(header({{"w", "[1]", "[4,8]"}})),
              AllOf(HasSubstr("tensor 'w': data begin at 4, expected 0"), HasSubstr("hole")));
  EXPECT_THAT(error_of(header({{"a", "[2]", "[0,8]"}, {"b", "[1]", "[4,8]"}})),
              AllOf(HasSubstr("tensor 'b': data begin at 4, expected 8"), HasSubstr("overlap")));
  EXPECT_THAT(error_of(header({{"a", "[2]", "[0,8]"}, {"b", "[2]", "[0,8]"}})), HasSubstr("overlap"));
  // 2^62 F32 elements are 2^64 bytes, which must not wrap around to 0.
  EXPECT_THAT(error_of(header({{"w", "[4611686018427387904]", "[0,0]"}}), 0),
              HasSubstr("tensor 'w': F32 (4611686018427387904) has more than 2^64 bytes"));
  EXPECT_THAT(error_of(header({{"w", "[4294967296,4294967296]", "[0,0]"}}), 0), HasSubstr("more than 2^64"));
  EXPECT_THAT(error_of(header({{"w", "[2]", "[18446744073709551608,18446744073709551615]"}})),
              HasSubstr("reach beyond"));
}

TEST_F(Safetensors, DeepNestingEndsAtTheFourthLevel) {
  std::string deep = "{\"w\":";
  for (int i = 0; i < 1'000'000; ++i) deep += '[';
  EXPECT_THAT(error_of(deep), "tensor 'w' is an array, expected an object");
  std::string objects;
  for (int i = 0; i < 200'000; ++i) objects += "{\"a\":";
  EXPECT_THAT(error_of(objects), HasSubstr("tensor 'a': unknown key 'a'"));
}

TEST_F(Safetensors, NamesInMessagesAreShortAndPrintable) {
  const std::string message = error_of("{\"" + std::string(5000, 'n') + "\\n\":3}");
  EXPECT_LT(message.size(), 200u);
  EXPECT_THAT(error_of(R"({"a\nb":3})"), "tensor 'a\\x0ab' is 3, expected an object");
}

/// What a mutated file may still be: a well-formed one.
void expect_consistent(const SafetensorsReader& reader, std::uint64_t data_bytes) {
  std::uint64_t reached = 0;
  for (const SafetensorsEntry& entry : reader.entries()) {
    EXPECT_EQ(entry.begin, reached);
    if (entry.type) {
      std::uint64_t bytes = size_of(*entry.type);
      for (const std::uint64_t extent : entry.shape) bytes *= extent;
      EXPECT_EQ(entry.byte_count(), bytes);
    }
    EXPECT_EQ(reader.read(entry).size(), entry.byte_count());
    reached = entry.end;
  }
  EXPECT_EQ(reached, data_bytes);
}

TEST_F(Safetensors, EveryMutationIsAnErrorOrAWellFormedFile) {
  // Every bit of every byte flipped, every truncation, every byte doubled or dropped: no crash (run under the
  // address sanitiser by hand), one-line errors, and what is still accepted holds together.
  write_safetensors(file, small_sources(), {{"format", "fp16lab"}, {"step", "12"}});
  const std::string good = read_file(file);
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, good.data(), sizeof(header_bytes));
  int refused = 0, accepted = 0;
  const auto judge = [&](const std::string& bytes) {
    write_raw(bytes);
    try {
      const SafetensorsReader reader(file);
      std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
      expect_consistent(reader, bytes.size() - 8 - header_bytes);
      ++accepted;
    } catch (const std::runtime_error& failure) {
      const std::string message = failure.what();
      EXPECT_THAT(message, StartsWith(file.string() + ": "));
      EXPECT_EQ(message.find('\n'), std::string::npos);
      ++refused;
    }
  };
  for (std::size_t i = 0; i < good.size(); ++i) {
    for (unsigned bit = 0; bit < 8; ++bit) {
      std::string mutated = good;
      mutated[i] = static_cast<char>(static_cast<unsigned char>(mutated[i]) ^ (1u << bit));
      judge(mutated);
    }
    judge(good.substr(0, i));
    judge(good.substr(0, i) + good.substr(i + 1));
    judge(good.substr(0, i + 1) + good.substr(i));
  }
  // A truncation is always found; flips of data bits and of letters in names and metadata never can be.
  const auto data_bits = static_cast<int>((good.size() - 8 - header_bytes) * 8);
  EXPECT_GE(accepted, data_bits);
  EXPECT_GE(refused, 3 * static_cast<int>(good.size()));
}

}  // namespace
}  // namespace fp16lab
