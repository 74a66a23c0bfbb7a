// The panel of train --live, rendered at fixed sizes.
#include "experiments/app/run/live_panel.hpp"

#include <gmock/gmock.h>

#include <bit>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "numerics/text/text.hpp"

namespace fp16lab::experiments {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Le;
using ::testing::Not;
using ::testing::SizeIs;

constexpr PanelStyle plain{.colour = false, .unicode = false};

ExponentHistogram counts_of(std::uint64_t lost, std::uint64_t subnormal, std::uint64_t normal,
                            std::uint64_t overflow) {
  ExponentHistogram counts;
  const auto add = [&](float value, std::uint64_t n) {
    for (std::uint64_t i = 0; i < n; ++i) counts.count(std::bit_cast<std::uint32_t>(value));
  };
  add(0x1p-30f, lost);
  add(0x1p-20f, subnormal);
  add(1.5f, normal);
  add(0x1.8p18f, overflow);
  return counts;
}

/// A layer whose cast to FP16 did what rounding to nearest even does.
LiveLayer cast_layer(std::string name, const ExponentHistogram& counts) {
  LiveLayer layer{.name = std::move(name)};
  layer.zones = count_ranges(counts, fp16_range, 1.0);
  layer.casts = {.values = counts.finite_nonzero(),
                 .underflow = layer.zones.lost.lower,
                 .overflow = layer.zones.overflow.lower};
  return layer;
}

LiveView some_view() {
  LiveView view;
  view.title = "run";
  view.step = 120;
  view.total_steps = 200;
  view.loss = 0.25;
  view.loss_scale = 65536;
  view.skipped = 3;
  view.steps_per_second = 50;
  view.left = "2 s";
  view.log2_scales = {16, 17, 18, 19, 20, 21, 22, 23};
  view.observed_step = 100;
  view.layers = {cast_layer("fc1", counts_of(25, 25, 50, 0)), cast_layer("fc2", counts_of(0, 0, 99, 1))};
  return view;
}

TEST(LivePanel, EightyColumns) {
  const auto lines = render(some_view(), {.columns = 80, .rows = 24}, plain);
  ASSERT_THAT(lines, SizeIs(5));
  EXPECT_EQ(lines[0].text, "run   step 120/200   loss 0.25   50 steps/s, 2 s left");
  EXPECT_EQ(lines[1].text, "scale 2^16   skipped 3   _.,-~=*#");
  EXPECT_EQ(lines[2].text, "gradients of step 100:  . lost  - subnormal  = normal  ! overflow");
  // 80 columns - "fc1" - 2 - " 25.0% lost" (12) = 63 cells: 15.75, 15.75, 31.5, by largest remainder.
  EXPECT_EQ(lines[3].text,
            "fc1  " + std::string(16, '.') + std::string(16, '-') + std::string(31, '=') + "  25.0% lost");
  EXPECT_EQ(lines[4].text, "fc2  " + std::string(62, '=') + "!" + "   0.0% lost")
      << "1% of 63 cells is one cell";
}

// What BF16 stored was not lost, wherever FP16's edges are; and what stayed FP32 was not cast at all.
TEST(LivePanel, LostIsWhatTheCastDidAndFp32SaysWhatFp16Would) {
  LiveView view = some_view();
  const ExponentHistogram counts = counts_of(25, 25, 50, 0);
  LiveLayer bf16{.name = "fc1"}, fp32{.name = "fc2"};
  bf16.zones = count_ranges(counts, range_of(DType::bf16), 1.0);
  bf16.casts = cast_counts(counts, counts);
  fp32.in_fp16 = count_ranges(counts, fp16_range, 1.0);
  view.layers = {bf16, fp32};
  const auto lines = render(view, {.columns = 80, .rows = 24}, plain);
  EXPECT_THAT(lines[2].text, ::testing::EndsWith("  would: FP16"));
  EXPECT_EQ(lines[3].text, "fc1  " + std::string(63, '=') + "   0.0% lost");
  EXPECT_THAT(lines[4].text,
              AllOf(::testing::StartsWith("fc2  ......"), ::testing::EndsWith(" 25.0% would")));
}

TEST(LivePanel, NoLineIsWiderAndNoneTooMany) {
  LiveView view = some_view();
  view.title = std::string(300, 'x');
  view.log2_scales.assign(1000, 3.5);
  for (int layer = 0; layer < 60; ++layer)
    view.layers.push_back(
        cast_layer("encoder.layer" + std::to_string(layer) + ".attention.qkv", counts_of(1, 2, 3, 4)));
  for (const bool unicode : {false, true})
    for (int columns = 1; columns <= 130; ++columns)
      for (const int rows : {1, 2, 3, 4, 5, 10, 100}) {
        const auto lines = render(view, {columns, rows}, {.unicode = unicode});
        EXPECT_LE(lines.size(), static_cast<std::size_t>(std::max(rows - 1, 1)));
        for (const PanelLine& line : lines) {
          EXPECT_LE(utf8_length(line.text), static_cast<std::size_t>(columns)) << line.text;
          EXPECT_EQ(line.text.find('\n'), std::string::npos);
          const std::string coloured = painted(line);
          const std::size_t last = coloured.rfind("\x1b[");
          EXPECT_TRUE(last == std::string::npos || coloured.compare(last, 4, "\x1b[0m") == 0)
              << "colours end with their line";
        }
      }
}

TEST(LivePanel, SaysHowManyLayersDoNotFit) {
  LiveView view = some_view();
  for (int layer = 0; layer < 20; ++layer)
    view.layers.push_back(cast_layer("l" + std::to_string(layer), counts_of(1, 1, 1, 1)));
  const auto lines = render(view, {.columns = 80, .rows = 10}, plain);
  ASSERT_THAT(lines, SizeIs(9));
  EXPECT_EQ(lines.back().text, "and 17 more layers") << "9 lines - 3 above - this one = 5 of 22";
}

TEST(LivePanel, ColoursDifferAndDoNotMoveAnything) {
  const auto lines = render(some_view(), {80, 24}, plain);
  for (const PanelLine& line : lines) {
    std::string bare = painted(line);
    for (std::size_t at = bare.find('\x1b'); at != std::string::npos; at = bare.find('\x1b'))
      bare.erase(at, bare.find('m', at) - at + 1);
    EXPECT_EQ(bare, line.text);
  }
  EXPECT_EQ(painted(lines[1]), lines[1].text) << "zones have colours, not the line of scales";
  EXPECT_THAT(painted(lines[2]), HasSubstr("\x1b[38;5;166m.\x1b[0m lost"));
  EXPECT_THAT(painted(lines[3]), HasSubstr("\x1b[38;5;166m."));
  EXPECT_THAT(painted(lines[3]), HasSubstr("\x1b[38;5;74m="));
  EXPECT_THAT(painted(lines[3]), ::testing::EndsWith("\x1b[0m  25.0% lost"));
}

TEST(LivePanel, AViewBeforeAnythingWasObserved) {
  LiveView view = some_view();
  view.observed_step = 0;
  view.layers.clear();
  view.log2_scales.clear();
  EXPECT_THAT(render(view, {80, 24}, plain), SizeIs(2));
}

TEST(LivePanel, ScalesThatAreNoPowersOfTwoAndConstantOnes) {
  LiveView view = some_view();
  view.loss_scale = 1000;
  view.log2_scales = {4, 4, 4};
  EXPECT_EQ(render(view, {80, 24}, plain)[1].text, "scale 1000   skipped 3   ___");
  view.log2_scales = {0, 7, std::nan("")};
  EXPECT_EQ(render(view, {80, 24}, plain)[1].text, "scale 1000   skipped 3   _#?");
  EXPECT_EQ(render(view, {80, 24}, {.colour = false, .unicode = true})[1].text,
            "scale 1000   skipped 3   \u2581\u2588?");
}

TEST(LivePanel, TheSparklineShowsTheNewest) {
  LiveView view = some_view();
  view.log2_scales.assign(100, 0.0);
  view.log2_scales.back() = 1.0;
  const std::string line = render(view, {40, 24}, plain)[1].text;
  EXPECT_EQ(line.size(), 40u);
  EXPECT_EQ(line.back(), '#');
}

TEST(LivePanel, SharesAddUpToTheWhole) {
  EXPECT_THAT(share_cells({1, 1, 2, 0}, 8), ElementsAre(2, 2, 4, 0));
  EXPECT_THAT(share_cells({1, 1000000, 0, 1}, 10), ElementsAre(1, 8, 0, 1));
  EXPECT_THAT(share_cells({5, 7, 6, 1}, 2), ElementsAre(0, 1, 1, 0)) << "the greatest where not all fit";
  EXPECT_THAT(share_cells({0, 0, 0, 0}, 5), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(share_cells({3, 1}, 0), ElementsAre(0, 0));
  for (std::uint64_t a = 0; a < 40; a += 3)
    for (std::uint64_t b = 0; b < 40; b += 7)
      for (int cells = 1; cells < 30; ++cells) {
        const auto shares = share_cells({a, b, 11}, cells);
        EXPECT_EQ(std::accumulate(shares.begin(), shares.end(), 0), cells);
        EXPECT_THAT(shares, Each(Le(cells)));
      }
}

}  // namespace
}  // namespace fp16lab::experiments
