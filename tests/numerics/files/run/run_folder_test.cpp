// The run folder: its round trip, its error messages, and what a kill leaves.
#include "numerics/files/run/run_folder.hpp"
#include "numerics/files/disk/read_file.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "numerics/formats/bits.hpp"
#include "numerics/histogram/cast_counts.hpp"
#include "numerics/histogram/zones.hpp"
#include "tests/numerics/files/files_fixture.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/older_manifest.hpp"

namespace fp16lab {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing_support::message_of;

using RunFolderTest = Files;

Manifest some_manifest() {
  Manifest manifest;
  manifest.argv = {"fp16lab", "train", "--set", "model.name=\"mlp \xc3\xa9\""};
  manifest.config = "[train]\nseed = 7\n";
  manifest.git_hash = "0123abc-dirty";
  manifest.seeds = {{"train", std::numeric_limits<std::uint64_t>::max()}, {"data", 0}};
  manifest.cpu = "a \"CPU\"";
  manifest.threads = 2;
  manifest.compiler = "g++ 12.2";
  manifest.flags = "-O3";
  manifest.gemm_target = "avx512";
  manifest.gpu = "NVIDIA H200";
  manifest.driver = "CUDA 13.0";
  manifest.backend = {.device = "cuda",
                      .tensor_core = "hopper",
                      .note = "found one",
                      .capability = "9.0",
                      .runtime = "13.0",
                      .gemm = "auto"};
  manifest.data = {{"/data/a", std::string(64, 'a')}};
  manifest.model = R"({"name":"mlp","layers":[]})";
  manifest.memory = RunMemory{
      .parameters = 1, .masters = 2, .gradients = 3, .optimizer = 4, .activations = 5, .peak = 1ull << 40};
  return manifest;
}

TEST_F(RunFolderTest, RunRoundTripKeepsEveryBit) {
  const double tiny = 5e-324, third = 1.0 / 3.0, inf = std::numeric_limits<double>::infinity();
  const StepRow first{.step = 1,
                      .loss = third,
                      .loss_scale = 65536,
                      .found_inf = true,
                      .skipped = true,
                      .grad_norm = inf,
                      .lr = tiny,
                      .underflow_rate = std::nullopt,
                      .state_hash = 0x0123456789abcdefu,
                      .seconds = 0.1};
  const StepRow second{.step = 2,
                       .loss = -0.0,
                       .loss_scale = 0.5,
                       .found_inf = false,
                       .skipped = false,
                       .grad_norm = -inf,
                       .lr = 1e300,
                       .underflow_rate = 0.25,
                       .state_hash = 1,
                       .seconds = 2,
                       .epoch = 0.125};
  const EvaluationRow evaluation{.step = 2,
                                 .split = "test",
                                 .loss = 0.1 + 0.2,
                                 .accuracy = std::nullopt,
                                 .bits_per_character = 0.3 / 0.7};
  const EvaluationRow accurate{
      .step = 2, .split = "test", .loss = 1, .accuracy = 0.75, .bits_per_character = std::nullopt};
  HistogramRow histogram{.step = 2,
                         .tensor = "fc1.\"weight\"",
                         .kind = "weight",
                         .dtype = DType::f16,
                         .loss_scale = inf,
                         .before = {},
                         .after = {}};
  histogram.before.zero = std::numeric_limits<std::uint64_t>::max();
  histogram.before.infinite = 3;
  histogram.before.nan = 4;
  histogram.before.bins.front() = 5;
  histogram.before.bins.back() = 6;
  histogram.after.bins[100] = 7;
  {
    RunWriter writer(folder / "run", some_manifest());
    writer.append(first);
    writer.append(second);
    writer.append(evaluation);
    writer.append(accurate);
    writer.append(histogram);
    writer.finish(ExitState::diverged, "loss is NaN");
  }
  const RunFolder run = read_run_folder(folder / "run");
  EXPECT_THAT(run.steps, ElementsAre(first, second));
  EXPECT_TRUE(std::signbit(run.steps[1].loss));
  EXPECT_THAT(run.evaluations, ElementsAre(evaluation, accurate));
  EXPECT_THAT(read_histograms(folder / "run"), ElementsAre(histogram));
  EXPECT_TRUE(run.notes.empty());
  Manifest expected = some_manifest();
  expected.state = ExitState::diverged;
  expected.message = "loss is NaN";
  expected.start = run.manifest.start;
  expected.end = run.manifest.end;
  expected.rows =
      RunRows{.steps = 2, .evaluations = 2, .histograms = 1, .sha256 = run.manifest.rows.value().sha256};
  expected.seconds_per_step = 2;  // the greater of two
  EXPECT_EQ(run.manifest, expected);
  EXPECT_EQ(run.manifest.start.size(), 20u);
  EXPECT_TRUE(run.manifest.end.has_value());
  EXPECT_FALSE(run.finished());
  EXPECT_EQ(read_file(folder / "run" / run_file::config), expected.config);
}

TEST_F(RunFolderTest, NotANumberIsWrittenAndReadInBothForms) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  RunWriter writer(folder / "run", some_manifest());
  writer.append(StepRow{.step = 1,
                        .loss = -nan,
                        .loss_scale = 1,
                        .found_inf = false,
                        .skipped = false,
                        .grad_norm = nan,
                        .lr = 0,
                        .underflow_rate = nan,
                        .state_hash = 0,
                        .seconds = 0});
  writer.append(EvaluationRow{.step = 1, .split = "test", .loss = nan, .accuracy = nan});
  for (const char* const split : {"", "te,st", "te\"st", "te\nst"})
    EXPECT_THROW(writer.append(EvaluationRow{.step = 1, .split = split}), std::invalid_argument) << split;
  HistogramRow histogram;
  histogram.kind = "weight";
  histogram.loss_scale = nan;
  writer.append(histogram);
  EXPECT_THAT(read_file(folder / "run" / run_file::steps),
              HasSubstr("\n1,nan,1,0,0,nan,0,nan,0000000000000000,0,\n"));
  EXPECT_THAT(read_file(folder / "run" / run_file::histograms), HasSubstr("\"loss_scale\":\"NaN\""));
  const RunFolder run = read_run_folder(folder / "run");
  EXPECT_TRUE(std::isnan(run.steps.at(0).loss));
  EXPECT_TRUE(std::isnan(run.evaluations.at(0).accuracy.value()));
  EXPECT_TRUE(std::isnan(read_histograms(folder / "run").at(0).loss_scale));
}

/// Every power of two, its neighbours, and a sweep of significands: what is written reads back to the same
/// bits.
TEST_F(RunFolderTest, NumbersRoundTrip) {
  std::vector<StepRow> rows;
  for (std::uint64_t exponent = 0; exponent < 2047; exponent += 3)
    for (const std::uint64_t fraction : {0x0ull, 0x1ull, 0xfffffffffffffull, 0x5555555555555ull})
      rows.push_back({.loss = double_from_bits((exponent << 52) | fraction)});
  RunWriter writer(folder / "run", some_manifest());
  for (const StepRow& row : rows) writer.append(row);
  const RunFolder run = read_run_folder(folder / "run");
  ASSERT_EQ(run.steps.size(), rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i)
    ASSERT_EQ(bits_of(run.steps[i].loss), bits_of(rows[i].loss)) << rows[i].loss;
}

TEST_F(RunFolderTest, OverflowLinesRoundTrip) {
  const std::vector<OverflowRow> rows{{.step = 3,
                                       .kind = OverflowKind::gradient,
                                       .loss_scale = 65536,
                                       .optimizers = {"model"},
                                       .parameters = {"a", "b"}},
                                      {.step = 4, .kind = OverflowKind::loss, .loss_scale = 1.0 / 3},
                                      {.step = 9,
                                       .kind = OverflowKind::both,
                                       .loss_scale = std::numeric_limits<double>::infinity(),
                                       .optimizers = {"x", "y"}}};
  {
    RunWriter writer(folder, some_manifest());
    for (const OverflowRow& row : rows) writer.append(row);
    writer.finish(ExitState::finished);
  }
  EXPECT_EQ(read_overflows(folder), rows);
  const std::string lines = read_file(folder / run_file::overflows);
  EXPECT_EQ(lines.substr(0, lines.find('\n')),
            "{\"step\":3,\"kind\":\"gradient\",\"loss_scale\":65536.0,\"optimizers\":[\"model\"],"
            "\"parameters\":[\"a\",\"b\"]}");
  const std::string file = (folder / run_file::overflows).string();
  const auto error_of = [&](const std::string& content) {
    write_raw(run_file::overflows, content);
    return message_of([&] { read_overflows(folder); });
  };
  EXPECT_EQ(error_of("{\"step\":1,\"kind\":\"nan\"}\n"),
            file + ":1: 'kind' is 'nan'; known are gradient, loss, both");
  EXPECT_EQ(
      error_of("{\"step\":1,\"kind\":\"loss\",\"loss_scale\":1,\"optimizers\":[1],\"parameters\":[]}\n"),
      file + ":1: 'optimizers' must be a string, not 1");
  write_raw(run_file::overflows, "{\"step\":1,\"kind");
  EXPECT_TRUE(read_overflows(folder).empty()) << "torn";
}

TEST_F(RunFolderTest, HistogramLinesLeaveOutEmptyBinsAtBothEnds) {
  RunWriter writer(folder / "run", some_manifest());
  HistogramRow row;
  row.tensor = "t";
  row.kind = "activation";
  row.before.bins[static_cast<std::size_t>(-30 - ExponentHistogram::min_exponent)] = 2;
  row.before.bins[static_cast<std::size_t>(-28 - ExponentHistogram::min_exponent)] = 9;
  writer.append(row);
  EXPECT_EQ(read_file(folder / "run" / run_file::histograms),
            "{\"step\":0,\"tensor\":\"t\",\"kind\":\"activation\",\"dtype\":\"f32\",\"loss_scale\":1.0,"
            "\"before\":{\"zero\":0,\"inf\":0,\"nan\":0,\"first_exponent\":-30,\"counts\":[2,0,9]},"
            "\"after\":{\"zero\":0,\"inf\":0,\"nan\":0,\"first_exponent\":0,\"counts\":[]}}\n");
}

TEST_F(RunFolderTest, HistogramLinesSayWhatTheyAreOf) {
  std::vector<HistogramRow> rows;
  for (const Observed observed : every<Observed>) {
    HistogramRow row{.step = 1, .tensor = "fc1.weight", .observed = observed, .kind = "weight"};
    row.before.zero = 1 + static_cast<std::uint64_t>(observed);
    if (observed == Observed::updates) row.unmoved = 3;
    if (observed == Observed::weights) row.tensor += "\"\xc3\xa9";
    for (const float value : {0x1p-149f, 0.1f, 3e38f, 1.0f}) row.after.count(bits_of(value));
    rows.push_back(row);
  }
  {
    RunWriter writer(folder, some_manifest());
    for (const HistogramRow& row : rows) writer.append(row);
    writer.finish(ExitState::finished);
  }
  const ObservedSet all{Observed::gradients, Observed::activations, Observed::weights, Observed::updates,
                        Observed::optimizer_state};
  EXPECT_EQ(read_histograms(folder, all), rows);
  EXPECT_EQ(read_histograms(folder), std::vector{rows.front()}) << "whoever does not ask reads gradients";
  EXPECT_EQ(read_histograms(folder, {Observed::updates}), std::vector{rows[3]});
  EXPECT_TRUE(read_run_folder(folder).damage.empty());
  const std::string lines = read_file(folder / run_file::histograms);
  EXPECT_TRUE(lines.starts_with(R"({"step":1,"tensor":"fc1.weight","kind":"weight","dtype":"f32",)"))
      << "rows of gradients are as they always were";
  EXPECT_THAT(
      lines,
      HasSubstr(R"("observed":"updates","kind":"weight","dtype":"f32","loss_scale":1.0,"unmoved":3,)"));
  std::istringstream each(lines);
  for (std::string line; std::getline(each, line);)
    EXPECT_EQ(nlohmann::ordered_json::parse(line).dump(), line) << "written without a tree, as one would be";
  std::string wrong = lines;
  wrong.replace(wrong.find("\"updates\""), 9, "\"update\"");
  write_raw(run_file::histograms, wrong);
  EXPECT_EQ(message_of([&] { read_histograms(folder); }),
            (folder / run_file::histograms).string() +
                ":4: 'observed' is 'update'; known are gradients, activations, weights, updates, "
                "optimizer_state");
}

TEST_F(RunFolderTest, HistogramLinesKeepTheExtremes) {
  HistogramRow row{.step = 1,
                   .tensor = "t",
                   .kind = "weight",
                   .dtype = DType::e5m2,
                   .intermediate = true,
                   .before = {},
                   .after = {}};
  for (const float x : {0x1p-149f, -0.3f, 65519.996f, 0.0f, 1e30f}) row.before.count(bits_of(x));
  for (const float x : {0.1f, 0.1f}) row.after.count(bits_of(x));
  {
    RunWriter writer(folder / "run", some_manifest());
    writer.append(row);
  }
  EXPECT_THAT(read_histograms(folder / "run"), ElementsAre(row));
  EXPECT_THAT(read_file(folder / "run" / run_file::histograms),
              HasSubstr("\"dtype\":\"e5m2\",\"intermediate\":true,\"loss_scale\""));
  EXPECT_THAT(read_file(folder / "run" / run_file::histograms),
              HasSubstr("\"after\":{\"zero\":0,\"inf\":0,\"nan\":0,\"first_exponent\":-4,\"counts\":[2],"
                        "\"smallest\":0.10000000149011612,\"greatest\":0.10000000149011612}"));
}

TEST_F(RunFolderTest, HistogramLinesOfOlderFoldersAreRead) {
  { RunWriter(folder, some_manifest()).finish(ExitState::finished); }
  // As they were before there were extremes: the bin of -127 had all of FP32's subnormals.
  write_raw(
      run_file::histograms,
      "{\"step\":7,\"tensor\":\"fc1.weight\",\"kind\":\"weight\",\"dtype\":\"f16\",\"loss_scale\":65536.0,"
      "\"before\":{\"zero\":3,\"inf\":0,\"nan\":1,\"first_exponent\":-127,\"counts\":[4,0,9]},"
      "\"after\":{\"zero\":7,\"inf\":0,\"nan\":1,\"first_exponent\":15,\"counts\":[9]}}\n");
  const std::vector<HistogramRow> rows = read_histograms(folder);
  ASSERT_EQ(rows.size(), 1u);
  const ExponentHistogram& before = rows[0].before;
  EXPECT_EQ(before.at(-127), 4u);
  EXPECT_EQ(before.at(-125), 9u);
  EXPECT_EQ(before.total(), 17u);
  EXPECT_FALSE(before.extremes_known());
  EXPECT_EQ(cast_counts(before, rows[0].after), (CastCounts{.values = 13, .underflow = 4, .overflow = 0}));
  // Any of the four may be as small as 2^-149, and any of the nine up to 2^16.
  EXPECT_EQ(count_ranges(before, fp16_range, 0x1p110).lost, (CountInterval{0, 4}));
  EXPECT_EQ(count_ranges(rows[0].after, fp16_range, 1.0).overflow, (CountInterval{0, 9}));
}

TEST_F(RunFolderTest, ExtremesThatCannotBeAreDamage) {
  { RunWriter(folder, some_manifest()).finish(ExitState::finished); }
  const auto write_with = [&](const std::string& extremes) {
    write_raw(
        run_file::histograms,
        "{\"step\":7,\"tensor\":\"t\",\"kind\":\"weight\",\"dtype\":\"f16\",\"loss_scale\":1.0,\"before\":"
        "{\"zero\":0,\"inf\":0,\"nan\":0,\"first_exponent\":-1,\"counts\":[1,1]" +
            extremes + "},\"after\":{\"zero\":2,\"inf\":0,\"nan\":0,\"first_exponent\":0,\"counts\":[]}}\n");
  };
  const auto error_of = [&](const std::string& extremes) {
    write_with(extremes);
    return message_of([&] { read_histograms(folder); });
  };
  const std::string line = (folder / run_file::histograms).string() + ":1: ";
  EXPECT_EQ(error_of(",\"smallest\":0.75"), line + "the key 'greatest' is missing");
  EXPECT_EQ(error_of(",\"smallest\":1.5,\"greatest\":2"),
            line + "'smallest' is 1.5; expected an FP32 number of the bin (2^-1, 2^0]");
  EXPECT_EQ(error_of(",\"smallest\":0.75,\"greatest\":1"),
            line + "'greatest' is 1; expected an FP32 number of the bin (2^0, 2^1]");
  EXPECT_THAT(error_of(",\"smallest\":0.7,\"greatest\":2"), HasSubstr("'smallest' is 0.7; expected an FP32"));
  EXPECT_THAT(error_of(",\"smallest\":-0.75,\"greatest\":2"), HasSubstr("expected an FP32 number"));
  write_with(",\"smallest\":0.75,\"greatest\":2");
  EXPECT_EQ(read_histograms(folder).at(0).before.smallest, bits_of(0.75f));
}

TEST_F(RunFolderTest, KilledRunReadsAsRunningWithItsCompleteRows) {
  {
    RunWriter writer(folder / "run", some_manifest());
    writer.append(StepRow{.step = 1});
    writer.append(StepRow{.step = 2});
    writer.append(HistogramRow{.step = 1, .tensor = "t", .kind = "weight", .before = {}, .after = {}});
  }  // no finish(): as after a SIGKILL
  std::ofstream(folder / "run" / run_file::steps, std::ios::app) << "3,0.12";
  std::ofstream(folder / "run" / run_file::histograms, std::ios::app) << "{\"step\":2,";
  const RunFolder run = read_run_folder(folder / "run");
  EXPECT_EQ(run.manifest.state, ExitState::running);
  EXPECT_FALSE(run.finished());
  EXPECT_EQ(run.steps.size(), 2u);
  EXPECT_THAT(run.notes, ElementsAre("steps.csv: the last line is cut off (6 bytes) and was left out"));
  std::size_t seen = 0;
  EXPECT_EQ(for_each_histogram(folder / "run", [&](const HistogramRow&) { ++seen; }), 10u);
  EXPECT_EQ(seen, 1u);
  // Killed even before the line files exist.
  for (const auto name : {run_file::steps, run_file::evaluations})
    std::filesystem::remove(folder / "run" / name);
  EXPECT_TRUE(read_run_folder(folder / "run").steps.empty());
}

TEST_F(RunFolderTest, DamageIsReportedWithFileLineAndReason) {
  { RunWriter(folder, some_manifest()).finish(ExitState::finished); }
  const std::string header =
      "step,loss,loss_scale,found_inf,skipped,grad_norm,lr,underflow_rate,state_hash,seconds\n";
  const std::string good = "1,2,1,0,0,1,0.1,,0000000000000000,1\n";
  const auto steps_error = [&](const std::string& content) {
    write_raw(run_file::steps, content);
    return message_of([&] { read_run_folder(folder); });
  };
  const std::string file = (folder / run_file::steps).string();
  EXPECT_THAT(steps_error("step,loss\n"), AllOf(HasSubstr(file + ":1: "), HasSubstr("header must be")));
  EXPECT_EQ(steps_error(header + good + "1,2\n"), file + ":3: expected 10 columns, got 2");
  EXPECT_EQ(steps_error(header + "1,two,1,0,0,1,0.1,,0000000000000000,1\n"),
            file + ":2: column loss: 'two' is not a number");
  EXPECT_EQ(steps_error(header + "1,2,1,yes,0,1,0.1,,0000000000000000,1\n"),
            file + ":2: column found_inf: 'yes' is neither 0 nor 1");
  EXPECT_EQ(steps_error(header + "-1,2,1,0,0,1,0.1,,0000000000000000,1\n"),
            file + ":2: column step: '-1' is not a whole number");
  EXPECT_EQ(steps_error(header + "1,2,1,0,0,1,0.1,,12,1\n"),
            file + ":2: column state_hash: '12' is not 16 hex digits");
  EXPECT_EQ(steps_error(header + good + "\n" + good), file + ":3: expected 10 columns, got 1");
  std::filesystem::remove(folder / run_file::steps);  // a finished run must have it
  EXPECT_THAT(message_of([&] { read_run_folder(folder); }),
              AllOf(HasSubstr(file), HasSubstr("No such file")));

  const auto histogram_error = [&](const std::string& content) {
    write_raw(run_file::histograms, content);
    return message_of([&] { read_histograms(folder); });
  };
  const std::string lines = (folder / run_file::histograms).string();
  EXPECT_EQ(histogram_error("{\n"), lines + ":1: not valid JSON at byte 2");
  EXPECT_EQ(histogram_error("[]\n"), lines + ":1: expected an object with the key 'step'");
  EXPECT_EQ(histogram_error("{\"step\":-1}\n"), lines + ":1: 'step' must be a whole number >= 0, not -1");
  EXPECT_EQ(histogram_error("{\"step\":1}\n"), lines + ":1: the key 'tensor' is missing");
  EXPECT_THAT(histogram_error(
                  "{\"step\":1,\"tensor\":\"t\",\"kind\":\"weight\",\"dtype\":\"f16\",\"loss_scale\":1,"
                  "\"before\":{\"zero\":0,\"inf\":0,\"nan\":0,\"first_exponent\":127,\"counts\":[1,2]}}\n"),
              HasSubstr("'before' has bins 127..128, outside -150..127"));
}

TEST_F(RunFolderTest, WhatARunWroteAndTheFolderLacksIsNamed) {
  const auto write = [&](std::optional<ExitState> end) {
    remove_run(folder / "run");
    RunWriter writer(folder / "run", some_manifest());
    for (std::uint64_t step = 1; step <= 4; ++step) {
      writer.append(HistogramRow{.step = step});
      if (step == 2) writer.append(OverflowRow{.step = step});
      writer.append(StepRow{.step = step});
    }
    writer.append(EvaluationRow{.step = 4, .split = "test"});
    if (end) writer.finish(*end);
  };
  const auto cut = [&](std::string_view name) {  // the last line
    std::string text = read_file(folder / "run" / name);
    text.resize(text.rfind('\n', text.size() - 2) + 1);
    write_raw("run/" + std::string(name), text);
  };
  const auto damage = [&] { return read_run_folder(folder / "run").damage; };
  const auto whole = [&] { return read_run_folder(folder / "run").finished(); };
  write(ExitState::finished);
  EXPECT_THAT(damage(), IsEmpty());
  EXPECT_TRUE(whole());
  cut(run_file::histograms);
  EXPECT_THAT(damage(), ElementsAre("histograms.jsonl has 3 rows, but the run wrote 4"));
  EXPECT_TRUE(read_run_folder(folder / "run").damaged(run_file::histograms));
  EXPECT_FALSE(read_run_folder(folder / "run").damaged(run_file::steps));
  EXPECT_TRUE(whole()) << "how it ended is known";
  std::filesystem::remove(folder / "run" / run_file::histograms);
  EXPECT_THAT(damage(), ElementsAre("histograms.jsonl is missing, with 4 rows"));
  cut(run_file::evaluations);
  cut(run_file::steps);
  std::filesystem::remove(folder / "run" / run_file::overflows);
  EXPECT_THAT(damage(), ElementsAre("steps.csv has 3 rows, but the run wrote 4",
                                    "evaluations.csv has 0 rows, but the run wrote 1",
                                    "histograms.jsonl is missing, with 4 rows",
                                    "overflows.jsonl is missing, with 1 rows"));
  EXPECT_FALSE(whole());

  // A killed run has no row counts; but it made its files before its first step.
  write(std::nullopt);
  EXPECT_THAT(damage(), IsEmpty());
  cut(run_file::histograms);
  EXPECT_THAT(damage(), IsEmpty());
  std::filesystem::remove(folder / "run" / run_file::overflows);
  EXPECT_THAT(damage(), ElementsAre("overflows.jsonl is missing"));

  // Older manifests count no rows, and older folders have no overflows.jsonl; a gap is one in any folder.
  write(ExitState::finished);
  std::string manifest = testing_support::without_digests(read_file(folder / "run" / run_file::manifest));
  const std::size_t rows = manifest.find("  \"rows\": {");
  ASSERT_NE(rows, std::string::npos);
  manifest.erase(rows, manifest.find("},\n", rows) + 3 - rows);
  write_raw("run/manifest.json", manifest);
  std::filesystem::remove(folder / "run" / run_file::overflows);
  cut(run_file::histograms);
  EXPECT_THAT(damage(), IsEmpty());
  std::string steps = read_file(folder / "run" / run_file::steps);
  const std::size_t second = steps.find("\n2,") + 1;
  steps.erase(second, steps.find('\n', second) + 1 - second);
  write_raw("run/steps.csv", steps);
  EXPECT_THAT(damage(), ElementsAre("steps.csv:3: step 3 follows step 1"));
  EXPECT_FALSE(whole());
}

TEST_F(RunFolderTest, EvaluationsHaveTheColumnsOfTheirHeader) {
  { RunWriter(folder, some_manifest()).finish(ExitState::finished); }
  const std::string file = (folder / run_file::evaluations).string();
  const auto error = [&](const std::string& content) {
    write_raw(run_file::evaluations, content);
    return message_of([&] { read_run_folder(folder); });
  };
  EXPECT_EQ(error("step,split,loss,accuracy\n5,test,0.5,0.75,1\n"), file + ":2: expected 4 columns, got 5");
  EXPECT_EQ(error("step,split,loss,accuracy,bits_per_character\n5,test,0.5,\n"),
            file + ":2: expected 5 columns, got 4");
  EXPECT_THAT(error("step,split,loss\n"), HasSubstr(":1: the header must be"));
}

TEST_F(RunFolderTest, ManifestErrors) {
  EXPECT_THAT(message_of([&] { read_manifest(folder); }),
              HasSubstr("is not a run folder: it has no manifest.json"));
  { RunWriter(folder, some_manifest()).finish(ExitState::finished); }
  EXPECT_TRUE(read_run_folder(folder).finished());
  const std::string path = (folder / run_file::manifest).string();
  const std::string whole = read_file(path);
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string text = whole;
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    write_raw(run_file::manifest, text.replace(at, from.size(), to));
    return message_of([&] { read_run_folder(folder); });
  };
  EXPECT_EQ(replaced("\"schema_version\": 3", "\"schema_version\": 4"),
            path + ": schema version 4, but this build reads versions 1 to 3");
  EXPECT_EQ(replaced("\"schema_version\": 3", "\"schema_version\": 0"),
            path + ": schema version 0, but this build reads versions 1 to 3");
  EXPECT_EQ(replaced("\"finished\"", "\"done\""),
            path + ": 'state' is 'done'; known are running, finished, stopped, diverged, failed");
  EXPECT_EQ(replaced("\"cpu\"", "\"cpus\""), path + ": the key 'cpu' is missing");
  EXPECT_EQ(replaced("\"threads\": 2", "\"threads\": 2.5"),
            path + ": 'threads' must be a whole number, not 2.5");
  write_raw(run_file::manifest, whole.substr(0, whole.size() / 2));
  EXPECT_THAT(message_of([&] { read_manifest(folder); }), HasSubstr(path + ": not valid JSON"));
}

TEST_F(RunFolderTest, AFolderWithARunIsNotOverwritten) {
  { RunWriter(folder / "run", some_manifest()); }
  EXPECT_THAT(message_of([&] { RunWriter(folder / "run", some_manifest()); }),
              HasSubstr("already holds a run"));
  std::ofstream(folder / "run" / "notes.txt") << "mine";
  remove_run(folder / "run");
  EXPECT_FALSE(is_run_folder(folder / "run"));
  EXPECT_TRUE(std::filesystem::exists(folder / "run" / "notes.txt"));
  std::filesystem::remove(folder / "run" / "notes.txt");
  { RunWriter(folder / "run", some_manifest()); }
  remove_run(folder / "run");
  EXPECT_FALSE(std::filesystem::exists(folder / "run"));
}

TEST_F(RunFolderTest, UnwritableFolderIsOneClearError) {
  write_raw("file", "x");
  EXPECT_THAT(message_of([&] { RunWriter(folder / "file" / "run", some_manifest()); }),
              AllOf(HasSubstr("cannot make the folder"), HasSubstr("Not a directory")));
}

}  // namespace
}  // namespace fp16lab
