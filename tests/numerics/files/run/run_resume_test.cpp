// Continuing run folders: names of checkpoints, cuts of line files, and remains of killed writers.
#include "numerics/files/run/run_resume.hpp"
#include "numerics/files/disk/read_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "numerics/files/disk/atomic_file.hpp"
#include "numerics/files/run/record_csv.hpp"
#include "numerics/files/run/record_json.hpp"
#include "numerics/files/run/run_folder.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/temporary_folder.hpp"

namespace fp16lab {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing_support::message_of;

class RunResume : public ::testing::Test {
 protected:
  static void append(RunWriter& writer, std::uint64_t step) {
    StepRow row;
    row.step = step;
    row.state_hash = 100 + step;
    writer.append(row);
    HistogramRow histogram;
    histogram.step = step;
    for (const char* tensor : {"a", "b"}) {
      histogram.tensor = tensor;
      writer.append(histogram);
    }
    EvaluationRow evaluation;
    evaluation.step = step;
    evaluation.split = "test";
    writer.append(evaluation);
    if (step % 3 == 0)
      writer.append(
          OverflowRow{.step = step, .kind = OverflowKind::both, .loss_scale = 2, .parameters = {"a"}});
  }
  /// A run of 12 steps, each with histograms and an evaluation, every third with an overflow; `torn` ends
  /// every line file.
  void write_run(const std::string& torn = "") const {
    {
      RunWriter writer(folder, Manifest{});
      for (std::uint64_t step = 1; step <= 12; ++step) append(writer, step);
    }
    for (const std::string_view name :
         {run_file::steps, run_file::evaluations, run_file::histograms, run_file::overflows})
      std::ofstream(folder / name, std::ios::binary | std::ios::app) << torn;
  }
  RunWriter resume(std::uint64_t step) const {
    Manifest manifest = read_manifest(folder);
    manifest.resumptions.push_back({step, utc_now(), "abc"});
    return RunWriter::resume(folder, manifest, step, 100 + step);
  }
  void touch(const std::string& name) const {
    std::filesystem::create_directories((folder / name).parent_path());
    std::ofstream(folder / name) << "x";
  }

  testing_support::TemporaryFolder temporary;
  const std::filesystem::path folder = temporary.path() / "run";
};

TEST_F(RunResume, AContinuedRunIsTheWholeOne) {
  write_run();
  const auto content = [&](std::string_view name) { return read_file(folder / name); };
  const std::string steps = content(run_file::steps), evaluations = content(run_file::evaluations),
                    histograms = content(run_file::histograms), overflows = content(run_file::overflows);
  for (const std::uint64_t step : {1, 5, 9, 10, 12}) {
    for (const std::string torn : {"", "7,0.5", "{\"step\":"}) {
      remove_run(folder);
      write_run(torn);
      {
        RunWriter writer = resume(step);
        // The checkpoint of a step comes before its evaluation.
        EvaluationRow evaluation;
        evaluation.step = step;
        evaluation.split = "test";
        writer.append(evaluation);
        for (std::uint64_t next = step + 1; next <= 12; ++next) append(writer, next);
      }
      EXPECT_EQ(content(run_file::steps), steps) << step << torn;
      EXPECT_EQ(content(run_file::evaluations), evaluations) << step << torn;
      EXPECT_EQ(content(run_file::histograms), histograms) << step << torn;
      EXPECT_EQ(content(run_file::overflows), overflows) << step << torn;
      const Manifest manifest = read_manifest(folder);
      EXPECT_EQ(manifest.state, ExitState::running);
      ASSERT_EQ(manifest.resumptions.size(), 1u);
      EXPECT_EQ(manifest.resumptions[0].step, step);
      EXPECT_EQ(manifest.resumptions[0].git_hash, "abc");
    }
  }
}

TEST_F(RunResume, FromTheBeginningEverythingIsWrittenAgain) {
  write_run("torn");
  { RunWriter writer = resume(0); }
  const RunFolder run = read_run_folder(folder);
  EXPECT_TRUE(run.steps.empty());
  EXPECT_TRUE(run.evaluations.empty());
  EXPECT_TRUE(run.notes.empty());
  // Also where the kill came right after the manifest.
  for (const std::string_view name :
       {run_file::steps, run_file::evaluations, run_file::histograms, run_file::overflows})
    std::filesystem::remove(folder / name);
  { RunWriter writer = resume(0); }
  EXPECT_TRUE(read_run_folder(folder).steps.empty());
}

TEST_F(RunResume, AFolderFromBeforeOverflowsWereKeptIsReadAndContinued) {
  write_run();
  std::filesystem::remove(folder / run_file::overflows);
  EXPECT_EQ(read_run_folder(folder).steps.size(), 12u);
  EXPECT_THAT(read_overflows(folder), IsEmpty());
  {
    RunWriter writer = resume(5);
    for (std::uint64_t next = 6; next <= 12; ++next) append(writer, next);
  }
  std::vector<std::uint64_t> steps;
  for (const OverflowRow& row : read_overflows(folder)) steps.push_back(row.step);
  EXPECT_THAT(steps, ElementsAre(6, 9, 12));
}

TEST_F(RunResume, WhatDoesNotBelongTogetherIsRefusedAndLeftAlone) {
  write_run();
  const std::string before = read_file(folder / run_file::steps) + read_file(folder / run_file::manifest);
  EXPECT_THAT(message_of([&] { RunWriter::resume(folder, read_manifest(folder), 13, 113); }),
              HasSubstr("steps.csv ends at step 12, before its checkpoint of step 13"));
  EXPECT_THAT(message_of([&] { RunWriter::resume(folder, read_manifest(folder), 5, 106); }),
              HasSubstr("steps.csv:6: step 5 has the state_hash 0000000000000069"));
  EXPECT_EQ(read_file(folder / run_file::steps) + read_file(folder / run_file::manifest), before);

  const auto with = [&](std::string_view name, const std::string& content) {
    std::ofstream(folder / name, std::ios::binary) << content;
    return message_of([&] { RunWriter::resume(folder, read_manifest(folder), 5, 105); });
  };
  const std::string evaluations = read_file(folder / run_file::evaluations);
  EXPECT_THAT(with(run_file::evaluations, "step,loss\n"), HasSubstr("evaluations.csv:1: the header must be"));
  EXPECT_THAT(with(run_file::evaluations, ""), HasSubstr("evaluations.csv:1: the header must be"));
  EXPECT_THAT(with(run_file::evaluations, evaluations.substr(0, evaluations.find('\n') + 1) + "x\n"),
              HasSubstr("evaluations.csv:2: expected STEP,..."));
}

/// Every line before the checkpoint's step, of every file: without it, damaged, and twice.
TEST_F(RunResume, RowsWrittenBeforeTheCheckpointAreAllThereOrTheirFileAndLineAreNamed) {
  write_run("torn");
  // After step 9: the evaluations up to step 8, two histograms a step, overflows of the steps 3, 6 and 9.
  const RunRows written{.steps = 9, .evaluations = 8, .histograms = 18, .overflows = 3};
  EXPECT_EQ(find_cut(folder, 9, 109, written).rows(), written);
  EXPECT_EQ(parse_run_rows(to_json(written)), written);
  struct File {
    std::string_view name;
    std::size_t header, rows;
  };
  for (const auto& [name, header, rows] : {File{run_file::evaluations, 1, 8},
                                           {run_file::histograms, 0, 18},
                                           {run_file::overflows, 0, 3},
                                           {run_file::steps, 1, 9}}) {
    const Lines whole = read_lines(folder / name);
    const auto write = [&](const std::vector<std::string>& lines) {
      std::ofstream file(folder / name, std::ios::binary);
      for (const std::string& line : lines) file << line << '\n';
    };
    const auto error_with = [&](const std::vector<std::string>& lines) {
      write(lines);
      return message_of([&] { find_cut(folder, 9, 109, written); });
    };
    const std::string place = (folder / name).string() + (name == run_file::steps ? "" : ":");
    for (std::size_t row = 0; row < rows; ++row) {
      std::vector<std::string> lines = whole.complete;
      const auto at = static_cast<std::ptrdiff_t>(header + row);
      lines.erase(lines.begin() + at);
      EXPECT_THAT(error_with(lines), HasSubstr(place)) << name << ": row " << row << " is gone";
      lines = whole.complete;
      lines.insert(lines.begin() + at, lines[header + row]);
      EXPECT_THAT(error_with(lines), HasSubstr(place)) << name << ": row " << row << " is there twice";
      lines = whole.complete;
      lines[header + row].resize(lines[header + row].size() / 2);
      EXPECT_THAT(error_with(lines),
                  HasSubstr((folder / name).string() + ":" + std::to_string(header + row + 1) + ": "))
          << name << ": row " << row << " is cut";
    }
    std::filesystem::remove(folder / name);
    EXPECT_THAT(message_of([&] { find_cut(folder, 9, 109, written); }),
                HasSubstr("cannot read " + (folder / name).string() + ": No such file"));
    write(whole.complete);
    EXPECT_EQ(find_cut(folder, 9, 109, written).rows(), written);
  }
}

/// Rows of JSON are read as their readers read them: what is JSON but no such row does not stay.
TEST_F(RunResume, RowsThatContradictThemselvesAreRefusedWithTheirPlace) {
  write_run();
  ExponentHistogram values;
  values.count(bits_of(0.75f));
  HistogramRow row{
      .step = 5, .tensor = "conv1.weight", .kind = "weight", .dtype = DType::f16, .loss_scale = 8};
  row.before = row.after = values;
  const auto replace = [&](std::string_view name, std::size_t at, const std::string& line) {
    std::vector<std::string> lines = read_lines(folder / name).complete;
    lines[at] = line;
    std::ofstream file(folder / name, std::ios::binary);
    for (const std::string& text : lines) file << text << '\n';
  };
  const auto error = [&] { return message_of([&] { find_cut(folder, 9, 109); }); };
  const std::string good = run_json::to_json_line(row);
  replace(run_file::histograms, 8, good);
  EXPECT_EQ(find_cut(folder, 9, 109).histograms.rows, 18u);
  std::string more = good;
  more.insert(more.find("\"counts\":[") + 10, "7,");
  replace(run_file::histograms, 8, more);
  EXPECT_THAT(error(), AllOf(HasSubstr("histograms.jsonl:9: "), HasSubstr("'greatest' is ")));
  replace(run_file::histograms, 8, R"({"step":5,"tensor":1})");
  EXPECT_THAT(error(), HasSubstr("histograms.jsonl:9: 'tensor' must be a string"));
  replace(run_file::histograms, 8, good);
  replace(run_file::overflows, 1, R"({"step":6,"kind":"none"})");
  EXPECT_THAT(error(), HasSubstr("overflows.jsonl:2: "));
}

TEST_F(RunResume, AFileWithoutRowsBeginsAgainWithItsHeader) {
  // After step 1 there is no evaluation yet.
  const RunRows written{.steps = 1, .evaluations = 0, .histograms = 2, .overflows = 0};
  for (const bool missing : {true, false}) {
    remove_run(folder);
    write_run();
    std::ofstream(folder / run_file::evaluations, std::ios::binary).flush();
    if (missing) std::filesystem::remove(folder / run_file::evaluations);
    {
      RunWriter writer = RunWriter::resume(folder, read_manifest(folder), 1, 101, written);
      EvaluationRow row;
      row.step = 1;
      row.split = "test";
      writer.append(row);
    }
    ASSERT_EQ(read_run_folder(folder).evaluations.size(), 1u) << missing;
    EXPECT_EQ(read_run_folder(folder).steps.size(), 1u) << missing;
  }
  // Rows were there: the file is not begun again.
  remove_run(folder);
  write_run();
  const RunRows later{.steps = 5, .evaluations = 4, .histograms = 10, .overflows = 1};
  for (const auto& [name, header] : {std::pair{run_file::evaluations, csv_header<EvaluationRow>()},
                                     {run_file::steps, csv_header<StepRow>()}}) {
    const std::string good = read_file(folder / name);
    std::ofstream(folder / name, std::ios::binary).flush();
    EXPECT_THAT(message_of([&] { find_cut(folder, 5, 105, later); }),
                HasSubstr((folder / name).string() + ":1: the header must be '" + header));
    std::filesystem::remove(folder / name);
    EXPECT_THAT(message_of([&] { find_cut(folder, 5, 105, later); }),
                HasSubstr("cannot read " + (folder / name).string()));
    std::ofstream(folder / name, std::ios::binary) << good;
  }
}

TEST_F(RunResume, GapsAndForeignLinesAreErrorsWithTheirPlace) {
  write_run();
  const std::string all = read_file(folder / run_file::steps);
  const std::string header = all.substr(0, all.find('\n') + 1);
  std::ofstream(folder / run_file::steps, std::ios::binary)
      << header << "1,0,1,0,0,0,0,,0000000000000065,0,\n3,0,1,0,0,0,0,,0000000000000067,0,\n";
  EXPECT_THAT(message_of([&] { find_cut(folder, 3, 0x67); }), HasSubstr("step 3 follows step 1"));
  std::ofstream(folder / run_file::steps, std::ios::binary) << header << "one,0\n";
  EXPECT_THAT(message_of([&] { find_cut(folder, 3, 0x67); }), HasSubstr("steps.csv:2: expected STEP,..."));
}

TEST_F(RunResume, CheckpointsHaveNamesInOrder) {
  EXPECT_EQ(checkpoint_path("r", 100), std::filesystem::path("r/checkpoints/step-000100.safetensors"));
  EXPECT_EQ(checkpoint_path("r", 12345678), std::filesystem::path("r/checkpoints/step-12345678.safetensors"));
  EXPECT_THAT(stored_checkpoints(folder), IsEmpty());
  for (const char* name : {"step-000900.safetensors", "step-1000000.safetensors", "step-000020.safetensors",
                           "step-20.safetensors", "step-.safetensors", "step-000007.safetensors.tmp-1",
                           "step-000008.bin", "best.safetensors", "step-00002x.safetensors"})
    touch(std::string("checkpoints/") + name);
  const auto steps = [&] {
    std::vector<std::uint64_t> all;
    for (const StoredCheckpoint& checkpoint : stored_checkpoints(folder)) all.push_back(checkpoint.step);
    return all;
  };
  EXPECT_THAT(steps(), ElementsAre(20, 900, 1000000));
  remove_old_checkpoints(folder, 0);
  EXPECT_THAT(steps(), ElementsAre(20, 900, 1000000));
  remove_old_checkpoints(folder, 2);
  EXPECT_THAT(steps(), ElementsAre(900, 1000000));
  remove_old_checkpoints(folder, 5);
  EXPECT_THAT(steps(), ElementsAre(900, 1000000));
  EXPECT_TRUE(std::filesystem::exists(folder / "checkpoints/best.safetensors")) << "not ours to delete";
}

TEST_F(RunResume, OnlyOwnTemporaryFilesGo) {
  for (const char* name :
       {"manifest.json.tmp-12", "config.toml.tmp-3", "checkpoints/step-000001.safetensors.tmp-4",
        "manifest.json.tmp-node-7.cluster-12", "config.toml.tmp-host-3-1", "manifest.json.tmp-host-",
        "checkpoints/step-000001.safetensors.tmp-host-4",

        "weights.safetensors.tmp-7", "op_stats.csv.tmp-8", "notes.txt.tmp-5", "manifest.json.tmp-",
        "manifest.json.tmp-5x", "steps.csv", "checkpoints/step-000001.safetensors",
        "checkpoints/other.tmp-6"})
    touch(name);
  remove_temporary_files(folder);
  std::vector<std::string> left;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) left.push_back(std::filesystem::relative(entry.path(), folder).string());
  EXPECT_THAT(left, ::testing::UnorderedElementsAre("notes.txt.tmp-5", "manifest.json.tmp-",
                                                    "manifest.json.tmp-host-", "manifest.json.tmp-5x",
                                                    "steps.csv", "checkpoints/step-000001.safetensors",
                                                    "checkpoints/other.tmp-6"));
}

}  // namespace
}  // namespace fp16lab
