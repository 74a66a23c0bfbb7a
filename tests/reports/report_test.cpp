// reports/: grouping, labels and series, from synthetic run folders.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "analysis/range_report.hpp"
#include "numerics/files/disk/atomic_file.hpp"
#include "numerics/files/disk/read_file.hpp"
#include "numerics/files/run/run_folder.hpp"
#include "numerics/formats/bits.hpp"
#include "reports/data/rate_text.hpp"
#include "reports/data/report_input.hpp"
#include "reports/data/run_gradients.hpp"
#include "reports/data/series.hpp"
#include "reports/data/summary.hpp"
#include "reports/figures/figure_style.hpp"
#include "reports/page/report.hpp"
#include "tests/reports/report_fixture.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/older_manifest.hpp"

namespace fp16lab::reports {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing_support::message_of;
using Json = nlohmann::json;

// ---- labels and grouping ------------------------------------------------------------------------

std::string label_of(std::string_view toml) { return identity_by_sections(flatten_toml(toml, "test")).label; }

TEST(Labels, SayPrecisionAndScaling) {
  EXPECT_EQ(label_of("[amp]\nlevel='O0'\n[scaler]\npolicy='none'\ninitial_scale=65536.0"), "FP32");
  EXPECT_EQ(label_of("amp.level='O1'\namp.dtype='f16'\nscaler.policy='none'"), "FP16 no scaling");
  EXPECT_EQ(label_of("amp.level='O1'\nscaler.policy='fixed'\nscaler.initial_scale=8.0"), "FP16 S=2^3");
  EXPECT_EQ(label_of("amp.level='O1'\nscaler.policy='fixed'\nscaler.initial_scale=8"), "FP16 S=2^3");
  EXPECT_EQ(label_of("amp.level='O1'\nscaler.policy='fixed'\nscaler.initial_scale=0.125"), "FP16 S=2^-3");
  EXPECT_EQ(label_of("amp.level='O1'\nscaler.policy='fixed'\nscaler.initial_scale=1000"), "FP16 S=1000");
  EXPECT_EQ(label_of("amp.level='O1'\nscaler.policy='dynamic'"), "FP16 torch");
  EXPECT_EQ(label_of("amp.level='O2'\namp.dtype='bf16'\nscaler.policy='none'"), "BF16 O2 no scaling");
  EXPECT_EQ(pretty("FP16 S=2^-13, 2^4 and x^2"), "FP16 S=2⁻¹³, 2⁴ and x^2");
  EXPECT_NE(slug("FP16 S=2^3"), slug("FP16 S=2^-3"));
  EXPECT_EQ(slug("Classifier on X (a=b)"), "classifier-on-x-a-b");
  EXPECT_THAT(message_of([] { flatten_toml("a = 1\nb = = 2", "m.json"); }),
              AllOf(HasSubstr("m.json"), HasSubstr("line 2")));
  const FlatConfig flat = flatten_toml("[a]\nb=[1, 2]\nc=true\nd='x'", "test");
  EXPECT_EQ(flat.at("a.c"), "true");
  EXPECT_EQ(flat.at("a.d"), "x");
  EXPECT_EQ(flat.size(), 3u);
}

TEST_F(Reports, GroupsBySeedAndOrdersConfigurations) {
  const std::vector<std::filesystem::path> folders = small_set();
  const RunSet set = load_runs(folders);
  ASSERT_EQ(set.workloads.size(), 1u);
  EXPECT_EQ(set.workloads[0].name, "autoencoder on fashion-mnist");
  EXPECT_EQ(set.runs.size(), 6u);
  std::vector<std::string> labels;
  for (const Configuration& configuration : set.workloads[0].configurations) {
    labels.push_back(configuration.label);
    ASSERT_EQ(configuration.runs.size(), 2u);
    EXPECT_EQ(set.runs[configuration.runs[0]].seed, 1u);
    EXPECT_EQ(set.runs[configuration.runs[1]].seed, 2u);
  }
  EXPECT_THAT(labels, ElementsAre("FP32", "FP16 no scaling", "FP16 torch"));
  EXPECT_TRUE(set.notes.empty());
  EXPECT_THAT(message_of([] { load_runs({}); }), HasSubstr("no run folders"));
}

TEST_F(Reports, WhatASweepPlannedAndDoesNotHoldIsListed) {
  std::vector<std::filesystem::path> folders = small_set();
  const std::filesystem::path lost = folders.back();
  std::filesystem::create_directories(folder / sweep_plan);
  for (const std::filesystem::path& run : folders)
    write_file_atomically(folder / sweep_plan / (run.filename().string() + ".toml"),
                          read_manifest(run).config);
  std::filesystem::remove_all(lost);
  folders.pop_back();

  const ReportInput input = find_report_input(std::vector{folder});
  EXPECT_EQ(input.runs.size(), folders.size());
  ASSERT_EQ(input.missing.size(), 1u);
  EXPECT_EQ(input.missing.front().stem(), lost.filename());
  const RunSet set = load_runs(input.runs, input.missing);
  EXPECT_EQ(set.missing(), 1u);
  EXPECT_THAT(set.notes, ElementsAre(lost.filename().string() +
                                     " is missing: the sweep planned it, but the run does not exist"));
  const std::string table = summary_table(set, summarise(set));
  EXPECT_THAT(table, HasSubstr("1 of 2"));
  EXPECT_THAT(table, HasSubstr("note: " + lost.filename().string() + " is missing"));
  const std::vector<std::filesystem::path> all{folder};
  const std::string html = read_file(
      write_report(all, folder / "out", {.drawing = {.node = "no-such-node"}, .graphviz = "no-such-dot"}));
  EXPECT_THAT(html, HasSubstr(lost.filename().string() + " is missing"));
  EXPECT_THAT(html, HasSubstr("5 runs of 1 workload"));
}

TEST_F(Reports, RunsOfSeveralBuildsAreNamed) {
  const std::vector<std::filesystem::path> folders = small_set();
  EXPECT_EQ(load_runs(folders).builds.size(), 1u);
  std::string manifest = testing_support::without_digests(read_file(folders[0] / run_file::manifest));
  manifest.replace(manifest.find("0123456789abcdef"), 16, "fedcba9876543210");
  write_file_atomically(folders[0] / run_file::manifest, manifest);
  const RunSet set = load_runs(folders);
  EXPECT_EQ(set.builds.size(), 2u);
  EXPECT_THAT(set.notes, ElementsAre(HasSubstr("made by 2 builds, whose bits may differ: fedcba9876543210")));
  manifest.replace(manifest.find("fedcba9876543210"), 16, "0.2, torch 2.12.");
  write_file_atomically(folders[0] / run_file::manifest, manifest);
  const RunSet with_watched = load_runs(folders);
  EXPECT_EQ(with_watched.builds.size(), 1u) << "a training of PyTorch's is no build of this program";
  EXPECT_THAT(with_watched.notes, ElementsAre(HasSubstr("one run was trained by PyTorch (lab.watch)")));
}

TEST_F(Reports, EveryNameThatItsRunsWereGivenStays) {
  std::vector<std::filesystem::path> folders;
  for (const std::string name : {"mine", "yours"}) {
    Manifest manifest;
    manifest.name = name;
    manifest.config = fmt::format("[train]\nseed = {}\n[amp]\nlevel = \"O0\"\n", folders.size());
    RunWriter writer(folder / name, manifest);
    writer.finish(ExitState::finished);
    folders.push_back(writer.folder());
  }
  EXPECT_EQ(load_runs(folders).workloads.at(0).configurations.at(0).label, "mine, yours: FP32");
}

TEST_F(Reports, NamesThatWouldClashSayWhereTheyDiffer) {
  SyntheticRun run{.steps = 20};
  run.policy = "dynamic";
  std::vector<std::filesystem::path> folders{write_synthetic_run(folder / "a", run)};
  run.extra_config = "\n[optimizer]\nlr = 0.5\n";  // another workload of the same name
  folders.push_back(write_synthetic_run(folder / "b", run));
  run.extra_config = "";
  run.initial_scale = 1024;  // another configuration of the same label
  folders.push_back(write_synthetic_run(folder / "c", run));
  const RunSet set = load_runs(folders);
  ASSERT_EQ(set.workloads.size(), 2u);
  EXPECT_EQ(set.workloads[0].name, "autoencoder on fashion-mnist");
  EXPECT_EQ(set.workloads[1].name, "autoencoder on fashion-mnist (optimizer.lr=0.5)");
  EXPECT_EQ(set.workloads[0].configurations[0].label, "FP16 torch (initial_scale=1024.0)");
  EXPECT_EQ(set.workloads[0].configurations[1].label, "FP16 torch (initial_scale=65536.0)");
}

TEST_F(Reports, SeedsThatOccurMoreThanOnceAreOneNote) {
  std::vector<std::filesystem::path> folders = small_set();
  for (const std::uint64_t seed : {1, 2})
    folders.push_back(write_synthetic_run(folder / "again", {.seed = seed, .level = "O0", .steps = 100}));
  EXPECT_THAT(
      load_runs(folders).notes,
      ElementsAre(
          "autoencoder on fashion-mnist, FP32: more than one run of seed 1, 2; the first of each is judged "
          "in pairs"));
}

/// A sweep over workloads and variants that differ in many keys: its folders' names are shorter than the
/// differences.
TEST_F(Reports, ManyDifferencesGiveWayToWhatTheSweepCallsThem) {
  std::vector<std::filesystem::path> folders;
  const auto add = [&](const std::string& name, SyntheticRun run, const std::string& extra) {
    run.steps = 20;
    run.extra_config = extra;
    const std::filesystem::path written = write_synthetic_run(folder / "written", run);
    std::filesystem::rename(written, folder / name);
    folders.push_back(folder / name);
  };
  const std::string wide = "\n[optimizer]\nlr = 0.5\nmomentum = 0.125\nweight_decay = 0.0625\n",
                    slow = "\n[optimizer]\nlr = 0.25\nmomentum = 0.5\nweight_decay = 0.5\n";
  for (const std::uint64_t seed : {1, 2}) {
    const std::string end = "-seed" + std::to_string(seed);
    add("nine_layers-fp32" + end, {.seed = seed, .level = "O0"}, wide);
    add("nine_layers-with-guard" + end, {.seed = seed, .policy = "dynamic", .initial_scale = 1024},
        "guard_of_many_layers = ['fc1', 'fc2', 'fc3', 'fc4', 'fc5']\n" + wide);
    add("nine_layers-no-guard" + end, {.seed = seed, .policy = "dynamic", .initial_scale = 4096}, wide);
    add("other-fp32" + end, {.seed = seed, .level = "O0"}, slow);
  }
  const RunSet set = load_runs(folders);
  ASSERT_EQ(set.workloads.size(), 2u);
  EXPECT_EQ(set.workloads[0].name, "nine_layers: autoencoder on fashion-mnist");
  EXPECT_EQ(set.workloads[1].name, "other-fp32: autoencoder on fashion-mnist");
  ASSERT_EQ(set.workloads[0].configurations.size(), 3u);
  EXPECT_EQ(set.workloads[0].configurations[0].label, "FP32") << "a unique name stays";
  EXPECT_EQ(set.workloads[0].configurations[1].label, "with-guard: FP16 torch");
  EXPECT_EQ(set.workloads[0].configurations[2].label, "no-guard: FP16 torch");
}

TEST(Slug, StaysAFileName) {
  const std::string long_name(400, 'a');
  EXPECT_EQ(slug(std::string(longest_slug, 'a')), std::string(longest_slug, 'a'));
  EXPECT_EQ(slug(long_name).size(), longest_slug);
  EXPECT_NE(slug(long_name), slug(long_name + "b")) << "what is cut off still counts";
}

// ---- how things are drawn and written ---------------------------------------------------------

TEST(RateText, IsShortAndHonestAtBothEnds) {
  EXPECT_EQ(rate_text(0.0), "0 %");
  EXPECT_EQ(rate_text(1e-12), "< 0.01 %");  // never "0 %": something was lost
  EXPECT_EQ(rate_text(0.000099), "< 0.01 %");
  EXPECT_EQ(rate_text(0.000101), "0.01 %");
  EXPECT_EQ(rate_text(0.0035), "0.35 %");
  EXPECT_EQ(rate_text(0.00996), "1.0 %");
  EXPECT_EQ(rate_text(0.042), "4.2 %");
  EXPECT_EQ(rate_text(0.0996), "10 %");
  EXPECT_EQ(rate_text(0.831), "83 %");
  EXPECT_EQ(rate_text(0.994), "99.4 %");
  EXPECT_EQ(rate_text(0.9999), "> 99.9 %");  // never "100 %": something was left
  EXPECT_EQ(rate_text(1.0), "100 %");
  using Interval = analysis::RateInterval;
  EXPECT_EQ(rate_text(Interval{0.5, 0.5}), "50 %");
  EXPECT_EQ(rate_text(Interval{0.91, 0.93}), "91–93 %");
  EXPECT_EQ(rate_text(Interval{0, 1e-9}), "< 0.01 %");
  EXPECT_EQ(rate_text(Interval{1e-9, 0.5}), "0–50 %");
  EXPECT_EQ(rate_text(Interval{0.5, 1 - 1e-9}), "50–100 %");
  EXPECT_EQ(rate_text(Interval{1 - 1e-9, 1}), "> 99.9 %");
  EXPECT_EQ(rate_text(Interval{0, 1}), "0–100 %");
}

TEST(LineStyles, LinesThatCoincideLeaveEachOtherVisible) {
  for (const std::size_t scales : {0, 1, 2, 4, 5}) {  // FP32, no scaling, so many fixed scales, dynamic
    Workload workload;
    const auto add = [&](bool fp32, Scaling scaling) {
      Configuration configuration;
      configuration.id.fp32 = fp32;
      configuration.id.scaling = scaling;
      workload.configurations.push_back(configuration);
    };
    add(true, Scaling::none);
    add(false, Scaling::none);
    for (std::size_t i = 0; i < scales; ++i) add(false, Scaling::fixed);
    add(false, Scaling::adaptive);
    const std::vector<LineStyle> styles = styles_of(workload);
    ASSERT_EQ(styles.size(), workload.configurations.size());
    for (std::size_t low = 0; low < styles.size(); ++low) {
      bool visible = true;  // past all that is drawn over it
      for (std::size_t high = low + 1; high < styles.size(); ++high) {
        const LineStyle &under = styles[low], &over = styles[high];
        EXPECT_NE(under.color, over.color);
        EXPECT_LE(over.width, under.width);
        // Dashes of lines in one row start together, so a longer one reaches past the end of a shorter.
        const bool longer = over.gap > 0 && (under.gap == 0 || under.dash >= over.dash + 3);
        if (over.width < under.width - 1.5) continue;  // shows at its sides
        visible &= longer && (under.gap == 0 || under.dash + under.gap == over.dash + over.gap);
      }
      EXPECT_TRUE(visible) << "line " << low << " of " << styles.size();
    }
  }
}

TEST_F(Reports, DamagedRunsAreNamedAndLeftOutOfTheVerdictsTheyNoLongerSupport) {
  const std::vector<std::filesystem::path> folders = small_set();
  const auto notes = [&] { return load_runs(folders).notes; };
  const std::filesystem::path run = folders.front();
  const std::string histograms = read_file(run / run_file::histograms);
  write_file_atomically(run / run_file::histograms, "");
  EXPECT_THAT(notes(), ::testing::Contains(
                           HasSubstr(run.filename().string() + " is damaged: histograms.jsonl has 0 rows")));
  const auto finished_values = [&](std::size_t row) {
    const RunSet set = load_runs(folders);
    return summarise(set).at(0).rows.at(row).final_values.size();
  };
  EXPECT_EQ(finished_values(2), 2u);
  write_file_atomically(run / run_file::histograms, histograms);
  const std::string evaluations = read_file(run / run_file::evaluations);
  write_file_atomically(run / run_file::evaluations,
                        evaluations.substr(0, evaluations.rfind('\n', evaluations.size() - 2) + 1));
  EXPECT_THAT(notes(), ::testing::Contains(::testing::AllOf(HasSubstr("is damaged: evaluations.csv has "),
                                                            HasSubstr("; it is left out of the verdicts"))));
  EXPECT_EQ(finished_values(2), 1u) << "the last evaluation left is not the last one";
  std::ostringstream messages;
  write_report(folders, folder / "out",
               {.drawing = {.node = "no-such-node"}, .graphviz = "no-such-dot", .messages = &messages});
  EXPECT_THAT(messages.str(), HasSubstr(run.filename().string() + " is damaged: evaluations.csv has "));
}

TEST_F(Reports, LeavesOutRunsThatCannotBeReadAndSaysWhere) {
  const std::vector<std::filesystem::path> folders = small_set();
  const auto damage = [](const std::filesystem::path& file, std::size_t line, std::string_view text) {
    std::string content = read_file(file);
    std::size_t at = 0;
    for (; line > 1; --line) at = content.find('\n', at) + 1;
    write_file_atomically(file, content.insert(at, text));
  };
  damage(folders[0] / run_file::steps, 5, "x");
  damage(folders[1] / run_file::histograms, 2, "{\"step\":x}\n");
  damage(folders[2] / run_file::manifest, 1, "x");
  const RunSet set = load_runs(folders);
  EXPECT_EQ(set.runs.size(), folders.size() - 3);
  EXPECT_THAT(set.unreadable,
              ElementsAre(HasSubstr("steps.csv:5: column step: 'x4' is not a whole number"),
                          HasSubstr("histograms.jsonl:2: not valid JSON"), HasSubstr("manifest.json: ")));
  std::ostringstream messages;
  write_report(folders, folder / "out",
               {.drawing = {.node = "no-such-node"}, .graphviz = "no-such-dot", .messages = &messages});
  for (const std::string& error : set.unreadable) {
    EXPECT_THAT(messages.str(), HasSubstr(unreadable_text(error)));
    EXPECT_THAT(set.notes, ::testing::Contains(unreadable_text(error)));
  }
  EXPECT_THAT(message_of([&] { load_runs(std::vector{folders[0]}); }), HasSubstr("steps.csv:5: column step"));
}

// ---- series -------------------------------------------------------------------------------------

TEST_F(Reports, BandsAverageStretchesPerSeedAndSpanTheSeeds) {
  std::vector<std::filesystem::path> folders;
  for (const std::uint64_t seed : {1, 2}) {
    Manifest manifest;
    manifest.config = "[train]\nseed = " + std::to_string(seed) + "\n";
    RunWriter writer(folder / std::to_string(seed), manifest);
    // Seed 1: losses 1, 3 | 5, 7 | NaN, 11; seed 2: twice as much.
    const double losses[] = {1, 3, 5, 7, NAN, 11};
    for (std::uint64_t step = 1; step <= 6; ++step)
      writer.append(StepRow{.step = step, .loss = losses[step - 1] * static_cast<double>(seed)});
    writer.finish(ExitState::finished);
    folders.push_back(writer.folder());
  }
  const RunSet set = load_runs(folders);
  const Band band = training_loss(set, set.workloads.at(0).configurations.at(0), 3);
  EXPECT_THAT(band.step, ElementsAre(1.5, 3.5, 5.5));
  EXPECT_THAT(band.low, ElementsAre(2, 6, 11));
  EXPECT_THAT(band.high, ElementsAre(4, 12, 22));
  EXPECT_THAT(band.mean, ElementsAre(3, 9, 16.5));
}

TEST(ScaleTraceTest, KeepsChangesAndSkips) {
  std::vector<StepRow> steps(6);
  const double scales[] = {8, 8, 4, 4, 4, 4};
  for (std::size_t i = 0; i < 6; ++i) steps[i] = {.step = i + 1, .loss_scale = scales[i], .skipped = i == 1};
  const ScaleTrace trace = scale_trace(steps);
  ASSERT_EQ(trace.changes.size(), 3u);
  EXPECT_EQ(trace.changes[0].step, 1u);
  EXPECT_EQ(trace.changes[1].step, 3u);
  EXPECT_EQ(trace.changes[1].scale, 4.0);
  EXPECT_EQ(trace.changes[2].step, 6u);
  ASSERT_EQ(trace.skipped.size(), 1u);
  EXPECT_EQ(trace.skipped[0].step, 2u);
  EXPECT_EQ(trace.skipped[0].scale, 8.0);
  EXPECT_TRUE(scale_trace({}).changes.empty());
}

// What was stored decides, not FP16's edges: BF16 loses nothing at 2^-30, FP32 has no rate, and counts of
// steps of different sizes are pooled.
TEST_F(Reports, UnderflowIsWhatTheCastsDidOverAllObservedSteps) {
  std::vector<std::filesystem::path> folders;
  const auto write = [&](const std::string& level, const std::string& dtype) {
    Manifest manifest;
    manifest.config = "[model]\nname = \"m\"\n[amp]\nlevel = \"" + level + "\"\ndtype = \"" + dtype + "\"\n";
    RunWriter writer(folder / (level + dtype), manifest);
    for (std::uint64_t step = 1; step <= 2; ++step) {
      writer.append(StepRow{.step = step, .loss = 1, .underflow_rate = 0.75});
      HistogramRow row{.step = step, .tensor = "fc1.weight", .kind = "weight"};
      row.dtype = level == "O0" ? DType::f32 : dtype == "bf16" ? DType::bf16 : DType::f16;
      const int small = step == 1 ? 3 : 1, large = step == 1 ? 1 : 11;
      for (int i = 0; i < small; ++i) row.before.count(bits_of(0x1p-30f));
      for (int i = 0; i < large; ++i) row.before.count(bits_of(1.0f));
      row.after = row.before;
      if (row.dtype == DType::f16) {  // stored: zeros in place of the small ones
        row.after = {};
        row.after.zero = static_cast<std::uint64_t>(small);
        for (int i = 0; i < large; ++i) row.after.count(bits_of(1.0f));
      }
      writer.append(row);
      row.tensor = "norm.weight";  // stays FP32 in all of them
      row.dtype = DType::f32;
      row.after = row.before;
      writer.append(row);
    }
    writer.finish(ExitState::finished);
    folders.push_back(writer.folder());
  };
  write("O0", "f16");
  write("O1", "f16");
  write("O1", "bf16");
  const RunSet set = load_runs(folders);
  const WorkloadSummary summary = summarise(set).at(0);
  ASSERT_EQ(summary.rows.size(), 3u);
  EXPECT_EQ(summary.rows[0].label, "FP32");
  EXPECT_FALSE(summary.rows[0].casts.has_value());
  EXPECT_EQ(summary.rows[1].label, "BF16 no scaling");
  EXPECT_EQ(summary.rows[1].casts, (CastCounts{.values = 16}));
  EXPECT_EQ(summary.rows[2].casts, (CastCounts{.values = 16, .underflow = 4}))
      << "not the mean of 3/4 and 1/12";
  EXPECT_EQ(underflow_text(summary.rows[0]), "");
  EXPECT_EQ(underflow_text(summary.rows[1]), "0 %");
  EXPECT_EQ(underflow_text(summary.rows[2]), "25 %");
  EXPECT_THAT(summary_table(set, summarise(set)), ::testing::ContainsRegex("FP32 .* -  +- +- +0 +- "));

  // The explorer's data: each tensor in its own format; a run that rounded nothing is asked what FP16 would
  // do.
  const RunGradients bf16 = load_gradients(set.runs[2], 5), fp32 = load_gradients(set.runs[0], 5);
  EXPECT_THAT(bf16.formats, ElementsAre(DType::bf16, DType::f32));
  EXPECT_TRUE(bf16.rounded);
  EXPECT_EQ(bf16.at_scale(1.0).lost, (CountInterval{0, 0}));
  EXPECT_EQ(bf16.at_scale(0x1p-104).lost, (CountInterval{4, 4})) << "2^-30 * 2^-104 is BF16's tie";
  EXPECT_EQ(bf16.at_scale(1.0).total, 16u) << "without the tensor that stayed FP32";
  EXPECT_THAT(fp32.formats, ElementsAre(DType::f16, DType::f16));
  EXPECT_FALSE(fp32.rounded);
  EXPECT_EQ(fp32.at_scale(1.0).lost, (CountInterval{8, 8}));
  EXPECT_EQ(bf16.snapshots[0].casts[0], (CastCounts{.values = 4}));
  EXPECT_FALSE(bf16.snapshots[0].casts[1].has_value());
}

}  // namespace
}  // namespace fp16lab::reports
