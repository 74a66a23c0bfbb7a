// numerics/files: atomic writes, torn lines, the run folder's round trip and its error messages, SHA-256.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <thread>

#include "numerics/bits.hpp"
#include "numerics/files/run_folder.hpp"
#include "numerics/files/sha256.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/temporary_folder.hpp"

namespace fp16lab {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing_support::message_of;

class Files : public ::testing::Test {
 protected:
  void write_raw(std::string_view name, std::string_view content) const {
    std::ofstream(folder / name, std::ios::binary) << content;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      found.push_back(entry.path().filename().string());
    std::sort(found.begin(), found.end());
    return found;
  }

  testing_support::TemporaryFolder temporary;
  const std::filesystem::path& folder = temporary.path();
};

// ---- atomic_file --------------------------------------------------------------------------------

TEST_F(Files, AtomicWriteReplacesWholeContentAndLeavesNoTemporaryFile) {
  const std::string large(3'000'000, 'x');
  write_file_atomically(folder / "a", large);
  EXPECT_EQ(read_file(folder / "a"), large);
  const std::string binary("short\0with zero\n", 16);
  write_file_atomically(folder / "a", binary);
  EXPECT_EQ(read_file(folder / "a"), binary);
  EXPECT_THAT(names(), ElementsAre("a"));
}

TEST_F(Files, AtomicWriteThatCannotRenameKeepsTheOldContentAndCleansUp) {
  std::filesystem::create_directories(folder / "target" / "inside");  // a folder cannot be replaced by a file
  EXPECT_THAT(message_of([&] { write_file_atomically(folder / "target", "x"); }),
              AllOf(HasSubstr((folder / "target").string()), HasSubstr("directory")));
  EXPECT_THAT(names(), ElementsAre("target"));
}

TEST_F(Files, ErrorsNameThePathAndTheSystemsReason) {
  const std::filesystem::path missing = folder / "no" / "such";
  for (const std::string& message :
       {message_of([&] { write_file_atomically(missing, "x"); }), message_of([&] { read_file(missing); }),
        message_of([&] { LineFile(missing, LineFile::Mode::create); })})
    EXPECT_THAT(message, AllOf(HasSubstr(missing.string()), HasSubstr("No such file or directory")));
}

/// At the moment of a SIGKILL: every line whose append returned is there, and a reader sees whole lines only.
TEST_F(Files, LinesSurviveSigkill) {
  const std::filesystem::path path = folder / "lines";
  const std::string body(700, 'y');
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    LineFile file(path, LineFile::Mode::create);
    for (std::uint64_t i = 0;; ++i) file.append(std::to_string(i) + body);
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  const auto size = [&] { return std::filesystem::exists(path) ? std::filesystem::file_size(path) : 0; };
  while (size() < 200'000 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  const Lines lines = read_lines(path);
  ASSERT_GT(lines.complete.size(), 250u);
  for (std::size_t i = 0; i < lines.complete.size(); ++i)
    ASSERT_EQ(lines.complete[i], std::to_string(i) + body);
}

TEST_F(Files, TornLastLineIsDroppedAndReportedAndCutOffBeforeAppending) {
  write_raw("lines", "one\ntwo\nthr");
  EXPECT_THAT(read_lines(folder / "lines").complete, ElementsAre("one", "two"));
  EXPECT_EQ(read_lines(folder / "lines").torn_bytes, 3u);
  { LineFile(folder / "lines", LineFile::Mode::append).append("three"); }
  EXPECT_EQ(read_file(folder / "lines"), "one\ntwo\nthree\n");
  EXPECT_EQ(read_lines(folder / "lines").torn_bytes, 0u);
  EXPECT_THROW(LineFile(folder / "lines", LineFile::Mode::append).append("a\nb"), std::invalid_argument);
  EXPECT_EQ(read_file(folder / "lines"), "one\ntwo\nthree\n");
}

// ---- SHA-256 ------------------------------------------------------------------------------------

/// NIST, "Cryptographic Standards and Guidelines: Examples with Intermediate Values", SHA256.pdf, and SHA256
/// additional test vectors (empty message, one million letters a).
TEST(Sha256Test, StandardVectors) {
  EXPECT_EQ(sha256_of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256_of(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

/// However the message is cut into updates, the digest is the same: covers every fill level of the pending
/// block.
TEST(Sha256Test, CutsDoNotMatter) {
  std::string message;
  for (int i = 0; i < 200; ++i) message += static_cast<char>(i);
  const std::string expected = sha256_of(message);
  for (std::size_t cut = 0; cut <= message.size(); ++cut) {
    Sha256 hash;
    hash.update(message.substr(0, cut));
    hash.update(message.substr(cut));
    ASSERT_EQ(hash.hex_digest(), expected) << "cut at " << cut;
  }
  Sha256 hash;
  hash.hex_digest();
  EXPECT_THROW(hash.update("x"), std::logic_error);
}

TEST_F(Files, Sha256OfFile) {
  write_raw("a", std::string(1'000'000, 'a'));
  EXPECT_EQ(sha256_of_file(folder / "a"), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  EXPECT_THAT(message_of([&] { sha256_of_file(folder / "b"); }), HasSubstr((folder / "b").string()));
}

// ---- run folder ---------------------------------------------------------------------------------

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
  manifest.data = {{"/data/a", std::string(64, 'a')}};
  return manifest;
}

TEST_F(Files, RunRoundTripKeepsEveryBit) {
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
                       .seconds = 2};
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
  EXPECT_EQ(run.manifest, expected);
  EXPECT_EQ(run.manifest.start.size(), 20u);
  EXPECT_TRUE(run.manifest.end.has_value());
  EXPECT_FALSE(run.finished());
  EXPECT_EQ(read_file(folder / "run" / run_file::config), expected.config);
}

TEST_F(Files, NotANumberIsWrittenAndReadInBothForms) {
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
  HistogramRow histogram;
  histogram.kind = "weight";
  histogram.loss_scale = nan;
  writer.append(histogram);
  EXPECT_THAT(read_file(folder / "run" / run_file::steps),
              HasSubstr("\n1,nan,1,0,0,nan,0,nan,0000000000000000,0\n"));
  EXPECT_THAT(read_file(folder / "run" / run_file::histograms), HasSubstr("\"loss_scale\":\"NaN\""));
  const RunFolder run = read_run_folder(folder / "run");
  EXPECT_TRUE(std::isnan(run.steps.at(0).loss));
  EXPECT_TRUE(std::isnan(run.evaluations.at(0).accuracy.value()));
  EXPECT_TRUE(std::isnan(read_histograms(folder / "run").at(0).loss_scale));
}

/// Every power of two, its neighbours, and a sweep of significands: what is written reads back to the same
/// bits.
TEST_F(Files, NumbersRoundTrip) {
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

TEST_F(Files, OverflowLinesRoundTrip) {
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

TEST_F(Files, HistogramLinesLeaveOutEmptyBinsAtBothEnds) {
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

TEST_F(Files, KilledRunReadsAsRunningWithItsCompleteRows) {
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

TEST_F(Files, DamageIsReportedWithFileLineAndReason) {
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
              HasSubstr("'before' has bins 127..128, outside -127..127"));
}

TEST_F(Files, FoldersOfSchemaVersion1AreRead) {
  { RunWriter(folder, some_manifest()).finish(ExitState::finished); }
  std::string manifest = read_file(folder / run_file::manifest);
  const std::string version = "\"schema_version\": 2";
  manifest.replace(manifest.find(version), version.size(), "\"schema_version\": 1");
  write_raw(run_file::manifest, manifest);
  write_raw(run_file::evaluations, "step,split,loss,accuracy\n5,test,0.5,0.75\n6,test,0.25,\n");
  const RunFolder run = read_run_folder(folder);
  const EvaluationRow accurate{.step = 5, .split = "test", .loss = 0.5, .accuracy = 0.75};
  const EvaluationRow plain{.step = 6, .split = "test", .loss = 0.25};
  EXPECT_THAT(run.evaluations, ElementsAre(accurate, plain));
  // Every row has the columns of its header; other prefixes of the columns were never written.
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

TEST_F(Files, ManifestErrors) {
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
  EXPECT_EQ(replaced("\"schema_version\": 2", "\"schema_version\": 3"),
            path + ": schema version 3, but this build reads versions 1 to 2");
  EXPECT_EQ(replaced("\"schema_version\": 2", "\"schema_version\": 0"),
            path + ": schema version 0, but this build reads versions 1 to 2");
  EXPECT_EQ(replaced("\"finished\"", "\"done\""),
            path + ": 'state' is 'done'; known are running, finished, stopped, diverged, failed");
  EXPECT_EQ(replaced("\"cpu\"", "\"cpus\""), path + ": the key 'cpu' is missing");
  EXPECT_EQ(replaced("\"threads\": 2", "\"threads\": 2.5"),
            path + ": 'threads' must be a whole number, not 2.5");
  write_raw(run_file::manifest, whole.substr(0, whole.size() / 2));
  EXPECT_THAT(message_of([&] { read_manifest(folder); }), HasSubstr(path + ": not valid JSON"));
}

TEST_F(Files, AFolderWithARunIsNotOverwritten) {
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

TEST_F(Files, UnwritableFolderIsOneClearError) {
  write_raw("file", "x");
  EXPECT_THAT(message_of([&] { RunWriter(folder / "file" / "run", some_manifest()); }),
              AllOf(HasSubstr("cannot create the run folder"), HasSubstr("Not a directory")));
}

}  // namespace
}  // namespace fp16lab
