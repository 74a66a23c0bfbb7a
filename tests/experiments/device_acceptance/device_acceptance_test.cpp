// exp_device_acceptance's cases and comparisons without a GPU. The "device" is the emulated back end, once as
// it is and once with one thing about its tensor cores changed: every comparison must be able to say both.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <set>
#include <sstream>
#include <string>

#include "engine/backend/cuda/runtime/devices.hpp"
#include "engine/backend/emulated/emulated_backend.hpp"
#include "experiments/device_acceptance/cases/verb_cases.hpp"
#include "experiments/device_acceptance/report.hpp"
#include "experiments/device_acceptance/timing.hpp"
#include "experiments/device_acceptance/torch_times.hpp"
#include "numerics/files/disk/atomic_file.hpp"
#include "numerics/files/disk/read_file.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/on_ptx.hpp"
#include "tests/support/temporary_folder.hpp"

namespace fp16lab::experiments::acceptance {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

/// Hopper's row, and the same with one fraction bit less: products differ, nothing else.
std::unique_ptr<engine::Backend> emulated(bool changed) {
  TensorCoreModel row = tensor_core_model("hopper");
  if (changed) row.set(&Stage::fraction_bits, row.block().fraction_bits - 1);
  return engine::make_emulated_backend(row, 1);
}

TEST(VerbCases, NamesAreUnique) {
  std::set<std::string> names;
  for (const VerbCase& one : all_verb_cases())
    EXPECT_TRUE(names.insert(one.verb + '/' + one.name).second) << one.name;
}

TEST(CompareVerbs, EqualBackEndsGiveEqualBits) {
  const auto one = emulated(false), other = emulated(false);
  for (const VerbRow& row : compare_verbs(*one, *other, CaseSize::small, 1)) {
    EXPECT_TRUE(row.same()) << row.verb;
    EXPECT_THAT(row.notes, IsEmpty()) << row.verb;
    EXPECT_GT(row.elements, 0u) << row.verb;
  }
}

TEST(CompareVerbs, AnotherTensorCoreShowsInProductsAndNowhereElse) {
  const std::set<std::string> products{"gemm", "conv2d", "conv2d_input_gradient", "conv2d_weight_gradient",
                                       "record"};
  const auto one = emulated(false), other = emulated(true);
  for (const VerbRow& row : compare_verbs(*one, *other, CaseSize::small, 1)) {
    EXPECT_FALSE(row.failed) << row.verb;
    EXPECT_EQ(row.differing_elements > 0, products.contains(row.verb)) << row.verb;
    EXPECT_EQ(row.differing_bits > 0, products.contains(row.verb)) << row.verb;
    EXPECT_EQ(row.notes.empty(), !products.contains(row.verb)) << row.verb;
  }
}

TEST(CompareVerbs, RefusesBackEndsOfDifferentTensorCores) {
  const auto hopper = emulated(false);
  const auto volta = engine::make_emulated_backend(tensor_core_model("volta"), 1);
  EXPECT_THROW(compare_verbs(*hopper, *volta, CaseSize::small, 1), std::invalid_argument);
}

TEST(DifferingWords, CountsWordsAndBitsAndNamesTheFirst) {
  const std::array<std::uint16_t, 4> expected{1, 0x3c00, 7, 0xffff};
  std::array<std::uint16_t, 4> actual = expected;
  const auto bytes = [](const auto& words) { return std::as_bytes(std::span(words)); };
  EXPECT_EQ(differing_words(bytes(expected), bytes(actual), 2).words, 0u);
  actual[1] = 0x3c03;
  actual[3] = 0x7fff;
  const DifferingWords words = differing_words(bytes(expected), bytes(actual), 2);
  EXPECT_EQ(words.words, 2u);
  EXPECT_EQ(words.bits, 3u);
  EXPECT_EQ(words.first, 1u);
  EXPECT_EQ(words.expected, 0x3c00u);
  EXPECT_EQ(words.actual, 0x3c03u);
}

Settings settings(bool rehearsal) {
  Settings all;
  all.side.rehearsal = rehearsal;
  return all;
}

TEST(Goals, SpeedIsJudgedByItsLimitAndNeverInARehearsal) {
  const Goal fast = at_least("g", 10, "x"), small = at_most("g", 5, "%");
  EXPECT_EQ(fast.claim.criterion, ">= 10 x");
  EXPECT_EQ(small.claim.criterion, "<= 5 %");
  EXPECT_EQ(judged(settings(false), fast, 10.0).verdict, Verdict::holds);
  EXPECT_EQ(verdict_text(judged(settings(false), fast, 9.9)), "BEHIND");
  EXPECT_EQ(judged(settings(false), small, 5.0).verdict, Verdict::holds);
  EXPECT_EQ(verdict_text(judged(settings(false), small, 5.1)), "BEHIND");
  EXPECT_EQ(judged(settings(false), small, std::nullopt).verdict, Verdict::not_run);
  EXPECT_EQ(judged(settings(false), small, std::nan("")).verdict, Verdict::not_run);
  const Claim rehearsed = judged(settings(true), fast, 11.0);
  EXPECT_EQ(rehearsed.verdict, Verdict::rehearsed);
  EXPECT_THAT(rehearsed.measured, HasSubstr("meaningless"));
}

const Goal bits = no_difference("bits");

TEST(Goals, BitsHoldOnlyIfSomethingWasCompared) {
  EXPECT_EQ(none_differ(settings(false), bits, 0, 5, "words").verdict, Verdict::holds);
  EXPECT_EQ(none_differ(settings(false), bits, 1, 5, "words").verdict, Verdict::fails);
  EXPECT_EQ(none_differ(settings(false), bits, 0, 0, "words").verdict, Verdict::fails);
  EXPECT_EQ(none_differ(settings(true), bits, 0, 5, "words").verdict, Verdict::rehearsed)
      << "it is no evidence";
  EXPECT_EQ(none_differ(settings(true), bits, 1, 5, "words").verdict, Verdict::fails) << "but it may fail";
  EXPECT_EQ(none_differ_on_gpu(settings(true), bits, 0, 0, "words").verdict, Verdict::not_run);
  EXPECT_EQ(none_differ_on_gpu(settings(true), bits, 1, 5, "words").verdict, Verdict::rehearsed);
  EXPECT_EQ(none_differ_on_gpu(settings(false), bits, 1, 5, "words").verdict, Verdict::fails);
}

TEST(Goals, OnlyBitsDecideTheExitCode) {
  const auto report = [](std::vector<Claim> claims, const std::string& failure = "") {
    SectionReport section;
    section.result.claims = std::move(claims);
    section.failure = failure;
    return std::vector{section};
  };
  const Goal speed = at_least("speed", 10, "x");
  const Claim same = none_differ(settings(false), bits, 0, 5, "words"),
              other = none_differ(settings(false), bits, 1, 5, "words"),
              slow = judged(settings(false), speed, 9.9),
              unknown = judged(settings(false), speed, std::nullopt);
  EXPECT_EQ(exit_code_of(report({same, slow})), ExitCode::ok);
  EXPECT_EQ(outcome_text(report({same, slow})),
            "2 claims: 1 holds, 1 is behind; 0 of 1 sections failed to run");
  EXPECT_EQ(exit_code_of(report({other, slow})), ExitCode::mismatch);
  EXPECT_EQ(exit_code_of(report({same, unknown})), ExitCode::ok);
  EXPECT_EQ(exit_code_of(report({same}, "it broke")), ExitCode::run_failed);
  EXPECT_EQ(exit_code_of(report({other}, "it broke")), ExitCode::mismatch);
}

TEST(Report, AFailingSectionIsReportedAndCounts) {
  const Section failing{
      "verbs", "why", false, [](const Settings&) { return Goals{no_difference("bits")}; },
      [](const Settings&, const Goals&) -> SectionResult { throw std::runtime_error("broke"); }};
  const Section good{"gemm", "how", true, [](const Settings&) { return Goals{at_least("speed", 1, "x")}; },
                     [](const Settings& given, const Goals& goals) -> SectionResult {
                       return {
                           .tables = {{.caption = "speeds", .columns = {"n", "x"}, .rows = {{"1|2", "3"}}}},
                           .notes = {"a note"},
                           .claims = {judged(given, goals[0], 2.0)}};
                     }};
  const testing_support::TemporaryFolder folder;
  Settings given = settings(false);
  given.out = folder.path() / "report";
  const std::vector<SectionReport> sections{run_section(failing, given), run_section(good, given)};
  EXPECT_EQ(sections[0].failure, "broke");
  EXPECT_EQ(exit_code_of(sections), ExitCode::run_failed);
  EXPECT_EQ(exit_code_of({sections[1]}), ExitCode::ok);
  write_report(given, sections);
  const std::string markdown = read_file(given.out / "acceptance.md");
  EXPECT_THAT(markdown, HasSubstr("**FAILED to run:** broke"));
  EXPECT_THAT(markdown, HasSubstr("| speed | >= 1 x | 2 x | HOLDS |"));
  EXPECT_THAT(markdown, HasSubstr("| bits | 0 differ |  | NOT RUN |")) << "the section failed";
  EXPECT_THAT(markdown, HasSubstr("| 1\\|2 | 3 |"));
  EXPECT_THAT(markdown, Not(HasSubstr("REHEARSAL")));
  EXPECT_THAT(read_file(given.out / "acceptance.json"), HasSubstr("\"failure\": \"broke\""));
  given.side.rehearsal = true;
  EXPECT_THAT(markdown_of(given, sections), HasSubstr("REHEARSAL: no GPU took part"));
  EXPECT_THAT(json_of(given, sections), HasSubstr("rehearsal, meaningless"));
}

TEST(Report, HasEveryClaimBeforeTheSectionsRun) {
  const Settings given = settings(false);
  const std::vector<Claim> before = claims_of(given, all_sections(), {});
  EXPECT_EQ(before.size(), 35u);
  for (const Claim& claim : before) {
    EXPECT_EQ(claim.verdict, Verdict::not_run) << claim.claim;
    EXPECT_NE(claim.criterion, "") << claim.claim;
    EXPECT_NE(claim.topic, "") << claim.claim;
  }
  const Section stands_in{
      "tests", "why", false, section_called("tests").goals,
      [](const Settings& with, const Goals& goals) -> SectionResult {
        return {.tables = {}, .notes = {}, .claims = {must_hold(with, goals[0], "0 of 9 fail", true)}};
      }};
  const std::vector<Claim> later = claims_of(
      given, all_sections(), {run_section(section_called("device"), given), run_section(stands_in, given)});
  ASSERT_EQ(later.size(), before.size());
  EXPECT_EQ(later[0].verdict, Verdict::holds);
  EXPECT_EQ(later[0].claim, before[0].claim);
  EXPECT_EQ(later[1].verdict, Verdict::not_run);
}

TEST(TimeOf, IsTheMedianOfSoManyRepetitions) {
  const auto backend = emulated(false);
  int calls = 0;
  const Timing timing = time_of(*backend, {.warm_up = 2, .repetitions = 3}, [&] { ++calls; });
  EXPECT_EQ(calls, 5);
  EXPECT_EQ(timing.calls, 1);
  EXPECT_LE(timing.fastest, timing.median);
  EXPECT_LE(timing.median, timing.slowest);
}

TEST(TorchTimes, AreReadOnlyAtTheTutorialsSize) {
  const testing_support::TemporaryFolder folder;
  const std::filesystem::path file = folder.path() / "torch.json";
  const auto write = [&](const std::string& scale_down) {
    write_file_atomically(
        file, R"({"format": "fp16lab-torch-amp", "torch": "2.9", "device": "NVIDIA H200", "scale_down": )" +
                  scale_down + R"(, "results": [
      {"system": "paddle_linear9", "precision": "amp", "mode": "eager", "milliseconds": 12.5},
      {"system": "paddle_linear9", "precision": "amp", "mode": "compile", "error": "out of memory"}]})");
  };
  write("1");
  const TorchTimes times = read_torch_times(file);
  EXPECT_EQ(times.find("paddle_linear9", "amp", "eager"), 12.5);
  EXPECT_EQ(times.find("paddle_linear9", "amp", "compile"), std::nullopt) << "it failed";
  write("16");
  EXPECT_THAT(testing_support::message_of([&] { read_torch_times(file); }), HasSubstr("--scale-down"));
  EXPECT_THAT(testing_support::message_of([&] { read_torch_times(folder.path() / "none"); }),
              HasSubstr("torch_amp.py"));
}

TEST(TimingSections, HaveAClaimForEachGoal) {
  Settings given;
  given.side = {.rehearsal = true,
                .description = "none",
                .tensor_core = "hopper",
                .multiprocessors = 4,
                .stand_in = [](const engine::CudaOptions&) { return emulated(false); }};
  for (const Section& section : all_sections()) {
    if (!section.timing || section.first) continue;  // the first checks time our own kernel alone
    const SectionReport report = run_section(section, given);
    EXPECT_EQ(report.failure, "");
    EXPECT_EQ(report.result.claims.size(), section.goals(given).size()) << section.name;
  }
}

class Program : public testing::Test {
 protected:
  testing_support::Finished run(const std::string& name, std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--quiet", "-o", (folder_.path() / "out").string()});
    return testing_support::run_program(std::string(FP16LAB_BIN_DIR) + "/" + name, arguments, folder_.path());
  }
  testing_support::TemporaryFolder folder_;
};

TEST_F(Program, WithoutAGpuItExitsWithThreeAndWritesNothing) {
  if (!engine::cuda_status().devices.empty()) GTEST_SKIP() << "there is a GPU";
  for (const char* name : {"exp_device_acceptance", "exp_shapes"}) {
    const testing_support::Finished result = run(name, {});
    EXPECT_EQ(result.exit_code, 3) << name << result.err;
    EXPECT_THAT(result.err, HasSubstr("--rehearse")) << name;
    EXPECT_EQ(result.out, "") << name;
    EXPECT_FALSE(std::filesystem::exists(folder_.path() / "out")) << name;
  }
}

TEST_F(Program, BadOptionsAreUsageErrors) {
  EXPECT_EQ(run("exp_device_acceptance", {"--rehearse", "--section", "everything"}).exit_code, 2);
  EXPECT_EQ(run("exp_device_acceptance", {"--rehearse", "--set", "train.steps=1"}).exit_code, 2);
  const testing_support::Finished result =
      run("exp_device_acceptance", {"--rehearse", "--torch", (folder_.path() / "none.json").string()});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("none.json"));
}

class Rehearsal : public testing_support::OnPtx {
 protected:
  testing_support::Finished run(const std::string& name, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {std::string(FP16LAB_BIN_DIR) + "/" + name, "--rehearse"});
    arguments.insert(arguments.end(), {"--quiet", "-o", (folder_.path() / "out").string()});
    return run_on_ptx(arguments, folder_.path());
  }
  testing_support::TemporaryFolder folder_;
};

TEST_F(Rehearsal, SectionsAreChosenByNameAndEveryLineSaysThatItRehearses) {
  const testing_support::Finished result =
      run("exp_device_acceptance", {"--section", "gemm", "--section", "device"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  std::istringstream lines(result.out);
  for (std::string line; std::getline(lines, line);)
    EXPECT_TRUE(line.starts_with("[rehearsal, no GPU] ")) << line;
  const std::string markdown = read_file(folder_.path() / "out" / "acceptance.md");
  EXPECT_THAT(markdown, HasSubstr("## device"));
  EXPECT_THAT(markdown, HasSubstr("## gemm"));
  EXPECT_THAT(markdown, Not(HasSubstr("## verbs")));
  const std::string claims = read_file(folder_.path() / "out" / "claims.json");
  EXPECT_THAT(claims, HasSubstr("\"criterion\": \">= 40 %\""));
}

TEST_F(Rehearsal, ShapesHaveTheirCriteriaAndARehearsalTellsNothingOfThem) {
  const testing_support::Finished result = run("exp_shapes", {});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("10 claims: 8 were rehearsed, 2 were not run\n"))
      << "there is no library";
  EXPECT_THAT(read_file(folder_.path() / "out" / "claims.json"),
              HasSubstr("TFLOP/s at NHWC over TFLOP/s at NCHW is at least 1.1"));
}

TEST_F(Rehearsal, OfARehearsalNothingHolds) {
  const testing_support::Finished result =
      run("exp_device_acceptance", {"--section", "probes", "--section", "products"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("REHEARSED"));
  for (const char* file :
       {"acceptance.md", "acceptance.json", "claims.json", "probe/report.md", "probe/claims.json"}) {
    const std::string text = read_file(folder_.path() / "out" / file);
    EXPECT_THAT(text, HasSubstr("REHEARSED")) << file;
    EXPECT_THAT(text, Not(HasSubstr("HOLDS"))) << file;
  }
}

}  // namespace
}  // namespace fp16lab::experiments::acceptance
