// fp16lab hist on run folders: replayed suggestions, lost rows, runs of lab.watch, and scales of layers.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/experiments/app/replay/replay_folder.hpp"
#include "tests/experiments/app/small_runs.hpp"
#include "tests/support/older_manifest.hpp"

namespace fp16lab::experiments {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using namespace testing_support;
using nlohmann::json;

class Hist : public SmallRuns {
 protected:
  json hist(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "hist");
    arguments.emplace_back("--json");
    const auto result = fp16lab(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    err_ = result.err;
    return json::parse(result.out);
  }
  static json tensor(const json& report, const std::string& name) {
    for (const json& entry : report.at("tensors"))
      if (entry.at("tensor") == name) return entry;
    ADD_FAILURE() << "no tensor " << name;
    return {};
  }

  std::string err_;
};

TEST_F(Hist, TheSuggestionForARunIsReplayedOnAllItsSteps) {
  // The last step alone would have 2^19; the first one overflows there.
  MadeStep wild, tame;
  wild.tensors.push_back({.values = {32, 0x1p-10}});
  tame.tensors.push_back({.values = {0x1p-12, 0x1p-22}});
  make_run(path("made"), {wild, tame});
  const json last = hist({path("made")});
  EXPECT_EQ(last.at("suggestion").at("suggested"), 19);
  const json& replay = last.at("suggestion_replay");
  EXPECT_EQ(replay.at("log2_scale"), 19);
  EXPECT_EQ(replay.at("steps"), 2);
  EXPECT_EQ(replay.at("overflows"), 1);
  EXPECT_EQ(replay.at("first"), 1);
  EXPECT_EQ(replay.at("highest"), 10);
  EXPECT_THAT(
      fp16lab({"hist", path("made")}).out,
      HasSubstr("Replayed in FP16 over all 2 recorded steps: at 2^19 gradients overflow in 1 (the first is "
                "step 1). For the run take 2^10, the largest"));
  EXPECT_THAT(fp16lab({"hist", path("made")}).out, HasSubstr("Suggested for step 2 alone: 2^19"));
  EXPECT_EQ(replay.at("for_run"), 10);
  EXPECT_EQ(replay.at("first_certain"), 1);
  EXPECT_TRUE(replay.at("first_unknown").is_null());
  EXPECT_THAT(fp16lab({"hist", path("made"), "--step", "1"}).out,
              HasSubstr("no gradient overflows in any of them"));
}

TEST_F(Hist, ARunThatLostRowsSaysSo) {
  MadeStep step;
  step.tensors.push_back({.values = {0x1p-12, 0x1p-22}});
  make_run(path("made"), {step, step, step});
  EXPECT_TRUE(hist({path("made")}).at("damage").empty());
  const std::string lines = read("made/histograms.jsonl");
  write_bytes(path("made/histograms.jsonl"), lines.substr(0, 2 * lines.size() / 3));
  const auto result = fp16lab({"hist", path("made")});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("note: histograms.jsonl has 2 rows, but the run wrote 3\n"));
  EXPECT_THAT(
      result.out,
      HasSubstr(
          "Replayed in FP16 over the 2 steps whose rows are there (some are missing or changed): at 2^19"));
  EXPECT_THAT(result.out, Not(HasSubstr("over all")));
  EXPECT_EQ(hist({path("made")}).at("damage"), json({"histograms.jsonl has 2 rows, but the run wrote 3"}));
  write_bytes(path("made/histograms.jsonl"), "");
  for (const std::string command : {"hist", "replay"})
    EXPECT_THAT(fp16lab({command, path("made")}).err,
                HasSubstr("left" + std::string(command == "hist" ? "" : " to replay") +
                          ": histograms.jsonl has 0 rows, but the run wrote 3"));
}

/// A folder as lab.watch saves it, of two steps: what PyTorch rounded inside of its operations has the same
/// counts on both sides; a weight that autocast casts has not.
void make_watched_run(const std::filesystem::path& folder) {
  const auto of = [](const std::vector<double>& values) { return counted(values, Extremes::known); };
  const ExponentHistogram fine = of({0.0, 0.5, 1.0}), bad = of({INFINITY, -INFINITY, NAN, 0.0, 0.25});
  const ExponentHistogram master = of({1.0, 0x1p-30}), cast = of({1.0, 0.0});
  Manifest manifest = made_manifest();
  manifest.git_hash = "fp16lab 0.2.0, torch 2.15.0";
  RunWriter writer(folder, std::move(manifest));
  for (std::uint64_t step = 1; step <= 2; ++step) {
    const auto row = [&](const char* tensor, Observed observed, DType dtype, const ExponentHistogram& before,
                         const ExponentHistogram& after) {
      writer.append(HistogramRow{.step = step,
                                 .tensor = tensor,
                                 .observed = observed,
                                 .kind = "weight",
                                 .dtype = dtype,
                                 .before = before,
                                 .after = after});
    };
    const ExponentHistogram& head = step == 2 ? bad : fine;
    row("head.input", Observed::gradients, DType::f16, fine, fine);
    row("head.weight", Observed::gradients, DType::f32, head, head);
    row("head.weight", Observed::weights, DType::f16, master, cast);
    writer.append(StepRow{.step = step, .found_inf = step == 2, .skipped = step == 2});
  }
  writer.finish(ExitState::finished);
}

TEST_F(Hist, AWatchedRunSaysWhatItCannotSee) {
  make_watched_run(path("mine"));
  const auto shown = fp16lab({"hist", path("mine")});
  EXPECT_THAT(shown.out, StartsWith("Skipped 1 of 2 steps (step 2), "));
  EXPECT_THAT(shown.out, HasSubstr("\nPyTorch rounds inside its operations, where casts cannot be observed: "
                                   "values that became zero there are counted as zeros.\n"));
  EXPECT_THAT(shown.out, ::testing::ContainsRegex("\nhead.weight +5 +3 "));
  EXPECT_THAT(shown.out, Not(HasSubstr("The casts"))) << "none was seen";
  EXPECT_THAT(shown.out, Not(HasSubstr("the casts to")));
  const json gradients = hist({path("mine")});
  EXPECT_EQ(gradients.at("all_steps").at("casts"), json::array());
  EXPECT_EQ(gradients.at("all_steps").at("as_stored"),
            json({{"values", 14}, {"zero", 4}, {"infinite", 2}, {"nan", 1}, {"steps_not_finite", {2}}}));
  EXPECT_EQ(tensor(gradients, "head.input").at("casts"), json::array());

  // Weights: this cast was seen.
  const auto weights = fp16lab({"hist", path("mine"), "--tensors", "weights"});
  EXPECT_THAT(weights.out, HasSubstr("the casts to FP16 rounded 2 of 4 finite non-zero values to zero"));
  EXPECT_THAT(weights.out, Not(HasSubstr("as PyTorch stored")));
  EXPECT_EQ(tensor(hist({path("mine"), "--tensors", "weights"}), "head.weight").at("cast").at("underflow"),
            1);

  // The same rows of a program that casts by itself: nothing was lost, and that was seen.
  std::string manifest = testing_support::without_digests(read("mine/manifest.json"));
  manifest.replace(manifest.find(", torch 2.15.0"), 14, "");
  write_bytes(path("mine/manifest.json"), manifest);
  EXPECT_THAT(fp16lab({"hist", path("mine")}).out, Not(HasSubstr("PyTorch rounds")));
}

TEST_F(Hist, AWatchedRunWithoutHistogramsSaysWhy) {
  Manifest manifest = made_manifest();
  manifest.git_hash = "fp16lab 0.2.0, torch 2.15.0";
  manifest.config += "\n[observe]\nnot_counted = [\"anything: lab.watch saw no step end\"]\n";
  RunWriter(path("mine"), manifest).finish(ExitState::finished);
  const auto shown = fp16lab({"hist", path("mine")});
  EXPECT_EQ(shown.exit_code, 1);
  EXPECT_THAT(shown.err, HasSubstr("not_counted = [ 'anything: lab.watch saw no step end' ])"));
  EXPECT_THAT(shown.err, Not(HasSubstr("histograms_every")));
}

/// A line of histograms.jsonl as its own tensor carried it.
struct Recorded {
  std::string tensor;
  double scale = 0;
  int first = 0;  ///< exponent of the lowest bin that counted something
  std::uint64_t values = 0, lost = 0;
};

/// Counts of the newest step in the file. "lost" counts the bins up to (2^-26, 2^-25], which FP16 rounds to
/// zero.
std::vector<Recorded> newest_rows(const std::string& lines) {
  std::vector<Recorded> rows;
  std::uint64_t step = 0;
  std::istringstream stream(lines);
  for (std::string line; std::getline(stream, line);) {
    const json row = json::parse(line);
    if (row.at("step") != step) rows.clear();
    step = row.at("step");
    const json& before = row.at("before");
    Recorded recorded{
        .tensor = row.at("tensor"), .scale = row.at("loss_scale"), .first = before.at("first_exponent")};
    int exponent = recorded.first;
    for (const json& count : before.at("counts")) {
      recorded.values += count.get<std::uint64_t>();
      if (exponent++ <= -26) recorded.lost += count.get<std::uint64_t>();
    }
    rows.push_back(recorded);
  }
  return rows;
}

TEST_F(Hist, TensorsWithScalesOfTheirOwnAreShownAtThem) {
  ASSERT_EQ(train("run", {"--set", "scaler.policy=groups", "--set", "scaler.initial_scale=1", "--set",
                          "scaler.groups=fc1=2^10,*=2^-14", "--set", "train.steps=3"})
                .exit_code,
            0);
  const std::vector<Recorded> rows = newest_rows(read("run/histograms.jsonl"));
  const json own = hist({path("run")});
  EXPECT_THAT(err_, HasSubstr("recorded at loss scales from 2^-14 to 2^10, which differ by tensor, "
                              "shown in FP16 at each tensor's own"));
  EXPECT_TRUE(own.at("scale").is_null());
  ASSERT_EQ(own.at("tensors").size(), rows.size());
  const json at_one = hist({path("run"), "--scale", "1"});
  EXPECT_THAT(err_, HasSubstr("which differ by tensor, shown in FP16 at 2^0\n"));
  EXPECT_EQ(at_one.at("scale"), 1);
  std::uint64_t lost = 0;
  int differ = 0;
  for (const Recorded& row : rows) {
    const json entry = tensor(own, row.tensor);
    EXPECT_EQ(entry.at("recorded_scales"), json({row.scale})) << row.tensor;
    EXPECT_EQ(entry.at("lost"), json({row.lost, row.lost})) << row.tensor;
    // The casts of the run itself rounded as many to zero.
    ASSERT_EQ(entry.at("casts").size(), 1u) << row.tensor;
    EXPECT_EQ(entry.at("casts")[0].at("dtype"), "f16");
    EXPECT_EQ(entry.at("casts")[0].at("underflow"), row.lost) << row.tensor;
    lost += row.lost;
    differ += entry.at("lost") != tensor(at_one, row.tensor).at("lost");
  }
  EXPECT_GT(lost, 0u);
  EXPECT_GT(differ, 0) << "no tensor tells its own scale from another";
  EXPECT_EQ(own.at("merged").at("lost"), json({lost, lost}));

  // The figures: bins move by the ratio between the scale of the tensor and that of the figure, here 2^3.
  for (const auto& [scale, log2_scale] : {std::pair("", 0.0), std::pair("2^3", 3.0)}) {
    std::vector<std::string> arguments{"hist", path("run"), "-o", path("figures")};
    if (*scale != '\0') arguments.insert(arguments.end(), {"--scale", scale});
    ASSERT_EQ(fp16lab(arguments).exit_code, 0);
    const json figure = json::parse(read("figures/hist-run-step-3.figure.json"));
    std::map<std::string, double> lowest_of;  // in exponents of the scaled value
    for (const json& panel : figure.at("panels"))
      lowest_of[panel.at("title")] =
          panel.at("histogram")[3].get<double>() + std::log2(panel.at("ratio").get<double>());
    double lowest = 1000;
    int drawn = 0;
    for (const Recorded& row : rows) {
      if (row.values == 0) continue;
      const double first = *scale == '\0' ? row.first : row.first + log2_scale - std::log2(row.scale);
      lowest = std::min(lowest, first);
      if (!lowest_of.contains(row.tensor)) continue;  // not among those that lose most
      EXPECT_EQ(lowest_of[row.tensor], first) << row.tensor;
      ++drawn;
    }
    EXPECT_GT(drawn, 1);
    EXPECT_EQ(lowest_of["all " + std::to_string(rows.size()) + " tensors"], lowest);
    EXPECT_THAT(figure.at("title"),
                HasSubstr(*scale == '\0' ? "at their own loss scales" : "at loss scale 2³"));
  }
}

}  // namespace
}  // namespace fp16lab::experiments
