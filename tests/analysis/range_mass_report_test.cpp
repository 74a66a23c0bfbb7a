// Range reports by magnitude against the values themselves, recorded casts, values at hand, scales suggested
// by lost mass, and the output.
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
  // At the recorded scale the histogram before the cast says the same: zeros are counted apart from what is
  // lost.
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
  // The extremes of a histogram tell on which side of the threshold its greatest value is; counts alone
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

TEST(SuggestedScaleByMass, ManyTinyValuesAreLittleOfTheGradient) {
  // Half of the values at 1.5 * 2^-40, beside values at 1.5 * 2^-12: of L1 they are at most 2^-27 (to within
  // a bin).
  std::vector<float> values(500, 0x1.8p-40f);
  values.insert(values.end(), 500, 0x1.8p-12f);
  RangeReport report;
  report.add("w", histogram_of(values), 1.0);
  report.add("v", histogram_of(std::vector<float>(10, 0x1.8p-20f)), 1.0);
  const SuggestedScale global = suggest_scale(report, DType::f16);
  EXPECT_EQ(global.smallest_sufficient, 15);      // -40 + k >= -25
  EXPECT_EQ(global.smallest_sufficient_l1, -10);  // nothing but those is lost there: 2^-12 * 2^-10 > 2^-25
  EXPECT_EQ(global.largest_safe, 24);             // the end of what is looked at
  EXPECT_EQ(global.suggested, 24);
  EXPECT_THAT(global.reasoning,
              HasSubstr("Every loss scale from 2^-10 to 2^24 loses less than 0.049 % of L1 of all tensors "
                        "together and leaves 2 bits of head-room: the greatest finite gradient is 0.0003662. "
                        "Each tensor on its own: from 2^-5 (v) to 2^24. Suggested: 2^24"));
  EXPECT_EQ(global.smallest_sufficient_each, -5);
  EXPECT_EQ(global.asks_most, "v");
  // v alone asks for more by magnitude: all of it is lost below 2^-5.
  EXPECT_EQ(suggest_scale(report.tensor("v"), DType::f16).smallest_sufficient_l1, -5);
  EXPECT_EQ(suggest_scale(report.tensor("v"), DType::f16).smallest_sufficient, -5);
  // A target so small that the tiny values count: 2^-27 is above it.
  EXPECT_EQ(suggest_scale(report, DType::f16, {.lost_l1 = 0x1p-40}).smallest_sufficient_l1, 15);
  EXPECT_THROW(suggest_scale(report, DType::f16, {.lost_l1 = 0}), std::invalid_argument);
  EXPECT_THROW(suggest_scale(report, DType::f16, {.lost_l1 = 1.5}), std::invalid_argument);
  EXPECT_EQ(suggest_scale(ScaledHistograms{}, DType::f16).suggested, std::nullopt);
  // Nothing of 2^8 fits beside 2^-45, but what is lost there is small.
  RangeReport wide;
  wide.add("w", histogram_of({0x1.8p-45f, 0x1.8p8f}), 1.0);
  const SuggestedScale both = suggest_scale(wide, DType::f16);
  EXPECT_EQ(both.suggested, 5);
  EXPECT_GT(*both.smallest_sufficient, *both.suggested);
  EXPECT_TRUE(both.fits());
}

TEST(SuggestedScaleByMass, SaysWhetherAScaleFitsEachTensorOnItsOwn) {
  const auto sentence = [](std::vector<std::pair<const char*, float>> tensors) {
    RangeReport report;
    for (const auto& [name, value] : tensors)
      report.add(name, histogram_of(std::vector<float>(100, value)), 1.0);
    return suggest_scale(report, DType::f16);
  };
  // 1.5 * 2^-31 survives from 2^6 on; of L1 it is 2^-21 beside 1.5 * 2^-10, which has head-room up to 2^23.
  const SuggestedScale both = sentence({{"large", 0x1.8p-10f}, {"zero", 0.0f}, {"small", 0x1.8p-31f}});
  EXPECT_TRUE(both.fits() && both.fits_each());
  EXPECT_EQ(both.smallest_sufficient_l1, -10);
  EXPECT_THAT(both.reasoning, HasSubstr(" Each tensor on its own: from 2^6 (small) to 2^23."));
  // 1.5 * 2^0 has head-room up to 2^13, and 1.5 * 2^-41 survives from 2^16 on.
  const SuggestedScale apart = sentence({{"small", 0x1.8p-41f}, {"middle", 0x1.8p-20f}, {"large", 1.5f}});
  EXPECT_TRUE(apart.fits());
  EXPECT_FALSE(apart.fits_each());
  EXPECT_EQ(apart.smallest_sufficient_each, 16);
  EXPECT_EQ(apart.asks_most, "small");
  EXPECT_EQ(apart.suggested, 13) << "what all together ask for";
  EXPECT_THAT(apart.reasoning,
              HasSubstr(" No loss scale does so for each tensor on its own: small loses so little only from "
                        "2^16 on, large leaves 2 bits of head-room only up to 2^13. Suggested: 2^13"));
  const SuggestedScale never = sentence({{"tiny", 0x1p-60f}, {"large", 1.5f}, {"other", 0x1p-70f}});
  EXPECT_EQ(never.smallest_sufficient_each, std::nullopt);
  EXPECT_THAT(never.reasoning,
              HasSubstr(" No loss scale does so for each tensor on its own: tiny loses more even "
                        "at 2^24. Suggested"));
  // Of tensors alike there is nothing to say twice, and of one, nothing at all.
  EXPECT_THAT(sentence({{"a", 0x1p-30f}, {"b", 0x1p-30f}}).reasoning,
              HasSubstr(" The same holds for each tensor on its own. Suggested"));
  const SuggestedScale one = sentence({{"a", 0x1p-30f}, {"zero", 0.0f}});
  EXPECT_THAT(one.reasoning, Not(HasSubstr("tensor")));
  EXPECT_EQ(one.smallest_sufficient_each, one.smallest_sufficient_l1);
}

TEST(SuggestedScaleByMass, SaysWhenItStandsAtTheEdgeOfWhatItLookedAt) {
  RangeReport small;
  small.add("w", histogram_of({0x1.8p-30f, 0x1.8p-20f}), 1.0);
  const SuggestedScale edge = suggest_scale(small, DType::f16);
  EXPECT_EQ(edge.suggested, max_log2_scale);
  EXPECT_TRUE(edge.at_edge);
  EXPECT_THAT(edge.reasoning, HasSubstr("the largest that was looked at (larger ones may do as well)"));
  RangeReport middling;
  middling.add("w", histogram_of({0x1.8p-30f, 0x1.8p-2f}), 1.0);
  const SuggestedScale inside = suggest_scale(middling, DType::f16);
  EXPECT_EQ(inside.suggested, 15);  // 1.5 * 2^-2 * 2^(15+2) is below 65520, twice it is not
  EXPECT_FALSE(inside.at_edge);
  EXPECT_THAT(inside.reasoning, HasSubstr("Suggested: 2^15, the largest with head-room; nothing is lost"));
  // Another format's edges: BF16 loses none of these at all, E4M3 almost all.
  EXPECT_THAT(suggest_scale(middling, DType::bf16).reasoning,
              HasSubstr("Without a loss scale no value rounds to zero or overflows in BF16."));
  EXPECT_EQ(suggest_scale(middling, DType::e4m3).suggested, 8);  // 0.375 * 2^(8+2) = 384 <= 464
  EXPECT_THAT(suggest_scale(middling, DType::e4m3).reasoning,
              HasSubstr("of those with head-room it loses least: 50 %"));
}

/// Counted where they are at hand.
void add_values(RangeReport& report, const std::string& name, const std::vector<float>& values,
                double recorded, const std::shared_ptr<const ValueBins>& bins) {
  ValueHistogram counted(bins);
  counted.add(std::span<const float>(values));
  report.add(name, counted, recorded);
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
  for (int k = min_log2_scale; k <= max_log2_scale + max_headroom_bits; ++k)
    scales.push_back(std::ldexp(1.0, k));
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

TEST(RangeReportOfValues, SuggestionsUseTheValues) {
  // 1.99 * 2^k: a histogram without extremes must fear that it is 2^(k+1), which is over 65520 at a scale
  // that 1.99 * 2^k survives; the value itself does not.
  const std::vector<double> recorded{1.0};
  const std::vector<FormatRange> ranges{f16};
  RangeReport exact;
  add_values(exact, "w", {0x1.fcp-2f, 0x1p-30f}, 1.0, value_bins(ranges, recorded, std::nullopt));
  EXPECT_EQ(suggest_scale(exact, DType::f16).suggested, 15);
  ExponentHistogram counted = histogram_of({0x1.fcp-2f, 0x1p-30f});
  counted.forget_extremes();
  RangeReport bounds;
  bounds.add("w", counted, 1.0);
  EXPECT_EQ(suggest_scale(bounds, DType::f16).suggested, 14);
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
  EXPECT_EQ(json["suggestion"]["suggested"], json["suggestion"]["largest_safe"]);
  EXPECT_EQ(json["suggestion"]["at_edge"], false);
  EXPECT_TRUE(tensor["suggestion"].contains("smallest_sufficient_l1"));

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
  EXPECT_THAT(suggest_scale(exact, DType::f16).reasoning, HasSubstr("the greatest finite gradient is 1.5."));
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
  EXPECT_THAT(table.str(), HasSubstr("the cosine to the unrounded gradient is unknown"));
}

TEST(RangeMassOutput, SaysWhyNoScaleFits) {
  RangeReport report;
  // Nine tenths of L1 would be lost below 2^10 in E4M3 (up to 2^-10), and 1.5 has head-room up to 2^6.
  report.add("many", histogram_of(std::vector<float>(1 << 20, 0x1.8p-20f)), 1.0);
  report.add("one", histogram_of({1.5f}), 1.0);
  std::ostringstream table;
  print_table(table, report, {DType::e4m3, 1.0}, suggest_scale(report, DType::e4m3));
  EXPECT_THAT(table.str(),
              ::testing::ContainsRegex(
                  "\nall tensors .*  none: it takes 2\\^10 to lose little, 2\\^6 to have head-room\n"));
  EXPECT_THAT(table.str(),
              HasSubstr("\nScales that fit lose less than 0.049 % of L1 (2^-11, half a unit in the last "
                        "place of FP16) and leave 2 bits of head-room.\n"));
  EXPECT_THAT(
      table.str(),
      HasSubstr("No loss scale both leaves 2 bits of head-room and loses less than 0.049 % of L1 of all "
                "tensors together; the gradients span more than E4M3 holds: the greatest finite gradient "
                "is 1.5. No loss scale does so for each tensor on its own: many loses so little only from "
                "2^10 on, one leaves 2 bits of head-room only up to 2^6."));
  // 2^-10 is lost below 2^0, where 400 has less head-room than two bits.
  RangeReport tight;
  tight.add("many", histogram_of(std::vector<float>(1000, 0x1.2p-10f)), 1.0);
  tight.add("one", histogram_of({400.0f}), 1.0);
  EXPECT_THAT(
      suggest_scale(tight, DType::e4m3).reasoning,
      StartsWith(
          "No loss scale both leaves 2 bits of head-room and loses less than 0.049 % of L1 of all tensors "
          "together; with less head-room there is one: the greatest finite gradient is 400. "));
  EXPECT_EQ(suggest_scale(tight, DType::e4m3, {.headroom_bits = 0}).smallest_sufficient_l1, 0);
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
              ::testing::ContainsRegex("FP16 +25\\.0 +25\\.0 +25\\.0 +25\\.0 .*unknown +2\\^-7\n"));
  EXPECT_THAT(table.str(), ::testing::ContainsRegex("BF16 +0 +0 +100\\.0 +0 .*2\\^24 or more\n"));
  EXPECT_THAT(table.str(), ::testing::ContainsRegex("E5M2 +50\\.0 +0 +25\\.0 +25\\.0 .*\n"));
}

}  // namespace
}  // namespace fp16lab::analysis
