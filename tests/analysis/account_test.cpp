// The findings on a run, from the rows of its folder.
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
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

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
    double lr = 0.25;
    bool zeroed = false;  ///< taken, with zeros for gradients
  };
  /// A run of these steps; `rows` are added to the last one.
  Account account(const std::vector<Step>& steps, const std::vector<HistogramRow>& rows = {},
                  ExitState state = ExitState::finished, const std::string& message = "",
                  const std::vector<EvaluationRow>& evaluations = {},
                  const std::vector<CulpritRow>& culprits = {}, const RunIdentity::Keys& keys = {},
                  const std::vector<RecipeRow>& recipe = {}) {
    const std::filesystem::path path = folder_.path() / "run";
    std::filesystem::remove_all(path);
    Manifest manifest;
    manifest.argv = {"fp16lab", "train", "-c", "my net.toml", "--force", "-o", path.string()};
    manifest.argv.insert(manifest.argv.end(), given_.begin(), given_.end());
    manifest.git_hash = build_;
    manifest.identity = identity_of(keys, {}, keys);
    RunWriter writer(path, manifest);
    std::uint64_t number = 0;
    for (const Step& step : steps) {
      ++number;
      writer.append(StepRow{.step = number,
                            .loss = step.loss,
                            .loss_scale = step.scale,
                            .found_inf = step.skipped || step.zeroed,
                            .skipped = step.skipped,
                            .grad_norm = step.skipped || step.zeroed ? infinity : 1.0,
                            .lr = step.lr});
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
    for (const RecipeRow& row : recipe) writer.append(row);
    writer.finish(state, message);
    return account_of(read_run_folder(path));
  }
  static HistogramRow fp16(const std::string& tensor, const ExponentHistogram& before,
                           const ExponentHistogram& after) {
    return {.tensor = tensor, .dtype = DType::f16, .before = before, .after = after};
  }
  std::string build_{};
  std::vector<std::string> given_{};  ///< more arguments of the run
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

TEST_F(AccountOfRuns, NamesTheOperandThatLostMostToARecipe) {
  const auto operand = [](std::string tensor, std::string product, std::uint64_t zeros,
                          std::uint64_t saturated_blocks) {
    return RecipeRow{.tensor = std::move(tensor),
                     .product = std::move(product),
                     .values = 1000,
                     .made_zero = zeros,
                     .blocks = 50,
                     .saturated_blocks = saturated_blocks};
  };
  const auto text = [&](const std::vector<RecipeRow>& rows) {
    return account_text(account({{8}, {8}, {16}}, fitting_, ExitState::finished, "", {}, {}, {}, rows));
  };
  EXPECT_THAT(
      text({operand("fc1.input", "forward", 10, 5), operand("fc1.output", "dw", 200, 5),
            operand("fc1.output", "dx", 150, 0), operand("fc1.output", "dw", 220, 35)}),
      HasSubstr(
          "The recipe zeroed 21.0 % of fc1.output in the product dw, more than of any "
          "other operand (14.5 % of all). It saturated 40.0 % of the blocks of fc1.output in the product "
          "dw, more than of any other operand (22.5 % of all).\n"));
  EXPECT_THAT(text({operand("fc1.input", "forward", 0, 0)}),
              HasSubstr("The recipe made no value zero. No block saturated.\n"));
  EXPECT_THAT(text({}), Not(HasSubstr("The recipe")));
}

TEST_F(AccountOfRuns, WithoutHistogramsNobodyKnowsWhatUnderflows) {
  const Account said = account({{8}, {8}});
  EXPECT_FALSE(said.nothing_to_fix());
  EXPECT_THAT(account_text(said), AllOf(HasSubstr("Underflow is not known"), Not(HasSubstr("Nothing"))));
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
                    HasSubstr("the loss. The scale cannot fall any further. Bad scale: x.")));
  EXPECT_THAT(account_text(said), Not(HasSubstr("othing to fix")));
  EXPECT_THAT(said.next, HasSubstr("--explain-overflow")) << "the cause is named, but no scale that would do";
}

TEST_F(AccountOfRuns, NoStepTakenWhileTheScaleFalls) {
  std::vector<Step> steps;
  for (int k = 32; k > 20; --k) steps.push_back({std::ldexp(1, k), true});
  const Account said = account(steps);
  EXPECT_THAT(
      said.worst()->text,
      HasSubstr("skipped 12 of 12 steps, still searching: 2^32 to 2^21 in 12 steps. Train for more steps, so "
                "that it finds its scale, or set a lower scaler.initial_scale to start nearer to it."));
  EXPECT_THAT(said.next, AllOf(HasSubstr("fp16lab train -c 'my net.toml' --explain-overflow -o "),
                               HasSubstr("run-explained"), Not(HasSubstr("--force"))));
  EXPECT_FALSE(said.nothing_to_fix());
}

TEST_F(AccountOfRuns, StepsSkippedWhileAPolicyLooksForItsScaleNeedNoMending) {
  std::vector<Step> steps{{65536, true}, {32768, true}};
  steps.resize(100, {16384});
  steps.push_back({32768});  // it was found: it has grown
  const Account said = account(steps, fitting_);
  ASSERT_THAT(said.findings, SizeIs(1));
  EXPECT_FALSE(said.findings[0].serious);
  EXPECT_TRUE(said.nothing_to_fix());
  EXPECT_THAT(account_text(said), HasSubstr("Skipped 2 of 101 steps, all before the first that was taken, at "
                                            "scales from 2^16 to 2^15."));
}

// If the scale fell and never grew, nothing shows yet how many steps the found scale would skip.
TEST_F(AccountOfRuns, AScaleThatHasNotGrownOnceIsNotJudged) {
  std::vector<Step> steps{{65536, true}, {32768, true}};
  steps.resize(100, {16384});
  const Account said = account(steps, fitting_);
  EXPECT_FALSE(said.nothing_to_fix());
  EXPECT_EQ(said.worst(), nullptr);
  EXPECT_THAT(account_text(said),
              AllOf(HasSubstr("Not judged yet: the scale fell from 2^16 to 2^14 and has not grown once in "
                              "100 steps, so it is not known how many overflow once it is found."),
                    Not(HasSubstr("othing to fix"))));
  const auto json = nlohmann::ordered_json::parse(account_json(said));
  EXPECT_EQ(json["nothing_to_fix"], false);
  // A scale that never moved, and one that grew and fell later, are judged by what they skipped.
  EXPECT_TRUE(account(std::vector<Step>(100, {65536}), fitting_).nothing_to_fix());
  steps.assign(100, {1024});
  for (int i = 0; i < 200; ++i) steps.push_back({2048, false});
  steps.push_back({2048, true});
  steps.push_back({1024, false});
  EXPECT_TRUE(account(steps, fitting_).nothing_to_fix());
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

TEST_F(AccountOfRuns, ALossThatRisesIsNotCalledWell) {
  std::vector<Step> steps(20, {8});
  steps.back().loss = 0.9;
  EXPECT_TRUE(account(steps, fitting_).nothing_to_fix()) << "it rose, and did not double";
  steps.back().loss = 38.5;
  const Account said = account(steps, fitting_);
  EXPECT_FALSE(said.nothing_to_fix());
  EXPECT_THAT(account_text(said),
              StartsWith("The loss more than doubled, from 0.5 to 38.5, and no count here "));
}

TEST_F(AccountOfRuns, AnOverflowThatIsTakenSaysWithWhat) {
  const std::vector<Step> steps{{8}, {.scale = 8, .zeroed = true}, {.scale = 4, .zeroed = true}};
  EXPECT_THAT(account_text(account(steps)), HasSubstr("steps 2 to 3, and they were taken all the same."));
  EXPECT_THAT(account_text(account(steps, {}, ExitState::finished, "", {}, {},
                                   {{"scaler.policy", "fixed"}, {"scaler.on_overflow", "zero"}})),
              HasSubstr("steps 2 to 3, and they were taken with zeros for gradients."));
}

// A scale that begins too high falls also where the steps meanwhile are taken with zeros.
TEST_F(AccountOfRuns, AScaleThatIsLookedForWithZerosHasNotSunk) {
  std::vector<Step> steps;
  for (int k = 32; k > 23; --k) steps.push_back({.scale = std::ldexp(1.0, k), .zeroed = true});
  steps.resize(12, {0x1p23});
  const auto text_with = [&](const std::vector<Step>& all) {
    const ExponentHistogram overflown = of({1, 2});
    ExponentHistogram after = of({1});
    after.infinite = 1;
    return account_text(account(all, {fp16("fc1.weight", overflown, after)}, ExitState::finished, "", {}, {},
                                {{"scaler.on_overflow", "zero"}}));
  };
  EXPECT_THAT(text_with(steps), Not(HasSubstr("gradients grow during training")));
  steps.insert(steps.begin(), {0x1p33});  // a finite step before the falls: gradients do grow
  EXPECT_THAT(text_with(steps), HasSubstr("gradients grow during training"));
}

TEST_F(AccountOfRuns, ALossThatIsNoNumberComesFirst) {
  CulpritRow culprit{.step = 3,
                     .op = "div",
                     .layer = "head",
                     .tensor = "head.output",
                     .dtype = DType::f16,
                     .value = nan,
                     .advice = "look at it"};
  const Account said = account({{8}, {8}, {8, true, nan}, {8, true, nan}}, fitting_, ExitState::finished, "",
                               {}, {culprit}, {{"amp.level", "O1"}});
  ASSERT_THAT(said.findings, SizeIs(2));
  EXPECT_EQ(said.findings[0].trouble, Trouble::non_finite);
  EXPECT_EQ(said.findings[0].since, 3u);
  EXPECT_EQ(said.findings[0].tensor, "head.output");
  EXPECT_THAT(said.findings[0].text, AllOf(HasSubstr("The loss is Inf or NaN in 2 of 4 steps, since step 3."),
                                           HasSubstr("look at it")));
  EXPECT_EQ(said.findings[1].trouble, Trouble::overflow);
  // The operation is named, and what would save it is not: has FP16 a part in it?
  EXPECT_THAT(said.next, AllOf(HasSubstr("fp16lab train -c 'my net.toml' --set amp.level=O0 -o "),
                               HasSubstr("run-fp32 (")));
  const Account evaluated =
      account({{8}}, fitting_, ExitState::finished, "", {{.step = 1, .split = "test", .loss = infinity}});
  EXPECT_THAT(evaluated.worst()->text, HasSubstr("The evaluation after step 1 is Inf or NaN"));
}

// optimizer.lr = 1e6: the first step is well, its update ruins the weights.
TEST_F(AccountOfRuns, ALossThatIsLostAfterTheFirstUpdatesNamesTheLearningRate) {
  constexpr const char* words = "typical of a learning rate that is too high (it was 1e+06)";
  std::vector<Step> steps{{1, false, 2.3, 1e6}};
  steps.resize(20, {1, true, nan, 1e6});
  Account said = account(steps, fitting_);
  EXPECT_THAT(said.worst()->text,
              AllOf(HasSubstr("No loss was finite after the update of step 1, and nothing had overflowed "
                              "before it, which is "),
                    HasSubstr(words)));
  EXPECT_THAT(said.next, AllOf(HasSubstr("fp16lab train -c 'my net.toml' --set optimizer.lr=1e+05 -o "),
                               HasSubstr("run-lower-rate ("), HasSubstr("a tenth of the learning rate")));
  // A loss that grew out of all proportion before anything overflowed.
  steps = {{1, false, 2.3, 1e6}, {1, false, 40, 1e6}, {1, false, 1e5, 1e6}, {1, false, 1e9, 1e6}};
  steps.resize(20, {1, true, infinity, 1e6});
  EXPECT_THAT(account(steps, fitting_).worst()->text,
              AllOf(HasSubstr("The loss had grown from 2.3 to 1e+09 by step 5, before anything overflowed, "),
                    HasSubstr(words)));
  // The same where the loss stays finite and the gradients do not.
  steps = {{1, false, 2.3, 1e6}};
  steps.resize(20, {1, true, 1e5, 1e6});
  said = account(steps, fitting_);
  EXPECT_EQ(said.worst()->trouble, Trouble::overflow);
  EXPECT_THAT(said.worst()->text, HasSubstr(words));
  // A run that printed it at its end does not repeat it.
  said = account(steps, fitting_, ExitState::diverged, "diverged: bad learning rate: x. Lower optimizer.lr");
  EXPECT_THAT(said.worst()->text, Not(HasSubstr(words)));
  EXPECT_THAT(said.next, HasSubstr("--set optimizer.lr=1e+05"));
}

TEST_F(AccountOfRuns, WithoutTheRowsForItNobodyNamesTheLearningRate) {
  const auto expect_none = [&](const std::vector<Step>& steps, const std::vector<CulpritRow>& culprits = {}) {
    const Account said = account(steps, fitting_, ExitState::finished, "", {}, culprits);
    EXPECT_THAT(account_text(said), AllOf(Not(HasSubstr("learning rate")), Not(HasSubstr("optimizer.lr"))));
  };
  std::vector<Step> steps(20, {1, true, nan});
  expect_none(steps);  // from the first step on
  steps[0] = {1, false, 2.3};
  steps[10] = {1, false, 2.2};
  expect_none(steps);  // it came back
  steps[10] = {1, true, nan};
  CulpritRow data{.step = 2, .cause = CulpritCause::data, .tensor = "inputs", .value = nan};
  expect_none(steps, {data});
  steps.insert(steps.begin(), {65536, true, 2.3});
  expect_none(steps);  // something had overflowed
  steps.assign(20, {1, false, 2.3});
  steps.push_back({1, true, nan});
  expect_none(steps);  // one batch
  // An operation need not have to do with updates, as long as the loss has not grown.
  steps = {{1, false, 2.3}, {1, true, nan}, {1, true, nan}};
  expect_none(steps, {CulpritRow{.step = 2, .op = "div", .tensor = "head.output", .value = nan}});
  // Overflows went into the weights unseen.
  const Account said =
      account(steps, fitting_, ExitState::diverged, "x, and nothing looks for overflows in this run");
  EXPECT_THAT(account_text(said), AllOf(Not(HasSubstr("learning rate")), Not(HasSubstr("optimizer.lr"))));
  EXPECT_THAT(account(steps, fitting_, ExitState::diverged,
                      "x, and nothing looks for overflows in this run. Let it check (scaler.enabled = true)")
                  .next,
              HasSubstr("--set scaler.enabled=true -o "));
}

CulpritRow backward_culprit(std::uint64_t step, double scale, std::optional<double> finite) {
  return {.step = step,
          .pass = CulpritPass::backward,
          .op = "cast",
          .layer = "loss",
          .tensor = "loss.prediction",
          .dtype = DType::f16,
          .loss_scale = scale,
          .value = infinity,
          .finite_scale = finite,
          .advice = "look at it"};
}

TEST_F(AccountOfRuns, NextIsWhatMendsAnOverflowThatIsExplained) {
  const std::vector<Step> steps(3, {0x1p40, true});
  const auto next = [&](const std::vector<CulpritRow>& culprits, const std::string& message = "diverged: x",
                        const RunIdentity::Keys& keys = {{"scaler.policy", "fixed"}},
                        const std::vector<HistogramRow>& rows = {}) {
    const Account said = account(steps, rows, ExitState::diverged, message, {}, culprits, keys);
    EXPECT_THAT(said.next, Not(HasSubstr("--explain-overflow")));
    return said;
  };
  const std::vector<CulpritRow> tried{backward_culprit(1, 0x1p40, 0x1p20),
                                      backward_culprit(2, 0x1p40, 0x1p19),
                                      backward_culprit(3, 0x1p40, 0x1p20)};
  const Account said = next(tried);
  EXPECT_THAT(said.next,
              AllOf(HasSubstr("fp16lab train -c 'my net.toml' --set 'scaler.initial_scale=2^19' -o "),
                    HasSubstr("run-lower-scale (")));
  EXPECT_THAT(said.worst()->text, HasSubstr(" 3 steps were repeated; the lowest such scale is 2^19."));
  EXPECT_THAT(next(tried, "To go on, lower scaler.min_scale (it is 2^36)").next,
              HasSubstr("--set 'scaler.initial_scale=2^19' --set 'scaler.min_scale=2^19' -o "));
  EXPECT_THAT(next(tried, "x", {}).next,
              HasSubstr("--set 'scaler.initial_scale=2^19' --set scaler.policy=fixed -o "));
  // A key is set once, and the search is not repeated.
  given_ = {"--set", "scaler.initial_scale=2^40", "--explain-overflow", "--set", "scaler.policy=fixed"};
  EXPECT_THAT(next(tried).next,
              HasSubstr("'my net.toml' --set scaler.policy=fixed --set 'scaler.initial_scale=2^19' -o "));
  given_.clear();
  // No scale is known, and this one never moved: the advice is a policy that lowers it.
  EXPECT_THAT(next({backward_culprit(1, 0x1p40, std::nullopt)}).next,
              HasSubstr("--set scaler.policy=torch -o "));
  // No scale does.
  EXPECT_THAT(next({backward_culprit(1, 0x1p40, 0.0)}, "diverged: x", {}, fitting_).next,
              HasSubstr("fp16lab hist "));
}

TEST_F(AccountOfRuns, NextKeepsTheOperationInFp32) {
  CulpritRow culprit{.step = 1,
                     .op = "div",
                     .layer = "head",
                     .tensor = "head.output",
                     .dtype = DType::f16,
                     .value = nan,
                     .black = "div",
                     .excluded = "head",
                     .advice = "keep it"};
  const std::vector<Step> steps(3, {8, true, nan});
  const auto next = [&](const RunIdentity::Keys& keys) {
    return account(steps, fitting_, ExitState::finished, "", {}, {culprit}, keys).next;
  };
  EXPECT_THAT(next({{"amp.level", "O1"}}),
              AllOf(HasSubstr("fp16lab train -c 'my net.toml' --set 'amp.black=[\"div\"]' -o "),
                    HasSubstr("run-in-fp32 (")));
  EXPECT_THAT(next({{"amp.level", "O1"}, {"amp.black", "[ \"exp\", \"log\" ]"}}),
              HasSubstr("--set 'amp.black=[\"exp\",\"log\",\"div\"]' -o "));
  // Where the level reads no list of operations.
  EXPECT_THAT(next({{"amp.level", "O2"}}), HasSubstr("--set 'amp.excluded=[\"head\"]' -o "));
  culprit.black = culprit.excluded = "";
  EXPECT_THAT(next({{"amp.level", "O0"}}), HasSubstr("fp16lab report "));  // no format is to blame
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
  EXPECT_THAT(lost.worst()->text, Not(HasSubstr("zeros alone")));
  // What those zeros reach is zero before its own cast, and counts in no rate.
  const Account below =
      account({{1}}, {fp16("fc1.input", of({1}), of({1})),
                      fp16("fc2.input", of({tiny}, 50), of({0}, 50)),
                      fp16("fc3.weight", of({0}, 9), of({0}, 9)),
                      fp16("fc3.bias", of({0}), of({0})),
                      {.tensor = "norm.weight", .dtype = DType::f32, .before = of({1}), .after = of({1})}});
  EXPECT_THAT(below.worst()->text,
              EndsWith("2 of 4 gradients that were cast held zeros alone before their own casts, such as "
                       "fc3.weight: casts "
                       "before those can have made them, and the rate does not count them."));
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
  EXPECT_FALSE(said.nothing_to_fix());  // no observer saw the casts
  EXPECT_THAT(account_text(said), HasSubstr("where casts cannot be observed"));
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
