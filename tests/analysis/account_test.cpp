// What is said of a run, from the rows of its folder.
#include "analysis/account.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "analysis/format_fit.hpp"
#include "numerics/files/run/run_folder.hpp"
#include "tests/support/temporary_folder.hpp"

namespace fp16lab::analysis::account_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr double infinity = std::numeric_limits<double>::infinity();
const double nan = std::nan("");

ExponentHistogram of(std::initializer_list<float> values, int times = 1) {
  ExponentHistogram histogram;
  for (int i = 0; i < times; ++i)
    for (const float value : values) histogram.count(bits_of(value));
  return histogram;
}

class AccountOfRuns : public ::testing::Test {
 protected:
  struct Step {
    double scale;
    bool skipped = false;
    double loss = 0.5;
  };
  /// A run of these steps; `rows` are added to the last one.
  Account account(const std::vector<Step>& steps, const std::vector<HistogramRow>& rows = {},
                  ExitState state = ExitState::finished, const std::string& message = "",
                  const std::vector<EvaluationRow>& evaluations = {},
                  const std::vector<CulpritRow>& culprits = {}) {
    const std::filesystem::path path = folder_.path() / "run";
    std::filesystem::remove_all(path);
    Manifest manifest;
    manifest.argv = {"fp16lab", "train", "-c", "my net.toml", "--force", "-o", path.string()};
    manifest.git_hash = build_;
    RunWriter writer(path, manifest);
    std::uint64_t number = 0;
    for (const Step& step : steps) {
      ++number;
      writer.append(StepRow{.step = number,
                            .loss = step.loss,
                            .loss_scale = step.scale,
                            .found_inf = step.skipped,
                            .skipped = step.skipped,
                            .grad_norm = step.skipped ? infinity : 1.0});
      if (step.skipped)
        writer.append(OverflowRow{.step = number,
                                  .loss_scale = step.scale,
                                  .parameters = {"fc1.weight", "fc2.weight", "fc2.bias"}});
    }
    for (HistogramRow row : rows) {
      row.step = number;
      row.kind = "weight";
      writer.append(row);
    }
    for (const EvaluationRow& row : evaluations) writer.append(row);
    for (const CulpritRow& row : culprits) writer.append(row);
    writer.finish(state, message);
    return account_of(read_run_folder(path));
  }
  static HistogramRow fp16(const std::string& tensor, const ExponentHistogram& before,
                           const ExponentHistogram& after) {
    return {.tensor = tensor, .dtype = DType::f16, .before = before, .after = after};
  }
  std::string build_{};
  const std::vector<HistogramRow> fitting_{fp16("fc1.weight", of({1, 2}), of({1, 2}))};

 private:
  testing_support::TemporaryFolder folder_;
};

TEST_F(AccountOfRuns, NothingToFixWhereAllIsFiniteTakenAndFits) {
  const Account said = account({{8}, {8}, {16}}, fitting_);
  EXPECT_TRUE(said.nothing_to_fix());
  EXPECT_THAT(said.findings, IsEmpty());
  EXPECT_THAT(account_text(said), AllOf(HasSubstr("Nothing to fix: "), HasSubstr("Next: fp16lab report ")));
}

TEST_F(AccountOfRuns, WithoutHistogramsNobodyKnowsWhatUnderflows) {
  const Account said = account({{8}, {8}});
  EXPECT_FALSE(said.nothing_to_fix());
  EXPECT_THAT(account_text(said),
              AllOf(HasSubstr("What underflows is not known"), Not(HasSubstr("Nothing"))));
}

// tensorflow#38357: a scale held at 1 where gradients need less, and a fixed one.
TEST_F(AccountOfRuns, NoStepTakenAtAScaleThatStays) {
  const Account said = account(
      std::vector<Step>(300, {65536, true}), fitting_, ExitState::diverged,
      "diverged at step 300: skipped 300 of 300 steps, and the scale cannot fall any further. bad scale: x");
  ASSERT_NE(said.worst(), nullptr);
  EXPECT_TRUE(said.took_no_step());
  EXPECT_EQ(said.worst()->trouble, Trouble::overflow);
  EXPECT_EQ(said.worst()->tensor, "fc2.bias");
  EXPECT_THAT(said.worst()->text,
              AllOf(HasSubstr("No step was taken: skipped 300 of 300 steps, at a scale of 2^16 throughout."),
                    HasSubstr(" The gradient of fc2.bias was Inf or NaN in 300 steps"),
                    HasSubstr("It diverged at step 300")));
  EXPECT_THAT(account_text(said), Not(HasSubstr("othing to fix")));
  EXPECT_THAT(said.next, HasSubstr("fp16lab hist "));  // the cause is named
}

TEST_F(AccountOfRuns, NoStepTakenWhileTheScaleFalls) {
  std::vector<Step> steps;
  for (int k = 32; k > 20; --k) steps.push_back({std::ldexp(1, k), true});
  const Account said = account(steps);
  EXPECT_THAT(said.worst()->text,
              HasSubstr("skipped 12 of 12 steps, still searching: 2^32 to 2^21 in 12 steps."));
  EXPECT_THAT(said.next, AllOf(HasSubstr("fp16lab train -c 'my net.toml' --explain-overflow -o "),
                               HasSubstr("run-explained"), Not(HasSubstr("--force"))));
  EXPECT_FALSE(said.nothing_to_fix());
}

TEST_F(AccountOfRuns, StepsSkippedWhileAPolicyLooksForItsScaleNeedNoMending) {
  std::vector<Step> steps{{65536, true}, {32768, true}};
  steps.resize(100, {16384});
  const Account said = account(steps, fitting_);
  ASSERT_THAT(said.findings, SizeIs(1));
  EXPECT_FALSE(said.findings[0].serious);
  EXPECT_TRUE(said.nothing_to_fix());
  EXPECT_THAT(account_text(said), HasSubstr("Skipped 2 of 100 steps, all before the first that was taken, at "
                                            "scales from 2^16 to 2^15."));
}

// A fixed scale at which every tenth batch overflows; and 1 % after the scale has grown, no more.
TEST_F(AccountOfRuns, MoreThanOneInAHundredSkippedLaterNeedsMending) {
  std::vector<Step> steps;
  for (int i = 0; i < 200; ++i) steps.push_back({1024, i % 10 == 9});
  EXPECT_TRUE(account(steps, fitting_).worst()->serious);
  EXPECT_THAT(account(steps, fitting_).worst()->text,
              AllOf(HasSubstr("Skipped 20 of 200 steps (20 steps from 10 to 200)"),
                    HasSubstr("The scale never left 2^10")));
  steps.assign(100, {1024});
  for (int i = 0; i < 100; ++i) steps.push_back({2048, i == 50});
  EXPECT_TRUE(account(steps, fitting_).nothing_to_fix());
  steps[160].skipped = true;
  EXPECT_FALSE(account(steps, fitting_).nothing_to_fix());
}

TEST_F(AccountOfRuns, ALossThatIsNoNumberComesFirst) {
  CulpritRow culprit{.step = 3,
                     .op = "div",
                     .layer = "head",
                     .tensor = "head.output",
                     .dtype = DType::f16,
                     .value = nan,
                     .advice = "look at it"};
  const Account said =
      account({{8}, {8}, {8, true, nan}, {8, true, nan}}, fitting_, ExitState::finished, "", {}, {culprit});
  ASSERT_THAT(said.findings, SizeIs(2));
  EXPECT_EQ(said.findings[0].trouble, Trouble::non_finite);
  EXPECT_EQ(said.findings[0].since, 3u);
  EXPECT_EQ(said.findings[0].tensor, "head.output");
  EXPECT_THAT(said.findings[0].text, AllOf(HasSubstr("The loss is Inf or NaN in 2 of 4 steps, since step 3."),
                                           HasSubstr("look at it")));
  EXPECT_EQ(said.findings[1].trouble, Trouble::overflow);
  EXPECT_THAT(said.next, HasSubstr("fp16lab report"));  // the operation is named already
  const Account evaluated =
      account({{8}}, fitting_, ExitState::finished, "", {{.step = 1, .split = "test", .loss = infinity}});
  EXPECT_THAT(evaluated.worst()->text, HasSubstr("The evaluation after step 1 is Inf or NaN"));
}

TEST_F(AccountOfRuns, UnderflowThatCostsATensorMoreThanATenthNeedsMending) {
  const float tiny = std::ldexp(1.5f, -30);
  const Account lost =
      account({{1}}, {fp16("fc1.input", of({1}), of({1})), fp16("fc2.input", of({tiny}, 50), of({0}, 50))});
  ASSERT_NE(lost.worst(), nullptr);
  EXPECT_EQ(lost.worst()->trouble, Trouble::underflow);
  EXPECT_EQ(lost.worst()->tensor, "fc2.input");
  EXPECT_THAT(
      lost.worst()->text,
      HasSubstr(
          "Casts to FP16 made 98.0 % of the finite non-zero gradients zero, most in fc2.input: 100.0 %"));
  EXPECT_THAT(lost.next, HasSubstr("fp16lab hist "));
  EXPECT_EQ(lost.casts->underflow, 50u);
  // One value in many that are large: its loss is no loss.
  ExponentHistogram before = of({1}, 1000), after = before;
  before += of({tiny});
  after += of({0});
  const Account harmless = account({{1}}, {fp16("fc1.input", before, after)});
  EXPECT_TRUE(harmless.nothing_to_fix());
  EXPECT_THAT(harmless.findings, SizeIs(1));
}

// Log-uniform from 2^-24.9 to 2^-23.2: hardly a value becomes zero, and rounding costs 27.7 %.
TEST_F(AccountOfRuns, SubnormalsDistort) {
  ExponentHistogram values;
  for (int i = 0; i < 1000; ++i) values.count(bits_of(static_cast<float>(std::exp2(-24.9 + 1.7 * i / 1000))));
  const Account said = account({{1}}, {fp16("fc1.input", values, values)});
  ASSERT_NE(said.worst(), nullptr);
  EXPECT_EQ(said.worst()->trouble, Trouble::distortion);
  EXPECT_EQ(said.worst()->tensor, "fc1.input");
}

TEST_F(AccountOfRuns, ALossThatNobodyToldIsUnknown) {
  build_ = "0123, torch 2.15.0";
  const Account said = account({{8, false, nan}, {8, false, nan}}, fitting_);
  EXPECT_EQ(said.worst(), nullptr);
  EXPECT_THAT(said.findings, IsEmpty());
  EXPECT_FALSE(said.nothing_to_fix());  // nobody saw the casts
  EXPECT_THAT(account_text(said), HasSubstr("where no cast can be seen"));
  EXPECT_EQ(account({{8}, {8, false, nan}}, fitting_).worst()->trouble, Trouble::non_finite);
}

TEST_F(AccountOfRuns, JsonHasTheSame) {
  const auto json = nlohmann::ordered_json::parse(account_json(account({{8, true}}, fitting_)));
  EXPECT_EQ(json["steps"], 1);
  EXPECT_EQ(json["skipped"], 1);
  EXPECT_EQ(json["nothing_to_fix"], false);
  EXPECT_EQ(json["findings"][0]["trouble"], "overflow");
  EXPECT_EQ(json["findings"][0]["since"], 1);
}

// ---- format_fit.hpp

TEST(FormatFit, WhatIsNormalCostsWhatPrecisionCosts) {
  for (const DType format : {DType::f16, DType::bf16, DType::e4m3, DType::e5m2}) {
    const FitSums sums = fit_sums(of({1, 3, 0.5, 7}), range_of(format), 1);
    EXPECT_EQ(sums.ratio(), 1) << name_of(format);
    EXPECT_TRUE(sums.fits());
  }
}

TEST(FormatFit, OverflowNeverFits) {
  EXPECT_TRUE(fit_sums(of({65504}), fp16_range, 1).fits());
  EXPECT_FALSE(fit_sums(of({65504}), fp16_range, 2).fits());
}

// The bound against every value's own error: 2^12 values a binade, rounded to FP16's numbers.
TEST(FormatFit, BoundsWhatFp16CostsValues) {
  for (int e = -30; e < 0; ++e) {
    ExponentHistogram histogram;
    double error = 0, plain = 0;
    for (int i = 1; i <= 4096; ++i) {
      const auto value = static_cast<float>(std::ldexp(1 + i / 4096.0, e));
      histogram.count(bits_of(value));
      const double unit = std::ldexp(1.0, std::max(-24, std::ilogb(value) - 10));
      const double rounded = std::nearbyint(value / unit) * unit;  // FP16, as numbers
      error += (rounded - value) * (rounded - value);
      const double spacing = std::ldexp(1.0, std::ilogb(value) - 10),
                   unlimited = std::nearbyint(value / spacing) * spacing;
      plain += (unlimited - value) * (unlimited - value);
    }
    const FitSums sums = fit_sums(histogram, fp16_range, 1);
    EXPECT_LE(std::sqrt(error / std::max(plain, sums.plain)), sums.ratio()) << e;
    EXPECT_EQ(sums.fits(), e >= -14) << e;
    // A larger scale never makes it worse.
    EXPECT_LE(fit_sums(histogram, fp16_range, 2).ratio(), sums.ratio());
  }
}

}  // namespace
}  // namespace fp16lab::analysis::account_test
