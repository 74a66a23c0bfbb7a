// reports/: what a report is given, sortable tables, the league of replayed policies, and pages that stay
// small.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "numerics/files/disk/read_file.hpp"
#include "numerics/files/run/replay_file.hpp"
#include "reports/data/league.hpp"
#include "reports/data/report_input.hpp"
#include "reports/page/page_detail.hpp"
#include "reports/page/page_sections.hpp"
#include "reports/page/report.hpp"
#include "reports/page/table.hpp"
#include "tests/reports/report_fixture.hpp"
#include "tests/reports/synthetic_replays.hpp"
#include "tests/support/message_of.hpp"

namespace fp16lab::reports {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using testing_support::message_of;
using Json = nlohmann::json;

// ---- input --------------------------------------------------------------------------------------

TEST_F(Reports, InputIsRunsSweepsAndReplaysInAnyMixture) {
  const std::filesystem::path sweep = folder / "sweep", alone = folder / "alone";
  SyntheticRun run{.steps = 20};
  const std::filesystem::path first = write_synthetic_run(sweep, run);
  run.seed = 2;
  const std::filesystem::path second = write_synthetic_run(sweep, run),
                              single = write_synthetic_run(alone, run);
  const ReplayFile replay = synthetic_replay("r", 20);
  write_replay(first / "replay", replay);            // inside a run
  write_replay(folder / "replays" / "one", replay);  // beside, in a folder of replays
  std::filesystem::create_directories(folder / "empty");

  const auto found = [](std::vector<std::filesystem::path> paths) { return find_report_input(paths); };
  EXPECT_THAT(found({sweep}).runs, ElementsAre(first, second));
  EXPECT_THAT(found({sweep}).replays, ElementsAre(first / "replay" / "replay.json"));
  EXPECT_THAT(found({single}).runs, ElementsAre(single));
  EXPECT_THAT(found({single}).replays, ElementsAre());
  const ReportInput all =
      found({single, folder / "replays", sweep, first, folder / "replays/one/replay.json"});
  EXPECT_THAT(all.runs, ElementsAre(single, first, second)) << "nothing twice";
  EXPECT_THAT(all.replays,
              ElementsAre(folder / "replays" / "one" / "replay.json", first / "replay" / "replay.json"));
  // SWEEP/*: what stands beside the runs is passed over, and what the plan names and the sweep lacks is missing.
  std::filesystem::create_directories(sweep / "figures");
  std::filesystem::create_directories(sweep / sweep_plan);
  std::ofstream(sweep / "report.html") << "a page";
  std::ofstream(sweep / sweep_plan / "lost.toml") << "";
  const ReportInput glob =
      found({sweep / "figures", sweep / sweep_plan, sweep / "report.html", first, second});
  EXPECT_THAT(glob.runs, ElementsAre(first, second));
  EXPECT_THAT(glob.missing, ElementsAre(sweep / sweep_plan / "lost.toml"));
  std::filesystem::create_directories(sweep / "other");
  EXPECT_THAT(message_of([&] { found({first, sweep / "other"}); }), HasSubstr("other: neither a run folder"));
  EXPECT_THAT(message_of([&] { found({sweep / "figures"}); }), HasSubstr("figures: neither a run folder"));
  EXPECT_THAT(message_of([&] { found({single, sweep / "figures"}); }), HasSubstr("figures: neither"));
  EXPECT_THAT(message_of([&] { found({folder / "empty"}); }),
              AllOf(HasSubstr("empty"), HasSubstr("manifest.json"), HasSubstr("replay.json")));
  EXPECT_THAT(message_of([&] { found({folder / "absent"}); }), HasSubstr("absent: no such run folder"));
  EXPECT_THAT(message_of([&] { found({}); }), HasSubstr("nothing to report on"));
}

TEST_F(Reports, ADamagedReplayIsOneError) {
  std::filesystem::create_directories(folder / "bad");
  std::ofstream(folder / "bad" / "replay.json") << "{\"schema\": \"fp16lab-replay\", ";
  EXPECT_THAT(message_of([&] {
                const std::vector<std::filesystem::path> folders{folder / "bad"};
                write_report(folders, folder / "out");
              }),
              HasSubstr("replay.json"));
}

// ---- tables -------------------------------------------------------------------------------------

TEST(TableJson, SaysWhatToSortByAndMarksWhatItShould) {
  const std::vector<TableColumn> columns{{"name", "Of a row.", true}, {"loss", "of <the> test"}};
  const auto table = table_json(
      "a & b", columns,
      {{{{"a"}, {"0.5", 0.5}}},
       {{{"b"}, {.text = "0.25", .value = 0.25, .css_class = "x", .tip = "a \"b\"", .starred = true}}, true},
       {{{"c"}, {"–", NAN}}}});
  EXPECT_EQ(Json(table), Json::parse(R"({"name": "a & b",
    "columns": [{"title": "name", "tip": "Of a row.", "text": true}, {"title": "loss", "tip": "of <the> test", "text": false}],
    "rows": [{"reference": false, "cells": ["a", {"text": "0.5", "value": 0.5}]},
             {"reference": true, "cells": ["b", {"text": "0.25", "value": 0.25, "class": "x", "tip": "a \"b\"", "star": true}]},
             {"reference": false, "cells": ["c", "–"]}]})"));
}

// ---- league -------------------------------------------------------------------------------------

ReplayedPolicy policy(std::string name, double skips, double lost) {
  ReplayedPolicy made;
  made.name = made.label = std::move(name);
  made.skips = made.wasted_steps = {skips, skips};
  made.lost_l1 = {lost / 2, lost};
  return made;
}

TEST(League, OrdersByWhatNoUpdateUsedAndKnowsTheFront) {
  ReplayFile replay{.run = "r", .total_steps = 64};
  replay.policies = {policy("many skips", 32, 0), policy("one skip", 1, 0), policy("no skip", 0, 0.25),
                     policy("worse", 1, 0.25), policy("oracle", 0, 0)};
  replay.policies.push_back({.name = "absent", .label = "absent", .replayed = false});
  // (32 + 32 * 0) / 64; (1 + 63 * 0) / 64; (0 + 64 / 4) / 64; (1 + 63 / 4) / 64: exact in binary.
  EXPECT_EQ(unused_share(replay.policies[0], 64), (ReplayInterval{0.5, 0.5}));
  EXPECT_EQ(unused_share(replay.policies[1], 64), (ReplayInterval{1.0 / 64, 1.0 / 64}));
  EXPECT_EQ(unused_share(replay.policies[2], 64), (ReplayInterval{0.125, 0.25}));
  EXPECT_EQ(unused_share(replay.policies[3], 64),
            (ReplayInterval{(1 + 63 * 0.125) / 64, (1 + 63 * 0.25) / 64}));
  EXPECT_THAT(league_order(replay), ElementsAre(4, 1, 2, 3, 0));
  // "many skips" loses nothing, but neither does "one skip"; the yardstick does not compete.
  EXPECT_THAT(league_front(replay), ElementsAre(false, true, true, false, false, false));
  // Nothing is known of what "all" would lose, so it does not lead, and no update used anything.
  ReplayedPolicy all = policy("all", 64, 0);
  all.any_applied = false;
  all.lost_count = all.lost_l1 = all.lost_l2 = all.cosine = {0, 1};
  replay.policies = {all, policy("no skip", 0, 0.25)};
  EXPECT_EQ(unused_share(all, 64), (ReplayInterval{1, 1}));
  EXPECT_THAT(league_front(replay), ElementsAre(false, true));
}

TEST(ReplayPathsTest, AreChangesWithBoundsAndSkips) {
  ReplayedPolicy made = policy("p", 2, 0);
  made.steps = {1, 5, 7, 9};
  made.log2_scale_lower = {16, 15, 15, 15};
  made.log2_scale_upper = {16, 16, 16, 16};
  made.skipped_lower = {4};
  made.skipped_upper = {4, 6};
  const ReplayPaths paths = replay_paths(made, 100);
  EXPECT_FALSE(paths.one);
  ASSERT_EQ(paths.lower.changes.size(), 3u) << "step 7 says nothing new; the end stays";
  EXPECT_EQ(paths.lower.changes[1].step, 5u);
  EXPECT_EQ(paths.lower.changes[2].step, 9u);
  ASSERT_EQ(paths.upper.changes.size(), 2u);
  EXPECT_EQ(paths.lower.skipped.size(), 1u);
  EXPECT_EQ(paths.upper.skipped.size(), 2u);
}

TEST(Thinning, KeepsTheEndsTheExtremesAndAMarkForEveryStretchWithSkips) {
  ScaleTrace trace;
  for (std::uint64_t step = 1; step <= 1000; ++step) {
    trace.changes.push_back({step, step == 500   ? 64.0
                                   : step == 501 ? 0.25
                                                 : static_cast<double>(1 + step % 2)});
    if (step % 2 == 0) trace.skipped.push_back({step, 1});
  }
  const ScaleTrace thin = thinned(trace, 10);
  EXPECT_LE(thin.changes.size(), 22u);
  EXPECT_EQ(thin.changes.front().step, 1u);
  EXPECT_EQ(thin.changes.back().step, 1000u);
  const auto has = [&](double scale) {
    return std::any_of(thin.changes.begin(), thin.changes.end(),
                       [&](const auto& c) { return c.scale == scale; });
  };
  EXPECT_TRUE(has(64.0));
  EXPECT_TRUE(has(0.25));
  EXPECT_TRUE(std::is_sorted(thin.changes.begin(), thin.changes.end(),
                             [](const auto& a, const auto& b) { return a.step < b.step; }));
  EXPECT_EQ(thin.skipped.size(), 10u);
  EXPECT_EQ(thinned(trace, 5000).changes.size(), 1000u);
  EXPECT_EQ(evenly_chosen(1, 40), std::vector<std::size_t>{0});
  EXPECT_EQ(evenly_chosen(9, 3), (std::vector<std::size_t>{0, 4, 8}));
  EXPECT_EQ(evenly_chosen(9, 1), (std::vector<std::size_t>{0, 8}));
}

// ---- page ---------------------------------------------------------------------------------------

TEST_F(Reports, AReplayAloneMakesAPageWithTableTracesAndFigures) {
  write_replay(folder / "replay", synthetic_replay("the-run", 200));
  const std::vector<std::filesystem::path> folders{folder / "replay"};
  std::ostringstream messages;
  const std::string html = read_file(write_report(folders, folder / "out", {.messages = &messages}));
  const Json data = embedded_data(html);
  ASSERT_EQ(data.at("replays").size(), 1u);
  const Json& traces = data.at("replays")[0].at("traces").at("panels")[0];
  EXPECT_EQ(traces.at("policies").size(), 24u);  // one of 25 cannot be replayed
  EXPECT_EQ(traces.at("highest").at(0).at(0), 1);
  EXPECT_EQ(data.at("runs").size(), 0u);
  EXPECT_EQ(data.at("provenance"), nullptr);
  const Json& section = data.at("replays")[0].at("section");
  EXPECT_EQ(section.at("table").at("name"), "Policies replayed: the-run");
  EXPECT_THAT(rows_of(section.at("table")), HasSubstr("lost-mass"));
  EXPECT_THAT(section.at("left_out").dump(), HasSubstr("fairscale-layerwise: needs the run itself"));
  EXPECT_LT(html.size(), largest_page);
  for (const std::string stem : {"replay-scales-the-run", "replay-league-the-run"}) {
    for (const char* ending : {".svg", ".png"})
      EXPECT_GT(std::filesystem::file_size(folder / "out" / "figures" / (stem + ending)), 10'000u)
          << stem << ending << messages.str();
  }
}

TEST_F(Reports, WhatIsLostIsADashWhereNoStepWasApplied) {
  const auto dashes = [&](bool any_applied) {
    ReplayFile replay = synthetic_replay("the-run", 20);
    for (ReplayedPolicy& policy : replay.policies) policy.any_applied = any_applied;
    const std::string rows = rows_of(league_json(replay).at("table"));
    std::size_t count = 0;
    for (std::size_t at = rows.find("– |"); at != std::string::npos; at = rows.find("– |", at + 1)) ++count;
    return count;
  };
  EXPECT_EQ(dashes(true), 0u);
  EXPECT_EQ(dashes(false), 24u * 4);
}

TEST_F(Reports, ProvenanceTellsWhatComputedTheRuns) {
  std::vector<std::filesystem::path> folders;
  for (const std::string device : {"emulated", "cuda"}) {
    Manifest manifest;
    manifest.config = "[backend]\ndevice = \"auto\"\ngemm = \"exact\"\n[train]\nseed = " +
                      std::string(device == "cuda" ? "1" : "2") + "\n";
    manifest.cpu = "Some CPU";
    manifest.gemm_target = "AVX3";
    manifest.backend = BackendRecord{.device = device, .tensor_core = "hopper", .note = "no device"};
    if (device == "cuda") {
      manifest.gpu = "Some GPU";
      manifest.driver = "580";
      manifest.backend->capability = "9.0";
      manifest.backend->runtime = "13.0";
      manifest.backend->gemm = "fma-chain <fast>";
    }
    RunWriter writer(folder / device, manifest);
    writer.append(StepRow{.step = 1, .loss = 1});
    writer.finish(ExitState::finished);
    folders.push_back(writer.folder());
  }
  const std::string html = read_file(write_report(
      folders, folder / "out", {.drawing = {.node = "no-such-node"}, .graphviz = "no-such-dot"}));
  const Json provenance = embedded_data(html).at("provenance");
  EXPECT_THAT(rows_of(provenance.at("computed_by")),
              AllOf(HasSubstr("Some GPU, compute capability 9.0 | "), HasSubstr("driver 580, CUDA 13.0 | "),
                    HasSubstr("fma-chain <fast> | "), HasSubstr("exact | "), HasSubstr("hopper | "),
                    HasSubstr("no device | ")));
}

TEST(Provenance, ListsThreeHundredRunsOfABuildAndCountsTheOthers) {
  RunSet set;
  for (int i = 0; i < 320; ++i) {
    auto& run = set.runs.emplace_back();
    run.name = "the-run-" + std::to_string(i);
    run.folder.manifest.git_hash = i < 310 ? "one" : "another";
  }
  const auto groups = provenance_json(set).at("groups");
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].at("count"), 310);
  EXPECT_EQ(groups[0].at("runs").size(), 300u);
  EXPECT_EQ(groups[0].at("runs").back()[0], "the-run-299");
  EXPECT_EQ(groups[1].at("count"), 10);
  EXPECT_EQ(groups[1].at("runs")[0][0], "the-run-310");
}

/// Many runs of many tensors, each observed often: the page stays below its limit and states what it left
/// out.
TEST_F(Reports, AnyRunFitsInAPage) {
  std::vector<std::filesystem::path> folders;
  constexpr std::uint64_t observed = 36;
  for (const std::string policy : {"none", "torch", "flax"}) {
    Manifest manifest;
    manifest.config = "[amp]\nlevel = \"O1\"\n[scaler]\npolicy = \"" + policy + "\"\n";
    RunWriter writer(folder / policy, manifest);
    for (std::uint64_t step = 1; step <= observed; ++step) {
      writer.append(StepRow{.step = step, .loss = 1, .loss_scale = std::exp2(static_cast<double>(step % 7))});
      for (int tensor = 0; tensor < 240; ++tensor) {
        HistogramRow row{.step = step,
                         .tensor = "encoder.layers." + std::to_string(tensor) + ".self_attention.weight",
                         .kind = tensor % 2 == 0 ? "weight" : "activation",
                         .loss_scale = 8};
        for (int bin = 60; bin < 110; ++bin)
          row.before.bins[static_cast<std::size_t>(bin)] = 1'000'003u * static_cast<unsigned>(bin + tensor);
        writer.append(row);
      }
    }
    writer.finish(ExitState::finished);
    folders.push_back(writer.folder());
  }
  const std::string html = read_file(write_report(
      folders, folder / "out", {.drawing = {.node = "no-such-node"}, .graphviz = "no-such-dot"}));
  EXPECT_LT(html.size(), largest_page);
  const Json data = embedded_data(html);
  ASSERT_GE(data.at("runs").size(), 1u);
  for (const Json& run : data.at("runs")) {
    EXPECT_EQ(run.at("observed"), observed);
    EXPECT_GE(run.at("steps").size(), 2u);
    EXPECT_LT(run.at("steps").size(), observed);
    EXPECT_EQ(run.at("steps").front(), 1);
    EXPECT_EQ(run.at("steps").back(), observed);
  }
}

}  // namespace
}  // namespace fp16lab::reports
