// From the numbers of a data set to those of a network (engine/data/normalisation.hpp, dataset.hpp).
#include "engine/data/normalisation.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "tests/engine/data/array_in_memory.hpp"
#include "tests/support/message_of.hpp"

namespace fp16lab::engine::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing_support::message_of;

/// What the examples of a data set become.
std::vector<float> normalised(const Dataset& dataset, const Normalisation& normalisation) {
  const Normaliser normaliser(dataset, normalisation);
  const auto size = static_cast<std::size_t>(dataset.inputs.elements());
  std::vector<float> all(static_cast<std::size_t>(dataset.count()) * size);
  std::vector<std::byte> buffer;
  for (std::size_t i = 0; i * size < all.size(); ++i)
    normaliser.apply(dataset.inputs.example(dataset.row(static_cast<std::uint32_t>(i)), buffer),
                     std::span(all).subspan(i * size, size));
  return all;
}

TEST(Normalise, UnitAndStandardHaveKnownValues) {
  const Dataset bytes =
      labelled_images({1, 1, 4}, 10, std::vector<std::uint8_t>{0, 255, 51, 0}, std::vector<std::uint8_t>{1});
  EXPECT_THAT(normalised(bytes, unit_normalisation()), ElementsAre(0.0f, 1.0f, 0.2f, 0.0f));
  // Pixels 0 and 255 half and half: mean 1/2, deviation 1/2, so they map to -1 and 1.
  const Dataset halves =
      labelled_images({1, 1, 4}, 10, std::vector<std::uint8_t>{0, 255, 255, 0}, std::vector<std::uint8_t>{1});
  const Normalisation standard = standard_normalisation(halves);
  EXPECT_THAT(standard.mean, ElementsAre(0.5));
  EXPECT_THAT(standard.deviation, ElementsAre(0.5));
  EXPECT_THAT(normalised(halves, standard), ElementsAre(-1.0f, 1.0f, 1.0f, -1.0f));
  const Dataset equal =
      labelled_images({1, 1, 2}, 10, std::vector<std::uint8_t>{7, 7}, std::vector<std::uint8_t>{1});
  EXPECT_THROW(standard_normalisation(equal), std::invalid_argument);
}

TEST(Normalise, EveryChannelHasItsOwnStatistics) {
  // Three channels of two images of one pixel row: (0, 255), (255, 255), (51, 51, 51, 204).
  const std::vector<std::uint8_t> planes{0, 255, 255, 255, 51, 51, 255, 0, 255, 255, 51, 204};
  const std::vector<std::uint8_t> interleaved{0, 255, 51, 255, 255, 51, 255, 255, 51, 0, 255, 204};
  const Dataset first = {.inputs = array_of({3, 1, 2}, planes), .targets = {}, .images = Layout::nchw};
  const Dataset last = {.inputs = array_of({1, 2, 3}, interleaved), .targets = {}, .images = Layout::nhwc};
  for (const Dataset* const set : {&first, &last}) {
    const Normalisation standard = standard_normalisation(*set);
    ASSERT_EQ(standard.mean.size(), 3u);
    EXPECT_DOUBLE_EQ(standard.mean[0], 0.5);
    EXPECT_DOUBLE_EQ(standard.mean[1], 1);
    EXPECT_DOUBLE_EQ(standard.mean[2], 0.35);
    EXPECT_DOUBLE_EQ(standard.deviation[0], 0.5);
    EXPECT_EQ(standard.deviation[1], 1) << "a constant channel";
    // 0.2 three times and 0.8: deviations -0.15 and 0.45.
    EXPECT_NEAR(standard.deviation[2], std::sqrt((3 * 0.15 * 0.15 + 0.45 * 0.45) / 4), 1e-15);
  }
  EXPECT_EQ(normalised(first, standard_normalisation(first))[8], 0.0f) << "second image, channel 1";
  EXPECT_EQ(normalised(last, standard_normalisation(last))[6], 1.0f) << "second image, pixel 0, channel 0";
}

TEST(Normalise, NumbersAreTreatedFeatureByFeatureInAnyType) {
  // Feature 0 far from zero, where a naive sum of squares would have no digits left; feature 1 small.
  const std::vector<double> numbers{1e8 + 8, -2, 1e8 + 24, 0, 1e8 + 16, 2, 1e8 + 16, 0};
  const std::vector<float> single(numbers.begin(), numbers.end());
  for (const Dataset& set : {Dataset{.inputs = array_of({2}, numbers), .targets = {}},
                             Dataset{.inputs = array_of({2}, single), .targets = {}}}) {
    const Normalisation standard = standard_normalisation(set);
    ASSERT_EQ(standard.mean.size(), 2u);
    EXPECT_DOUBLE_EQ(standard.mean[0], 1e8 + 16);
    EXPECT_DOUBLE_EQ(standard.deviation[0], std::sqrt(32.0));
    EXPECT_DOUBLE_EQ(standard.mean[1], 0);
    EXPECT_DOUBLE_EQ(standard.deviation[1], std::sqrt(2.0));
    const std::vector<float> values = normalised(set, standard);
    EXPECT_EQ(values[0], static_cast<float>(-8 / std::sqrt(32.0)));
    EXPECT_EQ(values[3], 0.0f);
  }
  const Dataset infinite = {.inputs = array_of({1}, std::vector<float>{1, INFINITY}), .targets = {}};
  EXPECT_THAT(message_of([&] { standard_normalisation(infinite); }), HasSubstr("NaN or infinity"));
}

TEST(Normalise, OnlyTheRowsOfTheTrainingSetCount) {
  Dataset part = {
      .inputs = array_of({1}, std::vector<float>{1, 100, 3, -100}), .targets = {}, .rows = {0, 2}};
  EXPECT_THAT(standard_normalisation(part).mean, ElementsAre(2));
  EXPECT_THAT(standard_normalisation(part).deviation, ElementsAre(1));
  Dataset bytes =
      labelled_images({1, 1, 1}, 2, std::vector<std::uint8_t>{0, 255, 200, 9}, std::vector<std::uint8_t>(4));
  keep_first(bytes, 2);
  EXPECT_THAT(standard_normalisation(bytes).mean, ElementsAre(0.5));
}

TEST(Numbers, AreWhatTheyWereInTheFile) {
  const auto floats = [](const auto& values) {
    const auto array = array_of({}, values);
    std::vector<float> out(values.size());
    array.visit({}, [&](std::span<const std::byte> bytes) { to_floats(array.type(), bytes, out); });
    return out;
  };
  EXPECT_THAT(floats(std::vector<double>{1 + 0x1p-24, 1 + 0x1.8p-23, -1e300}),
              ElementsAre(1.0f, 1 + 0x1p-22f, -INFINITY));
  EXPECT_THAT(floats(std::vector<std::int16_t>{-3, 32767}), ElementsAre(-3.0f, 32767.0f));
  EXPECT_THAT(floats(std::vector<std::uint64_t>{(1u << 24) + 1}), ElementsAre(0x1p24f));
  EXPECT_THAT(floats(std::vector<Float16>{Float16::from_bits(0x3c00), Float16::from_bits(0x0001)}),
              ElementsAre(1.0f, 0x1p-24f));
  EXPECT_EQ(std::bit_cast<std::uint32_t>(floats(std::vector<float>{-NAN})[0]), 0x7fffffffu);
  const ExampleArray booleans(DType::boolean, {}, {std::byte{0}, std::byte{1}, std::byte{255}});
  std::vector<std::int64_t> integers(3);
  booleans.visit({}, [&](std::span<const std::byte> bytes) { to_integers(DType::boolean, bytes, integers); });
  EXPECT_THAT(integers, ElementsAre(0, 1, 1));
}

}  // namespace
}  // namespace fp16lab::engine::data
