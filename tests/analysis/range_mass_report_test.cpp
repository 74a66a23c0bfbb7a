// Range reports by magnitude against the values themselves, recorded casts, values at hand, and the output.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "analysis/range_output.hpp"
#include "analysis/range_report.hpp"
#include "analysis/suggested_scale.hpp"
#include "numerics/formats/bits.hpp"
#include "tests/analysis/values.hpp"

namespace fp16lab::analysis {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::vector<float> gradients(std::uint32_t seed, int low, int high) {
  std::mt19937 engine(seed);
  std::vector<float> values;
  for (int i = 0; i < 400; ++i)
    values.push_back(std::ldexp(1.0f + static_cast<float>(engine() >> 9) * 0x1p-23f,
                                low + static_cast<int>(engine() % static_cast<unsigned>(high - low))));
  return values;
}

TEST(RangeMassReport, MassesAreOfTheUnscaledGradientsWhateverScaleTheyHad) {
  const std::vector<float> a = gradients(1, -36, -8), b = gradients(2, -30, 2);
  ScaledHistograms histograms;
  histograms.add(histogram_of(a), 1.0);
  histograms.add(histogram_of(times_power_of_two(b, 10)), 1024.0);
  histograms.add(histogram_of(times_power_of_two(a, -3)), 0.125);
  std::vector<float> all = a;
  all.insert(all.end(), b.begin(), b.end());
  all.insert(all.end(), a.begin(), a.end());
  for (int k = -4; k <= 24; ++k) {
    const double scale = std::ldexp(1.0, k);
    // 24-bit values between 2^-36 and 2^2, 1200 of them: 11 + 38 + 24 bits, cut to 64 by long double,
    // relative 2^-53.
    long double l1[4] = {}, squares[4] = {}, total = 0, total_squares = 0;
    for (const float x : all) {
      const double y = static_cast<double>(x) * scale;
      const int zone = y <= 0x1p-25 ? 0 : y < 0x1p-14 ? 1 : y < 65520 ? 2 : 3;
      const auto wide = static_cast<long double>(x);
      l1[zone] += wide;
      squares[zone] += wide * wide;
      total += wide;
      total_squares += wide * wide;
    }
    const ZoneMass mass = histograms.mass_at(f16, scale);
    const auto expect_inside = [&](const ZoneSums& sums, const long double(&zones)[4], long double sum) {
      const ZoneSum* const found[] = {&sums.lost, &sums.subnormal, &sums.normal, &sums.overflow};
      EXPECT_LE(sums.total.lower, sum);
      EXPECT_GE(sums.total.upper, sum);
      for (int zone = 0; zone < 4; ++zone) {
        EXPECT_LE(found[zone]->inside.lower, zones[zone] * (1 + 0x1p-50L)) << k << ' ' << zone;
        EXPECT_GE(found[zone]->inside.upper, zones[zone] * (1 - 0x1p-50L)) << k << ' ' << zone;
        EXPECT_LE(found[zone]->share().lower, zones[zone] / sum * (1 + 0x1p-50L)) << k << ' ' << zone;
        EXPECT_GE(found[zone]->share().upper, zones[zone] / sum * (1 - 0x1p-50L)) << k << ' ' << zone;
      }
    };
    expect_inside(mass.l1, l1, total);
    expect_inside(mass.l2_squared, squares, total_squares);
    const std::optional<MassInterval> cosine = histograms.cosine_at(f16, scale);
    if (squares[3] > 0) {
      EXPECT_EQ(cosine, std::nullopt) << "a gradient with an infinity has no direction";
    } else if (cosine) {
      EXPECT_LE(cosine->lower, cosine->upper);
      // What flushing alone leaves, ||kept|| / ||x||, is between.
      const double kept = static_cast<double>(std::sqrt((total_squares - squares[0]) / total_squares));
      EXPECT_GE(cosine->upper, kept - 0x1p-45);
      EXPECT_LE(cosine->lower, kept + 0x1p-45);
    }
  }
}

TEST(RangeMassReport, CastsAreWhatWasStoredNotWhatFp16WouldDo) {
  // Paddle's comparison report printed the FP32 tensor's zeros as the FP16 tensor's.
  HistogramRow row;
  row.tensor = "w";
  row.dtype = DType::f16;
  row.loss_scale = 2;
  row.before = histogram_of({0, 0, 0, 0x1p-25f, 0x1p-30f, 1.0f});
  row.after = histogram_of({0, 0, 0, 0, 0, 1.0f});
  RangeReport report;
  report.add(row);
  row.tensor = "b";
  row.before = row.after = histogram_of({0, 1.0f});
  report.add(row);
  // The operands of a product, rounded to E5M2: the tensor's values once more, which are not counted twice.
  row.tensor = "w";
  row.dtype = DType::e5m2;
  row.before = histogram_of({0, 0, 0, 0x1p-24f, 0x1p-20f, 1.0f});
  row.after = histogram_of({0, 0, 0, 0, 0, 1.0f});
  report.add(row);
  ASSERT_EQ(report.casts().size(), 3u);
  EXPECT_EQ(report.casts()[0].counts, (CastCounts{.values = 3, .underflow = 2}));
  EXPECT_EQ(report.casts()[1].counts, (CastCounts{.values = 1}));
  EXPECT_EQ(report.casts()[2].dtype, DType::e5m2);
  EXPECT_EQ(report.casts()[2].counts, (CastCounts{.values = 3, .underflow = 2}));
  EXPECT_EQ(report.merged().at_scale(f16, 2).total, 8u);
  // At the recorded scale the histogram before the cast gives the same: it counts zeros apart from losses.
  const RangeCounts counts = report.tensor("w").at_scale(f16, 2);
  EXPECT_EQ(counts.zero, 3u);
  EXPECT_EQ(counts.lost, (CountInterval{2, 2}));
  std::ostringstream table, text;
  print_casts(table, report);
  EXPECT_THAT(table.str(),
              ::testing::ContainsRegex("format +values +rounded to 0 +overflowed\nw +FP16 +3 +2 +0\n"
                                       "b +FP16 +1 +0 +0\nw +E5M2 +3 +2 +0\n"
                                       "all tensors +FP16 +4 +2 +0\nall tensors +E5M2 +3 +2 +0\n"));
  write_json(text, report, {DType::f16, 2}, suggest_scale(report, DType::f16));
  const nlohmann::json json = nlohmann::json::parse(text.str());
  EXPECT_EQ(json["tensors"][0]["casts"],
            nlohmann::json::parse(R"([{"dtype": "f16", "values": 3, "underflow": 2, "overflow": 0},
                                      {"dtype": "e5m2", "values": 3, "underflow": 2, "overflow": 0}])"));
  EXPECT_EQ(json["tensors"][0]["zero"], 3);
  // FP32 stores what was there, and values without a cast have none.
  row.dtype = DType::f32;
  RangeReport single;
  single.add(row);
  EXPECT_TRUE(single.casts().empty());
  std::ostringstream nothing;
  print_casts(nothing, single);
  EXPECT_EQ(nothing.str(), "");
}

TEST(RangeMassReport, TheEdgesOfFp16) {
  const auto zones = [](float x) {
    ScaledHistograms one;
    one.add(histogram_of({x}), 1.0);
    return one;
  };
  constexpr CountInterval certain{1, 1}, none{0, 0}, doubtful{0, 1};
  EXPECT_EQ(zones(0x1p-25f).at_scale(f16, 1).lost, certain);
  EXPECT_EQ(zones(0x1p-25f).mass_at(f16, 1).l1.lost.share(), (MassInterval{1, 1}));
  const float above = std::nextafter(0x1p-25f, 1.0f);
  EXPECT_EQ(zones(above).at_scale(f16, 1).lost, none);
  EXPECT_EQ(zones(above).mass_at(f16, 1).l1.lost.share(), (MassInterval{0, 0}));
  EXPECT_EQ(zones(above).mass_at(f16, 1).l1.subnormal.share(), (MassInterval{1, 1}));
  // The extremes of a histogram show on which side of the threshold its greatest value is; counts alone
  // cannot.
  EXPECT_EQ(zones(65519.99f).at_scale(f16, 1).overflow, none);
  EXPECT_EQ(zones(65520.0f).at_scale(f16, 1).overflow, certain);
  for (const float x : {65519.99f, 65520.0f}) {
    ExponentHistogram counted = histogram_of({x});
    counted.forget_extremes();
    ScaledHistograms counts;
    counts.add(counted, 1.0);
    EXPECT_EQ(counts.at_scale(f16, 1).overflow, doubtful);
    EXPECT_EQ(counts.mass_at(f16, 1).l1.overflow.share(), (MassInterval{0, 1}));
    EXPECT_EQ(counts.at_scale(f16, 2).overflow, certain);
    EXPECT_EQ(counts.at_scale(f16, 0.5).overflow, none);
  }
}

TEST(RangeReportOfValues, IsExactAtEveryScaleAndInsideTheBoundsOfHistograms) {
  const std::vector<FormatRange> ranges{range_of(DType::f16), range_of(DType::bf16), range_of(DType::e4m3),
                                        range_of(DType::e5m2)};
  const std::vector<double> recorded{1.0, 1024.0};
  const auto bins = value_bins(ranges, recorded, 3.0);
  std::vector<float> a = gradients(3, -36, 20);
  a.insert(a.end(), {65519.99f, 65520.0f, 0x1p-25f, 464.0f, 464.0001f, 61440.0f});
  const std::vector<float> b = times_power_of_two(a, 10);
  RangeReport exact, bounds;
  add_values(exact, "a", a, 1.0, bins);
  add_values(exact, "b", b, 1024.0, bins);
  bounds.add("a", histogram_of(a), 1.0);
  bounds.add("b", histogram_of(b), 1024.0);
  std::vector<std::optional<double>> scales{3.0};
  for (int k = min_log2_scale; k <= max_log2_scale; ++k) scales.push_back(std::ldexp(1.0, k));
  for (const FormatRange& range : ranges)
    for (const std::optional<double>& scale : scales) {
      const RangeCounts counts = exact.merged().at_scale(range, scale),
                        around = bounds.merged().at_scale(range, scale);
      std::uint64_t overflow = 0, lost = 0;
      for (const float x : a) {  // products of 24 bits and 2, exact in FP64
        const double y = static_cast<double>(x) * *scale;
        lost += y <= std::ldexp(1.0, range.tie_to_zero) ? 2 : 0;
        overflow +=
            y > range.overflow_threshold() || (range.threshold_overflows && y == range.overflow_threshold())
                ? 2
                : 0;
      }
      EXPECT_EQ(counts.lost, (CountInterval{lost, lost}));
      EXPECT_EQ(counts.overflow, (CountInterval{overflow, overflow}));
      EXPECT_TRUE(counts.subnormal.exact() && counts.normal.exact());
      EXPECT_EQ(counts.total, around.total);
      EXPECT_LE(around.overflow.lower, overflow);
      EXPECT_GE(around.overflow.upper, overflow);
      const ZoneMass mass = exact.merged().mass_at(range, scale),
                     mass_around = bounds.merged().mass_at(range, scale);
      const MassInterval share = mass.l1.lost.share();
      EXPECT_EQ(share.lower, share.upper) << "a sum that is known is no interval";
      EXPECT_LE(mass_around.l1.lost.share().lower, share.lower);
      EXPECT_GE(mass_around.l1.lost.share().upper, share.upper);
      const auto cosine = exact.merged().cosine_at(range, scale),
                 bound = bounds.merged().cosine_at(range, scale);
      EXPECT_EQ(cosine.has_value(), overflow == 0);
      if (cosine && bound) {
        EXPECT_GE(cosine->lower, bound->lower - 0x1p-40);
      }
    }
  EXPECT_THROW((void)exact.merged().at_scale(f16, 5.0), std::invalid_argument);
}

TEST(RangeMassOutput, JsonOfHistogramsAndOfValues) {
  RangeReport report;
  const std::vector<float> values{0.0f, 0x1p-30f, 0x1.8p-20f, 1.5f, 1.5f};
  report.add("fc1.weight", histogram_of(values), 1.0);
  std::ostringstream out;
  write_json(out, report, {DType::f16, 1.0, true}, suggest_scale(report, DType::f16));
  const nlohmann::json json = nlohmann::json::parse(out.str());
  EXPECT_EQ(json["format"], "f16");
  EXPECT_TRUE(json["exact"].empty()) << "a histogram has no exact sums";
  const nlohmann::json& tensor = json["tensors"][0];
  EXPECT_EQ(tensor["total"], 5);
  EXPECT_EQ(tensor["zero"], 1);
  EXPECT_EQ(tensor["lost"], (nlohmann::json{1, 1}));
  EXPECT_EQ(tensor["overflow"], (nlohmann::json{0, 0}));
  EXPECT_TRUE(tensor["casts"].empty());
  EXPECT_EQ(tensor["what_if"].size(), 35u);
  EXPECT_EQ(tensor["what_if"][10]["lost"], (nlohmann::json{1, 1}));
  EXPECT_EQ(tensor["what_if"][10]["lost_l1"], tensor["l1"]["lost"]);
  EXPECT_EQ(tensor["what_if"][16]["lost_l1"], (nlohmann::json{0.0, 0.0}));  // 2^6 saves 2^-30
  EXPECT_LT(tensor["l1"]["lost"][1].get<double>(), 0x1p-28);
  EXPECT_GT(tensor["cosine"][0].get<double>(), 0.999);
  EXPECT_TRUE(tensor["what_if"][34]["cosine"].is_null()) << "1.5 * 2^24 overflows";
  EXPECT_EQ(json["suggestion"]["greatest"], 15) << "1.5 * 2^15 is 49152";
  EXPECT_EQ(json["suggestion"]["fits"], true);
  EXPECT_EQ(tensor["suggestion"], json["suggestion"]) << "of the one tensor";

  RangeReport exact;
  add_values(exact, "fc1.weight", values, 1.0,
             value_bins(std::vector<FormatRange>{f16}, std::vector<double>{1.0}, 1.0));
  std::ostringstream text, table;
  write_json(text, exact, {DType::f16, 1.0, true}, suggest_scale(exact, DType::f16));
  const nlohmann::json entry = nlohmann::json::parse(text.str())["exact"][0];
  EXPECT_EQ(entry["total"]["l1"].get<double>(), 3 + 0x1.8p-20 + 0x1p-30);
  EXPECT_EQ(entry["lost"]["count"], 1);
  EXPECT_EQ(entry["lost"]["l1"].get<double>(), 0x1p-30);
  print_table(table, exact, {DType::f16, 1.0, true}, suggest_scale(exact, DType::f16));
  EXPECT_THAT(table.str(), HasSubstr("\npercent of the values, and L1 and L2 themselves\n"));
  EXPECT_THAT(table.str(), HasSubstr("By magnitude: percent of L1 and of the sum of squares; the cosine"));
}

TEST(RangeMassOutput, AnUnknownCosineSaysSo) {
  RangeReport report;
  report.add("inf", histogram_of({1.0f, INFINITY}), 1.0);
  report.add("zero", histogram_of({0.0f}), 1.0);
  report.add("fine", histogram_of({1.0f}), 1.0);
  std::ostringstream table;
  print_table(table, report, {DType::f16, 1.0}, suggest_scale(report, DType::f16));
  EXPECT_THAT(table.str(), ::testing::ContainsRegex("\ninf +0 +0 +0 +0 +unknown "));
  EXPECT_THAT(table.str(), ::testing::ContainsRegex("\nzero +- +- +- +- +unknown  any\n"));
  EXPECT_THAT(table.str(), ::testing::ContainsRegex("\nfine +0 +0 +0 +0 +0\\.9[0-9]+ "));
}

TEST(RangeMassOutput, FormatsSideBySide) {
  RangeReport report;
  report.add("w", histogram_of({0x1p-40f, 0x1.8p-20f, 0x1p3f, 0x1p20f}), 1.0);
  const std::vector<RangeView> views{{DType::f16, 1.0}, {DType::bf16, 1.0}, {DType::e5m2, 1.0}};
  std::vector<SuggestedScale> suggestions;
  for (const RangeView& view : views) suggestions.push_back(suggest_scale(report, view.format));
  std::ostringstream table;
  print_formats(table, report, views, suggestions);
  EXPECT_THAT(table.str(),
              ::testing::ContainsRegex("FP16 +25\\.0 +25\\.0 +25\\.0 +25\\.0 .*unknown +2\\^-13\n"));
  EXPECT_THAT(table.str(), ::testing::ContainsRegex("BF16 +0 +0 +100\\.0 +0 .*needs none\n"));
  EXPECT_THAT(table.str(), ::testing::ContainsRegex("E5M2 +50\\.0 +0 +25\\.0 +25\\.0 .*\n"));
}

}  // namespace
}  // namespace fp16lab::analysis
