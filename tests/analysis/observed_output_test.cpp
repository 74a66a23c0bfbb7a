// The output of hist for tensors other than gradients: the zones of updates against weights that are really
// rounded, and the tables.
#include "analysis/observed_output.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "numerics/formats/bits.hpp"
#include "numerics/histogram/zones.hpp"

namespace fp16lab::analysis {
namespace {

using testing::HasSubstr;

/// To nearest, ties to even, as the processor rounds; normal numbers only.
float in_bf16(double value) {
  int e = 0;
  const double significand = std::frexp(value, &e);
  return static_cast<float>(std::ldexp(std::nearbyint(std::ldexp(significand, 8)), e - 8));
}
float in_f16(double value) { return static_cast<float>(static_cast<_Float16>(value)); }

TEST(ObservedOutput, ZonesOfUpdatesAreWhatRoundingMakesOfThem) {
  std::mt19937 random(7);
  std::uniform_real_distribution<float> significand(1, 2);
  for (const auto& [format, rounded] : {std::pair{DType::f16, &in_f16}, std::pair{DType::bf16, &in_bf16}}) {
    const FormatRange range = judged_range(Observed::updates, format);
    int lost = 0, kept = 0, moved = 0;
    for (int i = 0; i < 200000; ++i) {
      const float sign = i % 2 == 0 ? 1.0f : -1.0f;
      // Powers of two among them: the spacing below is half of that above.
      const float w = rounded(static_cast<double>(i % 5 == 0 ? 1.0f : significand(random)));
      const int e = -range_of(format).precision - 4 + i % 7;
      const float u = sign * (i % 11 == 0 ? std::ldexp(w, e) : std::ldexp(w * significand(random), e));
      const bool moves = rounded(static_cast<double>(w) + static_cast<double>(u)) != w;
      ExponentHistogram histogram;
      histogram.count(bits_of(std::abs(u / w)));
      const RangeCounts counts = count_ranges(histogram, range, 1.0);
      if (counts.lost.lower == 1) {
        ASSERT_FALSE(moves) << w << " + " << u;
        ++lost;
      } else if (counts.normal.lower == 1) {
        // A tie, which goes to the even one: the power of two itself.
        const bool tie = std::abs(u / w) == std::ldexp(1.0f, range.smallest_normal);
        ASSERT_TRUE(moves || tie) << w << " + " << u;
        ++moved;
      } else {
        ++kept;
      }
    }
    EXPECT_GT(lost, 1000);
    EXPECT_GT(kept, 1000);
    EXPECT_GT(moved, 1000);
  }
}

HistogramRow row_of(Observed observed, const std::string& tensor, const std::vector<float>& values) {
  HistogramRow row{.step = 4, .tensor = tensor, .observed = observed, .kind = "weight", .dtype = DType::f16};
  for (const float value : values) row.before.count(bits_of(value));
  row.after = row.before;
  return row;
}

TEST(ObservedOutput, TablesCountWhatTheRowsHold) {
  HistogramRow weight = row_of(Observed::weights, "fc.weight", {0.0f, 0x1p-30f, 0x1p-20f, 1.0f, 1e6f});
  weight.after.zero += 1;
  std::ostringstream table;
  const std::vector<DType> both{DType::f16, DType::bf16};
  print_observed(table, Observed::weights, std::vector{weight}, both);
  EXPECT_THAT(table.str(), HasSubstr("Weights in FP16, percent of the finite non-zero values\n"));
  EXPECT_THAT(table.str(), HasSubstr("fc.weight    FP16               5    20.0        25.0        25.0"
                                     "        25.0        25.0\n"));
  EXPECT_THAT(table.str(), HasSubstr("Weights in BF16"));
  std::ostringstream json;
  write_observed_json(json, Observed::weights, std::vector{weight}, both);
  EXPECT_THAT(json.str(), HasSubstr("\"observed\": \"weights\""));
  EXPECT_THAT(json.str(), HasSubstr("\"underflow\": 1"));

  HistogramRow update = row_of(Observed::updates, "fc.weight", {0.0f, 0.0f, 0x1p-14f, 0.25f});
  update.unmoved = 1;
  std::ostringstream updates;
  print_observed(updates, Observed::updates, std::vector{update}, std::vector{DType::f16});
  EXPECT_THAT(updates.str(), HasSubstr("FP16               4      50.0      25.0        50.0           0"
                                       "        50.0\n"));
  UpdateCounts counts;
  counts.add(update);
  counts.add(update);
  EXPECT_EQ(words_of(counts),
            "of 8 updates of a weight 2 (25.0 %) did not change it, although its gradient was not zero");
}

}  // namespace
}  // namespace fp16lab::analysis
