// Data sets of users (engine/data/arrays.hpp): files typed byte by byte, good and bad.
#include "engine/data/arrays.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "engine/backend/emulated/emulated_backend.hpp"
#include "engine/data/loader.hpp"
#include "numerics/files/disk/sha256.hpp"
#include "tests/support/array_files.hpp"
#include "tests/support/idx_files.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/temporary_folder.hpp"

namespace fp16lab::engine::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using namespace testing_support;

/// `count` elements of `size` bytes: `value(i)`, lowest byte first.
std::string integers(std::size_t count, int size, const std::function<std::int64_t(std::size_t)>& value) {
  std::string bytes;
  for (std::size_t i = 0; i < count; ++i) bytes += little_endian(static_cast<std::uint64_t>(value(i)), size);
  return bytes;
}

class Arrays : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& bytes) const { write_bytes(folder_ / name, bytes); }

  /// 8 + 4 grey images of 2 x 3 bytes with classes 0 to 3, in the four files that are looked for by default.
  void write_images() const {
    write("x_train.npy", npy("|u1", "(8, 2, 3)", integers(48, 1, [](std::size_t i) { return i; })));
    write("y_train.npy", npy("<i8", "(8,)", integers(8, 8, [](std::size_t i) { return i % 3; })));
    write("x_test.npy", npy("|u1", "(4, 2, 3)", integers(24, 1, [](std::size_t i) { return 100 + i; })));
    write("y_test.npy", npy("|u1", "(4,)", std::string("\0\1\2\3", 4)));
  }
  /// One file of inputs and targets, of which a part is tested with.
  ArraysOptions with_split(const std::string& file, double test_size = 2) const {
    return {.path = folder_ / file, .train = {"x", "y"}, .test_size = test_size};
  }
  ArraysOptions by_default() const {
    return {.path = folder_, .train = {"x_train", "y_train"}, .test = {"x_test", "y_test"}};
  }
  std::string error_of(const ArraysOptions& options) const {
    const std::string message = message_of([&] { load_arrays(options); });
    EXPECT_EQ(message.find('\n'), std::string::npos);
    return message;
  }

  TemporaryFolder temporary_;
  const std::filesystem::path& folder_ = temporary_.path();
};

std::vector<std::int64_t> integers_of(const ExampleArray& array, std::uint32_t row) {
  std::vector<std::byte> buffer;
  std::vector<std::int64_t> values(static_cast<std::size_t>(array.elements()));
  to_integers(array.type(), array.example(row, buffer), values);
  return values;
}
std::vector<float> floats_of(const ExampleArray& array, std::uint32_t row) {
  std::vector<std::byte> buffer;
  std::vector<float> values(static_cast<std::size_t>(array.elements()));
  to_floats(array.type(), array.example(row, buffer), values);
  return values;
}

TEST_F(Arrays, FourFilesOfAFolder) {
  write_images();
  const SplitDataset data = load_arrays(by_default());
  EXPECT_EQ(data.training.count(), 8);
  EXPECT_EQ(data.test.count(), 4);
  EXPECT_EQ(image_size(data.training).channels, 1) << "two axes of bytes are a grey image";
  EXPECT_EQ(image_size(data.training).height, 2);
  EXPECT_EQ(image_size(data.training).width, 3);
  EXPECT_EQ(data.training.classes, 4) << "class 3 is in the test set alone";
  EXPECT_EQ(data.test.classes, 4);
  EXPECT_THAT(integers_of(data.training.inputs, 7), ElementsAre(42, 43, 44, 45, 46, 47));
  EXPECT_THAT(integers_of(data.test.inputs, 0), ElementsAre(100, 101, 102, 103, 104, 105));
  EXPECT_THAT(integers_of(data.training.targets, 5), ElementsAre(2));
  ASSERT_EQ(data.training.files.size(), 4u);
  EXPECT_EQ(data.training.files[1].path, folder_ / "y_train.npy");
  EXPECT_EQ(data.training.files[1].sha256, sha256_of_file(folder_ / "y_train.npy"));
}

TEST_F(Arrays, NamesAreOfArraysFilesOrBoth) {
  const std::string x = npy("<f4", "(2, 1)", from_hex("0000803f 00000040")),
                    y = npy("<i4", "(2,)", from_hex("01000000 00000000"));
  write("all.npz", zip({stored("x.npy", x), deflated("y.npy", y), stored("readme.txt", "text")}));
  write("one.npz", zip({deflated("anything.npy", x)}));
  write("y.npy", y);
  for (const auto& [path, train] : {std::pair<std::string, std::vector<std::string>>{"all.npz", {"x", "y"}},
                                    {"", {"all.npz:x", "y"}},
                                    {"", {"one.npz", "y.npy"}},
                                    {"", {(folder_ / "one.npz").string() + ":anything", "all.npz:y"}}}) {
    const SplitDataset data = load_arrays({.path = folder_ / path, .train = train, .test_size = 1});
    EXPECT_THAT(floats_of(data.training.inputs, 1), ElementsAre(2.0f)) << train[0];
    EXPECT_THAT(integers_of(data.training.targets, 0), ElementsAre(1)) << train[1];
    EXPECT_EQ(data.training.classes, 2);
  }
  EXPECT_THAT(error_of(with_split("none.npz")),
              HasSubstr("there is no such file or folder; point data.path"));
  EXPECT_THAT(
      error_of({.path = folder_, .train = {"x", "y"}, .test_size = 1}),
      HasSubstr("there is no file 'x' or 'x.npy' in this folder; name files, or FILE:ARRAY, in data.train"));
  EXPECT_THAT(error_of({.path = folder_ / "all.npz", .train = {"z", "y"}, .test_size = 1}),
              HasSubstr("all.npz: there is no array 'z'; it holds 'x', 'y'; name one in data.train"));
  EXPECT_THAT(error_of({.path = folder_, .train = {"all.npz", "y"}, .test_size = 1}),
              HasSubstr("which of its arrays? (FILE:ARRAY); it holds 'x', 'y'"));
  EXPECT_THAT(error_of({.path = folder_ / "all.npz", .train = {"x", "y"}, .test = {"x_test", "y_test"}}),
              AllOf(HasSubstr("no array 'x_test'"), HasSubstr("with data.test_size")));
  EXPECT_THAT(error_of({.path = folder_, .train = {"x"}, .test_size = 1}),
              HasSubstr("data.train = [x]: expected two arrays, the inputs and the targets"));
}

TEST_F(Arrays, EveryFormatGivesTheSameNumbers) {
  // 1.5, -2, 65504, 0 as two examples of two features.
  write("f4.npz",
        zip({stored("x.npy", npy("<f4", "(2, 2)", from_hex("0000c03f 000000c0 00e07f47 00000000")))}));
  write("f2-deflated.npz", zip({deflated("x.npy", npy(">f2", "(2, 2)", from_hex("3e00 c000 7bff 0000")))}));
  write("f8-big.npz", zip({stored("x.npy", npy(">f8", "(2, 2)",
                                               from_hex("3ff8000000000000 c000000000000000 40effc0000000000 "
                                                        "0000000000000000")))}));
  write("i4-big.npz",
        zip({stored("x.npy", npy(">i4", "(2, 2)", from_hex("00000001 fffffffe 0000ffe0 00000000")))}));
  write("bf16.safetensors", safetensors(R"({"x":{"dtype":"BF16","shape":[2,2],"data_offsets":[0,8]}})",
                                        from_hex("c03f 00c0 8047 0000")));
  for (const char* const name :
       {"f4.npz", "f2-deflated.npz", "f8-big.npz", "i4-big.npz", "bf16.safetensors"}) {
    const SplitDataset data = load_arrays({.path = folder_ / name,
                                           .train = {"x"},
                                           .test_size = 1,
                                           .kind = ExampleKind::features,
                                           .targets = false});
    const std::string_view file(name);
    const float first = file.starts_with("i4") ? 1.0f : 1.5f,
                third = file.starts_with("bf") ? 65536.0f : 65504.0f;
    EXPECT_THAT(floats_of(data.training.inputs, 0), ElementsAre(first, -2.0f)) << name;
    EXPECT_THAT(floats_of(data.training.inputs, 1), ElementsAre(third, 0.0f)) << name;
    EXPECT_EQ(data.training.targets.count(), 0);
  }
}

TEST_F(Arrays, IdxFilesOfAnyNameAndRank) {
  write("letters.gz", gzipped(idx_bytes({3, 2, 2}, "abcdefghijkl")));
  write("answers", idx_bytes({3}, std::string("\0\5\2", 3)));
  const SplitDataset data =
      load_arrays({.path = folder_, .train = {"letters.gz", "answers"}, .test_size = 1, .test_seed = 0});
  EXPECT_EQ(data.training.count(), 2);
  EXPECT_TRUE(data.training.images.has_value());
  EXPECT_EQ(data.training.classes, 6);
  EXPECT_THAT(integers_of(data.test.inputs, data.test.row(0)), ElementsAre('i', 'j', 'k', 'l'));
  EXPECT_THAT(error_of({.path = folder_, .train = {"letters.gz:x", "answers"}, .test_size = 1}),
              HasSubstr("an IDX file holds one array without a name"));
  EXPECT_THAT(error_of({.path = folder_ / "answers", .train = {"x", "y"}, .test_size = 1}),
              HasSubstr("point data.path at its folder"));
}

TEST_F(Arrays, WhatAnExampleIsFollowsFromTypeAndAxesOrIsSaid) {
  const auto kind_of = [&](const std::string& descr, const std::string& shape, int bytes,
                           ExampleKind kind = ExampleKind::automatic) -> std::string {
    write("k.npz",
          zip({stored("x.npy", npy(descr, shape, std::string(static_cast<std::size_t>(bytes), '\0')))}));
    try {
      const SplitDataset data = load_arrays(
          {.path = folder_ / "k.npz", .train = {"x"}, .test_size = 1, .kind = kind, .targets = false});
      if (data.training.vocabulary > 0) return "tokens";
      if (!data.training.images) return "features";
      const ImageSize image = image_size(data.training);
      return std::string(*data.training.images == Layout::nchw ? "nchw " : "nhwc ") +
             std::to_string(image.channels) + " " + std::to_string(image.height) + " " +
             std::to_string(image.width);
    } catch (const std::runtime_error& error) {
      return error.what();
    }
  };
  EXPECT_EQ(kind_of("|u1", "(2, 3, 8, 5)", 240), "nchw 3 8 5");
  EXPECT_EQ(kind_of("<f4", "(2, 8, 5, 3)", 960), "nhwc 3 8 5");
  EXPECT_EQ(kind_of("|u1", "(2, 8, 5)", 80), "nchw 1 8 5");
  EXPECT_EQ(kind_of("<f4", "(2, 8, 5)", 320), "features") << "a sequence of 8 with 5 features";
  EXPECT_EQ(kind_of("<f4", "(2, 8, 5)", 320, ExampleKind::nhwc), "nhwc 1 8 5");
  EXPECT_EQ(kind_of("<f4", "(2, 40)", 320), "features");
  EXPECT_EQ(kind_of("|u1", "(2, 40)", 80), "features");
  EXPECT_EQ(kind_of("<f4", "(2,)", 8), "features");
  EXPECT_EQ(kind_of("<i2", "(2, 8)", 32), "tokens");
  EXPECT_EQ(kind_of("<i2", "(2, 8)", 32, ExampleKind::features), "features");
  EXPECT_EQ(kind_of("|u1", "(2, 8)", 16, ExampleKind::tokens), "tokens");
  EXPECT_EQ(kind_of("<i4", "(2, 3, 2, 2)", 96, ExampleKind::nchw), "nchw 3 2 2");
  EXPECT_THAT(kind_of("<f4", "(2, 16, 7, 7)", 6272),
              AllOf(HasSubstr("array 'x': f32 (2, 16, 7, 7)"), HasSubstr("state it in data.layout")));
  EXPECT_EQ(kind_of("<f4", "(2, 16, 7, 7)", 6272, ExampleKind::nchw), "nchw 16 7 7");
  EXPECT_THAT(kind_of("|u1", "(2, 3, 8, 3)", 144), HasSubstr("state it in data.layout"));
  EXPECT_THAT(
      kind_of("<f4", "(2, 8)", 64, ExampleKind::nchw),
      HasSubstr("f32 (2, 8): expected images, (N, C, H, W) or (N, H, W), for data.layout = \"nchw\""));
  EXPECT_THAT(kind_of("<f4", "(2, 8)", 64, ExampleKind::tokens), HasSubstr("tokens are integers"));
}

TEST_F(Arrays, TokensAndTheirTargets) {
  write("t.npz",
        zip({stored("x.npy", npy("<i4", "(4, 3)", integers(12, 4, [](std::size_t i) { return i; }))),
             stored("y.npy", npy("<i4", "(4, 3)", integers(12, 4, [](std::size_t i) { return i % 5; })))}));
  const SplitDataset data = load_arrays(with_split("t.npz"));
  EXPECT_EQ(data.training.vocabulary, 12);
  EXPECT_EQ(data.test.vocabulary, 12) << "of both parts";
  EXPECT_EQ(data.training.classes, 5);
  EXPECT_EQ(data.training.targets.elements(), 3);

  write("t.npz",
        zip({stored("x.npy",
                    npy("<i8", "(4, 3)",
                        integers(12, 8, [](std::size_t i) { return 3 - static_cast<std::int64_t>(i); }))),
             stored("y.npy", npy("<i4", "(4,)", std::string(16, '\0')))}));
  EXPECT_THAT(
      error_of(with_split("t.npz")),
      HasSubstr("t.npz: array 'x': element 4, of example 1, is -1: expected a token from 0 to 2147483646"));
}

TEST_F(Arrays, TargetsAreClassesOrNumbers) {
  const auto options = [&](const std::string& descr, const std::string& shape, const std::string& bytes) {
    write("y.npz", zip({stored("x.npy", npy("<f4", "(4, 1)", std::string(16, '\0'))),
                        stored("y.npy", npy(descr, shape, bytes))}));
    return with_split("y.npz");
  };
  ArraysOptions labels = options("<i4", "(4, 1)", from_hex("00000000 02000000 07000000 01000000"));
  EXPECT_EQ(load_arrays(labels).training.classes, 8);
  labels.classes = 10;
  EXPECT_EQ(load_arrays(labels).training.classes, 10);
  labels.classes = 7;
  EXPECT_THAT(error_of(labels),
              HasSubstr("array 'y': element 2, of example 2, is 7: expected a class from 0 to 6"));
  EXPECT_THAT(error_of(options("<i4", "(4,)", from_hex("00000000 02000000 ffffffff 01000000"))),
              HasSubstr("array 'y': element 2, of example 2, is -1: expected a class from 0"));
  EXPECT_THAT(error_of(options("<u8", "(4,)", std::string(32, '\xff'))), HasSubstr("is 9223372036854775807"));
  EXPECT_THAT(
      error_of(options("<f4", "(4,)", std::string(16, '\0'))),
      HasSubstr("f32 (4,): cross_entropy expects integers, the classes, or soft labels, a probability for "
                "each of two or more classes, (4, classes)"));
  ArraysOptions numbers = options("<f4", "(4, 2)", std::string(32, '\0'));
  numbers.classes_expected = false;
  EXPECT_EQ(load_arrays(numbers).training.classes, 0);
  EXPECT_EQ(load_arrays(numbers).training.targets.elements(), 2);
  EXPECT_THAT(
      error_of(options("<i4", "(3,)", std::string(12, '\0'))),
      AllOf(HasSubstr("i32 (3,): expected 4 targets, one for each example of"), HasSubstr("array 'x'")));
}

TEST_F(Arrays, SoftLabelsAreAProbabilityForEachClass) {
  const auto options = [&](const std::string& descr, const std::string& shape, const std::string& bytes) {
    write("p.npz", zip({stored("x.npy", npy("<f4", "(4, 1)", std::string(16, '\0'))),
                        stored("y.npy", npy(descr, shape, bytes))}));
    return with_split("p.npz");
  };
  // Four rows of three halves: 1 0 0, 0.5 0.25 0.25, zeros, 2 0 0: they need not add up to 1.
  const std::string halves = from_hex("003c 0000 0000 0038 0034 0034 0000 0000 0000 0040 0000 0000");
  ArraysOptions soft = options("<f2", "(4, 3)", halves);
  soft.test_seed = 0;
  const SplitDataset data = load_arrays(soft);
  EXPECT_TRUE(data.training.soft && data.test.soft);
  EXPECT_EQ(data.training.classes, 3);
  EXPECT_EQ(data.training.answers(), 1);
  const auto backend = make_emulated_backend(tensor_core_model("hopper"), 1);
  const Normalisation none;
  Loader loader(data.training, none, {.batch_size = 2, .shuffle = false});
  EXPECT_EQ(loader.rows_per_batch(), 2);
  for (const std::uint64_t index : {0, 1}) {  // an epoch has one batch
    const Tensor targets = loader.batch(*backend, index).targets;
    ASSERT_EQ(targets.shape(), (Shape{2, 3}));
    std::vector<float> values(6);
    backend->download(targets, std::as_writable_bytes(std::span(values)));
    EXPECT_THAT(values, ElementsAre(1.0f, 0.0f, 0.0f, 0.5f, 0.25f, 0.25f));
  }
  soft.classes = 3;
  EXPECT_EQ(load_arrays(soft).training.classes, 3);
  soft.classes = 4;
  EXPECT_THAT(error_of(soft), HasSubstr("a probability for each of data.classes, (4, 4)"));

  EXPECT_EQ(load_arrays(options("<f2", "(4, 1, 3)", halves)).training.answers(), 1);
  const SplitDataset rows = load_arrays(options("<f4", "(4, 2, 2)", std::string(64, '\0')));
  EXPECT_EQ(rows.training.classes, 2);
  EXPECT_EQ(rows.training.answers(), 2) << "two rows an example";
  for (const auto& [bits, text] : {std::pair{"000080bf", "-1"}, {"0000807f", "inf"}, {"0000c07f", "nan"}})
    EXPECT_THAT(
        error_of(options("<f4", "(4, 2)", std::string(20, '\0') + from_hex(bits) + std::string(8, '\0'))),
        HasSubstr(std::string("array 'y': element 5, of example 2, is ") + text +
                  ": expected a probability, 0 or more"));
}

TEST_F(Arrays, ASplitIsAShareOrANumberAndTheSameEveryTime) {
  write("s.npz", zip({stored("x.npy", npy("<f4", "(10, 1)", std::string(40, '\0'))),
                      stored("y.npy", npy("<i4", "(10,)", std::string(40, '\0')))}));
  ArraysOptions options = with_split("s.npz", 0.39);
  const SplitDataset share = load_arrays(options);
  EXPECT_EQ(share.test.count(), 3) << "floor(3.9)";
  EXPECT_EQ(share.training.count(), 7);
  // A partition, each part in the order of the rows.
  std::set<std::uint32_t> all(share.training.rows.begin(), share.training.rows.end());
  all.insert(share.test.rows.begin(), share.test.rows.end());
  EXPECT_EQ(all.size(), 10u);
  EXPECT_TRUE(std::is_sorted(share.training.rows.begin(), share.training.rows.end()));
  EXPECT_EQ(load_arrays(options).test.rows, share.test.rows);
  bool differs = false;
  for (std::uint64_t seed = 2; seed < 6; ++seed) {
    options.test_seed = seed;
    differs = differs || load_arrays(options).test.rows != share.test.rows;
  }
  EXPECT_TRUE(differs);
  options.test_seed = 0;
  options.test_size = 4;
  EXPECT_THAT(load_arrays(options).test.rows, ElementsAre(6, 7, 8, 9));
  options.subset = 2;
  options.test_subset = 1;
  EXPECT_THAT(load_arrays(options).training.rows, ElementsAre(0, 1));
  EXPECT_THAT(load_arrays(options).test.rows, ElementsAre(6));
  options.subset = 7;
  EXPECT_THAT(error_of(options), HasSubstr("a subset of 7 examples cannot be taken from the 6 of "));
  for (const double size : {0.05, 10.0, 1.5, -1.0})
    EXPECT_THAT(error_of(with_split("s.npz", size)), HasSubstr("data.test_size = ")) << size;
}

TEST_F(Arrays, WhatCannotBeUsedIsSaidInOneLine) {
  const auto inputs = [&](const std::string& array) {
    write("b.npz", zip({stored("x.npy", array), stored("y.npy", npy("|u1", "(2,)", std::string(2, '\0')))}));
    return error_of(with_split("b.npz", 1));
  };
  const std::string path = (folder_ / "b.npz").string();
  EXPECT_EQ(
      inputs(npy("<c8", "(2,)", std::string(16, '\0'))),
      path + ": array 'x': <c8 (2,) (complex numbers; save real and imaginary parts); expected numbers");
  EXPECT_THAT(inputs(npy("|V2", "(2,)", "1234")), HasSubstr("numpy has no BF16"));
  EXPECT_THAT(inputs(npy("<f4", "()", "1234")), HasSubstr("a single number"));
  EXPECT_THAT(inputs(npy("<f4", "(0, 3)", "")), HasSubstr("expected 1 to 2^32 - 1 examples"));
  EXPECT_THAT(inputs(npy("<f4", "(2, 0)", "")), HasSubstr("of one number or more"));
  EXPECT_THAT(
      inputs(npy("<f4", "(2, 2)", std::string(16, '\0'), true)),
      HasSubstr("Fortran order: the numbers of an example are not contiguous; save numpy.ascontiguousarray"));
  EXPECT_THAT(inputs(npy("<f4", "(2, 2)", std::string(12, '\0'))),
              AllOf(HasSubstr("byte "), HasSubstr("after 12 of the 16 bytes")));
  // Another shape to test with.
  write_images();
  write("x_test.npy", npy("|u1", "(4, 3, 2)", std::string(24, '\0')));
  EXPECT_THAT(error_of(by_default()),
              AllOf(HasSubstr("x_test.npy: array 'x_test': u8 (4, 3, 2): expected examples of the shape of"),
                    HasSubstr("x_train.npy: array 'x_train', u8 (8, 2, 3)")));
  // A stored member with a wrong checksum.
  ZipEntry damaged = stored("x.npy", npy("<f4", "(2,)", "12345678"));
  damaged.crc32 ^= 1;
  write("b.npz", zip({damaged, stored("y.npy", npy("|u1", "(2,)", std::string(2, '\0')))}));
  EXPECT_THAT(error_of(with_split("b.npz", 1)), HasSubstr("CRC"));
}

TEST_F(Arrays, WhatIsReadWhenItIsNeededIsTheSame) {
  // Just above what is held in memory: 4,200,000 rows of four FP32, each its own number.
  constexpr std::size_t rows = 4200000;
  ASSERT_GT(rows * 16, ExampleArray::held_bytes);
  std::string data(rows * 16, '\0');
  for (std::size_t i = 0; i < rows; ++i) {
    const auto number = static_cast<float>(i);
    std::memcpy(data.data() + 16 * i + 4, &number, sizeof number);
  }
  write("x.npy", npy("<f4", "(4200000, 4)", data));
  const SplitDataset sets = load_arrays(
      {.path = folder_ / "x.npy", .train = {"x"}, .test_size = 0.5, .test_seed = 0, .targets = false});
  for (const std::uint32_t row : {0u, 1u, 2099999u, 4199999u})
    EXPECT_THAT(floats_of(sets.training.inputs, row), ElementsAre(0, static_cast<float>(row), 0, 0));
  // Mean and deviation of 0 .. n - 1: (n - 1) / 2 and sqrt((n^2 - 1) / 12).
  const double n = rows / 2;
  const Normalisation standard = standard_normalisation(sets.training);
  EXPECT_NEAR(standard.mean[1], (n - 1) / 2, 1e-9 * n);
  EXPECT_NEAR(standard.deviation[1], std::sqrt((n * n - 1) / 12), 1e-9 * n);
  EXPECT_EQ(standard.deviation[0], 1);
  std::filesystem::resize_file(folder_ / "x.npy", 1000);
  EXPECT_THAT(message_of([&] { floats_of(sets.training.inputs, 2099999); }), HasSubstr("x.npy: byte "));
}

}  // namespace
}  // namespace fp16lab::engine::data
