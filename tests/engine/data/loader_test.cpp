// Batches of a data set: which examples, normalised and changed how (engine/data/loader.hpp).
#include "engine/data/loader.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "engine/backend/emulated/emulated_backend.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"
#include "tests/engine/data/array_in_memory.hpp"
#include "tests/support/message_of.hpp"

namespace fp16lab::engine::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing_support::message_of;

Dataset numbered_dataset(std::int64_t count) {
  std::vector<std::uint8_t> numbers, labels;
  for (std::int64_t i = 0; i < count; ++i) {
    numbers.push_back(static_cast<std::uint8_t>(i));
    numbers.push_back(static_cast<std::uint8_t>(255 - i));
    labels.push_back(static_cast<std::uint8_t>(i % 10));
  }
  return {.inputs = array_of({2}, numbers), .targets = array_of({}, labels), .classes = 10};
}

std::vector<std::uint32_t> listed(std::span<const std::uint32_t> indices) {
  return {indices.begin(), indices.end()};
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

/// Three images of 2 x 3 pixels, 10 i + position + 1.
std::vector<std::uint8_t> small_pixels() {
  std::vector<std::uint8_t> pixels;
  for (int i = 0; i < 3; ++i)
    for (int p = 0; p < 6; ++p) pixels.push_back(static_cast<std::uint8_t>(10 * i + p + 1));
  return pixels;
}
Dataset small_images() {
  return labelled_images({1, 2, 3}, 10, small_pixels(), std::vector<std::uint8_t>{0, 1, 2});
}

TEST(LoaderTest, PaddingSurroundsImagesWithTheValueOfPixelZero) {
  const Dataset dataset = small_images();
  const Normalisation standard = standard_normalisation(dataset);
  const auto value_of = [&](std::uint8_t p) {
    return static_cast<float>((p / 255.0 - standard.mean[0]) / standard.deviation[0]);
  };
  const std::vector<std::uint8_t> pixels = small_pixels();
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
            const std::uint8_t pixel = inside ? pixels[chosen[i] * 6 + (y - 2) * 3 + x - 2] : std::uint8_t{0};
            EXPECT_EQ(batch.inputs.host<float>()[(i * 6 + y) * 7 + x], value_of(pixel));
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

TEST(LoaderTest, WhatIsNoImageCannotBePaddedOrChanged) {
  const Dataset dataset = numbered_dataset(4);
  for (const LoaderOptions& options : {LoaderOptions{.batch_size = 2, .padding = 1},
                                       LoaderOptions{.batch_size = 2, .augmentation = {.flip = true}},
                                       LoaderOptions{.batch_size = 2, .augmentation = {.crop_padding = 1}}})
    EXPECT_THAT(message_of([&] { Loader(dataset, unit_normalisation(), options); }),
                HasSubstr("cannot be padded, flipped or cropped"));
  const Dataset images = small_images();
  EXPECT_THAT(message_of([&] { Loader(images, unit_normalisation(), {.batch_size = 2, .padding = -1}); }),
              HasSubstr("cannot be padded"));
  Dataset unlabelled = images;
  unlabelled.targets = {};
  EXPECT_THAT(message_of([&] { Loader(unlabelled, unit_normalisation(), {.batch_size = 2}); }),
              HasSubstr("has no targets"));
}

TEST(LoaderTest, ChannelsTakeTheOrderThatTheNetworkNeeds) {
  // One image of 2 x 2 pixels in three channels: 100 c + 10 y + x.
  std::vector<float> planes, interleaved;
  for (int c = 0; c < 3; ++c)
    for (int y = 0; y < 2; ++y)
      for (int x = 0; x < 2; ++x) planes.push_back(static_cast<float>(100 * c + 10 * y + x));
  for (int y = 0; y < 2; ++y)
    for (int x = 0; x < 2; ++x)
      for (int c = 0; c < 3; ++c) interleaved.push_back(static_cast<float>(100 * c + 10 * y + x));
  const Dataset first = {.inputs = array_of({3, 2, 2}, planes), .targets = {}, .images = Layout::nchw};
  const Dataset last = {.inputs = array_of({2, 2, 3}, interleaved), .targets = {}, .images = Layout::nhwc};
  const auto backend = make_emulated_backend(tensor_core_model("hopper"), 1);
  for (const Dataset* const set : {&first, &last})
    for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
      Loader loader(*set, unit_normalisation(),
                    {.batch_size = 1, .targets = Targets::inputs, .shuffle = false, .layout = layout});
      const Batch batch = loader.batch(*backend, 0);
      EXPECT_EQ(batch.inputs.shape(), layout == Layout::nchw ? (Shape{1, 3, 2, 2}) : (Shape{1, 2, 2, 3}));
      EXPECT_THAT(batch.inputs.host<float>(),
                  testing::ElementsAreArray(layout == Layout::nchw ? planes : interleaved));
    }
}

TEST(LoaderTest, SymbolsNumbersAndSeveralTargetsAnExample) {
  const auto backend = make_emulated_backend(tensor_core_model("hopper"), 1);
  const Dataset sequences = {.inputs = array_of({3}, std::vector<std::int64_t>{1, 2, 3, 4, 5, 6}),
                             .targets = array_of({3}, std::vector<std::uint16_t>{2, 3, 4, 5, 6, 0}),
                             .vocabulary = 7,
                             .classes = 7};
  Loader tokens(sequences, unit_normalisation(), {.batch_size = 2, .shuffle = false});
  EXPECT_EQ(tokens.rows_per_batch(), 6) << "a row of logits for each token";
  const Batch batch = tokens.batch(*backend, 0);
  EXPECT_EQ(batch.inputs.shape(), (Shape{2, 3}));
  EXPECT_EQ(batch.inputs.dtype(), DType::i32);
  EXPECT_THAT(batch.inputs.host<std::int32_t>(), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_EQ(batch.targets.shape(), (Shape{6}));
  EXPECT_THAT(batch.targets.host<std::int32_t>(), ElementsAre(2, 3, 4, 5, 6, 0));

  const Dataset regression = {.inputs = array_of({}, std::vector<double>{0.5, 0.25}),
                              .targets = array_of({2}, std::vector<std::int32_t>{1, -2, 3, -4})};
  Loader numbers(regression, unit_normalisation(), {.batch_size = 2, .shuffle = false});
  const Batch pair = numbers.batch(*backend, 0);
  EXPECT_EQ(pair.inputs.shape(), (Shape{2, 1}));
  EXPECT_THAT(pair.inputs.host<float>(), ElementsAre(0.5f, 0.25f));
  EXPECT_EQ(pair.targets.shape(), (Shape{2, 2}));
  EXPECT_THAT(pair.targets.host<float>(), ElementsAre(1.0f, -2.0f, 3.0f, -4.0f));
  EXPECT_EQ(numbers.rows_per_batch(), 2);
}

/// Images of 5 x 4 pixels whose value encodes their place: 1 + 10 y + x.
Dataset located_images(std::int64_t count) {
  std::vector<std::uint8_t> pixels;
  for (std::int64_t i = 0; i < count; ++i)
    for (int y = 0; y < 5; ++y)
      for (int x = 0; x < 4; ++x) pixels.push_back(static_cast<std::uint8_t>(1 + 10 * y + x));
  return labelled_images({1, 5, 4}, 2, pixels, std::vector<std::uint8_t>(static_cast<std::size_t>(count)));
}

struct Seen {
  bool flip = false;
  int down = 0, right = 0;
  auto operator<=>(const Seen&) const = default;
};

/// What was done to an image of located_images, read off the pixels alone: the one change of an image that
/// gives these. Padding is 0.
Seen change_seen(std::span<const float> image, int padding) {
  std::vector<Seen> fitting;
  for (const bool flip : {false, true})
    for (int down = -padding; down <= padding; ++down)
      for (int right = -padding; right <= padding; ++right) {
        bool fits = true;
        for (int y = 0; y < 5; ++y)
          for (int x = 0; x < 4; ++x) {
            // torchvision: the flipped image is padded on all sides, and a window of 5 x 4 cut out.
            const int row = y + down, column = x + right;
            const bool inside = row >= 0 && row < 5 && column >= 0 && column < 4;
            const int pixel = inside ? 1 + 10 * row + (flip ? 3 - column : column) : 0;
            fits = fits && image[static_cast<std::size_t>(4 * y + x)] == static_cast<float>(pixel) / 255.0f;
          }
        if (fits) fitting.push_back({flip, down, right});
      }
  EXPECT_EQ(fitting.size(), 1u);
  return fitting.empty() ? Seen() : fitting.front();
}

TEST(Augmentation, FlipsAndCropsAreThoseOfTorchvisionAndUniform) {
  constexpr int padding = 2;
  constexpr std::int64_t count = 2000;
  const Dataset dataset = located_images(count);
  const auto backend = make_emulated_backend(tensor_core_model("hopper"), 1);
  Loader loader(dataset, unit_normalisation(),
                {.batch_size = count,
                 .shuffle = false,
                 .seed = 4,
                 .layout = Layout::nchw,
                 .augmentation = {.flip = true, .crop_padding = padding}});
  const Batch batch = loader.batch(*backend, 0);
  std::map<Seen, double> counts;
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i)
    ++counts[change_seen(batch.inputs.host<float>().subspan(20 * i, 20), padding)];
  // 2 x 5 x 5 changes, 40 of each expected. 49 degrees of freedom: mean 49, deviation sqrt(98); five of them.
  ASSERT_EQ(counts.size(), 50u);
  double chi_square = 0;
  for (const auto& [seen, number] : counts) chi_square += (number - 40) * (number - 40) / 40;
  EXPECT_LT(chi_square, 49 + 5 * std::sqrt(98.0));
}

TEST(Augmentation, IsAPureFunctionOfSeedEpochAndExample) {
  const Dataset dataset = located_images(12);
  const auto backend = make_emulated_backend(tensor_core_model("hopper"), 1);
  LoaderOptions options{
      .batch_size = 4, .seed = 6, .layout = Layout::nchw, .augmentation = {.flip = true, .crop_padding = 3}};
  // The changes by epoch and example, whatever the batches.
  const auto changes_of = [&](const Dataset& set, const LoaderOptions& how, std::uint64_t epoch) {
    Loader loader(set, unit_normalisation(), how);
    std::map<std::uint32_t, std::vector<float>> images;
    const std::uint64_t batches = loader.batches_per_epoch();
    for (std::uint64_t b = batches; b-- > 0;) {  // last first: no call order
      const Batch batch = loader.batch(*backend, epoch * batches + b);
      const auto chosen = loader.indices(epoch * batches + b);
      for (std::size_t i = 0; i < chosen.size(); ++i) {
        const auto image = batch.inputs.host<float>().subspan(20 * i, 20);
        images[set.row(chosen[i])] = {image.begin(), image.end()};
      }
    }
    return images;
  };
  const auto first = changes_of(dataset, options, 3);
  ASSERT_EQ(first.size(), 12u);
  EXPECT_NE(first, changes_of(dataset, options, 4)) << "another epoch";
  LoaderOptions other = options;
  other.batch_size = 3;
  other.shuffle = false;
  EXPECT_EQ(first, changes_of(dataset, other, 3)) << "other batches, other order";
  other = options;
  other.seed = 7;
  EXPECT_NE(first, changes_of(dataset, other, 3));
  // A part of the rows: the same images.
  Dataset part = dataset;
  part.rows = {1, 2, 3, 5, 8, 11};
  other = options;
  other.batch_size = 2;
  for (const auto& [row, image] : changes_of(part, other, 3)) EXPECT_EQ(image, first.at(row)) << row;
}

TEST(Augmentation, CropsLargerThanTheImageAndPaddedImagesOfSeveralChannels) {
  // Two channels of 1 x 2 pixels, in both orders; crop_padding 3 moves them out of sight at times.
  const Dataset dataset = {
      .inputs = array_of({1, 2, 2}, std::vector<float>{1, 2, 3, 4}), .targets = {}, .images = Layout::nhwc};
  const auto backend = make_emulated_backend(tensor_core_model("hopper"), 1);
  Normalisation normalisation{.mean = {1, 2}, .deviation = {1, 2}};
  Loader loader(dataset, normalisation,
                {.batch_size = 1,
                 .targets = Targets::inputs,
                 .shuffle = false,
                 .seed = 1,
                 .layout = Layout::nchw,
                 .padding = 1,
                 .augmentation = {.crop_padding = 3}});
  std::set<std::vector<float>> seen;
  for (std::uint64_t epoch = 0; epoch < 400; ++epoch) {
    const Batch batch = loader.batch(*backend, epoch);
    EXPECT_EQ(batch.inputs.shape(), (Shape{1, 2, 3, 4}));
    const auto values = batch.inputs.host<float>();
    // The border is never anything but zeros: -1 in both channels (0 - 1, and (0 - 2) / 2).
    for (const std::size_t at : {0u, 1u, 2u, 3u, 4u, 7u, 8u, 11u}) EXPECT_EQ(values[at], -1.0f);
    for (std::size_t at = 0; at < 12;
         ++at)  // channel 1: 2 and 4, normalised to 0 and 1 where channel 0 has 0 and 2
      EXPECT_EQ(values[12 + at], values[at] == -1.0f ? -1.0f : values[at] / 2) << at;
    seen.insert({values[5], values[6]});
  }
  // Columns moved by -1, 0, 1, or out of sight.
  EXPECT_EQ(seen, (std::set<std::vector<float>>{{-1, -1}, {-1, 0}, {0, 2}, {2, -1}}));
}

}  // namespace
}  // namespace fp16lab::engine::data
