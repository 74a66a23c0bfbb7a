// Runs compared: known pairs give known values, equal ones nothing at all.
#include "analysis/run_comparison.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "analysis/run_comparison_output.hpp"
#include "numerics/formats/bits.hpp"
#include "tests/analysis/values.hpp"

namespace fp16lab::analysis {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// ---- distance of distributions ----------------------------------------------------------------------------

TEST(EarthMoversDistance, KnownPairs) {
  const ExponentHistogram a = histogram_of({1.5f, 1.5f, 0x1.8p-10f, 0.0f, NAN});
  EXPECT_EQ(earth_movers_distance(a, 1, a, 1), 0.0);
  // Zeros, NaN and how many there are do not matter.
  ExponentHistogram twice = a;
  twice += a;
  twice.zero = 99;
  EXPECT_EQ(earth_movers_distance(a, 1, twice, 1), 0.0);
  // All values times 2: one binade. The same gradients at loss scale 2: none.
  const ExponentHistogram doubled = histogram_of({3.0f, 3.0f, 0x1.8p-9f});
  EXPECT_DOUBLE_EQ(*earth_movers_distance(a, 1, doubled, 1), 1.0);
  EXPECT_EQ(earth_movers_distance(a, 1, doubled, 2), 0.0);
  EXPECT_EQ(earth_movers_distance(a, 0x1p-20, doubled, 0x1p-19), 0.0);
  EXPECT_NEAR(*earth_movers_distance(a, 1, a, 3), std::log2(3.0), 1e-12);
  // A third of the values 10 binades away.
  EXPECT_NEAR(*earth_movers_distance(a, 1, histogram_of({1.5f}), 1), 10.0 / 3, 1e-12);
  EXPECT_EQ(earth_movers_distance(a, 1, histogram_of({0.0f, INFINITY}), 1), std::nullopt);
  EXPECT_EQ(earth_movers_distance(ExponentHistogram{}, 1, a, 1), std::nullopt);
}

/// The distance as a transport: both sorted lists of equal length moved value by value.
TEST(EarthMoversDistance, IsWhatMovingTheValuesTakes) {
  std::mt19937 engine(3);
  for (int round = 0; round < 50; ++round) {
    std::vector<int> exponents[2];
    ExponentHistogram histograms[2];
    for (int side = 0; side < 2; ++side)
      for (int i = 0; i < 40; ++i) {
        const int e = -30 + static_cast<int>(engine() % 25) + 3 * side;
        exponents[side].push_back(e);
        histograms[side].count(bits_of(std::ldexp(1.5f, e)));
      }
    double moved = 0;
    for (auto& list : exponents) std::sort(list.begin(), list.end());
    for (int i = 0; i < 40; ++i) moved += std::abs(exponents[0][i] - exponents[1][i]);
    const double forwards = *earth_movers_distance(histograms[0], 1, histograms[1], 1);
    EXPECT_NEAR(forwards, moved / 40, 1e-12);
    EXPECT_NEAR(*earth_movers_distance(histograms[1], 1, histograms[0], 1), forwards,
                1e-12);  // no side is special
  }
}

HistogramRow row_of(std::uint64_t step, const std::string& tensor, const std::vector<float>& before,
                    const std::vector<float>& after, double scale = 1) {
  return {.step = step,
          .tensor = tensor,
          .kind = "weight",
          .dtype = DType::f16,
          .loss_scale = scale,
          .before = histogram_of(before),
          .after = histogram_of(after)};
}

// A folder of an older version has no extremes: that is no difference. And a cast to FP8 inside a product is
// a row of its own beside the tensor's, whose dtype may differ between the runs.
TEST(HistogramComparer, KnowsOlderFoldersAndCastsInsideProducts) {
  HistogramComparer comparer;
  HistogramRow older = row_of(1, "w", {1.5f, 2.5f}, {1.5f, 2.5f}), newer = older, fp8 = older;
  older.before.forget_extremes();
  older.after.forget_extremes();
  older.dtype = DType::f32;
  newer.dtype = DType::bf16;
  fp8.dtype = DType::e5m2;
  fp8.after = {};
  comparer.add_a(older);
  comparer.add_a(fp8);
  comparer.add_b(newer);
  comparer.add_b(fp8);
  const HistogramsComparison result = comparer.result();
  ASSERT_EQ(result.tensors.size(), 2u);
  EXPECT_EQ(result.tensors[0].tensor, "w");
  EXPECT_EQ(result.tensors[1].tensor, "w (e5m2)");
  EXPECT_TRUE(result.equal());
  HistogramComparer other;
  newer.before.greatest += 1;
  other.add_a(row_of(1, "w", {1.5f, 2.5f}, {1.5f, 2.5f}));
  other.add_b(newer);
  EXPECT_FALSE(other.result().equal()) << "the same bins, another greatest value";
}

TEST(HistogramComparer, TensorByTensor) {
  HistogramComparer comparer;
  comparer.add_a(row_of(1, "w", {1.5f, 0x1p-30f}, {1.5f, 0}));
  comparer.add_a(row_of(2, "w", {1.5f, 0x1p-30f}, {1.5f, 0}));
  comparer.add_a(row_of(9, "w", {1.5f}, {1.5f}));
  comparer.add_a(row_of(1, "b", {0}, {0}));
  comparer.add_a(row_of(1, "a", {1}, {1}));
  comparer.add_b(row_of(1, "b", {0}, {0}));
  comparer.add_b(row_of(1, "w", {1.5f, 0x1p-30f}, {1.5f, 0}));
  comparer.add_b(row_of(2, "w", {0x1.8p2f, 0x1p-28f}, {0x1.8p2f, 0x1p-24f}, 1));
  comparer.add_b(row_of(3, "w", {1.5f}, {1.5f}));
  comparer.add_b(row_of(1, "c", {1}, {1}));
  const HistogramsComparison result = comparer.result();
  EXPECT_THAT(result.only_a, ElementsAre("a"));
  EXPECT_THAT(result.only_b, ElementsAre("c"));
  EXPECT_EQ(result.unmatched_rows, 2u);
  EXPECT_EQ(result.rows_a, 5u);
  EXPECT_EQ(result.rows_b, 5u);
  ASSERT_EQ(result.tensors.size(), 2u);
  const TensorComparison& w = result.tensors[0];
  EXPECT_EQ(w.tensor, "w");
  EXPECT_EQ(w.steps, 2u);
  EXPECT_FALSE(w.equal);
  EXPECT_EQ(w.first_difference, 2u);
  EXPECT_DOUBLE_EQ(w.largest_distance, 2.0);
  EXPECT_EQ(w.largest_step, 2u);
  EXPECT_DOUBLE_EQ(w.mean_distance, 1.0);
  EXPECT_EQ(w.zeros_a.before, 0u);
  EXPECT_EQ(w.zeros_a.after, 2u);  // the FP16 zeros, not the FP32 ones
  EXPECT_EQ(w.zeros_b.after, 1u);
  EXPECT_TRUE(result.tensors[1].equal);
  EXPECT_EQ(result.tensors[1].with_distance, 0u);
  EXPECT_FALSE(result.equal());
}

TEST(HistogramComparer, RowsThatOneRunHasNotAreADifference) {
  const auto compared = [](const std::vector<HistogramRow>& a, const std::vector<HistogramRow>& b) {
    HistogramComparer comparer;
    for (const HistogramRow& row : a) comparer.add_a(row);
    for (const HistogramRow& row : b) comparer.add_b(row);
    return comparer.result().equal();
  };
  const HistogramRow w1 = row_of(1, "w", {1}, {1}), w2 = row_of(2, "w", {1}, {1}),
                     b1 = row_of(1, "b", {1}, {1});
  EXPECT_TRUE(compared({w1, w2, b1}, {b1, w1, w2}));
  EXPECT_TRUE(compared({}, {}));
  for (const auto& fewer : std::vector<std::vector<HistogramRow>>{{w1, w2}, {w1, b1}, {w1}, {}}) {
    EXPECT_FALSE(compared({w1, w2, b1}, fewer));
    EXPECT_FALSE(compared(fewer, {w1, w2, b1}));
  }
  EXPECT_FALSE(compared({w1, w1}, {w1})) << "twice";
  EXPECT_FALSE(compared({w1}, {w1, w1}));
}

TEST(CompareEvents, RowsOfAnyNumberAStep) {
  const OverflowRow one{.step = 1, .loss_scale = 4, .parameters = {"w"}};
  OverflowRow other = one;
  other.parameters = {"b"};
  const OverflowRow later{.step = 7, .loss_scale = 2};
  using Overflows = std::vector<OverflowRow>;
  EXPECT_TRUE(compare_overflows(Overflows{one, later}, Overflows{one, later}).equal());
  EXPECT_TRUE(compare_overflows({}, {}).equal());
  EXPECT_EQ(compare_overflows(Overflows{one, later}, Overflows{one}).first_difference, 7u);
  EXPECT_EQ(compare_overflows(Overflows{later}, Overflows{one, later}).first_difference, 1u);
  EXPECT_EQ(compare_overflows(Overflows{one}, Overflows{other}).first_difference, 1u);
  CulpritRow nan{.step = 3, .value = NAN, .wide_value = NAN};
  CulpritRow infinity = nan;
  infinity.value = INFINITY;
  using Culprits = std::vector<CulpritRow>;
  EXPECT_TRUE(compare_culprits(Culprits{nan, nan}, Culprits{nan, nan}).equal());
  EXPECT_EQ(compare_culprits(Culprits{nan, nan}, Culprits{nan, infinity}).first_difference, 3u);
  EXPECT_EQ(compare_culprits(Culprits{nan, nan}, Culprits{nan}).first_difference, 3u);
}

TEST(CompareOperands, NamesTheOneWhoseZerosDifferMost) {
  const auto row = [](std::uint64_t step, std::string product, std::uint64_t zeros) {
    return RecipeRow{.step = step,
                     .tensor = "fc1.input",
                     .product = std::move(product),
                     .values = 100,
                     .made_zero = zeros};
  };
  using Rows = std::vector<RecipeRow>;
  const Rows a{row(1, "forward", 10), row(1, "dw", 1), row(2, "forward", 12), row(2, "dw", 3)};
  const Rows b{row(1, "forward", 10), row(1, "dw", 1), row(2, "forward", 20), row(2, "dw", 0),
               row(2, "dx", 9)};
  EXPECT_TRUE(compare_operands(a, a).equal());
  EXPECT_FALSE(compare_operands(a, a).most);
  EXPECT_FALSE(compare_operands(a, {}).most) << "one run has no recipe";
  RunComparison comparison{.name_a = "x", .name_b = "y"};
  comparison.operands = compare_operands(a, b);
  EXPECT_EQ(comparison.operands.first_difference, 2u);
  EXPECT_FALSE(comparison.equal());
  std::ostringstream text, json;
  print_comparison(text, comparison);
  EXPECT_THAT(text.str(),
              HasSubstr("\nOperands of the recipe: the shares of values made zero differ most for "
                        "fc1.input in the product forward: A 11.0 %, B 15.0 %\n"));
  write_comparison_json(json, comparison);
  const nlohmann::json most = nlohmann::json::parse(json.str())["operands"]["zeroed_differ_most"];
  EXPECT_EQ(most,
            (nlohmann::json{
                {"tensor", "fc1.input"}, {"product", "forward"}, {"zeroed_a", 0.11}, {"zeroed_b", 0.15}}));
}

// ---- steps ------------------------------------------------------------------------------------------------

std::vector<StepRow> run_of(std::size_t steps) {
  std::vector<StepRow> rows;
  for (std::size_t i = 1; i <= steps; ++i)
    rows.push_back({.step = i,
                    .loss = 2.0 / static_cast<double>(i),
                    .loss_scale = 1024,
                    .grad_norm = 1,
                    .lr = 0.1,
                    .state_hash = 1000 + i,
                    .seconds = static_cast<double>(i)});
  return rows;
}

TEST(CompareSteps, EqualRunsDifferInNothingButTheTimeTheyTook) {
  const std::vector<StepRow> a = run_of(10);
  std::vector<StepRow> b = a;
  for (StepRow& row : b) row.seconds *= 3;
  b[3].loss = std::numeric_limits<double>::quiet_NaN();
  std::vector<StepRow> same_nan = a;
  same_nan[3].loss = -std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(compare_steps(same_nan, b, 0).equal);
  b[3].loss = a[3].loss;
  const StepsComparison result = compare_steps(a, b, 0);
  EXPECT_TRUE(result.equal);
  EXPECT_EQ(result.common.size(), 10u);
  EXPECT_EQ(result.first_state_difference, std::nullopt);
  EXPECT_EQ(result.column("loss").differing, 0u);
  EXPECT_EQ(result.column("loss").largest, 0);
  EXPECT_EQ(result.growth, std::nullopt);
}

TEST(CompareSteps, StatesOfTwoVersionsOfTheHashAreNoDifference) {
  const std::vector<StepRow> a = run_of(4);
  std::vector<StepRow> b = a;
  for (StepRow& row : b) ++row.state_hash;
  Manifest first, resumed, second;
  resumed.state_hash_version = second.state_hash_version = 2;
  resumed.first_state_hash_until = 3;
  const auto compared = [&](const Manifest& of_a, const Manifest& of_b) {
    return compare_steps(a, b, 0, steps_of_two_versions(of_a, of_b));
  };
  EXPECT_EQ(compared(first, first).state_differences, 4U);
  EXPECT_EQ(compared(second, second).state_differences, 4U);
  EXPECT_TRUE(compared(first, second).equal);
  EXPECT_EQ(compared(first, second).states_of_two_versions, 4U);
  EXPECT_EQ(compared(resumed, second).first_state_difference, 4U) << "from then on both have version 2";
  EXPECT_EQ(compared(resumed, first).states_of_two_versions, 1U);
  EXPECT_EQ(compared(resumed, first).state_differences, 3U);
}

TEST(CompareSteps, EveryColumnCounts) {
  const std::vector<StepRow> a = run_of(10);
  const auto changed = [&](auto change) {
    std::vector<StepRow> b = a;
    change(b[6]);
    return compare_steps(a, b, 0.01);
  };
  EXPECT_EQ(changed([](StepRow& row) { row.state_hash = 1; }).first_state_difference, 7u);
  EXPECT_EQ(changed([](StepRow& row) { row.state_hash = 1; }).state_differences, 1u);
  const StepsComparison loss = changed([](StepRow& row) { row.loss *= 1.001; });
  EXPECT_FALSE(loss.equal);
  EXPECT_EQ(loss.column("loss").first, 7u);
  EXPECT_EQ(loss.column("loss").above, 0u);
  EXPECT_NEAR(loss.column("loss").largest, 0.001 / 1.001, 1e-12);
  const StepsComparison scale = changed([](StepRow& row) { row.loss_scale = 512; });
  EXPECT_EQ(scale.column("loss_scale").first_above, 7u);
  EXPECT_EQ(scale.column("loss_scale").largest, 0.5);
  EXPECT_EQ(changed([](StepRow& row) { row.skipped = true; }).skip_differences, 1u);
  EXPECT_EQ(changed([](StepRow& row) { row.skipped = true; }).skips_b, 1u);
  EXPECT_FALSE(changed([](StepRow& row) { row.found_inf = true; }).equal);
  EXPECT_EQ(changed([](StepRow& row) { row.lr = 0.2; }).column("lr").differing, 1u);
  EXPECT_EQ(changed([](StepRow& row) { row.grad_norm = INFINITY; }).column("grad_norm").largest, INFINITY);
  const StepsComparison counted = changed([](StepRow& row) { row.underflow_rate = 0.5; });
  EXPECT_FALSE(counted.equal) << "one run counted there";
  EXPECT_EQ(counted.column("underflow_rate").in_one, counted.column("underflow_rate").differing);
  EXPECT_EQ(counted.column("underflow_rate").largest, 0) << "nothing is infinitely far from a value";
  EXPECT_TRUE(changed([](StepRow& row) { row.epoch = 0.5; }).equal) << "an older build wrote the other";
  std::vector<StepRow> later = a, latest = a;
  for (StepRow& row : later) row.epoch = 0.5;
  for (StepRow& row : latest) row.epoch = 0.75;
  EXPECT_EQ(compare_steps(later, latest, 0.01).column("epoch").differing, 10u);
  EXPECT_FALSE(compare_steps(later, latest, 0.01).equal);
  EXPECT_TRUE(changed([](StepRow& row) { row.seconds = 9; }).equal);
}

TEST(CompareSteps, OtherLengthsAndGaps) {
  const std::vector<StepRow> a = run_of(10), b = run_of(7);
  const StepsComparison shorter = compare_steps(a, b, 0);
  EXPECT_EQ(shorter.common.size(), 7u);
  EXPECT_EQ(shorter.only_a, 3u);
  EXPECT_EQ(shorter.only_b, 0u);
  EXPECT_FALSE(shorter.equal);
  EXPECT_EQ(shorter.state_differences, 0u);
  const StepsComparison none = compare_steps(a, {}, 0);
  EXPECT_TRUE(none.common.empty());
  EXPECT_EQ(none.only_a, 10u);
}

TEST(CompareSteps, RelativeDifference) {
  EXPECT_EQ(relative_difference(1, 1), 0);
  EXPECT_EQ(relative_difference(0.0, -0.0), 0);
  EXPECT_EQ(relative_difference(NAN, NAN), 0);
  EXPECT_EQ(relative_difference(2, 1), 0.5);
  EXPECT_EQ(relative_difference(1, 2), 0.5);
  EXPECT_EQ(relative_difference(1, -1), 2);
  EXPECT_EQ(relative_difference(0, 5), 1);
  EXPECT_EQ(relative_difference(INFINITY, 5), INFINITY);
  EXPECT_EQ(relative_difference(NAN, 5), INFINITY);
  EXPECT_EQ(relative_difference(INFINITY, INFINITY), 0);
  EXPECT_EQ(relative_difference(1e308, -1e308), 2);  // the difference itself would overflow
}

TEST(ErrorGrowthTest, DoublingTimeOfAnExponential) {
  // The difference doubles every 4 steps from step 5 on, until it is a tenth of the loss.
  const std::vector<StepRow> a = run_of(200);
  std::vector<StepRow> b = a;
  for (StepRow& row : b)
    if (row.step >= 5) row.loss += 1e-9 * std::exp2(static_cast<double>(row.step - 5) / 4);
  const std::optional<ErrorGrowth> growth = compare_steps(a, b, 0).growth;
  ASSERT_TRUE(growth.has_value());
  EXPECT_EQ(growth->first_step, 5u);
  // 1e-9 * 2^((s-5)/4) reaches a tenth of (2/s + itself) between 2^20 and 2^21.5 of itself: steps 85 to 91.
  EXPECT_GE(growth->last_step, 80u);
  EXPECT_LE(growth->last_step, 91u);
  EXPECT_EQ(growth->points, growth->last_step - 4);
  EXPECT_NEAR(*growth->doubling_steps(), 4, 1e-5);  // 1e-9 is rounded to 53 bits of a loss near 1: 1e-7 of it
  EXPECT_NEAR(growth->log10_at_first, -9, 1e-4);
  EXPECT_GT(growth->r_squared, 0.99999);
}

TEST(ErrorGrowthTest, NoLineThroughNothing) {
  const std::vector<StepRow> a = run_of(50);
  std::vector<StepRow> b = a;
  for (std::size_t i = 10; i < 14; ++i) b[i].loss += 1e-6;
  EXPECT_EQ(compare_steps(a, b, 0).growth, std::nullopt);  // four points
  b[14].loss += 1e-6;
  const std::optional<ErrorGrowth> flat = compare_steps(a, b, 0).growth;
  ASSERT_TRUE(flat.has_value());
  EXPECT_EQ(flat->points, 5u);
  for (std::size_t i = 10; i < 50; ++i) b[i].loss = a[i].loss - 1e-3 * std::exp2(-static_cast<double>(i));
  EXPECT_EQ(compare_steps(a, b, 0).growth->doubling_steps(), std::nullopt);  // it shrinks
  for (std::size_t i = 10; i < 50; ++i) b[i].loss = NAN;
  EXPECT_EQ(compare_steps(a, b, 0).growth, std::nullopt);
  // Growth ends where the difference is a tenth of the loss: later differences are no growth.
  b = a;
  for (std::size_t i = 10; i < 14; ++i) b[i].loss += 1e-6;
  b[14].loss *= 2;
  for (std::size_t i = 15; i < 50; ++i) b[i].loss += 1e-6;
  EXPECT_EQ(compare_steps(a, b, 0).growth, std::nullopt);
}

TEST(CompareEvaluations, TheLastCommonOneOfEachSplit) {
  const std::vector<EvaluationRow> a{{.step = 10, .split = "test", .loss = 1.0, .accuracy = 0.5},
                                     {.step = 20, .split = "test", .loss = 0.5, .accuracy = 0.75},
                                     {.step = 20, .split = "train", .loss = 0.25, .accuracy = 0.875},
                                     {.step = 30, .split = "test", .loss = 0.4, .accuracy = 0.8}};
  EXPECT_TRUE(compare_evaluations(a, a).equal);
  std::vector<EvaluationRow> b(a.begin(), a.begin() + 3);
  b[1].accuracy = 0.7;
  const EvaluationsComparison result = compare_evaluations(a, b);
  EXPECT_FALSE(result.equal);
  EXPECT_EQ(result.common, 3u);
  EXPECT_EQ(result.only_a, 1u);
  EXPECT_EQ(result.first_difference, 20u);
  ASSERT_EQ(result.last.size(), 2u);
  EXPECT_EQ(result.last[0].a.step, 20u);
  EXPECT_EQ(result.last[0].b.accuracy, 0.7);
}

TEST(DifferingSettings, AddedChangedAndGone) {
  const Settings a{{"amp.level", "O1"}, {"train.seed", "1"}, {"old", "x"}};
  const Settings b{{"amp.level", "O2"}, {"train.seed", "1"}, {"new", "y"}};
  const std::vector<SettingDifference> differences = differing_settings(a, b);
  ASSERT_EQ(differences.size(), 3u);
  EXPECT_EQ(differences[0].key, "amp.level");
  EXPECT_EQ(differences[0].b, "O2");
  EXPECT_EQ(differences[1].key, "new");
  EXPECT_EQ(differences[1].a, std::nullopt);
  EXPECT_EQ(differences[2].key, "old");
  EXPECT_TRUE(differing_settings(a, a).empty());
}

// ---- output -----------------------------------------------------------------------------------------------

TEST(ComparisonOutput, WordsJsonAndCsv) {
  std::vector<StepRow> a = run_of(10), b = a;
  RunComparison same{.name_a = "x", .name_b = "y", .threshold = 0.01};
  same.steps = compare_steps(a, b, 0.01);
  EXPECT_TRUE(same.equal());
  EXPECT_EQ(claim_of(same).verdict, Verdict::holds);
  EXPECT_EQ(claim_of({.name_a = "x", .name_b = "y"}).verdict, Verdict::not_run) << "neither has a step";
  std::ostringstream text;
  print_comparison(text, same);
  EXPECT_THAT(text.str(), HasSubstr("The runs are the same, bit for bit: the states of all 10 steps"));
  EXPECT_THAT(text.str(), HasSubstr("Configuration: the same"));

  for (std::size_t i = 4; i < 10; ++i) b[i].state_hash = 7;
  b[9].loss = NAN;
  RunComparison other{.name_a = "x", .name_b = "y", .threshold = 0.01};
  other.settings = {{"amp.level", "O0", "O1"}};
  other.steps = compare_steps(a, b, 0.01);
  other.notes = {"B: the run is running, its last step is 10"};
  text.str("");
  print_comparison(text, other);
  EXPECT_THAT(text.str(),
              HasSubstr("their states diverge at step 5 (6 of 10 common steps have different states)"));
  EXPECT_THAT(text.str(), HasSubstr("amp.level  O0  O1"));
  EXPECT_THAT(text.str(), HasSubstr("Note: B: the run is running"));
  std::ostringstream json_text, csv;
  write_comparison_json(json_text, other);
  const nlohmann::json json = nlohmann::json::parse(json_text.str());
  EXPECT_EQ(json["equal"], false);
  EXPECT_EQ(json["steps"]["first_state_difference"], 5);
  EXPECT_EQ(json["steps"]["loss"]["largest"], "Infinity");
  EXPECT_EQ(json["growth"], nullptr);
  EXPECT_EQ(json["settings"][0]["b"], "O1");
  EXPECT_EQ(json["claims"][0]["verdict"], "FAILS");
  EXPECT_EQ(json["claims"][0]["measured"], claim_of(other).measured);
  write_comparison_csv(csv, other);
  EXPECT_THAT(csv.str(), HasSubstr("\n1,2,2,0,1,1,1024,1024,0,0,1\n"));
  EXPECT_THAT(csv.str(), HasSubstr(",nan,nan,"));

  RunComparison apart{.name_a = "x", .name_b = "y"};
  apart.steps = compare_steps(a, {}, 0);
  text.str("");
  print_comparison(text, apart);
  EXPECT_THAT(text.str(), HasSubstr("The runs have no step in common"));
  EXPECT_FALSE(apart.equal());
  EXPECT_EQ(claim_of(apart).verdict, Verdict::fails);
  a.pop_back();
  RunComparison shorter{.name_a = "x", .name_b = "y"};
  shorter.steps = compare_steps(a, run_of(10), 0);
  text.str("");
  print_comparison(text, shorter);
  EXPECT_THAT(text.str(),
              HasSubstr("states of the 9 common steps are the same; one run has steps that the other lacks"));
  EXPECT_THAT(text.str(), HasSubstr("Only in A: 0 steps; only in B: 1."));
}

}  // namespace
}  // namespace fp16lab::analysis
