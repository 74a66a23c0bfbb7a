// engine/data: IDX and CIFAR-10 files good and bad, where data is looked for, random images, shuffling.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "engine/backend/emulated/emulated_backend.hpp"
#include "engine/data/cifar.hpp"
#include "engine/data/dataset.hpp"
#include "engine/data/idx.hpp"
#include "engine/data/loader.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"
#include "tests/support/idx_files.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/temporary_folder.hpp"

namespace fp16lab::engine::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing_support::gzipped;
using testing_support::idx_bytes;
using testing_support::message_of;
using testing_support::write_bytes;

class DataTest : public testing::Test {
 protected:
  void SetUp() override {
    unsetenv("FP16LAB_DATA");  // NOLINT(concurrency-mt-unsafe): one thread
  }

  std::filesystem::path write(const std::string& name, const std::string& bytes) {
    write_bytes(folder_ / name, bytes);
    return folder_ / name;
  }

  std::string read_error(const std::string& name, const std::string& bytes, int dimensions) {
    const std::filesystem::path path = write(name, bytes);
    return message_of([&] { read_idx(path, dimensions); });
  }

  testing_support::TemporaryFolder temporary_;
  const std::filesystem::path& folder_ = temporary_.path();
};

/// All elements of an array of bytes.
std::vector<std::uint8_t> bytes_of(const ExampleArray& array) {
  std::vector<std::uint8_t> all;
  array.visit({}, [&all](std::span<const std::byte> bytes) {
    for (const std::byte byte : bytes) all.push_back(std::to_integer<std::uint8_t>(byte));
  });
  return all;
}

/// A record of CIFAR-10: the planes have one value each, but for the first pixel of the red one.
std::string record(int label, int red, int green, int blue, int first) {
  std::string bytes(1, static_cast<char>(label));
  for (const int value : {red, green, blue}) bytes += std::string(1024, static_cast<char>(value));
  bytes[1] = static_cast<char>(first);
  return bytes;
}

const std::string six = "\x01\x02\x03\x04\x05\xff";

TEST_F(DataTest, ReadsPlainAndCompressedFilesAlike) {
  const std::string bytes = idx_bytes({1, 2, 3}, six);
  for (const auto& [name, content] :
       {std::pair{"plain", bytes}, {"plain.gz", gzipped(bytes)}, {"odd-name", gzipped(bytes)}}) {
    const IdxArray array = read_idx(write(name, content), 3);
    EXPECT_THAT(array.extents, ElementsAre(1, 2, 3));
    EXPECT_THAT(array.values, ElementsAre(1, 2, 3, 4, 5, 255));
  }
}

TEST_F(DataTest, EveryDamageIsOneClearError) {
  const std::string good = idx_bytes({6}, six);
  EXPECT_THAT(message_of([&] { read_idx(folder_ / "absent", 1); }), HasSubstr((folder_ / "absent").string()));
  EXPECT_THAT(read_error("empty", "", 1),
              AllOf(HasSubstr("empty: truncated at byte 0"), HasSubstr("4 bytes")));
  EXPECT_THAT(read_error("magic", idx_bytes({2, 3}, six), 1),
              AllOf(HasSubstr("wrong magic number at byte 0"), HasSubstr("expected 0x00000801"),
                    HasSubstr("got 0x00000802")));
  for (const std::string& scalar : {idx_bytes({}, "1"), idx_bytes(std::vector<std::uint32_t>(9, 1), "1")})
    EXPECT_THAT(read_error("scalar", scalar, 0), AllOf(HasSubstr("(IDX, unsigned bytes, "),
                                                       HasSubstr(" of 1 to 8)"), HasSubstr("got 0x0000080")));
  EXPECT_THAT(read_error("header", good.substr(0, 6), 1),
              AllOf(HasSubstr("truncated at byte 6"), HasSubstr("8 bytes")));
  EXPECT_THAT(read_error("short", good.substr(0, 11), 1),
              AllOf(HasSubstr("truncated"), HasSubstr("expected 6 = 6 elements"), HasSubstr("at most 3")));
  EXPECT_THAT(read_error("zero", idx_bytes({0}, ""), 1),
              AllOf(HasSubstr("impossible size at byte 4"), HasSubstr("is 0")));
  EXPECT_THAT(read_error("trailing", good + "zz", 1),
              AllOf(HasSubstr("2 trailing bytes at byte 14"), HasSubstr("6 elements")));
}

TEST_F(DataTest, ImpossibleSizesAreRefusedBeforeAnythingIsAllocated) {
  const std::uint32_t huge = 0xffffffffu;
  EXPECT_THAT(read_error("plain", idx_bytes({huge, huge, huge}, six), 3),
              HasSubstr("impossible size at byte 4"));
  EXPECT_THAT(read_error("gz", gzipped(idx_bytes({huge, huge, huge}, six)), 3),
              HasSubstr("impossible size at byte 4"));
  EXPECT_THAT(read_error("big.gz", gzipped(idx_bytes({100000}, six)), 1), HasSubstr("at most"));
}

TEST_F(DataTest, DamagedCompressionIsNamed) {
  std::string elements;
  for (int i = 0; i < 5000; ++i) elements += static_cast<char>(i * i % 251);
  const std::string good = gzipped(idx_bytes({5000}, elements));
  ASSERT_EQ(read_idx(write("good.gz", good), 1).values.size(), 5000u);

  EXPECT_THAT(read_error("cut.gz", good.substr(0, good.size() / 2), 1),
              AllOf(HasSubstr("truncated gzip file"), HasSubstr(std::to_string(good.size() / 2))));
  EXPECT_THAT(read_error("no-trailer.gz", good.substr(0, good.size() - 3), 1),
              HasSubstr("truncated gzip file"));
  std::string wrong_crc = good;
  wrong_crc[good.size() - 6] = static_cast<char>(wrong_crc[good.size() - 6] ^ 1);
  EXPECT_THAT(read_error("crc.gz", wrong_crc, 1),
              AllOf(HasSubstr("damaged gzip data at compressed byte"), HasSubstr("check")));
  EXPECT_THAT(read_error("garbage.gz", good + "garbage", 1),
              HasSubstr("7 bytes after the end of the gzip stream"));
  // The stream is whole, what it holds is not.
  EXPECT_THAT(read_error("inner.gz", gzipped(idx_bytes({5001}, elements)), 1),
              AllOf(HasSubstr("truncated at byte 5008"), HasSubstr("expected 5001"), HasSubstr("got 5000")));
  // No flipped bit anywhere gets through: DEFLATE's structure, the CRC or the length catches it. Bytes 4 to 9
  // of the header (time, flags, system) mean nothing to the data.
  int unnoticed = 0;
  for (std::size_t i = 10; i < good.size(); ++i) {
    std::string flipped = good;
    flipped[i] = static_cast<char>(flipped[i] ^ 0x10);
    if (read_error("flipped.gz", flipped, 1) == "no error") ++unnoticed;
  }
  EXPECT_EQ(unnoticed, 0);
}

TEST_F(DataTest, PairsMustFit) {
  const auto images = write("images", idx_bytes({3, 1, 2}, six));
  const auto labels = write("labels", idx_bytes({3}, {0, 9, 5}));
  const Dataset whole = read_idx_dataset(images, labels, 10);
  EXPECT_EQ(whole.count(), 3);
  EXPECT_EQ(image_size(whole).channels, 1);
  EXPECT_EQ(image_size(whole).height, 1);
  EXPECT_EQ(image_size(whole).width, 2);
  EXPECT_THAT(bytes_of(whole.inputs), ElementsAre(1, 2, 3, 4, 5, 255));
  EXPECT_THAT(bytes_of(whole.targets), ElementsAre(0, 9, 5));
  ASSERT_EQ(whole.files.size(), 2u);
  EXPECT_EQ(whole.files[0].sha256.size(), 64u);
  const Dataset first_two = read_idx_dataset(images, labels, 10, 2);
  EXPECT_EQ(first_two.count(), 2);
  EXPECT_EQ(first_two.row(1), 1u);

  const auto fewer = write("fewer", idx_bytes({2}, {1, 1}));
  EXPECT_THAT(message_of([&] { read_idx_dataset(images, fewer, 10); }),
              AllOf(HasSubstr("fewer"), HasSubstr("expected 3 labels"), HasSubstr("got 2")));
  EXPECT_THAT(message_of([&] { read_idx_dataset(images, labels, 9); }),
              AllOf(HasSubstr("label 9 at element 1"), HasSubstr("0 to 8")));
  EXPECT_THAT(message_of([&] { read_idx_dataset(images, labels, 10, 4); }), HasSubstr("subset of 4"));
}

TEST_F(DataTest, LooksOnlyInTheGivenFolder) {
  testing_support::write_small_fashion(folder_ / "explicit", 20, 10);
  const DatasetLocation location = find_dataset("fashion-mnist", folder_ / "explicit");
  EXPECT_EQ(location.chosen_by, "data.path");
  EXPECT_EQ(load_dataset("fashion-mnist", location, Split::train).count(), 20);
  EXPECT_EQ(load_dataset("fashion-mnist", location, Split::test, 7).count(), 7);

  testing_support::write_small_fashion(folder_ / "variable" / "fashion-mnist", 20, 10);
  setenv("FP16LAB_DATA", (folder_ / "variable").c_str(), 1);  // NOLINT(concurrency-mt-unsafe): one thread
  EXPECT_EQ(find_dataset("fashion-mnist", {}).chosen_by, "$FP16LAB_DATA");
  EXPECT_EQ(find_dataset("fashion-mnist", folder_ / "explicit").chosen_by, "data.path");
  // A wrong explicit path is an error even though the variable would do.
  const std::string error = message_of([&] { find_dataset("fashion-mnist", folder_ / "nowhere"); });
  EXPECT_THAT(error, AllOf(HasSubstr("train-images-idx3-ubyte"), HasSubstr("nowhere"),
                           HasSubstr("dataset-fashion-mnist")));
  EXPECT_THAT(message_of([&] { find_dataset("minst", {}); }), HasSubstr("unknown data set 'minst'"));
  // The same four files are MNIST if the caller names MNIST.
  EXPECT_EQ(load_dataset("mnist", find_dataset("mnist", folder_ / "explicit"), Split::train).count(), 20);
  EXPECT_THAT(message_of([&] { find_dataset("mnist", folder_ / "nowhere"); }),
              AllOf(HasSubstr("mnist: train-images-idx3-ubyte.gz is not in"),
                    HasSubstr("; point data.path or $FP16LAB_DATA at a folder with the four IDX files")));

  write_bytes(folder_ / "explicit" / "t10k-images-idx3-ubyte", idx_bytes({10, 2, 2}, std::string(40, 'x')));
  EXPECT_THAT(message_of([&] { load_dataset("fashion-mnist", location, Split::test); }),
              AllOf(HasSubstr("expected 784 pixels"), HasSubstr("got 4")));
}

TEST_F(DataTest, Cifar10IsRecordsOfALabelAndThreePlanes) {
  const std::filesystem::path folder = folder_ / "cifar-10-batches-bin";
  std::filesystem::create_directories(folder);
  for (int file = 1; file <= 5; ++file)
    write_bytes(folder / ("data_batch_" + std::to_string(file) + ".bin"),
                record(file, 10, 20, 30, 2 * file) + record(9, 1, 2, 3, 100 + file));
  write_bytes(folder / "test_batch.bin", record(7, 50, 60, 70, 255));
  for (const std::filesystem::path& path :
       {folder_, folder}) {  // the archive's folder, or the one that it is in
    const DatasetLocation location = find_dataset("cifar10", path);
    const Dataset training = load_dataset("cifar10", location, Split::train);
    ASSERT_EQ(training.count(), 10);
    EXPECT_EQ(image_size(training).channels, 3);
    EXPECT_EQ(image_size(training).height, 32);
    EXPECT_EQ(training.classes, 10);
    ASSERT_EQ(training.files.size(), 5u);
    EXPECT_THAT(bytes_of(training.targets), ElementsAre(1, 9, 2, 9, 3, 9, 4, 9, 5, 9));
    std::vector<std::byte> buffer;
    const auto seventh = training.inputs.example(6, buffer);
    ASSERT_EQ(seventh.size(), 3072u);
    EXPECT_EQ(seventh[0], std::byte{8}) << "the first pixel of the fourth file";
    EXPECT_EQ(seventh[1], std::byte{10});
    EXPECT_EQ(seventh[1024], std::byte{20});
    EXPECT_EQ(seventh[3071], std::byte{30});
    EXPECT_EQ(load_dataset("cifar10", location, Split::test).count(), 1);
    EXPECT_EQ(load_dataset("cifar10", location, Split::train, 3).count(), 3);
  }
  const auto error_of = [&](const std::string& bytes) {
    const std::filesystem::path path = write("batch.bin", bytes);
    const std::string message = message_of([&] { read_cifar10(std::vector{path}); });
    EXPECT_TRUE(message.starts_with(path.string() + ": ")) << message;
    return message;
  };
  const std::string good = record(1, 1, 2, 3, 4);
  EXPECT_THAT(error_of(""), HasSubstr("byte 0: expected records of 3073 bytes"));
  EXPECT_THAT(error_of(good + "12345"), AllOf(HasSubstr("byte 3073: "), HasSubstr("the last has 5 of them")));
  EXPECT_THAT(error_of(good + record(10, 1, 2, 3, 4)),
              HasSubstr("byte 3073: the label of image 1 is 10: expected 0 to 9"));
  std::filesystem::remove(folder / "data_batch_4.bin");
  EXPECT_THAT(message_of([&] { find_dataset("cifar10", folder_); }),
              AllOf(HasSubstr("cifar10: data_batch_4.bin is not in"), HasSubstr("six files")));
}

TEST(Shuffle, IsAPermutationThatDependsOnSeedAndEpochOnly) {
  for (const std::int64_t count : {1, 2, 3, 10, 1000, 60000}) {
    std::vector<std::uint32_t> order = shuffled_order(5, 3, count);
    EXPECT_EQ(order, shuffled_order(5, 3, count));
    if (count >= 1000) {
      EXPECT_NE(order, shuffled_order(6, 3, count));
      EXPECT_NE(order, shuffled_order(5, 4, count));
    }
    std::sort(order.begin(), order.end());
    std::vector<std::uint32_t> all(static_cast<std::size_t>(count));
    std::iota(all.begin(), all.end(), 0u);
    EXPECT_EQ(order, all);
  }
}

TEST(Shuffle, AllPermutationsOfFourAreEquallyLikely) {
  constexpr int draws = 48000;
  std::map<std::vector<std::uint32_t>, int> counts;
  for (int epoch = 0; epoch < draws; ++epoch)
    ++counts[shuffled_order(1, static_cast<std::uint64_t>(epoch), 4)];
  ASSERT_EQ(counts.size(), 24u);
  // Chi-square with 23 degrees of freedom: mean 23, standard deviation sqrt(46) = 6.8; five of them give 57.
  // The draws are fixed by the seed, so this passes always or never.
  double chi_square = 0;
  for (const auto& [order, count] : counts) chi_square += std::pow(count - draws / 24.0, 2) / (draws / 24.0);
  EXPECT_LT(chi_square, 57.0);
}

TEST(RandomImages, AreIndependentNormalNumbersWithUniformLabels) {
  constexpr std::int64_t count = 1024, side = 32, classes = 10;
  const Dataset dataset = random_images(count, side, classes, 7);
  const std::vector<std::uint8_t> pixels = bytes_of(dataset.inputs), drawn = bytes_of(dataset.targets);
  ASSERT_EQ(pixels.size(), 1024u * 1024u);
  ASSERT_EQ(drawn.size(), 1024u);
  EXPECT_EQ(image_size(dataset).channels, 1);
  EXPECT_EQ(image_size(dataset).height, 32);
  EXPECT_EQ(image_size(dataset).width, 32);
  // Bytes are 128 + 32 x: five deviations of each mean of n = 2^20 numbers. Rounding to 1/32 adds 1/12 of its
  // square to the variance; 6e-5 of the numbers are beyond four deviations, limited, which takes less than
  // 1e-4 away.
  double sum = 0, squares = 0, beyond = 0;
  for (const std::uint8_t p : pixels) {
    const double x = (p - 128.0) / 32;
    sum += x;
    squares += x * x;
    beyond += std::abs(x) > 2 ? 1 : 0;
  }
  const double n = 1024.0 * 1024.0;
  EXPECT_NEAR(sum / n, 0, 5 / std::sqrt(n));
  EXPECT_NEAR(squares / n, 1 + 1.0 / (12 * 1024), 5 * std::sqrt(2 / n) + 1e-4);
  // More than 64 steps of 1/32: x above 2 + 1/64 before rounding.
  const double p = std::erfc((2 + 1.0 / 64) / std::sqrt(2.0));
  EXPECT_NEAR(beyond / n, p, 5 * std::sqrt(p * (1 - p) / n));
  // Neighbours have nothing in common.
  double products = 0;
  for (std::size_t i = 1; i < pixels.size(); ++i)
    products += (pixels[i] - 128.0) * (pixels[i - 1] - 128.0) / 1024;
  EXPECT_NEAR(products / n, 0, 5 / std::sqrt(n));
  std::map<int, double> labels;
  for (const std::uint8_t label : drawn) ++labels[label];
  ASSERT_EQ(labels.size(), 10u);
  double chi_square = 0, entropy = 0;
  for (const auto& [label, number] : labels) {
    EXPECT_LT(label, 10);
    chi_square += (number - 102.4) * (number - 102.4) / 102.4;
    entropy -= number / 1024 * std::log(number / 1024);
  }
  EXPECT_LT(chi_square, 33.7) << "nine degrees of freedom: P = 1e-4";
  EXPECT_DOUBLE_EQ(label_entropy(dataset), entropy);
  EXPECT_LT(entropy, std::log(10.0));
}

TEST(RandomImages, AreAFunctionOfTheSeed) {
  const Dataset one = random_images(8, 4, 3, 1), again = random_images(8, 4, 3, 1),
                other = random_images(8, 4, 3, 2);
  EXPECT_EQ(bytes_of(one.inputs), bytes_of(again.inputs));
  EXPECT_EQ(bytes_of(one.targets), bytes_of(again.targets));
  EXPECT_NE(bytes_of(one.inputs), bytes_of(other.inputs));
  EXPECT_THAT(message_of([] { random_images(0, 4, 3, 1); }), HasSubstr("at least one image"));
  EXPECT_THAT(message_of([] { find_dataset("random-images", {}); }),
              HasSubstr("unknown data set 'random-images'"));
  EXPECT_EQ(Loader(one, unit_normalisation(), {.batch_size = 4, .split = "train"}).split(), "train");
  EXPECT_EQ(Loader(one, unit_normalisation(), {.batch_size = 4}).split(), "test");
}

}  // namespace
}  // namespace fp16lab::engine::data
