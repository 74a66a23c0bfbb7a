// The user's dumps: files of other writers, typed in byte by byte, come back element by element.
#include "numerics/files/arrays/array_stream.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>
#include <zlib.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <random>

#include "numerics/convert/convert.hpp"
#include "numerics/files/arrays/array_values.hpp"
#include "numerics/files/disk/input_file.hpp"
#include "tests/numerics/files/files_fixture.hpp"
#include "tests/support/array_files.hpp"
#include "tests/support/message_of.hpp"

namespace fp16lab {
namespace {

using namespace testing_support;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// What an array of 6 FP32 numbers holds in all files of numpy below: 1, -2, 0.5, 65504, -0, 6e-8.
const std::string six_numbers = from_hex("0000803f 000000c0 0000003f 00e07f47 00000080 59d98033");
const std::vector<double> six_values{1, -2, 0.5, 65504, -0.0, 6e-8f};

std::shared_ptr<const ValueBins> fp16_bins() {
  return std::make_shared<const ValueBins>(std::array{ScaledFormat{FormatRange::of<Binary16>(), 1.0}});
}

class ArrayStream : public Files {
 protected:
  /// Every element of array `name`, widened.
  std::vector<double> elements(const ArrayFile& file, std::string_view name) const {
    for (const ArrayInfo& array : file.arrays()) {
      if (array.name != name) continue;
      std::vector<double> all;
      file.visit(array, [&all](const ArrayChunk& chunk) {
        std::visit(
            [&all]<class T>(std::span<const T> values) {
              EXPECT_FALSE(values.empty());
              EXPECT_LE(values.size_bytes(), ArrayFile::chunk_bytes);
              for (const T value : values)
                if constexpr (std::is_floating_point_v<T>)
                  all.push_back(value);
                else
                  all.push_back(static_cast<double>(widen(value)));
            },
            chunk);
      });
      EXPECT_EQ(all.size(), array.element_count());
      return all;
    }
    ADD_FAILURE() << "no array " << name;
    return {};
  }
  std::vector<double> elements_of(std::string_view file_name, const std::string& bytes,
                                  std::string_view name) const {
    write_raw(file_name, bytes);
    return elements(ArrayFile(folder / file_name), name);
  }
};

// numpy 2.4.6, np.lib.format.write_array(file, a, version=(v, 0)).
TEST_F(ArrayStream, NumpysThreeVersions) {
  const std::string dict = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
  const std::string one =
      std::string("\x93NUMPY\x01\x00v\x00", 10) + dict + std::string(58, ' ') + "\n" + six_numbers;
  ASSERT_EQ(one, npy("<f4", "(2, 3)", six_numbers))
      << "the builder of the other tests writes what numpy does";
  EXPECT_EQ(elements_of("one.npy", one, "one"), six_values);
  const ArrayFile file(folder / "one.npy");
  EXPECT_EQ(file.format(), ArrayFormat::npy);
  ASSERT_EQ(file.arrays().size(), 1u);
  const ArrayInfo& array = file.arrays()[0];
  EXPECT_EQ(array.dtype, "<f4");
  EXPECT_EQ(array.type, DType::f32);
  EXPECT_THAT(array.shape, ElementsAre(2, 3));
  EXPECT_FALSE(array.fortran_order);
  EXPECT_EQ(array.describe(), "<f4 (2, 3)");
  EXPECT_TRUE(std::signbit(elements(file, "one")[4])) << "-0 keeps its sign";
  for (const char version : {'\x02', '\x03'}) {
    const std::string bytes = std::string("\x93NUMPY") + version + std::string("\x00t\x00\x00\x00", 5) +
                              dict + std::string(56, ' ') + "\n" + six_numbers;
    EXPECT_EQ(elements_of("v.npy", bytes, "v"), six_values);
  }
}

/// What visit_both delivers of two arrays, each as one string of bytes.
std::pair<std::string, std::string> both(const ArrayFile& a, const ArrayFile& b) {
  std::pair<std::string, std::string> all;
  ArrayFile::visit_both(a, a.arrays()[0], b, b.arrays()[0],
                        [&](std::span<const std::byte> x, std::span<const std::byte> y) {
                          EXPECT_LE(std::max(x.size(), y.size()), ArrayFile::chunk_bytes);
                          all.first.append(reinterpret_cast<const char*>(x.data()), x.size());
                          all.second.append(reinterpret_cast<const char*>(y.data()), y.size());
                        });
  return all;
}

TEST_F(ArrayStream, TwoArraysSideBySideInRowMajorOrder) {
  // The numbers 0 to 11 in shape (2, 3, 2): as big-endian int16 columns first, as float rows first.
  std::string columns, rows, words, swapped;
  for (int k = 0; k < 2; ++k)
    for (int j = 0; j < 3; ++j)
      for (int i = 0; i < 2; ++i) columns += std::string{'\0', static_cast<char>(6 * i + 2 * j + k)};
  for (int i = 0; i < 12; ++i) {
    const auto value = static_cast<float>(i);
    rows.append(reinterpret_cast<const char*>(&value), sizeof(value));
    words += std::string{static_cast<char>(i), '\0'};
  }
  write_raw("columns.npy", npy(">i2", "(2, 3, 2)", columns, true));
  write_raw("rows.npz", zip({deflated("x.npy", npy("<f4", "(2, 3, 2)", rows))}));
  const ArrayFile a(folder / "columns.npy"), b(folder / "rows.npz");
  EXPECT_EQ(both(a, b), std::pair(words, rows));
  EXPECT_EQ(both(b, a), std::pair(rows, words));
  // More than a chunk, of elements of two sizes.
  const std::size_t many = ArrayFile::chunk_bytes / 4 + 5;
  std::string large(8 * many, '\0'), small(2 * many, '\0');
  for (std::size_t i = 0; i < large.size(); ++i) large[i] = static_cast<char>(i * 7 % 251);
  for (std::size_t i = 0; i < small.size(); ++i) small[i] = static_cast<char>(i * 5 % 241);
  const std::string shape = "(" + std::to_string(many) + ",)";
  write_raw("large.npy", npy("<f8", shape, large));
  write_raw("small.npy", npy("<f2", shape, small, true));  // one dimension: no order
  EXPECT_TRUE(both(ArrayFile(folder / "large.npy"), ArrayFile(folder / "small.npy")) ==
              std::pair(large, small));
  EXPECT_THROW(both(a, ArrayFile(folder / "small.npy")), std::invalid_argument);
}

TEST_F(ArrayStream, BigEndianFortranOrderAndScalars) {
  // np.save of np.asfortranarray([[1, 2, 3], [4, 5, 6]]) as '>f2': columns first.
  const std::string columns = std::string("\x93NUMPY\x01\x00v\x00", 10) +
                              "{'descr': '>f2', 'fortran_order': True, 'shape': (2, 3), }" +
                              std::string(59, ' ') + "\n" + from_hex("3c00 4400 4000 4500 4200 4600");
  EXPECT_EQ(elements_of("f.npy", columns, "f"), (std::vector<double>{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(ArrayFile(folder / "f.npy").arrays()[0].describe(), ">f2 (2, 3), Fortran order");
  // np.save of np.array(2.0**-200, dtype='>f8').
  const std::string scalar = std::string("\x93NUMPY\x01\x00v\x00", 10) +
                             "{'descr': '>f8', 'fortran_order': False, 'shape': (), }" +
                             std::string(62, ' ') + "\n" + from_hex("3370000000000000");
  EXPECT_EQ(elements_of("s.npy", scalar, "s"), (std::vector<double>{0x1p-200}));
  EXPECT_EQ(elements_of("le.npy", npy("<f8", "(1,)", from_hex("00000000000070bf")), "le"),
            (std::vector<double>{-0x1p-8}));
  EXPECT_EQ(elements_of("be.npy", npy(">f4", "(1,)", from_hex("c0490fdb")), "be"),
            (std::vector<double>{-static_cast<double>(0x1.921fb6p1f)}));
  EXPECT_EQ(elements_of("native.npy", npy("=f2", "(2,)", from_hex("003c ff7b")), "native"),
            (std::vector<double>{1, 65504}));
}

TEST_F(ArrayStream, EmptyArraysAndUnusualHeaders) {
  EXPECT_THAT(elements_of("e.npy", npy("<f4", "(0, 4294967296, 4294967296)", ""), "e"), ElementsAre());
  // Keys in another order, double quotes, no commas at the end, a long of Python 2; no padding.
  const std::string text = "{\"shape\":(2L,),'fortran_order' :False,\t'descr':\"<f2\"}\n";
  EXPECT_EQ(elements_of("h.npy",
                        "\x93NUMPY" + little_endian(1, 2) + little_endian(text.size(), 2) + text +
                            from_hex("003c 0100"),
                        "h"),
            (std::vector<double>{1, 0x1p-24}));
}

// numpy 2.4.6, np.savez_compressed(file, w=a, n=np.array([3], '<i8')).
TEST_F(ArrayStream, NumpysDeflatedArchive) {
  const std::string bytes = from_hex(R"(
    504b03042d0000000800000021008fc85d9bffffffffffffffff05001400772e6e70790100100098000000000000005c00000000
    0000009bec17ea1b10c9c850c650ad9e925a9c5ca46ea5a06e9366a2aea3a09e965f54529498179f5f94920a12774bcc294e058a
    17672416a402f91a463a0ac69a3a0ab50a64032e0686067b06068603406ccff0a0de1d483744de6c300600504b03042d00000008
    0000002100439d311cffffffffffffffff050014006e2e6e707901001000880000000000000048000000000000009bec17ea1b10
    c9c850c650ad9e925a9c5ca46ea5a06e9369a1aea3a09e965f54529498179f5f94920a12774bcc294e058a17672416a402f91a86
    3a9a3a0ab50a14002e6606080000504b01022d032d0000000800000021008fc85d9b5c0000009800000005000000000000000000
    0000800100000000772e6e7079504b01022d032d000000080000002100439d311c48000000880000000500000000000000000000
    008001930000006e2e6e7079504b0506000000000200020066000000120100000000)");
  ASSERT_EQ(bytes.size(), 398u);
  EXPECT_EQ(elements_of("z.npz", bytes, "w"), six_values);
  const ArrayFile file(folder / "z.npz");
  EXPECT_EQ(file.format(), ArrayFormat::npz);
  ASSERT_EQ(file.arrays().size(), 2u);
  EXPECT_EQ(file.arrays()[1].name, "n");
  EXPECT_EQ(file.arrays()[1].type, std::nullopt);
  EXPECT_EQ(file.arrays()[1].refusal, "integers");
  EXPECT_EQ(message_of([&] { file.visit(file.arrays()[1], [](const ArrayChunk&) {}); }),
            (folder / "z.npz").string() + ": 'n' is <i8 (1,): integers");
}

// The same array written by Python's zipfile into a stream that cannot seek: a data descriptor with ZIP64
// sizes.
TEST_F(ArrayStream, ArchiveWrittenIntoAPipe) {
  const std::string bytes = from_hex(R"(
    504b03042d00080008000000210000000000ffffffffffffffff05001400772e6e70790100100000000000000000000000000000
    0000009bec17ea1b10c9c850c650ad9e925a9c5ca46ea5a06e9366a2aea3a09e965f54529498179f5f94920a12774bcc294e058a
    17672416a402f91a463a0ac69a3a0ab50a64032e0686067b06068603406ccff0a0de1d483744de6c300600504b07088fc85d9b5c
    000000000000009800000000000000504b01022d032d0008000800000021008fc85d9b5c00000098000000050000000000000000
    000000800100000000772e6e7079504b0506000000000100010033000000ab0000000000)");
  ASSERT_EQ(bytes.size(), 244u);
  EXPECT_EQ(elements_of("p.npz", bytes, "w"), six_values);
}

TEST_F(ArrayStream, EveryFormOfAnArchive) {
  const std::string array = npy("<f4", "(2, 3)", six_numbers),
                    second = npy(">f8", "(1,)", from_hex("3ff0000000000000"));
  std::vector<ZipEntry> entries{stored("a.npy", array), deflated("dir/b.npy", second)};
  const auto expect_both = [&](const std::string& bytes) {
    EXPECT_EQ(elements_of("f.npz", bytes, "a"), six_values);
    EXPECT_EQ(elements_of("f.npz", bytes, "dir/b"), std::vector<double>{1});
  };
  expect_both(zip(entries));
  expect_both(zip(entries, true));
  expect_both(zip(entries, false, "a comment"));
  expect_both(zip(entries, true, "PK\5\6 in a comment"));
  for (ZipEntry& entry : entries) entry.zip64 = true;
  expect_both(zip(entries, true));
  for (const int size : {4, 8})
    for (const bool signature : {true, false})
      for (const bool zip64 : {false, true}) {
        for (ZipEntry& entry : entries) {
          entry.flags = 8;
          entry.descriptor_size = size;
          entry.descriptor_signature = signature;
          entry.zip64 = zip64;
        }
        expect_both(zip(entries));
      }
  // Other members are named; an archive without members is one without arrays.
  write_raw("o.npz", zip({stored("readme.txt", "hello"), stored("a.npy", array)}));
  const ArrayFile other(folder / "o.npz");
  EXPECT_THAT(other.other_members(), ElementsAre("readme.txt"));
  EXPECT_EQ(other.arrays().size(), 1u);
  write_raw("n.npz", zip({}));
  EXPECT_TRUE(ArrayFile(folder / "n.npz").arrays().empty());
}

TEST_F(ArrayStream, EveryTypeOfSafetensors) {
  // One element of each type, 1.5 but for the first of E5M2 and E4M3 (their smallest subnormals 2^-16, 2^-9).
  const std::string header =
      R"({"d":{"dtype":"F64","shape":[1],"data_offsets":[0,8]},"s":{"dtype":"F32","shape":[],"data_offsets":[8,12]},)"
      R"("h":{"dtype":"F16","shape":[1],"data_offsets":[12,14]},"b":{"dtype":"BF16","shape":[1],"data_offsets":[14,16]},)"
      R"("e4":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[16,18]},)"
      R"("e5":{"dtype":"F8_E5M2","shape":[1,2],"data_offsets":[18,20]},)"
      R"("i":{"dtype":"I64","shape":[1],"data_offsets":[20,28]},"t":{"dtype":"BOOL","shape":[1],"data_offsets":[28,29]}})";
  write_raw("s.safetensors", safetensors(header, from_hex("000000000000f83f 0000c03f 003e c03f 013c 013e") +
                                                     std::string(8, '\7') + "\1"));
  const ArrayFile file(folder / "s.safetensors");
  EXPECT_EQ(file.format(), ArrayFormat::safetensors);
  for (const char* name : {"d", "s", "h", "b"})
    EXPECT_EQ(elements(file, name), std::vector<double>{1.5}) << name;
  EXPECT_EQ(elements(file, "e4"), (std::vector<double>{0x1p-9, 1.5}));
  EXPECT_EQ(elements(file, "e5"), (std::vector<double>{0x1p-16, 1.5}));
  EXPECT_EQ(file.arrays()[6].refusal, "integers");
  EXPECT_EQ(file.arrays()[7].refusal, "booleans");
}

TEST_F(ArrayStream, FormatsOfBlockScales) {
  // F4: 0.5 -6 | 1 4 | 3, the first of a pair in the lower half; NaN and 8 times the smallest number of the others.
  const std::string header =
      R"({"p":{"dtype":"F4","shape":[5],"data_offsets":[0,3]},"s":{"dtype":"F8_E8M0","shape":[3],"data_offsets":[3,6]},)"
      R"("a":{"dtype":"F8_E4M3FNUZ","shape":[2],"data_offsets":[6,8]},)"
      R"("b":{"dtype":"F8_E5M2FNUZ","shape":[2],"data_offsets":[8,10]}})";
  write_raw("m.safetensors", safetensors(header, from_hex("f1 62 05 007fff 80 10 80 0c")));
  const ArrayFile file(folder / "m.safetensors");
  EXPECT_EQ(elements(file, "p"), (std::vector<double>{0.5, -6, 1, 4, 3}));
  EXPECT_EQ(file.arrays()[0].data_offset, std::nullopt) << "no reader finds elements of its own there";
  const std::vector<double> scales = elements(file, "s");
  EXPECT_EQ(scales[0], 0x1p-127);
  EXPECT_EQ(scales[1], 1);
  EXPECT_TRUE(std::isnan(scales[2]));
  EXPECT_TRUE(std::isnan(elements(file, "a")[0]) && std::isnan(elements(file, "b")[0]));
  EXPECT_EQ(elements(file, "a")[1], 0x1p-6);
  EXPECT_EQ(elements(file, "b")[1], 0x1p-13);
  std::vector<std::byte> codes(5);
  file.read(file.arrays()[0], codes);
  EXPECT_THAT(codes, ElementsAre(std::byte{1}, std::byte{15}, std::byte{2}, std::byte{6}, std::byte{5}));
}

TEST_F(ArrayStream, PairsOfF4AreTakenApartAcrossChunks) {
  constexpr std::size_t count = 2 * ArrayFile::chunk_bytes + 5;
  std::string pairs;
  for (std::size_t i = 0; i < count; i += 2)
    pairs += static_cast<char>((i / 2 * 3 % 16) | (i + 1 < count ? i / 2 * 5 % 16 * 16 : 0));
  const std::vector<double> values =
      elements_of("f.safetensors",
                  safetensors("{\"w\":{\"dtype\":\"F4\",\"shape\":[" + std::to_string(count) +
                                  "],\"data_offsets\":[0," + std::to_string(pairs.size()) + "]}}",
                              pairs),
                  "w");
  ASSERT_EQ(values.size(), count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto code = static_cast<std::uint8_t>(i / 2 * (i % 2 == 0 ? 3 : 5) % 16);
    ASSERT_EQ(bits_of(static_cast<float>(values[i])), bits_of(widen(Float4E2M1::from_bits(code)))) << i;
  }
}

TEST_F(ArrayStream, BytesThatAreNoCodesAreRefused) {
  write_raw("w.npy", npy("|u1", "(3,)", from_hex("070f13")));
  const ArrayFile file(folder / "w.npy");
  ArrayInfo array = file.arrays()[0];
  ASSERT_TRUE(array.take_as(DType::e2m1));
  EXPECT_EQ(message_of([&] { file.visit(array, [](const ArrayChunk&) {}); }),
            file.path().string() +
                ": 'w': element 2 is the byte 0x13; a code of E2M1 has 4 bits, and a byte of its own");
}

TEST_F(ArrayStream, NumbersOfAnyTypeAreReadAsTheyAre) {
  const auto read = [](const ArrayFile& file, const char* name) {
    for (const ArrayInfo& array : file.arrays()) {
      if (array.name != name) continue;
      std::string bytes(array.element_count() * size_of(array.element.value()), '?');
      file.read(array, std::as_writable_bytes(std::span(bytes)));
      return bytes;
    }
    return std::string("no such array");
  };
  const auto element = [&](const std::string& descr, const std::string& data) {
    write_raw("e.npy", npy(descr, "(1,)", data));
    const ArrayFile file(folder / "e.npy");
    return file.arrays()[0].element;
  };
  EXPECT_EQ(element("|u1", "1"), DType::u8);
  EXPECT_EQ(element("|i1", "1"), DType::i8);
  EXPECT_EQ(element("|b1", "1"), DType::boolean);
  EXPECT_EQ(element("<u2", "12"), DType::u16);
  EXPECT_EQ(element(">i4", "1234"), DType::i32);
  EXPECT_EQ(element("<i8", "12345678"), DType::i64);
  EXPECT_EQ(element("<f2", "12"), DType::f16);
  EXPECT_EQ(element("<f8", "12345678"), DType::f64);
  EXPECT_EQ(element("i4", "1234"), std::nullopt) << "in which byte order?";
  EXPECT_EQ(element("<V2", "12"), std::nullopt);
  EXPECT_EQ(element("<c8", "12345678"), std::nullopt);

  const std::string big = npy(">i4", "(2,)", from_hex("01020304 05060708"));
  ZipEntry wrong = stored("wrong.npy", big);
  wrong.crc32 ^= 1;
  write_raw("r.npz", zip({stored("s.npy", big), deflated("d.npy", big), wrong}));
  const ArrayFile archive(folder / "r.npz");
  EXPECT_EQ(read(archive, "s"), from_hex("04030201 08070605"));
  EXPECT_EQ(read(archive, "d"), from_hex("04030201 08070605"));
  // A reader can find the bytes of a stored member without the archive.
  ASSERT_TRUE(archive.arrays()[0].data_offset);
  std::string there(8, '?');
  InputFile(folder / "r.npz")
      .read(*archive.arrays()[0].data_offset, std::as_writable_bytes(std::span(there)));
  EXPECT_EQ(there, from_hex("01020304 05060708"));
  EXPECT_EQ(archive.arrays()[1].data_offset, std::nullopt);
  EXPECT_NO_THROW(archive.check(archive.arrays()[0]));
  EXPECT_THROW(archive.check(archive.arrays()[2]), std::runtime_error);
  std::byte few[7];
  EXPECT_THROW(archive.read(archive.arrays()[0], few), std::invalid_argument);

  write_raw("r.safetensors",
            safetensors(R"({"t":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}})", from_hex("0001")));
  const ArrayFile tensors(folder / "r.safetensors");
  EXPECT_EQ(read(tensors, "t"), from_hex("0001"));
  EXPECT_EQ(tensors.arrays()[0].data_offset, std::filesystem::file_size(folder / "r.safetensors") - 2);
}

TEST_F(ArrayStream, ContentDecidesNotTheName) {
  write_raw("a.dat", npy("<f2", "(1,)", from_hex("003c")));
  EXPECT_EQ(ArrayFile(folder / "a.dat").format(), ArrayFormat::npy);
  write_raw("b.dat", zip({stored("x.npy", npy("<f2", "(1,)", from_hex("003c")))}));
  EXPECT_EQ(ArrayFile(folder / "b.dat").format(), ArrayFormat::npz);
  write_raw("c.dat", safetensors("{}", ""));
  EXPECT_EQ(ArrayFile(folder / "c.dat").format(), ArrayFormat::safetensors);
}

TEST_F(ArrayStream, ChunksJoinWithoutGapOrRepetition) {
  // 3 MiB and a bit of FP32 numbers that say their own place; stored, big-endian and deflated by zlib.
  constexpr std::uint32_t count = 3 * (1 << 18) + 77;
  std::string little, big;
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto value = static_cast<float>(i);
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, 4);
    little += little_endian(bits, 4);
    const std::string bytes = little_endian(bits, 4);
    big.append(bytes.rbegin(), bytes.rend());
  }
  const std::string shape = "(" + std::to_string(count) + ",)";
  const auto expect_places = [&](const std::string& file, const std::string& bytes, const std::string& name) {
    const std::vector<double> values = elements_of(file, bytes, name);
    ASSERT_EQ(values.size(), count);
    for (std::uint32_t i = 0; i < count; ++i) ASSERT_EQ(values[i], i);
  };
  expect_places("l.npy", npy("<f4", shape, little), "l");
  expect_places("b.npy", npy(">f4", shape, big), "b");
  const std::string content = npy("<f4", shape, little);
  ZipEntry entry = stored("w.npy", content);
  expect_places("s.npz", zip({entry}), "w");
  entry.method = 8;
  entry.data.resize(compressBound(content.size()));
  z_stream stream{};
  ASSERT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string input = content;
  stream.next_in = reinterpret_cast<Bytef*>(input.data());
  stream.avail_in = static_cast<uInt>(input.size());
  stream.next_out = reinterpret_cast<Bytef*>(entry.data.data());
  stream.avail_out = static_cast<uInt>(entry.data.size());
  ASSERT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  entry.data.resize(stream.total_out);
  deflateEnd(&stream);
  expect_places("d.npz", zip({entry}), "w");
}

/// KiB that the process needed more at its worst because of `work`.
template <class Work>
long extra_memory(const Work& work) {
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  work();
  getrusage(RUSAGE_SELF, &after);
  return after.ru_maxrss - before.ru_maxrss;
}

TEST_F(ArrayStream, LargeFilesInAFewMebibytes) {
  // Sparse files of 256 MiB: what is held does not depend on the length (the buffer is a chunk of 1 MiB).
  constexpr std::uint64_t bytes = std::uint64_t{1} << 28;
  const auto make_sparse = [&](const char* name, const std::string& header) {
    write_raw(name, header);
    std::filesystem::resize_file(folder / name, header.size() + bytes);
  };
  make_sparse("big.npy", npy("<f4", "(4096, 16384)", ""));
  const std::string tensor = R"({"w":{"dtype":"BF16","shape":[134217728],"data_offsets":[0,268435456]}})";
  make_sparse("big.safetensors", safetensors(tensor, ""));
  for (const auto& [name, count] :
       {std::pair{"big.npy", bytes / 4}, std::pair{"big.safetensors", bytes / 2}}) {
    const long extra = extra_memory([&, name = name, count = count] {
      const ArrayFile file(folder / name);
      const ValueHistogram values = count_array(file, file.arrays()[0], fp16_bins());
      EXPECT_EQ(values.zero(), count);
      EXPECT_EQ(values.finite_nonzero() + values.infinite() + values.nan(), 0u);
    });
    EXPECT_LT(extra, 8 * 1024) << name << ": KiB";
  }
}

TEST_F(ArrayStream, AThousandfoldDeflatedArchiveInAFewMebibytes) {
  // 64 MiB of zeros become 64 KiB, deflated piece by piece.
  constexpr std::uint64_t pieces = 64, piece_bytes = 1 << 20;
  const std::string header = npy("<f8", "(" + std::to_string(pieces * piece_bytes / 8) + ",)", "");
  ZipEntry entry{
      .name = "w.npy", .data = {}, .size = header.size() + pieces * piece_bytes, .crc32 = 0, .method = 8};
  std::string piece = header, out(1 << 16, '\0');
  z_stream stream{};
  ASSERT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  for (std::uint64_t i = 0; i <= pieces; ++i) {
    entry.crc32 = static_cast<std::uint32_t>(
        ::crc32(entry.crc32, reinterpret_cast<const Bytef*>(piece.data()), static_cast<uInt>(piece.size())));
    stream.next_in = reinterpret_cast<Bytef*>(piece.data());
    stream.avail_in = static_cast<uInt>(piece.size());
    do {
      stream.next_out = reinterpret_cast<Bytef*>(out.data());
      stream.avail_out = static_cast<uInt>(out.size());
      deflate(&stream, i == pieces ? Z_FINISH : Z_NO_FLUSH);
      entry.data.append(out, 0, out.size() - stream.avail_out);
    } while (stream.avail_out == 0);
    piece.assign(piece_bytes, '\0');
  }
  deflateEnd(&stream);
  write_raw("z.npz", zip({entry}));
  const long extra = extra_memory([&] {
    const ArrayFile file(folder / "z.npz");
    EXPECT_EQ(count_array(file, file.arrays()[0], fp16_bins()).zero(), pieces * piece_bytes / 8);
  });
  EXPECT_LT(extra, 8 * 1024) << "KiB";
}

}  // namespace
}  // namespace fp16lab
