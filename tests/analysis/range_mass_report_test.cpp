// Range reports by magnitude against the values themselves, the zeros of casts, scales suggested by lost mass, and the
// output.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "analysis/range_output.hpp"
#include "analysis/range_report.hpp"
#include "analysis/suggested_scale.hpp"
#include "numerics/bits.hpp"

namespace fp16lab::analysis {
namespace {

using ::testing::HasSubstr;

ExponentHistogram histogram_of(const std::vector<float>& values) {
  ExponentHistogram histogram;
  for (const float value : values) histogram.count(bits_of(value));
  return histogram;
}

std::vector<float> gradients(std::uint32_t seed, int low, int high) {
  std::mt19937 engine(seed);
  std::vector<float> values;
  for (int i = 0; i < 400; ++i)
    values.push_back(std::ldexp(1.0f + static_cast<float>(engine() >> 9) * 0x1p-23f,
                                low + static_cast<int>(engine() % static_cast<unsigned>(high - low))));
  return values;
}

std::vector<float> times_power_of_two(std::vector<float> values, int exponent) {
  for (float& value : values) value = std::ldexp(value, exponent);
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
    // 24-bit values between 2^-36 and 2^2, 1200 of them: 11 + 38 + 24 bits, cut to 64 by long double, relative 2^-53.
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
    const ZoneMass mass = histograms.mass_at(scale);
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
    const MassInterval cosine = histograms.cosine_at(scale);
    EXPECT_LE(cosine.lower, cosine.upper);
    // What flushing alone leaves, ||kept|| / ||x||, is between; nothing where a value overflows.
    const double kept = static_cast<double>(std::sqrt((total_squares - squares[0]) / total_squares));
    EXPECT_GE(cosine.upper, squares[3] > 0 ? 0 : kept - 0x1p-45);
    EXPECT_LE(cosine.lower, squares[3] > 0 ? 0 : kept + 0x1p-45);
  }
}

TEST(RangeMassReport, ZerosOfTheCastAreThoseOfFp16NotThoseOfFp32) {
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
  EXPECT_EQ(report.tensor("w").cast_zeros(), (CastZeros{.before = 3, .after = 5}));
  EXPECT_EQ(report.tensor("w").cast_zeros()->lost(), 2u);
  EXPECT_EQ(report.tensor("b").cast_zeros()->lost(), 0u);
  EXPECT_EQ(report.merged().cast_zeros(), (CastZeros{.before = 4, .after = 6}));
  // At the recorded scale the histogram before the cast says the same: zeros are counted apart from what is lost.
  const RangeCounts counts = report.tensor("w").at_scale(2);
  EXPECT_EQ(counts.zero, 3u);
  EXPECT_EQ(counts.lost, (CountInterval{2, 2}));
  std::ostringstream table, text;
  print_table(table, report, 2, suggest_scale(report));
  EXPECT_THAT(table.str(),
              ::testing::ContainsRegex("zero before +zero after +rounded to 0\nw +3 +5 +2\nb +1 +1 +0\n"));
  write_json(text, report, 2, suggest_scale(report));
  const nlohmann::json json = nlohmann::json::parse(text.str());
  EXPECT_EQ(json["tensors"][0]["cast_zeros"], (nlohmann::json{{"before", 3}, {"after", 5}}));
  EXPECT_EQ(json["tensors"][0]["zero"], 3);
  // FP32 stores what was there, and values without a cast have none.
  row.dtype = DType::f32;
  RangeReport single;
  single.add(row);
  EXPECT_EQ(single.merged().cast_zeros(), std::nullopt);
}

TEST(RangeMassReport, TheEdgesOfFp16) {
  const auto zones = [](float x) {
    ScaledHistograms one;
    one.add(histogram_of({x}), 1.0);
    return one;
  };
  constexpr CountInterval certain{1, 1}, none{0, 0}, doubtful{0, 1};
  EXPECT_EQ(zones(0x1p-25f).at_scale(1).lost, certain);
  EXPECT_EQ(zones(0x1p-25f).mass_at(1).l1.lost.share(), (MassInterval{1, 1}));
  const float above = std::nextafter(0x1p-25f, 1.0f);
  EXPECT_EQ(zones(above).at_scale(1).lost, none);
  EXPECT_EQ(zones(above).mass_at(1).l1.lost.share(), (MassInterval{0, 0}));
  EXPECT_EQ(zones(above).mass_at(1).l1.subnormal.share(), (MassInterval{1, 1}));
  for (const float x :
       {65519.99f, 65520.0f}) {  // counts cannot tell; value by value, ExactMass.TheZonesEdges does
    EXPECT_EQ(zones(x).at_scale(1).overflow, doubtful);
    EXPECT_EQ(zones(x).mass_at(1).l1.overflow.share(), (MassInterval{0, 1}));
    EXPECT_EQ(zones(x).at_scale(2).overflow, certain);
    EXPECT_EQ(zones(x).at_scale(0.5).overflow, none);
  }
}

TEST(SuggestedScaleByMass, ManyTinyValuesAreLittleOfTheGradient) {
  // Half of the values at 1.5 * 2^-40, beside values at 1.5 * 2^-12: of L1 they are at most 2^-27 (to within a bin).
  std::vector<float> values(500, 0x1.8p-40f);
  values.insert(values.end(), 500, 0x1.8p-12f);
  RangeReport report;
  report.add("w", histogram_of(values), 1.0);
  report.add("v", histogram_of(std::vector<float>(10, 0x1.8p-20f)), 1.0);
  const SuggestedScale global = suggest_scale(report);
  EXPECT_EQ(global.smallest_sufficient, 15);      // -40 + k >= -25
  EXPECT_EQ(global.smallest_sufficient_l1, -10);  // nothing but those is lost there: 2^-12 * 2^-10 > 2^-25
  EXPECT_EQ(global.largest_safe, 24);             // the end of what is looked at
  EXPECT_EQ(global.suggested, 24);
  EXPECT_THAT(global.reasoning, HasSubstr("By magnitude 2^-10 is enough"));
  EXPECT_THAT(global.reasoning, HasSubstr("Suggested: 2^24"));
  // v alone asks for more by magnitude: all of it is lost below 2^-5.
  EXPECT_EQ(suggest_scale(report.tensor("v")).smallest_sufficient_l1, -5);
  EXPECT_EQ(suggest_scale(report.tensor("v")).smallest_sufficient, -5);
  // A target so small that the tiny values count: 2^-27 is above it.
  EXPECT_EQ(suggest_scale(report, {.lost_l1 = 0x1p-40}).smallest_sufficient_l1, 15);
  EXPECT_THROW(suggest_scale(report, {.lost_l1 = 0}), std::invalid_argument);
  EXPECT_THROW(suggest_scale(report, {.lost_l1 = 1.5}), std::invalid_argument);
  EXPECT_EQ(suggest_scale(ScaledHistograms{}).suggested, std::nullopt);
  // Nothing of 2^8 fits beside 2^-45, but what is lost there is small.
  RangeReport wide;
  wide.add("w", histogram_of({0x1.8p-45f, 0x1.8p8f}), 1.0);
  const SuggestedScale both = suggest_scale(wide);
  EXPECT_EQ(both.suggested, 4);
  EXPECT_FALSE(both.both());
  EXPECT_THAT(both.reasoning, HasSubstr("but what is lost at the largest one is small"));
}

TEST(RangeMassOutput, JsonHasTheOldKeysAndTheNewOnes) {
  RangeReport report;
  const std::vector<float> values{0.0f, 0x1p-30f, 0x1.8p-20f, 1.5f, 1.5f};
  report.add("fc1.weight", histogram_of(values), 1.0);
  ExactZoneMass mass(fp16_range, 1.0);
  mass.add(std::span<const float>(values));
  std::ostringstream out;
  write_json(out, report, 1.0, suggest_scale(report), std::vector<NamedExactMass>{{"fc1.weight", mass}});
  const nlohmann::json json = nlohmann::json::parse(out.str());
  const nlohmann::json& tensor = json["tensors"][0];
  EXPECT_EQ(tensor["total"], 5);
  EXPECT_EQ(tensor["zero"], 1);
  EXPECT_EQ(tensor["lost"], (nlohmann::json{1, 1}));
  EXPECT_EQ(tensor["overflow"], (nlohmann::json{0, 0}));
  EXPECT_EQ(tensor["what_if"].size(), 35u);
  EXPECT_EQ(tensor["what_if"][10]["lost"], (nlohmann::json{1, 1}));
  EXPECT_EQ(tensor["what_if"][10]["lost_l1"], tensor["l1"]["lost"]);
  EXPECT_EQ(tensor["what_if"][16]["lost_l1"], (nlohmann::json{0.0, 0.0}));  // 2^6 saves 2^-30
  EXPECT_LT(tensor["l1"]["lost"][1].get<double>(), 0x1p-28);
  EXPECT_GT(tensor["cosine"][0].get<double>(), 0.999);
  EXPECT_EQ(json["suggestion"]["suggested"], json["suggestion"]["largest_safe"]);
  EXPECT_TRUE(tensor["suggestion"].contains("smallest_sufficient_l1"));
  const nlohmann::json& exact = json["exact"][0];
  EXPECT_EQ(exact["total"]["l1"].get<double>(), 3 + 0x1.8p-20 + 0x1p-30);
  EXPECT_EQ(exact["lost"]["count"], 1);
  EXPECT_EQ(exact["lost"]["l1"].get<double>(), 0x1p-30);
  std::ostringstream without;
  write_json(without, report, 1.0, suggest_scale(report));
  EXPECT_FALSE(nlohmann::json::parse(without.str()).contains("exact"));
  std::ostringstream table;
  print_table(table, report, 1.0, suggest_scale(report), std::vector<NamedExactMass>{{"fc1.weight", mass}});
  EXPECT_THAT(table.str(), HasSubstr("Exactly, value by value"));
  EXPECT_THAT(table.str(), HasSubstr("By magnitude"));
}

}  // namespace
}  // namespace fp16lab::analysis
