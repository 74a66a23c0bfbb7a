// Damaged dumps: each is one error that names the file, the byte and the reason.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "numerics/files/arrays/array_values.hpp"
#include "numerics/files/disk/atomic_file.hpp"
#include "tests/numerics/files/files_fixture.hpp"
#include "tests/support/array_files.hpp"
#include "tests/support/message_of.hpp"

namespace fp16lab {
namespace {

using namespace testing_support;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string two_numbers = from_hex("0000803f 00000040");
const std::string good_npy = npy("<f4", "(2,)", two_numbers);  // 136 bytes: a header of 128, then the data

struct Damage {
  std::string bytes;
  std::string error;  ///< after "PATH: "
};

std::string changed(std::string bytes, std::size_t offset, const std::string& replacement) {
  return bytes.replace(offset, replacement.size(), replacement);
}

class ArrayDamage : public Files {
 protected:
  /// Opens the file and counts everything in it.
  void read_all(const std::string& name) const {
    const ArrayFile file(folder / name);
    for (const ArrayInfo& array : file.arrays())
      if (array.type)
        (void)count_array(file, array, std::make_shared<const ValueBins>(std::span<const ScaledFormat>()));
  }
  void expect_errors(const std::string& name, const std::vector<Damage>& rows) const {
    for (const Damage& row : rows) {
      std::filesystem::remove(folder / name);
      write_raw(name, row.bytes);
      EXPECT_EQ(message_of([&] { read_all(name); }), (folder / name).string() + ": " + row.error);
    }
  }
};

TEST_F(ArrayDamage, Npy) {
  const auto header = [](const std::string& dict) { return npy_header(dict) + two_numbers; };
  const auto shape = [](const std::string& text) { return npy("<f4", text, two_numbers); };
  expect_errors(
      "x.npy",
      {{"", "byte 0: the data end in the magic string of a .npy header"},
       {"\x93NUM", "byte 4: the data end in the magic string of a .npy header"},
       {"PK\3\4 and more", "byte 0: bad magic 50 4b 03 04 20 61, expected 93 4e 55 4d 50 59 (.npy)"},
       {"\x93NUMPY\1", "byte 7: the data end in the version of a .npy header"},
       {"\x93NUMPY\1" + std::string(1, '\0') + "v", "byte 9: the data end in the length of a .npy header"},
       {changed(good_npy, 6, "\4"), "byte 6: version 4.0 of .npy; known are 1.0, 2.0 and 3.0"},
       {changed(good_npy, 7, "\1"), "byte 6: version 1.1 of .npy; known are 1.0, 2.0 and 3.0"},
       {changed(good_npy, 8, "\xff\xff"), "byte 8: a header of 65535 bytes, but only 126 follow"},
       {changed(changed(good_npy, 6, "\2"), 8, "\xff\xff\xff\xff"),
        "byte 8: a header of 4294967295 bytes, but only 124 follow"},
       {good_npy.substr(0, 100), "byte 8: a header of 118 bytes, but only 90 follow"},
       {changed(good_npy, 127, " "), "byte 127: the header does not end with a newline"},
       {"\x93NUMPY" + little_endian(1, 2) + little_endian(0, 2),
        "byte 10: the header does not end with a newline"},
       {good_npy.substr(0, 135), "byte 135: the data end here, after 7 of the 8 bytes of <f4 (2,)"},
       {good_npy.substr(0, 128), "byte 128: the data end here, after 0 of the 8 bytes of <f4 (2,)"},
       {good_npy + good_npy, "byte 136: 136 bytes after the 8 bytes of <f4 (2,); one file holds one array"},
       {shape("(3,)"), "byte 136: the data end here, after 8 of the 12 bytes of <f4 (3,)"},
       {shape("(4611686018427387904,)"),
        "byte 10: shape (4611686018427387904) of '<f4' has 2^64 bytes or more"},
       {shape("(4294967296, 4294967296)"),
        "byte 10: shape (4294967296, 4294967296) of '<f4' has 2^64 bytes or more"},
       {shape("(1000000000000000000,)"),
        "byte 136: the data end here, after 8 of the 4000000000000000000 bytes of <f4 "
        "(1000000000000000000,)"},
       {shape("(18446744073709551616,)"), "byte 61: shape: an extent of 2^64 or more"},
       {shape("(-2,)"), "byte 61: shape: expected a whole number, found '-'"},
       {shape("(2)"), "byte 63: shape: (N) is no tuple, expected (N,)"},
       {shape("[2]"), "byte 60: shape: expected a tuple, found '['"},
       {shape("(2 2)"), "byte 63: shape: expected ',' or ')', found '2'"},
       {header("{'descr': '<f4', 'fortran_order': False}"), "byte 50: the header has no 'shape'"},
       {header("{'descr': '<f4', 'shape': (2,)}"), "byte 41: the header has no 'fortran_order'"},
       {header("{'fortran_order': False, 'shape': (2,)}"), "byte 49: the header has no 'descr'"},
       {header("{'descr': '<f4', 'descr': '<f4'}"), "byte 27: the key 'descr' occurs twice"},
       {header("{'descr': '<f4', 'order': 1}"),
        "byte 27: unknown key 'order'; expected descr, fortran_order and shape"},
       {header("{'fortran_order': 1}"), "byte 28: fortran_order: expected True or False, found '1'"},
       {header("{'descr': 4}"), "byte 20: expected a string in the header, found '4'"},
       {header("{'descr': ''}"), "byte 20: descr is empty, expected a type such as '<f4'"},
       {header("{'descr': '<'}"), "byte 20: descr '<' names no type; expected one such as '<f4'"},
       {header("{'descr': '<f99999999999999999999'}"),
        "byte 20: descr '<f99999999999999999999': elements of 2^64 bytes or more"},
       {header("{'descr': '<f4"), "byte 20: a string that does not end"},
       {header("{'descr': '\\x3c'}"), "byte 20: a string with a backslash"},
       {header("{'descr': [('a', '<f4')"), "byte 20: descr: a list that does not end"},
       {header("['descr']"), "byte 10: expected '{' in the header, found '['"},
       {header("{'descr' '<f4'}"), "byte 19: expected ':' in the header, found '''"},
       {header("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} x"),
        "byte 66: text after the header's '}'"},
       {header("{\x1b[31m"), "byte 11: expected a string in the header, found '\\x1b'"}});
}

TEST_F(ArrayDamage, NpyTypesThatAreNotCounted) {
  const auto refusal = [&](const std::string& descr, const std::string& data) {
    write_raw("t.npy", npy(descr, "(1,)", data));
    const ArrayFile file(folder / "t.npy");
    EXPECT_EQ(file.arrays()[0].type, std::nullopt) << descr;
    return file.arrays()[0].refusal;
  };
  EXPECT_EQ(refusal("<i4", "1234"), "integers");
  EXPECT_EQ(refusal("|u1", "1"), "integers");
  EXPECT_EQ(refusal("|b1", "1"), "booleans");
  EXPECT_THAT(refusal("<c8", "12345678"), HasSubstr("complex"));
  EXPECT_THAT(refusal("<f16", "1234567812345678"), HasSubstr("of 2, 4 and 8 bytes"));
  EXPECT_THAT(refusal("|V2", "12"), HasSubstr("numpy has no BF16"));
  EXPECT_THAT(refusal("|O", "a pickle of any length"), HasSubstr("never loaded"));
  EXPECT_EQ(refusal("<U2", "12345678"), "text");
  EXPECT_EQ(refusal("<M8[ns]", "12345678"), "times");
  EXPECT_EQ(refusal("f4", "1234"), "its type has no byte order");
  EXPECT_EQ(refusal("|f4", "1234"), "its type has no byte order");
  write_raw(
      "s.npy",
      npy_header("{'descr': [('a', '<f4'), ('b)', '<i4', (2,))], 'fortran_order': False, 'shape': (1,)}") +
          "123456789012");
  EXPECT_EQ(ArrayFile(folder / "s.npy").arrays()[0].refusal, "a structured type");
  // Their length is checked where it is known.
  write_raw("t.npy", npy("<i8", "(2,)", "12345678"));
  EXPECT_THAT(message_of([&] { ArrayFile file(folder / "t.npy"); }),
              HasSubstr("byte 136: the data end here, after 8 of the 16 bytes of <i8 (2,)"));
}

TEST_F(ArrayDamage, Npz) {
  // Offsets: local header 0, name 30, data 35, central directory 171 (its sizes at +20, local offset at +42),
  // end 222.
  const std::string good = zip({stored("w.npy", good_npy)});
  ASSERT_EQ(good.size(), 244u);
  const auto deflated_with = [](const std::string& data) {
    ZipEntry entry = deflated("w.npy", good_npy);
    entry.data = data;
    return zip({entry});
  };
  const std::string stream = deflated_in_stored_blocks(good_npy);
  ZipEntry wrong_crc = stored("w.npy", good_npy), wrong_descriptor = wrong_crc, many = wrong_crc,
           cryptic = wrong_crc;
  wrong_crc.crc32 ^= 1;
  wrong_descriptor.flags = 8;
  cryptic.flags = 1;
  ZipEntry bzip = stored("w.npy", good_npy);
  bzip.method = 12;
  ZipEntry bomb = deflated("w.npy", good_npy);
  bomb.size = 1'000'000'000;
  ZipEntry inner = stored("w.npy", npy("<f4", "(3,)", two_numbers)),
           inner_deflated = deflated("w.npy", inner.data);
  ZipEntry zip64 = stored("w.npy", good_npy);
  zip64.zip64 = true;
  const std::string good64 =
      zip({stored("w.npy", good_npy)}, true);  // 222: ZIP64 end, 278: locator, 298: end
  // A member inside of another one's data: the second entry of the directory leads to byte 35.
  const std::string inside = zip({stored("v.npy", good_npy)}).substr(0, 171);
  const std::string nested = zip({stored("w.bin", inside), stored("v.npy", good_npy)});
  const std::size_t second_entry = nested.rfind("PK\1\2");
  const std::string overlapping = changed(nested, second_entry + 42, little_endian(35, 4));
  expect_errors(
      "x.npz",
      {{"", "byte 0: the file begins with nothing, expected 50 4b 03 04 (.npz, a ZIP archive)"},
       {"Rar!....",
        "byte 0: the file begins with 52 61 72 21 2e 2e 2e 2e, expected 50 4b 03 04 (.npz, a ZIP archive)"},
       {"PK\3\4",
        "byte 0: no end record of a ZIP archive from here to the end; the file is cut off or of another "
        "format"},
       {good.substr(0, 243),
        "byte 0: no end record of a ZIP archive from here to the end; the file is cut off or of another "
        "format"},
       {good + "x",
        "byte 0: no end record of a ZIP archive from here to the end; the file is cut off or of another "
        "format"},
       {changed(good, 226, "\1"), "byte 226: an archive of several parts, which is not read"},
       {changed(good, 230, "\2"), "byte 226: an archive of several parts, which is not read"},
       {changed(good, 230, little_endian(2, 2) + little_endian(2, 2)),
        "byte 222: 2 members in a central directory of 51 bytes, which has room for 1"},
       {changed(good, 230, little_endian(0, 4)),
        "byte 171: 51 bytes after the 0 members of the central directory"},
       {changed(good, 234, "\x34"),
        "byte 222: the central directory is said to have 52 bytes at byte 171, but ends at byte 222"},
       {changed(good, 238, "\xff\xff\xff\x7f"),
        "byte 222: the central directory is said to have 51 bytes at byte 2147483647, but ends at byte 222"},
       {changed(good, 171, "QK"),
        "byte 171: no entry of the central directory here, where member 1 of 1 should be"},
       {changed(good, 171 + 28, "\xff\xff"), "byte 199: an entry that reaches beyond the central directory"},
       {changed(good, 171 + 46 + 1, std::string(1, '\0')),
        "byte 217: member 'w\\x00npy': a zero byte in the name"},
       {changed(good, 171 + 42, "\xff\xff"),
        "byte 65535: member 'w.npy': its local header is not before the central directory, which is at byte "
        "171"},
       {changed(good, 171 + 42, "\1"),
        "byte 1: member 'w.npy': no local header here, where the central directory has it"},
       {changed(good, 171 + 42, "\xff\xff\xff\xff"),
        "byte 201: member 'w.npy': its ZIP64 extra field is missing or damaged"},
       {changed(good, 26, "\xff\xff"), "byte 26: member 'w.npy': its local header does not end"},
       {changed(good, 30, "v"), "byte 30: member 'w.npy': another name in its local header"},
       {changed(good, 8, "\x8"),
        "byte 8: member 'w.npy': compression method 8 in its local header, 0 in the central directory"},
       {changed(good, 14, "x"),
        "byte 14: member 'w.npy': CRC-32 e7abca78, 136 bytes of 136 in its local header; e7abca9a, 136 of "
        "136 in the "
        "central directory"},
       {changed(good, 171 + 20, little_endian(135, 4) + little_endian(135, 4)),
        "byte 14: member 'w.npy': CRC-32 e7abca9a, 136 bytes of 136 in its local header; e7abca9a, 135 of "
        "135 in the "
        "central directory"},
       {changed(good, 171 + 24, little_endian(135, 4)),
        "byte 191: member 'w.npy': stored, but 135 bytes of content in 136"},
       {changed(good, 171 + 20, little_endian(1000, 4) + little_endian(1000, 4)),
        "byte 35: member 'w.npy': its 1000 bytes do not end before the central directory, which is at byte "
        "171"},
       {zip({wrong_crc}),
        "byte 171: member 'w.npy': the content has CRC-32 e7abca9a, expected e7abca9b; it is damaged"},
       {changed(zip({wrong_descriptor}), 35 + 136 + 4, "x"),
        "byte 171: member 'w.npy': no data descriptor here that agrees with the central directory"},
       {zip({cryptic}), "byte 35: member 'w.npy': encrypted members are not read"},
       {zip({bzip}),
        "byte 35: member 'w.npy': compression method 12 (bzip2); stored (0) and deflated (8) are read"},
       {zip({bomb}), "byte 196: member 'w.npy': 1000000000 bytes of content cannot be deflated to 141"},
       {zip({stored("w.npy", good_npy), stored("w.npy", good_npy)}),
        "byte 393: member 'w.npy': the name occurs twice"},
       {overlapping, "byte 35: member 'v.npy' begins before member 'w.bin' ends, at byte 206"},
       {zip({inner}), "byte 171: member 'w.npy': the data end here, after 8 of the 12 bytes of <f4 (3,)"},
       {zip({inner_deflated}),
        "byte 35: member 'w.npy': byte 136 of its inflated content: the data end here, after 8 of the 12 "
        "bytes of <f4 (3,)"},
       {deflated_with(stream.substr(0, 100)),
        "byte 135: member 'w.npy': its 100 bytes end in the middle of the deflated data"},
       {deflated_with("\7" + stream.substr(1)),
        "byte 36: member 'w.npy': damaged deflated data (invalid block type)"},
       {deflated_with(stream + "xy"), "byte 176: member 'w.npy': 2 bytes after the end of its deflated data"},
       {deflated_with(deflated_in_stored_blocks(good_npy + "x")),
        "byte 177: member 'w.npy': more than its 136 bytes of content"},
       {deflated_with(deflated_in_stored_blocks(good_npy.substr(0, 130))),
        "byte 170: member 'w.npy': the deflated data end after 130 bytes of content, expected 136"},
       {changed(good64, 278 + 8, little_endian(300, 8)),
        "byte 286: the ZIP64 end record is said to be at byte 300, which is not before this"},
       {changed(good64, 222, "QK"), "byte 222: no ZIP64 end record where the locator has it"},
       {changed(good64, 222 + 16, "\1"), "byte 238: an archive of several parts, which is not read"},
       {changed(good64, 222 + 48, little_endian(1, 8)),
        "byte 298: the central directory is said to have 51 bytes at byte 1, but ends at byte 222"},
       {changed(good64, 278, "QK"),
        "byte 298: the central directory is said to have 4294967295 bytes at byte 4294967295, but ends at "
        "byte 298"}});
}

TEST_F(ArrayDamage, Safetensors) {
  const auto with = [](const std::string& header) { return safetensors(header, "12345678"); };
  expect_errors(
      "x.safetensors",
      {{"1234", "4 bytes, expected the 8-byte length of a safetensors header"},
       {little_endian(100, 8) + "{}",
        "byte 0: a header of 100 bytes in a file of 10; the file is cut off or of another format"},
       {little_endian(1ull << 60, 8) + "{}",
        "byte 0: a header of 1152921504606846976 bytes, but safetensors allows 100000000; is it another "
        "format?"},
       {with("[]"), "byte 8: the header does not begin with '{'; is it another format?"},
       {with("{\"w\""), "the header is not valid JSON at its byte 5"},
       {with(R"({"w":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}})"),
        "tensor 'w': data_offsets [0, 12] reach beyond the file's 8 data bytes; the file is cut off or "
        "damaged"},
       {with(
            R"({"v":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})"),
        "tensor 'w': data begin at 4, expected 8, the end of the tensor before it (they overlap)"},
       {with(R"({"w":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,8]}})"),
        "tensor 'w': F32 (4611686018427387904) has more than 2^64 bytes"},
       {with(R"({"w":{"dtype":"F4","shape":[14],"data_offsets":[0,8]}})"),
        "tensor 'w': data_offsets [0, 8] are 8 bytes, but F4 (14) needs 7"},
       {with(R"({"w":{"dtype":"F4","shape":[4611686018427387904, 4],"data_offsets":[0,8]}})"),
        "tensor 'w': F4 (4611686018427387904, 4) has more than 2^64 bytes"},
       {with(
            R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})"),
        "tensor 'w' occurs twice"}});
}

TEST_F(ArrayDamage, OtherFilesAndNoFiles) {
  expect_errors("x.bin", {{"something else",
                           "byte 0: the file begins with 73 6f 6d 65 74 68 69 6e, expected .npy, .npz or "
                           ".safetensors"}});
  EXPECT_EQ(message_of([&] { read_all("absent.npy"); }),
            (folder / "absent.npy").string() + ": cannot read: No such file or directory");
  EXPECT_EQ(message_of([&] { ArrayFile file(folder); }), folder.string() + ": not a regular file");
  ASSERT_EQ(::mkfifo((folder / "pipe.npy").c_str(), 0600), 0);
  EXPECT_EQ(message_of([&] { read_all("pipe.npy"); }),
            (folder / "pipe.npy").string() + ": not a regular file");
}

/// Every single-bit change of a small file is read or refused; refusals are one line that begins with the
/// path.
void flip_every_bit(const std::filesystem::path& path, const std::string& good,
                    const std::function<void()>& read, int& accepted, int& refused) {
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string bytes = good;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    std::filesystem::remove(path);  // replacing a file's content may wait for the disk, a new file does not
    std::ofstream(path, std::ios::binary) << bytes;
    try {
      read();
      ++accepted;
    } catch (const std::runtime_error& error) {
      ++refused;
      ASSERT_THAT(error.what(), StartsWith(path.string() + ": "));
      ASSERT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    }
  }
}

TEST_F(ArrayDamage, NoFlippedBitOfAnArchivesContentGoesUnseen) {
  // Free to change: times, versions and attributes, which mean nothing here. The content is under its CRC-32.
  for (const bool deflate : {false, true}) {
    const ZipEntry entry = deflate ? deflated("w.npy", good_npy) : stored("w.npy", good_npy);
    const std::string good = zip({entry});
    int accepted = 0, refused = 0;
    flip_every_bit(
        folder / "x.npz", good, [&] { read_all("x.npz"); }, accepted, refused);
    // 4 + 2 + 2 bytes of version, times; 15 of the 16 flags; in the directory also version, disk, attributes,
    // and the flag of the local descriptor is refused. The magic of the first bytes decides about the format.
    EXPECT_GE(refused, static_cast<int>(8 * (entry.data.size() + 46)));
    EXPECT_GT(accepted, 0);
  }
}

TEST_F(ArrayDamage, EveryPrefixIsRefused) {
  const std::string header = R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  for (const auto& [name, good] : {std::pair<std::string, std::string>{"x.npy", good_npy},
                                   {"x.npz", zip({deflated("w.npy", good_npy)}, true)},
                                   {"x.safetensors", safetensors(header, two_numbers)}})
    for (std::size_t length = 0; length < good.size(); ++length) {
      std::filesystem::remove(folder / name);
      write_raw(name, good.substr(0, length));
      EXPECT_THAT(message_of([&, name = name] { read_all(name); }),
                  StartsWith((folder / name).string() + ": "))
          << length;
    }
}

TEST_F(ArrayDamage, ClaimsCostNoMemory) {
  // A header that promises 4 GiB, in a sparse file that has them; an archive that promises 2^60 bytes.
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  write_raw("h.npy", "\x93NUMPY" + little_endian(2, 2) + little_endian(0xf0000000, 4));
  std::filesystem::resize_file(folder / "h.npy", std::uint64_t{1} << 32);
  EXPECT_THAT(message_of([&] { read_all("h.npy"); }),
              HasSubstr("byte 8: a header of 4026531840 bytes; at most 1048576 are read"));
  ZipEntry entry = stored("w.npy", good_npy);
  entry.size = std::uint64_t{1} << 60;
  entry.zip64 = true;
  write_raw("z.npz", zip({entry}, true));
  EXPECT_THAT(message_of([&] { read_all("z.npz"); }),
              HasSubstr("1152921504606846976 bytes of content in 136"));
  getrusage(RUSAGE_SELF, &after);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 4 * 1024) << "KiB";
}

}  // namespace
}  // namespace fp16lab
