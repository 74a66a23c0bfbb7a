// engine/data: IDX files good and bad, where data is looked for, shuffling and batches.
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
              HasSubstr("7 bytes behind the end of the gzip stream"));
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
  EXPECT_EQ(whole.count, 3);
  EXPECT_EQ(whole.features, 2);
  EXPECT_THAT(whole.image(2), ElementsAre(5, 255));
  EXPECT_THAT(whole.labels, ElementsAre(0, 9, 5));
  ASSERT_EQ(whole.files.size(), 2u);
  EXPECT_EQ(whole.files[0].sha256.size(), 64u);
  const Dataset first_two = read_idx_dataset(images, labels, 10, 2);
  EXPECT_EQ(first_two.count, 2);
  EXPECT_EQ(first_two.pixels.size(), 4u);
  EXPECT_EQ(first_two.labels.size(), 2u);

  const auto fewer = write("fewer", idx_bytes({2}, {1, 1}));
  EXPECT_THAT(message_of([&] { read_idx_dataset(images, fewer, 10); }),
              AllOf(HasSubstr("fewer"), HasSubstr("expected 3 labels"), HasSubstr("got 2")));
  EXPECT_THAT(message_of([&] { read_idx_dataset(images, labels, 9); }),
              AllOf(HasSubstr("label 9 at element 1"), HasSubstr("0 to 8")));
  EXPECT_THAT(message_of([&] { read_idx_dataset(images, labels, 10, 4); }), HasSubstr("subset of 4"));
}

TEST_F(DataTest, LooksWhereItWasToldAndNowhereElse) {
  testing_support::write_small_fashion(folder_ / "explicit", 20, 10);
  const DatasetLocation location = find_dataset("fashion-mnist", folder_ / "explicit");
  EXPECT_EQ(location.chosen_by, "data.path");
  EXPECT_EQ(load_dataset("fashion-mnist", location, Split::train).count, 20);
  EXPECT_EQ(load_dataset("fashion-mnist", location, Split::test, 7).count, 7);

  testing_support::write_small_fashion(folder_ / "variable" / "fashion-mnist", 20, 10);
  setenv("FP16LAB_DATA", (folder_ / "variable").c_str(), 1);  // NOLINT(concurrency-mt-unsafe): one thread
  EXPECT_EQ(find_dataset("fashion-mnist", {}).chosen_by, "$FP16LAB_DATA");
  EXPECT_EQ(find_dataset("fashion-mnist", folder_ / "explicit").chosen_by, "data.path");
  // A wrong explicit path is an error even though the variable would do.
  const std::string error = message_of([&] { find_dataset("fashion-mnist", folder_ / "nowhere"); });
  EXPECT_THAT(error, AllOf(HasSubstr("train-images-idx3-ubyte"), HasSubstr("nowhere"),
                           HasSubstr("dataset-fashion-mnist")));
  EXPECT_THAT(message_of([&] { find_dataset("mnist", {}); }), HasSubstr("unknown data set 'mnist'"));

  write_bytes(folder_ / "explicit" / "t10k-images-idx3-ubyte", idx_bytes({10, 2, 2}, std::string(40, 'x')));
  EXPECT_THAT(message_of([&] { load_dataset("fashion-mnist", location, Split::test); }),
              AllOf(HasSubstr("expected 784 pixels"), HasSubstr("got 4")));
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

Dataset numbered_dataset(std::int64_t count) {
  Dataset dataset;
  dataset.count = count;
  dataset.features = 2;
  dataset.classes = 10;
  for (std::int64_t i = 0; i < count; ++i) {
    dataset.pixels.push_back(static_cast<std::uint8_t>(i));
    dataset.pixels.push_back(static_cast<std::uint8_t>(255 - i));
    dataset.labels.push_back(static_cast<std::uint8_t>(i % 10));
  }
  return dataset;
}

std::vector<std::uint32_t> listed(std::span<const std::uint32_t> indices) {
  return {indices.begin(), indices.end()};
}

TEST(RandomImages, AreIndependentNormalNumbersWithUniformLabels) {
  constexpr std::int64_t count = 1024, side = 32, classes = 10;
  const Dataset dataset = random_images(count, side, classes, 7);
  ASSERT_EQ(dataset.pixels.size(), 1024u * 1024u);
  ASSERT_EQ(dataset.labels.size(), 1024u);
  EXPECT_EQ(dataset.features, 1024);
  EXPECT_EQ(dataset.height, 32);
  EXPECT_EQ(dataset.width, 32);
  // Bytes are 128 + 32 x: five deviations of each mean of n = 2^20 numbers. Rounding to 1/32 adds 1/12 of its
  // square to the variance; beyond four deviations lie 6e-5 of them, limited, which takes less than 1e-4
  // away.
  double sum = 0, squares = 0, beyond = 0;
  for (const std::uint8_t p : dataset.pixels) {
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
  for (std::size_t i = 1; i < dataset.pixels.size(); ++i)
    products += (dataset.pixels[i] - 128.0) * (dataset.pixels[i - 1] - 128.0) / 1024;
  EXPECT_NEAR(products / n, 0, 5 / std::sqrt(n));
  std::map<int, double> labels;
  for (const std::uint8_t label : dataset.labels) ++labels[label];
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
  EXPECT_EQ(one.pixels, again.pixels);
  EXPECT_EQ(one.labels, again.labels);
  EXPECT_NE(one.pixels, other.pixels);
  EXPECT_THAT(message_of([] { random_images(0, 4, 3, 1); }), HasSubstr("at least one image"));
  EXPECT_THAT(message_of([] { find_dataset("random-images", {}); }),
              HasSubstr("unknown data set 'random-images'"));
  EXPECT_EQ(Loader(one, unit_normalisation(), {.batch_size = 4, .split = "train"}).split(), "train");
  EXPECT_EQ(Loader(one, unit_normalisation(), {.batch_size = 4}).split(), "test");
}

TEST(LoaderTest, EpochsVisitEveryImageOnceAndDropTheRest) {
  const Dataset dataset = numbered_dataset(23);
  Loader loader(dataset, unit_normalisation(), {.batch_size = 5, .shuffle = true, .seed = 9});
  ASSERT_EQ(loader.batches_per_epoch(), 4u);
  for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
    std::set<std::uint32_t> seen;
    for (std::uint64_t b = 0; b < 4; ++b)
      for (const std::uint32_t index : loader.indices(epoch * 4 + b)) EXPECT_TRUE(seen.insert(index).second);
    EXPECT_EQ(seen.size(), 20u);
  }
  EXPECT_NE(listed(loader.indices(0)), listed(loader.indices(4))) << "each epoch has its own order";
}

TEST(LoaderTest, ABatchIsAPureFunctionOfItsIndex) {
  const Dataset dataset = numbered_dataset(23);
  Loader in_order(dataset, unit_normalisation(), {.batch_size = 5, .shuffle = true, .seed = 9});
  std::vector<std::vector<std::uint32_t>> expected;
  for (std::uint64_t i = 0; i < 12; ++i) expected.push_back(listed(in_order.indices(i)));
  Loader jumping(dataset, unit_normalisation(), {.batch_size = 5, .shuffle = true, .seed = 9});
  for (const std::uint64_t i : {11u, 0u, 7u, 7u, 3u, 10u, 1u})
    EXPECT_EQ(listed(jumping.indices(i)), expected[i]);
}

TEST(LoaderTest, RefusesImpossibleBatchSizes) {
  const Dataset dataset = numbered_dataset(4);
  for (const std::int64_t size : {0, -1, 5})
    EXPECT_THROW(Loader(dataset, unit_normalisation(), {.batch_size = size}), std::invalid_argument);
}

TEST(Normalise, UnitAndStandardHaveKnownValues) {
  const Normalisation unit = unit_normalisation();
  EXPECT_EQ(unit.value_of[0], 0.0f);
  EXPECT_EQ(unit.value_of[255], 1.0f);
  EXPECT_EQ(unit.value_of[51], 0.2f);
  // Pixels 0 and 255 half and half: mean 1/2, deviation 1/2, so they map to -1 and 1.
  Dataset dataset;
  dataset.pixels = {0, 255, 255, 0};
  const Normalisation standard = standard_normalisation(dataset);
  EXPECT_EQ(standard.mean, 0.5);
  EXPECT_EQ(standard.deviation, 0.5);
  EXPECT_EQ(standard.value_of[0], -1.0f);
  EXPECT_EQ(standard.value_of[255], 1.0f);
  dataset.pixels = {7, 7};
  EXPECT_THROW(standard_normalisation(dataset), std::invalid_argument);
}

TEST(LoaderTest, BatchesHoldNormalisedPixelsAndTheirTargets) {
  const Dataset dataset = numbered_dataset(23);
  const auto backend = make_emulated_backend(tensor_core_model("hopper"), 1);
  Loader labels(dataset, unit_normalisation(),
                {.batch_size = 5, .targets = Targets::labels, .shuffle = true, .seed = 2});
  const Batch batch = labels.batch(*backend, 6);
  const std::vector<std::uint32_t> chosen = listed(labels.indices(6));
  EXPECT_EQ(batch.inputs.shape(), (Shape{5, 2}));
  EXPECT_EQ(batch.targets.shape(), (Shape{5}));
  EXPECT_EQ(batch.targets.dtype(), DType::i32);
  for (std::size_t row = 0; row < 5; ++row) {
    EXPECT_EQ(batch.inputs.host<float>()[2 * row], static_cast<float>(chosen[row]) / 255.0f);
    EXPECT_EQ(batch.inputs.host<float>()[2 * row + 1], static_cast<float>(255 - chosen[row]) / 255.0f);
    EXPECT_EQ(batch.targets.host<std::int32_t>()[row], static_cast<std::int32_t>(chosen[row] % 10));
  }
  Loader inputs(dataset, unit_normalisation(),
                {.batch_size = 5, .targets = Targets::inputs, .shuffle = true, .seed = 2});
  const Batch pair = inputs.batch(*backend, 6);
  EXPECT_EQ(pair.targets.dtype(), DType::f32);
  EXPECT_THAT(pair.targets.host<float>(), testing::ElementsAreArray(pair.inputs.host<float>()));
}

/// Three images of 2 x 3 pixels, 10 i + position.
Dataset small_images() {
  Dataset dataset{.count = 3,
                  .features = 6,
                  .height = 2,
                  .width = 3,
                  .classes = 10,
                  .pixels = {},
                  .labels = {},
                  .files = {}};
  for (int i = 0; i < 3; ++i) {
    for (int p = 0; p < 6; ++p) dataset.pixels.push_back(static_cast<std::uint8_t>(10 * i + p + 1));
    dataset.labels.push_back(static_cast<std::uint8_t>(i));
  }
  return dataset;
}

TEST(LoaderTest, PaddingSurroundsImagesWithTheValueOfPixelZero) {
  const Dataset dataset = small_images();
  const Normalisation standard = standard_normalisation(dataset);
  const auto backend = make_emulated_backend(tensor_core_model("hopper"), 1);
  for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
    Loader loader(dataset, standard,
                  {.batch_size = 2, .shuffle = true, .seed = 3, .layout = layout, .padding = 2});
    // The second time over, the staging memory holds another batch.
    for (const std::uint64_t index : {5u, 0u, 5u}) {
      const Batch batch = loader.batch(*backend, index);
      EXPECT_EQ(batch.inputs.shape(), layout == Layout::nchw ? (Shape{2, 1, 6, 7}) : (Shape{2, 6, 7, 1}));
      const auto chosen = listed(loader.indices(index));
      for (std::size_t i = 0; i < 2; ++i)
        for (std::size_t y = 0; y < 6; ++y)
          for (std::size_t x = 0; x < 7; ++x) {
            const bool inside = y >= 2 && y < 4 && x >= 2 && x < 5;
            const std::uint8_t pixel =
                inside ? dataset.image(chosen[i])[(y - 2) * 3 + x - 2] : std::uint8_t{0};
            EXPECT_EQ(batch.inputs.host<float>()[(i * 6 + y) * 7 + x], standard.value_of[pixel]);
          }
    }
  }
}

TEST(LoaderTest, ALayoutWithoutPaddingHoldsTheSameBytesAsFlatBatches) {
  const Dataset dataset = small_images();
  const auto backend = make_emulated_backend(tensor_core_model("hopper"), 1);
  LoaderOptions options{.batch_size = 3, .shuffle = true, .seed = 3};
  Loader flat(dataset, unit_normalisation(), options);
  options.layout = Layout::nchw;
  Loader shaped(dataset, unit_normalisation(), options);
  const Batch batch = shaped.batch(*backend, 1);
  EXPECT_EQ(batch.inputs.shape(), (Shape{3, 1, 2, 3}));
  EXPECT_THAT(batch.inputs.host<float>(),
              testing::ElementsAreArray(flat.batch(*backend, 1).inputs.host<float>()));
}

TEST(LoaderTest, ImagesWithoutHeightAndWidthCannotBePadded) {
  const Dataset dataset = numbered_dataset(4);
  for (const LoaderOptions& options :
       {LoaderOptions{.batch_size = 2, .layout = Layout::nchw}, LoaderOptions{.batch_size = 2, .padding = 1}})
    EXPECT_THAT(message_of([&] { Loader(dataset, unit_normalisation(), options); }),
                HasSubstr("cannot be padded"));
  Dataset images = small_images();
  EXPECT_THAT(message_of([&] { Loader(images, unit_normalisation(), {.batch_size = 2, .padding = -1}); }),
              HasSubstr("cannot be padded"));
}

}  // namespace
}  // namespace fp16lab::engine::data
