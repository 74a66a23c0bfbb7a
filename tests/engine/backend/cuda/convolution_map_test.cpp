// The index maps of the CUDA back end's convolutions against the definition of the three products, element by
// element: strides, padding, dilation, both layouts, both orders of the chain. And the division that they
// lean on.
#include "engine/backend/cuda/product/convolution_map.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <vector>

#include "engine/backend/cuda/product/convolution_plan.hpp"
#include "engine/backend/cuda/runtime/fast_division.hpp"
#include "tests/support/message_of.hpp"

namespace fp16lab::engine::test {
namespace {

using functions::Conv2dPlan;
using functions::DepthOrder;
using functions::DepthWalk;
using functions::Divisor;
using functions::PatchDepth;
using functions::PatchMap;
using functions::PatchPosition;
using functions::PatchSource;
using functions::PositionWalk;
using functions::window_count;
using functions::WindowAxis;

/// Every axis on its own: small extents in all combinations of taps, stride, padding and dilation that fit.
std::vector<WindowAxis> axes() {
  std::vector<WindowAxis> all;
  for (const std::int64_t input : {1, 2, 5, 6})
    for (const std::int64_t taps : {1, 2, 3})
      for (const std::int64_t stride : {1, 2, 3, 4})
        for (const std::int64_t padding : {0, 1, 3})
          for (const std::int64_t dilation : {1, 2}) {
            const std::int64_t output = window_count(input, taps, stride, padding, dilation);
            if (output > 0) all.push_back({input, output, taps, stride, padding, dilation});
          }
  return all;
}

struct Place {
  std::int64_t n, c, h, w;
};
std::int64_t offset_of(const Place& at, Layout layout, std::int64_t channels, std::int64_t height,
                       std::int64_t width) {
  return layout == Layout::nchw ? ((at.n * channels + at.c) * height + at.h) * width + at.w
                                : ((at.n * height + at.h) * width + at.w) * channels + at.c;
}

std::string describe(const WindowAxis& axis) {
  return fmt::format("extent {}, taps {}, stride {}, padding {}, dilation {}", axis.input, axis.taps,
                     axis.stride, axis.padding, axis.dilation);
}

/// The map's element, by comparisons and by sets of taps alike.
std::int64_t element(const PatchMap& map, std::int64_t position, std::int64_t k) {
  const PatchPosition at = map.position(position);
  const PatchDepth depth = map.depth_index(k);
  const std::int64_t element = map.element(at, depth);
  if (map.has_tap_bits() && position < map.positions()) {
    EXPECT_EQ((map.taps_read(at) & depth.taps) == depth.taps, element >= 0) << position << ", " << k;
  }
  return element;
}

/// Walks the depth of `channels` x taps in an order: body(k, channel, r, s).
template <class Body>
void for_each_depth(const Conv2dPlan& plan, std::int64_t channels, DepthOrder order, const Body& body) {
  const std::int64_t rows = plan.vertical.taps, columns = plan.horizontal.taps;
  std::int64_t k = 0;
  if (order == DepthOrder::channel_row_column) {
    for (std::int64_t c = 0; c < channels; ++c)
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t s = 0; s < columns; ++s) body(k++, c, r, s);
  } else {
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t s = 0; s < columns; ++s)
        for (std::int64_t c = 0; c < channels; ++c) body(k++, c, r, s);
  }
}

constexpr std::int64_t images = 2, inputs = 3, outputs = 2;

void expect_windows_of_x(const Conv2dPlan& plan, Layout layout, DepthOrder order) {
  const WindowAxis &v = plan.vertical, &h = plan.horizontal;
  const PatchMap map(plan, PatchSource::inputs, layout, order);
  ASSERT_EQ(map.positions(), images * v.output * h.output);
  ASSERT_EQ(map.depth(), inputs * v.taps * h.taps);
  for_each_depth(plan, inputs, order, [&](std::int64_t k, std::int64_t c, std::int64_t r, std::int64_t s) {
    std::int64_t position = 0;
    for (std::int64_t n = 0; n < images; ++n)
      for (std::int64_t p = 0; p < v.output; ++p)
        for (std::int64_t q = 0; q < h.output; ++q, ++position) {
          const std::int64_t y = p * v.stride - v.padding + r * v.dilation,
                             x = q * h.stride - h.padding + s * h.dilation;
          const bool inside = y >= 0 && y < v.input && x >= 0 && x < h.input;
          const std::int64_t expected =
              inside ? offset_of({n, c, y, x}, layout, inputs, v.input, h.input) : -1;
          ASSERT_EQ(element(map, position, k), expected)
              << describe(v) << "; " << describe(h) << "; position " << position << ", k " << k;
        }
  });
}

void expect_places_of_dy(const Conv2dPlan& plan, Layout layout, DepthOrder order) {
  const WindowAxis &v = plan.vertical, &h = plan.horizontal;
  const PatchMap map(plan, PatchSource::outputs, layout, order);
  ASSERT_EQ(map.positions(), images * v.input * h.input);
  ASSERT_EQ(map.depth(), outputs * v.taps * h.taps);
  /// The window whose tap t touches place i, by search.
  const auto window = [](const WindowAxis& axis, std::int64_t i, std::int64_t t) -> std::int64_t {
    for (std::int64_t o = 0; o < axis.output; ++o)
      if (o * axis.stride - axis.padding + t * axis.dilation == i) return o;
    return -1;
  };
  for_each_depth(plan, outputs, order, [&](std::int64_t k, std::int64_t c, std::int64_t r, std::int64_t s) {
    std::int64_t position = 0;
    for (std::int64_t n = 0; n < images; ++n)
      for (std::int64_t y = 0; y < v.input; ++y)
        for (std::int64_t x = 0; x < h.input; ++x, ++position) {
          const std::int64_t p = window(v, y, r), q = window(h, x, s);
          const std::int64_t expected =
              p < 0 || q < 0 ? -1 : offset_of({n, c, p, q}, layout, outputs, v.output, h.output);
          ASSERT_EQ(element(map, position, k), expected)
              << describe(v) << "; " << describe(h) << "; position " << position << ", k " << k;
        }
  });
}

template <class Check>
void for_each_plan(const Check& check) {
  const std::vector<WindowAxis> all = axes();
  // Each axis beside another one that differs from it in everything.
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Conv2dPlan plan{images, inputs, outputs, all[i], all[(i * 37 + 11) % all.size()]};
    for (const Layout layout : {Layout::nchw, Layout::nhwc})
      for (const DepthOrder order : {DepthOrder::channel_row_column, DepthOrder::row_column_channel}) {
        check(plan, layout, order);
        if (testing::Test::HasFatalFailure()) return;
      }
  }
}

TEST(ConvolutionMap, WindowsReadTheElementsOfXInTheOrderOfTheChain) { for_each_plan(expect_windows_of_x); }

TEST(ConvolutionMap, PlacesReadTheWindowsOfDyThatTouchThem) { for_each_plan(expect_places_of_dy); }

TEST(ConvolutionMap, WalksAlongPositionsMeetTheSameElements) {
  // 12 steps: over the ends of rows, of images, and of all positions.
  for_each_plan([](const Conv2dPlan& plan, Layout layout, DepthOrder order) {
    const PatchMap map(plan, PatchSource::inputs, layout, order);
    for (std::int64_t k = 0; k < map.depth() + 2; k += 5)
      for (std::int64_t first = 0; first < map.positions() + 20; first += 4) {
        PositionWalk walk(map, first, map.position(first), map.depth_index(k));
        for (std::int64_t i = first; i < first + 12; ++i, walk.next(map))
          ASSERT_EQ(walk.element(map), element(map, i, k))
              << describe(plan.vertical) << "; " << describe(plan.horizontal);
      }
  });
}

TEST(ConvolutionMap, WalksAlongDepthMeetTheSameElements) {
  for_each_plan([](const Conv2dPlan& plan, Layout layout, DepthOrder order) {
    if (order != DepthOrder::row_column_channel) return;
    for (const PatchSource source : {PatchSource::inputs, PatchSource::outputs}) {
      if (source == PatchSource::outputs && plan.vertical.taps * plan.horizontal.taps > 1) continue;
      const PatchMap map(plan, source, layout, order);
      for (std::int64_t position = 0; position < map.positions() + 2; position += 3)
        for (std::int64_t first = 0; first < map.depth() + 10; first += 4) {
          DepthWalk walk(map, map.position(position), first, map.depth_index(first));
          for (std::int64_t k = first; k < first + 12; ++k, walk.next(map))
            ASSERT_EQ(walk.element(map), element(map, position, k))
                << describe(plan.vertical) << "; " << describe(plan.horizontal);
        }
    }
  });
}

TEST(ConvolutionMap, AGroupReadsItsChannelsAStepFurtherOn) {
  constexpr std::int64_t groups = 3;
  for_each_plan([](Conv2dPlan plan, Layout layout, DepthOrder order) {
    plan.inputs *= groups;
    plan.outputs *= groups;
    plan.groups = groups;
    for (const PatchSource source : {PatchSource::inputs, PatchSource::outputs}) {
      const bool x = source == PatchSource::inputs;
      const PatchMap map(plan, source, layout, order);
      const std::int64_t channels = x ? inputs : outputs, rows = plan.vertical.taps,
                         columns = plan.horizontal.taps;
      ASSERT_EQ(map.depth(), channels * rows * columns);
      // One group's channels read what a map of all channels reads there.
      Conv2dPlan whole = plan;
      whole.groups = 1;
      const PatchMap all(whole, source, layout, order);
      for_each_depth(
          plan, channels, order, [&](std::int64_t k, std::int64_t c, std::int64_t r, std::int64_t s) {
            for (std::int64_t group = 0; group < groups; ++group)
              for (std::int64_t position = 0; position < map.positions(); position += 3) {
                const std::int64_t channel = group * channels + c;
                const std::int64_t deep = order == DepthOrder::channel_row_column
                                              ? (channel * rows + r) * columns + s
                                              : (r * columns + s) * groups * channels + channel;
                const std::int64_t expected = element(all, position, deep), found = element(map, position, k);
                ASSERT_EQ(found < 0 ? -1 : found + group * map.group_step(), expected)
                    << describe(plan.vertical) << "; " << describe(plan.horizontal) << "; group " << group;
              }
          });
    }
  });
}

TEST(ConvolutionMap, ManyTapsHaveNoBitsAndTheSameElements) {
  const WindowAxis tall{40, 6, 35, 1, 0, 1}, flat{5, 3, 3, 1, 0, 1};
  const Conv2dPlan plan{images, inputs, outputs, tall, flat};
  EXPECT_FALSE(
      PatchMap(plan, PatchSource::inputs, Layout::nchw, DepthOrder::channel_row_column).has_tap_bits());
  expect_windows_of_x(plan, Layout::nchw, DepthOrder::channel_row_column);
  expect_places_of_dy(plan, Layout::nchw, DepthOrder::channel_row_column);
}

TEST(ConvolutionMap, WhatFollowsTheLastPositionOrDepthIsZero) {
  const WindowAxis axis{5, 3, 3, 2, 1, 1};
  const Conv2dPlan plan{images, inputs, outputs, axis, axis};
  for (const PatchSource source : {PatchSource::inputs, PatchSource::outputs}) {
    const PatchMap map(plan, source, Layout::nhwc, DepthOrder::row_column_channel);
    for (const std::int64_t position :
         {std::int64_t{0}, map.positions() - 1, map.positions(), map.positions() + 1000})
      for (const std::int64_t k : {std::int64_t{0}, map.depth() - 1, map.depth(), map.depth() + 1000})
        if (position >= map.positions() || k >= map.depth()) {
          EXPECT_EQ(element(map, position, k), -1);
        }
  }
}

TEST(ConvolutionMap, OffsetsOfLargeTensorsNeed64Bits) {
  // One channel of 2^13 x 2^13, 64 images of 3 channels: more than 2^33 elements.
  const WindowAxis axis{std::int64_t{1} << 13, std::int64_t{1} << 13, 3, 1, 1, 1};
  const Conv2dPlan plan{64, inputs, outputs, axis, axis};
  ASSERT_TRUE(PatchMap::holds(plan));
  const PatchMap map(plan, PatchSource::inputs, Layout::nchw, DepthOrder::channel_row_column);
  // Window (63, 8190, 8190), the last tap of the last channel: the last element of all.
  const std::int64_t side = axis.input, position = (63 * side + side - 2) * side + side - 2;
  EXPECT_EQ(element(map, position, map.depth() - 1), 64 * inputs * side * side - 1);
}

TEST(ConvolutionMap, FlattenedPlanesHoldTheSameElements) {
  for_each_plan([](const Conv2dPlan& plan, Layout layout, DepthOrder order) {
    const Conv2dPlan flat = functions::flattened(plan);
    const auto pointwise = [](const WindowAxis& axis) {
      return axis.taps == 1 && axis.stride == 1 && axis.padding == 0;
    };
    ASSERT_EQ(
        flat.vertical.input == 1 && flat.horizontal.input == plan.vertical.input * plan.horizontal.input,
        (pointwise(plan.vertical) && pointwise(plan.horizontal)) || plan.vertical.input == 1);
    for (const PatchSource source : {PatchSource::inputs, PatchSource::outputs}) {
      const PatchMap map(plan, source, layout, order), other(flat, source, layout, order);
      ASSERT_EQ(map.positions(), other.positions());
      ASSERT_EQ(map.depth(), other.depth());
      for (std::int64_t position = 0; position < map.positions(); ++position)
        for (std::int64_t k = 0; k < map.depth(); ++k)
          ASSERT_EQ(element(map, position, k), element(other, position, k));
    }
  });
}

TEST(ConvolutionMap, ProductsThatNeedMoreThan32BitsAreRefused) {
  const WindowAxis usual{5, 3, 3, 2, 1, 1};
  EXPECT_NO_THROW(functions::convolution_plan("conv2d", {images, inputs, outputs, usual, usual}));
  const auto refusal = [](const Conv2dPlan& plan) {
    return testing_support::message_of([&] { functions::convolution_plan("conv2d", plan); });
  };
  constexpr std::int64_t many = std::int64_t{1} << 31;
  EXPECT_EQ(refusal({many, inputs, outputs, usual, usual}),
            "conv2d: 19327352832 windows; on a GPU there must be fewer than 2147483392");
  EXPECT_EQ(refusal({images, many, outputs, usual, usual}),
            "conv2d: 19327352832 weights of a filter; on a GPU there must be fewer than 2147483392");
  WindowAxis padded = usual;
  padded.padding = PatchMap::largest_coordinate;
  EXPECT_EQ(refusal({images, inputs, outputs, padded, usual}),
            "conv2d: an extent with its padding and the reach of its taps, a stride or a dilation is above "
            "536870912, "
            "too much for a GPU");
}

TEST(ConvolutionMap, CoordinatesThatNeedMoreThan32BitsAreRefused) {
  const WindowAxis usual{5, 3, 3, 2, 1, 1};
  EXPECT_TRUE(PatchMap::holds({images, inputs, outputs, usual, usual}));
  WindowAxis padded = usual;
  padded.padding = PatchMap::largest_coordinate;
  EXPECT_FALSE(PatchMap::holds({images, inputs, outputs, padded, usual}));
  EXPECT_FALSE(PatchMap::holds({images, inputs, outputs, usual, padded}));
}

// ---- division ----

/// Quotients step up at multiples of d, so the numbers on both sides of a multiple are those that could go
/// wrong.
void expect_division(std::int64_t d, std::int64_t multiple) {
  const Divisor by(d);
  for (const std::int64_t n : {multiple - 1, multiple, multiple + 1}) {
    if (n < 0) continue;
    std::int64_t rest = n;
    const std::int64_t remainder = by.take(rest);
    ASSERT_EQ(by.quotient(n), n / d) << n << " / " << d;
    ASSERT_EQ(rest, n / d) << n << " / " << d;
    ASSERT_EQ(remainder, n % d) << n << " / " << d;
  }
}

TEST(Division, AgreesAroundEveryMultipleOfSmallDivisors) {
  constexpr std::int64_t end = std::int64_t{1} << 31;
  for (std::int64_t d = 1; d <= 4096; ++d) {
    for (std::int64_t i = 0; i <= 200; ++i) expect_division(d, i * d);
    // Where the error of the multiplier is largest: the last multiples below 2^31, and beyond the fast way.
    for (std::int64_t i = 0; i <= 20; ++i) expect_division(d, (end / d - i) * d);
    expect_division(d, (end / d + 1) * d);
    if (HasFatalFailure()) return;
  }
}

TEST(Division, AgreesForEveryDivisorAroundAPowerOfTwo) {
  constexpr std::int64_t end = std::int64_t{1} << 31;
  for (int exponent = 12; exponent <= 40; ++exponent)
    for (std::int64_t delta = -300; delta <= 300; ++delta) {
      const std::int64_t d = (std::int64_t{1} << exponent) + delta;
      expect_division(d, d);
      expect_division(d, 2 * d);
      expect_division(d, end);
      if (d < end)
        for (std::int64_t i = 0; i <= 3; ++i) expect_division(d, (end / d - i) * d);
      expect_division(d, (std::int64_t{1} << 62) / d * d);
      if (HasFatalFailure()) return;
    }
}

TEST(Division, TheMultiplierIsExactEnoughForEveryNumerator) {
  // Granlund and Montgomery, theorem 4.2: with 2^(32 + s) <= M d <= 2^(32 + s) + 2^s, M = 2^32 + m, every
  // 32-bit n is divided right. Checked by its consequence at the one numerator of each quotient that would
  // fail first, n = q d - 1 for the largest q, over divisors spread across 31 bits.
  std::uint64_t state = 1;
  for (int i = 0; i < 2'000'000; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const auto d = static_cast<std::int64_t>(state >> 33 >> (state >> 20 & 31)) + 1;
    const std::int64_t top = ((std::int64_t{1} << 31) - 1) / d * d;
    const Divisor by(d);
    ASSERT_EQ(by.quotient(top), top / d) << d;
    ASSERT_EQ(by.quotient(top - 1), (top - 1) / d) << d;
  }
}

}  // namespace
}  // namespace fp16lab::engine::test
