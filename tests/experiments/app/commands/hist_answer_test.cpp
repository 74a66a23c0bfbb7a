// fp16lab hist answers first: what is wrong, the worst tensors, and what changes from step to step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "tests/experiments/app/commands/hist_fixture.hpp"

namespace fp16lab::experiments {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class HistAnswer : public Hist {
 protected:
  using Tensors = std::vector<std::pair<std::string, std::vector<double>>>;
  void npz_of(const std::string& file, const Tensors& tensors) {
    std::vector<ZipEntry> members;
    for (const auto& [name, values] : tensors)
      members.push_back(
          stored(name + ".npy", npy("<f8", "(" + std::to_string(values.size()) + ",)", doubles(values))));
    write_bytes(path(file), zip(members));
  }
  std::string answer(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "hist");
    const auto result = fp16lab(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  }
  static std::ptrdiff_t lines(const std::string& text) { return std::ranges::count(text, '\n'); }
  std::string assumed_;
};

/// A dump with a NaN and a tensor that FP16 loses: both are said first, by name.
TEST_F(HistAnswer, NamesWhatIsNotFinite) {
  std::vector<double> tiny(50, 1e-9);
  tiny.push_back(1e-3);
  npz_of("n.npz", {{"a", {1e-3, NAN}}, {"b", tiny}});
  const std::string told = answer({path("n.npz")});
  EXPECT_THAT(told,
              StartsWith("1 of 2 tensors holds Inf or NaN: a (1 NaN of 2 values).\n"
                         "FP16 at 2^0 makes 96.2 % of the finite non-zero values zero, most in b: 98.0 % of "
                         "its own."));
  EXPECT_THAT(told,
              ContainsRegex("\na +2 +1 +0\\.001\\.\\.0\\.001 .*\nb +51 +0 +1e-09\\.\\.0\\.001 +0 +98\\.0 "));
  const json account = hist({path("n.npz")}).at("account");
  EXPECT_EQ(account.at("findings")[0].at("trouble"), "non_finite");
  EXPECT_EQ(account.at("findings")[0].at("tensor"), "a");
  EXPECT_EQ(account.at("nothing_to_fix"), false);
  npz_of("worse.npz", {{"a", {INFINITY, -INFINITY, 1}}, {"b", {NAN}}, {"c", {1}}, {"d", {NAN, INFINITY}}});
  EXPECT_THAT(
      answer({path("worse.npz")}),
      StartsWith("3 of 4 tensors hold Inf or NaN: a (2 Inf of 3 values), b (1 NaN of 1 value), d (1 Inf, 1 "
                 "NaN of 2 values).\n"));
}

TEST_F(HistAnswer, NamesWhatOverflowsAndByHowMuch) {
  npz_of("big.npz", {{"w1", std::vector<double>(9, 1e-3)}, {"w2", {100, 1e-3}}});
  const std::string told = answer({path("big.npz"), "--scale", "2^16"});
  EXPECT_THAT(
      told, StartsWith("FP16 at 2^16 makes 9.1 % of the finite non-zero values Inf or NaN, most in w2: 50.0 "
                       "% of its own, the largest 100 times FP16's largest number.\n"));
  EXPECT_THAT(told, ContainsRegex("error  scales that fit\nw2 +2 +0 +0\\.001\\.\\.1e\\+02 +50\\.0 "));
  EXPECT_THAT(
      told, HasSubstr("Next: fp16lab hist " + path("big.npz") + " --scale '2^3' (the same at the suggested"));
  EXPECT_THAT(answer({path("big.npz")}),
              StartsWith("Nothing to fix: every value is finite, and every tensor fits.\n"));
}

/// No scale suits all: the next command leaves out the tensor that overflows first.
TEST_F(HistAnswer, OneTensorThatSuitsNoOtherIsLeftOutNext) {
  npz_of("odd.npz", {{"a", std::vector<double>(9, 1e-7)}, {"b", {1e6, 1e-7}}, {"c", {1e-7}}});
  EXPECT_THAT(answer({path("odd.npz"), "--scale", "2^2"}),
              HasSubstr("Next: fp16lab hist " + path("odd.npz") +
                        " --scale '2^2' --exclude b (what the others ask for)"));
}

/// Four dumps of a 62-tensor model: one screen, and what changed from step to step.
TEST_F(HistAnswer, StepsOfOneRunFitOnOneScreen) {
  for (const int step : {9, 499, 500, 1000}) {
    Tensors tensors;
    for (int layer = 0; layer < 61; ++layer)
      tensors.push_back(
          {"block" + std::to_string(layer) + ".weight", {0x1p-20 * (1 + layer % 7), 0x1p-26, 0x1p-30}});
    tensors.push_back({"lm_head", {(step == 500 ? 23 : 1) * 0x1p-12, step == 1000 ? NAN : 0x1p-14}});
    npz_of("step-" + std::to_string(step) + ".npz", tensors);
  }
  const std::string told = answer({path("step-*.npz")});
  EXPECT_LE(lines(told), 25) << told;
  EXPECT_THAT(
      told,
      StartsWith("4 files with the same 62 tensors: taken as steps 9, 499, 500, 1000 of one run, by the "
                 "numbers in their names (--separate reports them one by one).\n"
                 "1 of 62 tensors holds Inf or NaN, first in step 1000: lm_head in step 1000 (1 NaN of 2 "
                 "values).\n"));
  EXPECT_THAT(told, HasSubstr("\nThe 10 worst of 62 tensors in FP16 at loss scale 2^0"));
  EXPECT_THAT(told, ContainsRegex("\nlm_head +1000 +2 +1 "));
  EXPECT_THAT(
      told,
      HasSubstr("\nFrom step 499 to 500 the largest magnitude of lm_head rose 23 times, from 0.00024 to "
                "0.0056.\n"));
  const json report = hist({path("step-*.npz")});
  EXPECT_EQ(report.at("account").at("findings")[0].at("since"), 1000);
  EXPECT_EQ(
      report.at("changes"),
      json::parse(
          R"([{"tensor": "lm_head", "from": 499, "to": 500, "greatest": [0.000244140625, 0.005615234375]}])"));
  EXPECT_EQ(report.at("arrays")[0].at("step"), 1000) << "in the order of the names";
  EXPECT_LE(lines(answer({path("step-*.npz"), "--format", "f16,bf16,e4m3,e5m2"})), 25);
  EXPECT_GT(lines(answer({path("step-*.npz"), "--all"})), 500) << "every tensor of every step";
  EXPECT_THAT(told,
              HasSubstr("\nNext: lab.explain_overflow(model, closure, scale=1.0) names the first operation"));

  const std::string separate = answer({path("step-*.npz"), "--separate"});
  EXPECT_EQ(separate.find("taken as"), std::string::npos);
  for (const int step : {9, 499, 500, 1000})
    EXPECT_THAT(separate, HasSubstr(path("step-" + std::to_string(step) + ".npz") + ":\n"));
  EXPECT_LE(lines(separate), 4 * 27);
}

/// Gradients that died, or that a cast made zero before they were written, are nothing to praise.
TEST_F(HistAnswer, OnlyZerosAreNotJudged) {
  npz_of("zeros.npz", {{"w", {0, 0}}, {"b", {0}}});
  EXPECT_THAT(answer({path("zeros.npz")}), StartsWith("Not judged: every value is zero.\n"));
  EXPECT_EQ(hist({path("zeros.npz")}).at("account").at("nothing_to_fix"), false);
  npz_of("w1.npz", {{"w", {1}}});
  npz_of("w2.npz", {{"w", {0}}});
  EXPECT_THAT(answer({path("w?.npz")}),
              AllOf(StartsWith("2 files with the same tensor: taken as steps 1, 2 of one run"),
                    HasSubstr("From step 1 to 2 the largest magnitude of w fell, from 1 to 0.\n")));
}

/// A tensor that the table shows in its worst step is judged in all of them.
TEST_F(HistAnswer, EveryStepOfATensorIsJudged) {
  // b loses in step 1 what it does not in step 2, where it holds a NaN.
  npz_of("s1.npz", {{"a", {0x1p-30, 0x1p-31}}, {"b", {0x1p-30, 0x1p-31}}});
  npz_of("s2.npz", {{"a", {0x1p-30, 0.5}}, {"b", {NAN, 0.5}}});
  const std::string told = answer({path("s?.npz")});
  EXPECT_THAT(told,
              HasSubstr("zero, most in a in step 1: 100.0 % of its own. In 2 tensors that alone makes the "
                        "rounding error more than 1.1 times what FP16's precision costs."));
  EXPECT_THAT(told, ContainsRegex("scales that fit all steps\nb +2 +2 +1 +0\\.5\\.\\.0\\.5 .*\na +1 "));
}

TEST_F(HistAnswer, WhichNumberIsTheStep) {
  const Tensors one{{"w", {1}}}, two{{"w", {4}}};
  const auto steps_of = [this](const std::vector<std::string>& files) {
    std::vector<std::string> arguments;
    for (const std::string& file : files) arguments.push_back(path(file));
    std::vector<json> steps;
    const json report = hist(arguments);
    for (const json& array : report.at("arrays")) steps.push_back(array.at("step"));
    assumed_ = report.at("assumed");
    return steps;
  };
  npz_of("run2-step-100-loss-0.53.npz", one);
  npz_of("run2-step-200-loss-0.41.npz", two);
  EXPECT_THAT(steps_of({"run2-step-200-loss-0.41.npz", "run2-step-100-loss-0.53.npz"}),
              ElementsAre(200, 100));
  EXPECT_THAT(answer({path("run2-step-*")}),
              HasSubstr("From step 100 to 200 the largest magnitude of w rose 4 times"));
  npz_of("before.npz", one);
  npz_of("after.npz", two);
  EXPECT_THAT(steps_of({"before.npz", "after.npz"}), ElementsAre(1, 2));
  EXPECT_THAT(assumed_, HasSubstr("in the order given, since no number tells them apart"));
  // Shards of one model have other tensors each.
  npz_of("model-00001-of-00002.npz", {{"w", {1}}});
  npz_of("model-00002-of-00002.npz", {{"v", {1}}});
  EXPECT_THAT(steps_of({"model-00001-of-00002.npz", "model-00002-of-00002.npz"}),
              ElementsAre(nullptr, nullptr));
  EXPECT_THAT(assumed_, StartsWith("2 files whose tensors differ: taken as parts of one whole"));
  // An array a file: their names are the tensors', and a folder is a step.
  for (const char* folder : {"s10", "s20"}) {
    std::filesystem::create_directory(path(folder));
    for (const char* name : {"fc1", "fc2"})
      write_bytes(path(folder + ("/" + std::string(name)) + ".npy"), npy("<f8", "(1,)", doubles({1.0})));
  }
  EXPECT_THAT(steps_of({"s10/fc1.npy", "s10/fc2.npy"}), ElementsAre(nullptr, nullptr));
  EXPECT_THAT(steps_of({"s10/fc1.npy", "s20/fc1.npy", "s10/fc2.npy", "s20/fc2.npy"}),
              ElementsAre(10, 20, 10, 20));
  EXPECT_THAT(assumed_, StartsWith("2 folders with the same 2 tensors: taken as steps 10, 20 of one run"));
  EXPECT_THAT(steps_of({"before.npz"}), ElementsAre(nullptr));
  EXPECT_EQ(assumed_, "");
  expect_one_line_error(fp16lab({"hist", path("run"), "--separate"}), 2, "no such file or run folder");
}

}  // namespace
}  // namespace fp16lab::experiments
