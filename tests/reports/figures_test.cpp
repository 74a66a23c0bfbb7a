// reports/: the texts of figures: labels, curves that overlap, what a picture leaves out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "numerics/files/disk/atomic_file.hpp"
#include "numerics/files/disk/folder.hpp"
#include "numerics/files/disk/read_file.hpp"
#include "numerics/files/run/run_folder.hpp"
#include "numerics/formats/bits.hpp"
#include "reports/figures/drawing_program.hpp"
#include "reports/figures/figure_style.hpp"
#include "reports/page/report.hpp"
#include "tests/reports/report_fixture.hpp"

namespace fp16lab::reports {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

// ---- what configurations are called -----------------------------------------------------------

TEST_F(Reports, LabelsBeginWithTheUsersNameAndSayTheDialect) {
  std::vector<std::filesystem::path> folders;
  const auto add = [&](const std::string& name, const std::string& amp, const std::string& policy) {
    Manifest manifest;
    manifest.name = name;
    manifest.config = "[amp]\n" + amp + "\n[scaler]\npolicy = \"" + policy + "\"\n[model]\nname = \"m\"\n";
    RunWriter writer(folder / std::to_string(folders.size()), manifest);
    writer.append(StepRow{.step = 1, .loss = 1});
    writer.finish(ExitState::finished);
    folders.push_back(writer.folder());
  };
  add("fp32", "level = \"O0\"", "none");
  add("as written", "level = \"O2\"\ndialect = \"paddle\"", "paddle");
  add("", "level = \"O1\"\ndialect = \"mindspore\"", "none");
  add("torch's", "level = \"O1\"\ndialect = \"torch\"", "torch");
  add("", "level = \"O1\"\ndtype = \"f32\"\nrecipe = \"nvfp4\"", "none");
  std::vector<std::string> labels;
  const RunSet set = load_runs(folders);
  for (const Configuration& configuration : set.workloads.at(0).configurations)
    labels.push_back(configuration.label);
  EXPECT_THAT(labels, ElementsAre("FP32", "FP16 mindspore O1 no scaling", "FP32 no scaling, nvfp4",
                                  "as written: FP16 paddle O2 paddle", "torch's: FP16 torch"));
}

TEST_F(Reports, ADrawingRemovesWhatKilledOnesLeft) {
  const std::filesystem::path old = folder / ".drawing-killed", fresh = folder / ".drawing-others";
  for (const auto& left : {old, fresh}) {
    std::filesystem::create_directories(left);
    write_file_atomically(left / "picture.svg", "");
  }
  const auto minute_ago = std::filesystem::file_time_type::clock::now() - std::chrono::minutes(1);
  std::filesystem::last_write_time(old, minute_ago);
  const PassingFolder at_work(folder);  // takes longer than a minute
  std::filesystem::last_write_time(at_work.path(), minute_ago);
  { const PassingFolder passing(folder); }
  std::vector<std::filesystem::path> left = entries_of(folder);
  EXPECT_THAT(left, testing::UnorderedElementsAre(fresh, at_work.path()));
}

// ---- curves that coincide, pictures that leave something out -----------------------------------

/// Runs of one network whose scales follow `scales` by turns, one a policy.
std::vector<std::filesystem::path> write_policies(const std::filesystem::path& root,
                                                  const std::vector<std::string>& policies,
                                                  const std::vector<std::vector<double>>& scales) {
  std::vector<std::filesystem::path> folders;
  for (std::size_t i = 0; i < policies.size(); ++i) {
    Manifest manifest;
    manifest.config =
        "[model]\nname = \"net\"\n[amp]\nlevel = \"O1\"\n[scaler]\npolicy = \"" + policies[i] + "\"\n";
    RunWriter writer(root / policies[i], manifest);
    const std::vector<double>& own = scales[i % scales.size()];
    for (std::uint64_t step = 1; step <= 12; ++step) {
      const double scale = own[(step - 1) * own.size() / 12];
      writer.append(StepRow{.step = step,
                            .loss = 1.0 / static_cast<double>(step) + 0.125 * static_cast<double>(own.size()),
                            .loss_scale = scale});
      if (step % 4 != 0) continue;
      HistogramRow row{
          .step = step, .tensor = "fc1.weight", .kind = "weight", .dtype = DType::f16, .loss_scale = scale};
      for (const float value : {1.0f, 0x1p-20f, 0x1p-30f}) {
        row.before.count(bits_of(value));
        row.after.count(bits_of(value > 0x1p-25f ? value : 0.0f));
      }
      writer.append(row);
    }
    writer.finish(ExitState::finished);
    folders.push_back(writer.folder());
  }
  return folders;
}

TEST_F(Reports, FiguresSayWhichCurvesCoincide) {
  const std::vector<std::filesystem::path> folders =
      write_policies(folder / "runs", {"torch", "flax", "jmp"}, {{8, 4}, {8, 4}, {2, 4, 8}});
  write_report(folders, folder / "out", {.graphviz = "no-such-dot"});
  const auto text = [&](const std::string& name) { return read_file(folder / "out/figures" / name); };
  EXPECT_EQ(Json::parse(text("loss-scale-net.figure.json")).at("caption"),
            "The loss scale of the first seed of each configuration; no step was skipped. These coincide: "
            "FP16 flax = FP16 torch.");
  EXPECT_THAT(text("loss-scale-net.svg"),
              AllOf(AllOf(HasSubstr(">FP16 flax</text>"), HasSubstr(">= FP16 torch</text>")),
                    HasSubstr(">FP16 jmp</text>")));
  EXPECT_THAT(text("loss-net.svg"), AllOf(HasSubstr(">FP16 flax</text>"), HasSubstr(">= FP16 torch</text>")));
}

TEST_F(Reports, TheHeatMapShowsEveryConfigurationOrSaysWhichOnesItLeavesOut) {
  std::vector<std::string> policies;
  for (int i = 1; i <= 15; ++i) policies.push_back("p" + std::to_string(100 + i));
  std::vector<std::filesystem::path> folders = write_policies(folder / "runs", policies, {{8}});
  const auto figure = [&](std::span<const std::filesystem::path> shown, const std::string& name) {
    write_report(shown, folder / name, {.graphviz = "no-such-dot"});
    return Json::parse(read_file(folder / name / "figures/underflow-over-steps-net.figure.json"));
  };
  const Json few = figure(std::span(folders).first(5), "few");
  ASSERT_EQ(few.at("panels").size(), 5u);
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(few.at("panels")[i].at("title"), "FP16 " + policies[i]);
    // A third of three values becomes zero, in each of three recorded steps.
    EXPECT_EQ(few.at("panels")[i].at("rates"), Json::array({{1.0 / 3}, {1.0 / 3}, {1.0 / 3}}));
  }
  EXPECT_EQ(few.at("caption"), "A cross is Inf or NaN. FP32 casts nothing.");
  EXPECT_EQ(figure(folders, "many").at("caption"),
            "Left out for room: FP16 p113, FP16 p114, FP16 p115. A cross is Inf or NaN. FP32 casts nothing.");
}

TEST_F(Reports, TimeIsAgainstFp32WhichIsInTheTable) {
  const std::string html =
      read_file(write_report(write_synthetic_grid(folder / "runs"), folder / "out",
                             {.drawing = {.node = "no-such-node"}, .graphviz = "no-such-dot"}));
  const Json overview = embedded_data(html).at("overview");
  // 0.03 seconds a step in FP32, 0.11 otherwise, in both workloads.
  EXPECT_EQ(tagged(overview.at("columns").back().at("title").get<std::string>()),
            "time against FP32 <small>(emulated: not a GPU’s speed)</small>");
  EXPECT_THAT(rows_of(overview),
              AllOf(HasSubstr("* FP32 | "), HasSubstr("| 1.00× |"), HasSubstr("| 3.67× |")));
}

}  // namespace
}  // namespace fp16lab::reports
