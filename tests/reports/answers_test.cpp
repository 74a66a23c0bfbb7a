// reports/: the three sentences of the first screen, of runs whose underflow and quality are known.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "numerics/formats/bits.hpp"
#include "reports/page/answers.hpp"
#include "tests/reports/report_fixture.hpp"

namespace fp16lab::reports {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class AnswersOf : public Reports {
 protected:
  /// Three seeds of a run. `lost` in 100 gradients of fc1.weight are 2^-30, the others 2^-20, before they are
  /// scaled; those of the other tensors are recorded as 2^-4: without scaling a fourth of `lost` of all is
  /// lost.
  void runs(const std::string& level, const std::string& policy, double scale, double final_loss, int lost,
            bool twin = false, bool recorded = true) {
    for (const std::uint64_t seed : {1, 2, 3}) {
      Manifest manifest;
      manifest.config =
          "[model]\nname = \"net\"\n[data]\nname = \"made\"\n[train]\nseed = " + std::to_string(seed) +
          "\nperturb_ulps = " + (twin ? "1" : "0") + "\n[amp]\nlevel = \"" + level +
          "\"\n[scaler]\npolicy = \"" + policy + "\"\ninitial_scale = " + std::to_string(scale) + "\n";
      const std::string name = level + policy + std::to_string(scale) + (twin ? "twin" : "");
      RunWriter writer(folder / "runs" / (name + std::to_string(seed)), manifest);
      writer.append(StepRow{.step = 1, .loss = 1, .loss_scale = scale});
      for (const char* tensor : {"fc1.weight", "loss.prediction", "fc2.input", "fc3.input"}) {
        if (!recorded) break;
        HistogramRow row{.step = 1, .tensor = tensor, .kind = "weight", .loss_scale = scale};
        row.dtype = level == "O0" ? DType::f32 : DType::f16;
        for (int i = 0; i < 100; ++i) {
          const bool first = std::string_view(tensor) == "fc1.weight";
          const float value = first ? (i < lost ? 0x1p-30f : usual) * static_cast<float>(scale) : 0x1p-4f;
          row.before.count(bits_of(value));
          row.after.count(bits_of(value <= 0x1p-25f && level != "O0" ? 0.0f : value));
        }
        writer.append(row);
      }
      // The seeds' own luck, the same in all configurations, and a little that is not.
      const double luck = 1 + 0.1 * static_cast<double>(seed);
      const int turn = static_cast<int>(seed) * (twin ? 2 : 3) + (scale > 1 ? 1 : 0);
      const double own = 1 + 1e-4 * (twin || level != "O0" ? turn * turn % 7 : 0);
      writer.append(EvaluationRow{.step = 1, .split = "test", .loss = final_loss * luck * own});
      writer.finish(ExitState::finished);
      folders.push_back(writer.folder());
    }
  }
  Answers answers() const {
    const RunSet set = load_runs(folders);
    const std::vector<WorkloadSummary> summaries = summarise(set);
    WorkloadMaterial material{&set.workloads.at(0), summaries.at(0), {}};
    for (const Configuration& configuration : set.workloads.at(0).configurations) {
      const auto* run = representative(set, configuration);
      material.gradients.push_back(run == nullptr ? RunGradients{} : load_gradients(*run, 9));
      material.explored.emplace_back();
      if (run != nullptr) material.explored.back().push_back({run, {}});
    }
    Answers said = answers_of(material);
    for (std::string* sentence : {&said.wrong, &said.costs, &said.fixes}) *sentence = tagged(*sentence);
    return said;
  }
  std::vector<std::filesystem::path> folders;
  float usual = 0x1p-20f;  ///< the gradients of fc1.weight that are not lost
};

TEST_F(AnswersOf, AHarmedRunNamesItsCure) {
  runs("O0", "none", 1, 0.5, 40);
  runs("O0", "none", 1, 0.5, 40, true);
  runs("O1", "none", 1, 0.6, 40);
  runs("O1", "fixed", 1024, 0.5, 40);
  const Answers said = answers();
  EXPECT_EQ(said.wrong,
            "In <em>FP16 no scaling</em> the casts make <strong>10 % of all non-zero gradients</strong> zero "
            "(3 seeds); <strong>fc1.weight</strong> loses most: <strong>40 %</strong> of its own (seed 1, 1 "
            "recorded step).");
  EXPECT_THAT(said.costs,
              AllOf(StartsWith("The test loss ends <strong>worse</strong> than FP32’s: "
                               "<strong>+20.03 % (worse) ["),
                    HasSubstr("FP32’s own noise is ["), HasSubstr("and against its twin it is worse too.")));
  // The greatest is 2^-4, and the threshold 65520.
  EXPECT_EQ(said.fixes,
            "<strong><em>FP16 S=2¹⁰</em></strong> (0 % of values lost, equal) fixes it. By <em>FP32</em>’s "
            "histograms (seed 1, 1 step), nothing overflows, and rounding costs no tensor more than 1.1 "
            "times what the precision of FP16 costs by itself at any scale from <strong>2⁹</strong> "
            "(fc1.weight) to <strong>2¹⁹</strong> (loss.prediction).");
  ASSERT_TRUE(said.configuration && said.tensor);
  EXPECT_EQ(*said.configuration, 2u);
  EXPECT_EQ(*said.tensor, 0u);
}

TEST_F(AnswersOf, WithoutFp32TheRunItselfTellsTheScale) {
  runs("O1", "none", 1, 0.6, 40);
  EXPECT_THAT(answers().fixes,
              AllOf(HasSubstr("By its own histograms (seed 1, 1 step), nothing overflows, and rounding costs "
                              "no tensor more "),
                    HasSubstr(" from <strong>2⁹</strong> (fc1.weight) to <strong>2¹⁹</strong>")));
}

TEST_F(AnswersOf, ARunThatLosesNothingNeedsNoCure) {
  runs("O0", "none", 1, 0.5, 0);
  runs("O1", "none", 1, 0.5, 0);
  const Answers said = answers();
  EXPECT_THAT(said.wrong, StartsWith("<strong>Nothing underflows</strong>: "));
  EXPECT_THAT(said.costs,
              AllOf(StartsWith("Nothing that shows: the test loss is <strong>equal</strong> to FP32’s"),
                    HasSubstr("no FP32 twin (sweep --twin) shows FP32’s own noise")));
  // 2^-20 is subnormal in FP16: nothing is lost, and much is distorted.
  EXPECT_THAT(
      said.fixes,
      AllOf(StartsWith("FP16 keeps fewer bits of numbers below 2⁻¹⁴: the rounding error of "
                       "fc1.weight was up to "),
            HasSubstr(
                "(seed 1, 1 step), nothing overflows, and rounding costs no tensor more than 1.1 times")));

  folders.resize(3);  // FP32's
  runs("O1", "fixed", 1024, 0.5, 0);
  EXPECT_THAT(
      answers().fixes,
      StartsWith(
          "There is nothing to fix. By <em>FP32</em>’s histograms (seed 1, 1 step), nothing "
          "overflows, and rounding costs no tensor more than 1.1 times what the precision of FP16 costs by "
          "itself at any scale from <strong>2⁷</strong> (fc1.weight)"));
}

TEST_F(AnswersOf, WhereAllFitsNoScalingIsNeeded) {
  usual = 0x1p-4f;
  runs("O0", "none", 1, 0.5, 0);
  runs("O1", "none", 1, 0.5, 0);
  EXPECT_THAT(answers().fixes, AllOf(StartsWith("There is nothing to fix. By <em>FP32</em>’s histograms"),
                                     HasSubstr("no scaling is needed: at 1, as at any scale from <strong>2⁻⁹"
                                               "</strong> (")));
}

TEST_F(AnswersOf, ATensorWithNothingFiniteTellsNoScale) {
  usual = INFINITY;
  runs("O1", "none", 1, 0.5, 0);
  EXPECT_THAT(answers().fixes, HasSubstr("By its own histograms (seed 1, 1 step), no scale can be given: "
                                         "fc1.weight holds no finite values but zeros."));
}

TEST_F(AnswersOf, WhatIsNotKnownIsSaidToBeSo) {
  runs("O0", "none", 1, 0.5, 40);
  Answers said = answers();
  EXPECT_THAT(said.wrong, AllOf(HasSubstr("rounds no gradient. At a loss scale of 1, FP16 would make "
                                          "<strong>10 % of all its non-zero gradients</strong> zero"),
                                HasSubstr("<strong>40 %</strong> of its own")));
  EXPECT_EQ(said.costs, "Only FP32 has been trained, so the cost is not known.");
  EXPECT_THAT(
      said.fixes,
      StartsWith("By its own histograms (seed 1, 1 step), nothing overflows, and rounding costs no tensor"));

  folders.clear();
  runs("O1", "none", 2, 0.5, 0, false, false);
  said = answers();
  EXPECT_THAT(said.wrong, HasSubstr("recorded no gradient histograms"));
  EXPECT_EQ(said.costs, "There is no finished FP32 run, so the cost is not known.");
  EXPECT_EQ(said.fixes, "Without histograms no scale can be given.");
}

}  // namespace
}  // namespace fp16lab::reports
