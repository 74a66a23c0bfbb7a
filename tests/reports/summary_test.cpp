// reports/: final quality against FP32 and its twin in the four words, from synthetic run folders.
#include "reports/data/summary.hpp"
#include "numerics/files/disk/read_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "numerics/files/run/run_folder.hpp"
#include "numerics/formats/bits.hpp"
#include "reports/page/report.hpp"
#include "tests/reports/report_fixture.hpp"
#include "tests/support/message_of.hpp"

namespace fp16lab::reports {
namespace {

using analysis::Word;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using Json = nlohmann::json;

/// Losses that differ from FP32's 0.25 by so many percent, seed by seed from 1 on; NaN diverged.
using Percents = std::vector<double>;

class Summary : public Reports {
 protected:
  void write(SyntheticRun run, const Percents& percents) {
    run.steps = 20;
    run.histograms_every = 0;
    for (std::size_t i = 0; i < percents.size(); ++i) {
      run.seed = i + 1;
      run.final_loss = 0.25 * std::exp(percents[i] / 100);
      run.state = std::isfinite(percents[i]) ? "finished" : "diverged";
      if (!std::isfinite(percents[i])) run.final_loss = 0.25;
      folders.push_back(write_synthetic_run(folder, run));
    }
  }
  void fp32(const Percents& percents) { write({.level = "O0"}, percents); }
  void twin(const Percents& percents) { write({.level = "O0", .perturb_ulps = 1}, percents); }
  /// FP16 at a fixed scale of 2^k.
  void fixed(int k, const Percents& percents, const std::string& bits = "") {
    write({.policy = "fixed", .initial_scale = std::exp2(k), .bits = bits}, percents);
  }

  void forget() {
    for (const std::filesystem::path& run : folders) std::filesystem::remove_all(run);
    folders.clear();
  }

  RunSet set() const { return load_runs(folders); }
  WorkloadSummary only() const { return summarise(set()).at(0); }
  static const SummaryRow& row(const WorkloadSummary& summary, const std::string& label) {
    for (const SummaryRow& one : summary.rows)
      if (one.label == label) return one;
    throw std::out_of_range("no row " + label);
  }
  std::string page() const {
    return read_file(write_report(folders, folder / "out", {.drawing = {.node = "no-such-node"}}));
  }
  /// What the page shows of the one workload.
  Json shown() const { return embedded_data(page()).at("workloads").at(0); }

  std::vector<std::filesystem::path> folders;
};

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

TEST_F(Summary, AWorkloadKeepsTheNameOfItsSweep) {
  write({.level = "O0", .workload = "mine", .variant = "FP32"}, {0, 1, 2});
  write({.workload = "mine", .variant = "half-rate"}, {0, 1, 2});
  EXPECT_EQ(only().name, "mine");
  // The same networks of another sweep, and one that a sweep calls as its model.
  write({.policy = "dynamic", .workload = "yours", .variant = "half"}, {0, 1, 2});
  EXPECT_EQ(only().name, "autoencoder on fashion-mnist");
  forget();
  write({.level = "O0", .workload = "autoencoder", .variant = "FP32"}, {0, 1, 2});
  EXPECT_EQ(only().name, "autoencoder on fashion-mnist");
  EXPECT_EQ(set().workloads.at(0).configurations.at(0).label, "FP32");
}

TEST_F(Summary, DifferencesAreThoseOfThePairsInPercent) {
  fp32({0, 10, 20});
  fixed(3, {5, 14.9, 25.2});
  fixed(4, {0.1, 10.05, 19.9});
  fixed(5, {1, 9, 22});
  const WorkloadSummary summary = only();
  EXPECT_EQ(summary.metric.name, "test loss");
  EXPECT_TRUE(summary.rows[0].is_reference);
  const analysis::Judgement& worse = *row(summary, "FP16 S=2^3").against_reference;
  EXPECT_EQ(worse.word, Word::worse);
  EXPECT_NEAR(worse.mean, analysis::percent_of((5 + 4.9 + 5.2) / 3), 1e-9)
      << "100 ln of a ratio of doubles: far from an ulp of 1e-14";
  ASSERT_TRUE(worse.interval && worse.adjusted);
  EXPECT_EQ(row(summary, "FP16 S=2^4").against_reference->word, Word::equal);
  EXPECT_EQ(row(summary, "FP16 S=2^5").against_reference->word, Word::cannot_tell);
  EXPECT_FALSE(row(summary, "FP16 S=2^3").worse_than_noise().has_value()) << "there is no twin";
  EXPECT_THAT(summary.words,
              AllOf(HasSubstr("(mean of 3 seeds)"), HasSubstr("Worse than FP32: FP16 S=2^3 (+5.16 %)."),
                    HasSubstr("Equal to FP32 within 1 %: FP16 S=2^4."), HasSubstr("Undecided: FP16 S=2^5."),
                    Not(HasSubstr("level"))));
  const std::string table = summary_table(set(), {summary});
  EXPECT_THAT(
      table,
      AllOf(HasSubstr("95 % of pairs, unadjusted"), HasSubstr("equal within 1 %\n"),
            ::testing::ContainsRegex("FP16 S=2.3 +3 .*\\+5.16 % .worse. +\\[.4.76, .5.56\\] .*  worse\n"),
            HasSubstr("cannot tell (a difference of ")));
  const Json table_of_page = shown().at("summary").at("table");
  const std::string cells = table_of_page.dump();
  EXPECT_THAT(
      cells,
      AllOf(
          HasSubstr(R"({"class":"verdict worse","text":"worse","tip":"Adjusted for the tests on this page)"),
          HasSubstr("equal within 1 %"), Not(HasSubstr("against the FP32 twin"))));
  EXPECT_THAT(rows_of(table_of_page), HasSubstr("cannot tell <small>(a difference of"));
  EXPECT_THAT(page(), HasSubstr("Without an FP32 twin (sweep --twin), this"));
}

TEST_F(Summary, AccuracyIsTheMetricWhereEveryRunHasOneAndKeepsItsSign) {
  for (const std::uint64_t seed : {1, 2, 3})
    for (const std::string level : {"O0", "O1"}) {
      SyntheticRun run{.model = "classifier", .seed = seed, .level = level, .steps = 20};
      run.final_accuracy = (level == "O0" ? 0.75 : 0.5) + (seed == 2 && level == "O1" ? 0.01 : 0);
      folders.push_back(write_synthetic_run(folder, run));
    }
  const WorkloadSummary summary = only();
  EXPECT_EQ(summary.metric.name, "test accuracy");
  EXPECT_EQ(summary.metric.margin, 0.5);
  EXPECT_EQ(summary.rows[1].against_reference->word, Word::worse);
  EXPECT_EQ(difference_text(summary.metric, *summary.rows[1].against_reference), "-24.67 points (worse)");
  EXPECT_LT(summary.rows[1].against_reference->interval->upper, 0);
  const std::string interval = analysis::interval_text(summary.rows[1].against_reference->interval);
  EXPECT_THAT(summary_table(set(), {summary}), HasSubstr("-24.67 points (worse)"));
  const Json screen = shown().at("screen");
  EXPECT_EQ(tagged(screen.at("tile").at("lines")[0].get<std::string>()),
            "<strong><em>FP16 no scaling</em></strong> against FP32, by test accuracy: <strong>-24.67 points "
            "(worse)</strong> <tip>" +
                interval + " points</tip>");
  EXPECT_EQ(shown().at("higher_is_better"), true) << "bars say that to the left is worse";
  EXPECT_THAT(rows_of(shown().at("summary").at("table")), HasSubstr("| " + interval + " points |"));
  EXPECT_EQ(value_text(summary.metric, 0.5), "50.00 %");
}

TEST_F(Summary, VariantsOfTheSameBitsAreOneTest) {
  // p of the first is 0.019: Holm asks 0.025 of the smallest of two, and 0.017 of that of three.
  const Percents off{4.5, 6, 7.5}, open{-5, 0, 5.5};
  fp32({0, 0, 0});
  fixed(3, off, "same");
  fixed(4, off, "same");
  fixed(5, open);
  WorkloadSummary summary = only();
  EXPECT_EQ(row(summary, "FP16 S=2^3").bits, row(summary, "FP16 S=2^4").bits);
  EXPECT_EQ(row(summary, "FP16 S=2^3").against_reference->word, Word::worse);
  EXPECT_EQ(row(summary, "FP16 S=2^4").against_reference->word, Word::worse);
  forget();
  fp32({0, 0, 0});
  fixed(3, off, "one");
  fixed(4, off, "other");
  fixed(5, open);
  summary = only();
  EXPECT_NE(row(summary, "FP16 S=2^3").bits, row(summary, "FP16 S=2^4").bits);
  EXPECT_EQ(row(summary, "FP16 S=2^3").against_reference->word, Word::cannot_tell);
}

TEST_F(Summary, TheWorkloadsOfASetAreOneFamily) {
  const auto write_other = [&] {
    write({.model = "deep", .level = "O0"}, {0, 0, 0});
    write({.model = "deep", .policy = "none"}, {-5, 0, 5.5});
  };
  fp32({0, 0, 0});
  fixed(3, {4.2, 6, 7.8});
  EXPECT_EQ(only().rows[1].against_reference->word, Word::worse) << "alone, 0.029 passes";
  write_other();
  const std::vector<WorkloadSummary> both = summarise(set());
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[0].rows[1].against_reference->word, Word::cannot_tell);
}

TEST_F(Summary, ADivergedReferenceIsDroppedAndSaidAndADivergedVariantIsWorse) {
  fp32({0, nan, 0, 0});
  fixed(3, {0.1, 0, 0.2, 0.1});
  fixed(4, {0.1, nan, 0.2, 0.1});
  fixed(5, {0.1, 0, nan, 0.1});
  const WorkloadSummary summary = only();
  for (const char* const label : {"FP16 S=2^3", "FP16 S=2^4"}) {
    const analysis::Judgement& judgement = *row(summary, label).against_reference;
    EXPECT_EQ(judgement.pairs, 3) << label;
    EXPECT_EQ(judgement.dropped, 1) << label;
    EXPECT_EQ(judgement.diverged, 0) << label;
    EXPECT_EQ(judgement.word, Word::equal) << label;
  }
  const analysis::Judgement& diverged = *row(summary, "FP16 S=2^5").against_reference;
  EXPECT_EQ(diverged.word, Word::worse);
  EXPECT_EQ(diverged.diverged, 1);
  EXPECT_THAT(summary.notes,
              ElementsAre(HasSubstr("FP32 diverged in seed 2: no pair is judged against it there")));
  EXPECT_THAT(summary_table(set(), {summary}),
              AllOf(HasSubstr("note: autoencoder on fashion-mnist: FP32 diverged in seed 2"),
                    HasSubstr("worse (1 of 3 diverged)")));
  EXPECT_THAT(page(), HasSubstr("FP32 diverged in seed 2"));
}

TEST_F(Summary, WorseThanFp32sOwnNoiseIsWorseThanItsTwinToo) {
  fp32({0, 0, 0, 0});
  twin({2.0, 2.2, 1.9, 2.1});  // a twin that is off by itself
  fixed(3, {2.1, 2.0, 2.2, 1.9});
  fixed(4, {9, 9.1, 8.9, 9.2});
  const WorkloadSummary summary = only();
  ASSERT_EQ(summary.rows.size(), 4u);
  EXPECT_EQ(summary.rows[0].label, "FP32");
  EXPECT_TRUE(summary.rows[0].is_reference);
  EXPECT_EQ(summary.rows[1].label, "FP32 twin");
  EXPECT_TRUE(summary.rows[1].is_twin);
  EXPECT_FALSE(summary.rows[1].against_twin.has_value());
  const SummaryRow &within = row(summary, "FP16 S=2^3"), &beyond = row(summary, "FP16 S=2^4");
  EXPECT_EQ(within.against_reference->word, Word::worse);
  EXPECT_EQ(within.worse_than_noise(), false);
  EXPECT_EQ(beyond.against_reference->word, Word::worse);
  EXPECT_EQ(beyond.against_twin->word, Word::worse);
  EXPECT_NEAR(beyond.against_twin->mean, analysis::percent_of(7), 1e-9);
  EXPECT_EQ(beyond.worse_than_noise(), true);

  ASSERT_TRUE(summary.twin_band.has_value());
  const analysis::Interval band =
      *analysis::percent_of(analysis::single_run_band(std::vector<double>{2.0, 2.2, 1.9, 2.1}));
  EXPECT_NEAR(summary.twin_band->lower, band.lower, 1e-9);
  EXPECT_NEAR(summary.twin_band->upper, band.upper, 1e-9);
  EXPECT_THAT(summary.words, AllOf(HasSubstr("FP16 S=2^3 (+2.07 %, not worse than FP32's twin)"),
                                   HasSubstr("FP16 S=2^4 (+9.47 %, worse than FP32's own noise)"),
                                   HasSubstr("one such run ends within ")));
  EXPECT_THAT(summary_table(set(), {summary}),
              AllOf(HasSubstr("FP32's noise  verdict"), HasSubstr("not worse  worse\n")));
  const std::string table = shown().at("summary").at("table").dump();
  EXPECT_THAT(table,
              AllOf(HasSubstr(R"("title":"against the FP32 twin")"), HasSubstr("Against the twin: +7.25 %")));
}

TEST_F(Summary, WhatIsUndecidedAgainstFp32OrItsTwinIsNotCalledNotWorse) {
  fp32({0, 0, 0, 0});
  twin({8, -8, 9, -9});  // a twin that says little
  fixed(3, {5, 5.1, 4.9, 5.2});
  fixed(4, {0.1, 0.2, 0, 0.1});
  fixed(5, {9, -9, 8, -8});
  const WorkloadSummary summary = only();
  const SummaryRow &worse = row(summary, "FP16 S=2^3"), &equal = row(summary, "FP16 S=2^4"),
                   &open = row(summary, "FP16 S=2^5");
  EXPECT_EQ(worse.against_reference->word, Word::worse);
  EXPECT_EQ(worse.against_twin->word, Word::cannot_tell);
  EXPECT_EQ(worse.worse_than_noise(), std::nullopt);
  EXPECT_EQ(equal.against_twin->word, Word::cannot_tell);
  EXPECT_EQ(equal.worse_than_noise(), false) << "what is equal to FP32 is not worse than anything of it";
  EXPECT_EQ(open.worse_than_noise(), std::nullopt);
  EXPECT_THAT(summary.words, HasSubstr("undecided against FP32's twin)"));
  EXPECT_THAT(summary_table(set(), {summary}), HasSubstr("cannot tell  worse\n"));
}

TEST_F(Summary, ASingleRunIsHeldAgainstTheTwinsBand) {
  fp32({0, 0, 0});
  twin({0.2, -0.2, 0.1});
  fixed(3, {0.3});
  fixed(4, {3});
  const WorkloadSummary summary = only();
  const auto said = [&](const char* label) {
    return verdict_text(summary, *row(summary, label).against_reference);
  };
  EXPECT_EQ(said("FP16 S=2^3"), "one seed: three are needed for a verdict; inside FP32's twin band");
  EXPECT_EQ(said("FP16 S=2^4"), "one seed: three are needed for a verdict; outside FP32's twin band");
  EXPECT_EQ(shown().at("screen").at("tile").at("verdict"), "+0.30 % (worse)")
      << "the largest letters say what is known";
  EXPECT_EQ(shown().at("screen").at("tile").at("class"), "soft");
  EXPECT_THAT(summary.words,
              HasSubstr("Three seeds are needed for a verdict: FP16 S=2^3 (one seed: +0.30 % (worse)) and "
                        "FP16 S=2^4 (one seed: +3.05 % (worse))."));
}

TEST_F(Summary, OnlyABestThatIsBetterThanTheNextLeads) {
  fp32({0, 0, 0});
  fixed(3, {-5, -5.1, -4.9});
  fixed(4, {0.1, 0.2, 0});
  WorkloadSummary summary = only();
  ASSERT_TRUE(summary.ranking.has_value());
  EXPECT_TRUE(summary.ranking->leads());
  EXPECT_EQ(summary.rows[summary.ranking->order[0]].label, "FP16 S=2^3");
  EXPECT_THAT(shown().at("summary").at("table").dump(),
              ::testing::ContainsRegex("\"star\":true,\"text\":\"0.2378[0-9]*\",\"value\":0.23"));
  EXPECT_THAT(tagged(shown().at("screen").at("ranking").get<std::string>()),
              HasSubstr("“FP16 S=2³” is better than “FP16 S=2⁴”: -4.97 % (better) ["));

  const auto starless = [&](const Percents& best, const std::string& bits, const std::string& why) {
    forget();
    fp32({0, 0, 0});
    fixed(3, best, bits);
    fixed(4, Percents(best.size(), 0.1), bits);
    EXPECT_FALSE(only().ranking->leads()) << why;
    EXPECT_THAT(page(), AllOf(Not(HasSubstr("\"star\":true")), HasSubstr("By mean test loss: “FP16 S=2³” ("),
                              HasSubstr(why)));
  };
  starless({-0.1, 0.1, 0.05}, "", "equal.");
  starless({-9, 5, -3}, "", "], cannot tell.");
  starless({-9}, "", "“FP16 S=2³” is not shown to be better than “FP16 S=2⁴”: -8.70 % (better), one seed.");
  starless({0.1, 0.1, 0.1}, "same", "are the same bit for bit");
}

TEST_F(Summary, SeedsAreCountedOnceAndSkippedStepsAreNamed) {
  fp32({0, 0, 0});
  fixed(3, {0.1, 0.2});
  folders.push_back(folders.back());  // one run, given twice
  write({.policy = "torch", .skips = {3, 7}}, {0.1, 0.2, 0.3});
  const WorkloadSummary summary = only();
  const SummaryRow& two = row(summary, "FP16 S=2^3");
  EXPECT_EQ(two.runs, 3);
  EXPECT_EQ(seeds_text(two), "2");
  EXPECT_EQ(difference_text(summary, two), "+0.15 % (worse), 2 pairs") << "FP32's mean is of three";
  const SummaryRow& torch = row(summary, "FP16 torch");
  EXPECT_EQ(difference_text(summary, torch), "+0.20 % (worse)");
  EXPECT_EQ(skips_text(summary), "FP16 torch skipped 6 of 60 steps.");
  EXPECT_THAT(summary.words, HasSubstr(skips_text(summary)));
}

TEST_F(Summary, MarginsAreThoseOfTheRunsAndTheSmallestWhereTheyDisagree) {
  const auto margin = [](const std::string& value) { return "\n[report.margin]\nloss = " + value + "\n"; };
  write({.level = "O0", .extra_config = margin("3.0")}, {0, 0, 0});
  write({.policy = "fixed", .initial_scale = 8, .extra_config = margin("3.0")}, {2, 2.1, 1.9});
  WorkloadSummary summary = only();
  EXPECT_EQ(summary.metric.margin, 3);
  EXPECT_TRUE(summary.notes.empty());
  EXPECT_EQ(analysis::words_of(*summary.rows.at(1).against_reference, "%"),
            "equal within 3 % (measurably +2 %)");
  fixed(4, {2, 2.1, 1.9});  // says nothing: 1 %
  summary = only();
  ASSERT_EQ(summary.rows.size(), 3u) << "a margin makes no workload and no configuration of its own";
  EXPECT_EQ(summary.metric.margin, 1);
  EXPECT_EQ(summary.rows[1].against_reference->word, Word::worse);
  EXPECT_THAT(summary.notes,
              ElementsAre(HasSubstr(
                  "its runs disagree about report.margin.loss (1, 3); the smallest, 1 %, is used")));
  write({.policy = "none", .extra_config = margin("-1.0")}, {0});
  EXPECT_THAT(testing_support::message_of([&] { only(); }),
              HasSubstr("report.margin.loss = -1 in its configuration: must be above 0"));
}

TEST_F(Summary, LossesThatAreNotAboveZeroHaveNoRatioAndAreDropped) {
  for (const std::uint64_t seed : {1, 2, 3})
    for (const std::string level : {"O0", "O1"})
      folders.push_back(write_synthetic_run(folder, {.seed = seed,
                                                     .level = level,
                                                     .final_loss = seed == 2 && level == "O1" ? -0.25 : 0.25,
                                                     .steps = 20}));
  const WorkloadSummary summary = only();
  EXPECT_EQ(summary.rows[1].against_reference->dropped, 1);
  EXPECT_EQ(summary.rows[1].against_reference->pairs, 2);
  EXPECT_THAT(summary.notes,
              ElementsAre(HasSubstr("seed 2, is -0.25, and only losses above 0 have a difference")));
}

TEST_F(Reports, BitsPerCharacterAreTheMetricWhereEveryRunHasThem) {
  std::vector<std::filesystem::path> folders;
  for (const std::uint64_t seed : {1, 2})
    for (const std::string level : {"O0", "O1"})
      folders.push_back(
          write_synthetic_run(folder, {.model = "charlm_lstm",
                                       .seed = seed,
                                       .level = level,
                                       .final_loss = (level == "O0" ? 2.0 : 2.5) * std::log(2.0),
                                       .bits_per_character = true,
                                       .steps = 20,
                                       .evaluate_every = 5}));
  const RunSet set = load_runs(folders);
  const WorkloadSummary summary = summarise(set).at(0);
  EXPECT_EQ(summary.metric.name, "test bits per character");
  EXPECT_FALSE(summary.metric.higher_is_better());
  // 2.0 ln 2 / ln 2: one product and one quotient, each off by at most half an ulp.
  EXPECT_NEAR(summary.rows[0].final_values.at(0), 2.0, 0x1p-51);
  EXPECT_NEAR(summary.rows[0].final_losses.at(0), 2.0 * std::log(2.0), 0x1p-51);
  EXPECT_EQ(difference_text(summary.metric, *summary.rows[1].against_reference), "+25.00 % (worse)");
  EXPECT_THAT(summary_table(set, {summary}), HasSubstr("bits per character"));

  ReportOptions options;
  options.drawing.node = "no-such-node";
  const std::string html = read_file(write_report(folders, folder / "out", options));
  const std::string columns =
      embedded_data(html).at("workloads")[0].at("summary").at("table").at("columns").dump();
  EXPECT_THAT(columns,
              AllOf(HasSubstr(R"("title":"test bits per character")"), HasSubstr(R"("title":"loss")")));
  const Json curve = embedded_data(html).at("workloads").at(0).at("configurations").at(1).at("quality");
  EXPECT_EQ(curve.at("step").get<std::vector<double>>(), (std::vector<double>{5, 10, 15, 20}));
  EXPECT_NEAR(curve.at("mean").back().get<double>(), 2.5, 1e-5) << "six digits are drawn";
}

TEST_F(Reports, UnfinishedRunsAreNotedAndNotJudgedAndDivergedOnesAre) {
  SyntheticRun run{.level = "O0", .final_loss = 0.25, .steps = 60};
  std::vector<std::filesystem::path> folders{write_synthetic_run(folder, run)};
  run.seed = 2;
  folders.push_back(write_synthetic_run(folder, run));
  run.level = "O1";
  run.state = "diverged";
  folders.push_back(write_synthetic_run(folder, run));
  run.policy = "dynamic";
  run.state = "running";
  folders.push_back(write_synthetic_run(folder, run));
  std::ofstream(folders.back() / run_file::steps, std::ios::app) << "61,0.1";
  const RunSet set = load_runs(folders);
  const WorkloadSummary summary = summarise(set).at(0);
  EXPECT_EQ(summary.rows[1].against_reference->word, Word::worse);
  EXPECT_EQ(summary.rows[1].against_reference->diverged, 1);
  EXPECT_TRUE(summary.rows[2].final_values.empty());
  EXPECT_FALSE(summary.rows[2].against_reference.has_value());
  EXPECT_THAT(set.notes, ::testing::Contains(HasSubstr("has not finished (or was killed) after 60 steps")));
  EXPECT_THAT(set.notes, ::testing::Contains(HasSubstr("diverged: loss non-finite")));
  EXPECT_THAT(set.notes, ::testing::Contains(HasSubstr("steps.csv: the last line is cut off")));
  EXPECT_THAT(summary_table(set, {summary}),
              AllOf(HasSubstr("no finished run"), HasSubstr("worse (1 of 1 diverged)")));
  // The page copes with all of it.
  EXPECT_NO_THROW(write_report(folders, folder / "out", {.drawing = {.node = "no-such-node"}}));
}

TEST_F(Reports, ALossThatNobodyToldIsNotCalledDivergedOrUnfinished) {
  Manifest manifest;
  manifest.git_hash = "fp16lab 0.2.0, torch 2.12.0";
  manifest.config = "[model]\nname = \"net\"\n[train]\nseed = 1\n[amp]\nlevel = \"O0\"\n";
  for (const int steps : {0, 3}) {
    const std::filesystem::path path = folder / std::to_string(steps);
    RunWriter writer(path, manifest);
    for (int step = 1; step <= steps; ++step)
      writer.append(StepRow{.step = static_cast<std::uint64_t>(step), .loss = NAN, .grad_norm = 1});
    writer.finish(ExitState::finished);
    const RunSet set = load_runs(std::vector{path});
    const WorkloadSummary summary = summarise(set).at(0);
    EXPECT_THAT(summary_table(set, {summary}),
                AllOf(HasSubstr("no loss was given"), Not(HasSubstr("diverged"))));
    EXPECT_THAT(plain_words(summary),
                StartsWith("The FP32 run has finished, but lab.watch received no loss"));
  }
}

TEST_F(Reports, RunsWithoutAPairAreToldSo) {
  SyntheticRun run{.level = "O0", .steps = 20};
  std::vector<std::filesystem::path> folders{write_synthetic_run(folder, run)};
  run.level = "O1";
  run.seed = 2;
  folders.push_back(write_synthetic_run(folder, run));
  const std::string html =
      read_file(write_report(folders, folder / "out", {.drawing = {.node = "no-such-node"}}));
  EXPECT_THAT(
      tagged(
          embedded_data(html).at("workloads")[0].at("screen").at("tile").at("lines")[0].get<std::string>()),
      HasSubstr("<strong>no two runs of one seed</strong>"));
  EXPECT_THAT(html, Not(HasSubstr("next: -,")));
}

TEST_F(Reports, OfPyTorchsFp16NoRoundingIsDenied) {
  Manifest manifest;
  manifest.git_hash = "fp16lab 0.2.0, torch 2.12.0";
  manifest.config =
      "[model]\nname = \"net\"\n[amp]\nlevel = \"O1\"\ndtype = \"f16\"\n[scaler]\npolicy = \"none\"\n";
  const std::filesystem::path path = folder / "watched";
  RunWriter writer(path, manifest);
  HistogramRow row{.step = 1, .tensor = "fc.weight", .kind = "weight", .dtype = DType::f16};
  row.before.count(bits_of(0.5f));
  row.after = row.before;
  writer.append(row);
  writer.append(StepRow{.step = 1, .loss = 1, .grad_norm = 1});
  writer.finish(ExitState::finished);
  const std::string html =
      read_file(write_report(std::vector{path}, folder / "out", {.drawing = {.node = "no-such-node"}}));
  EXPECT_THAT(html, AllOf(HasSubstr("was trained by PyTorch, which rounds where casts cannot be observed"),
                          Not(HasSubstr("rounds no gradient"))));
}

}  // namespace
}  // namespace fp16lab::reports
