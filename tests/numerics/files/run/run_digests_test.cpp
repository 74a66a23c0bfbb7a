// A run folder, and a replay in it, with any change at all: the reader reports the change, and no verdict
// takes the run.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <cctype>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "numerics/files/disk/read_file.hpp"
#include "numerics/files/disk/sha256.hpp"
#include "numerics/files/run/replay_file.hpp"
#include "numerics/files/run/run_folder.hpp"
#include "numerics/files/run/run_resume.hpp"
#include "tests/numerics/files/files_fixture.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/older_manifest.hpp"

namespace fp16lab {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing_support::message_of;

class RunDigests : public Files {
 protected:
  static Manifest some_manifest() {
    Manifest manifest;
    manifest.argv = {"fp16lab", "train"};
    manifest.config = "[train]\nseed = 7\n";
    manifest.git_hash = "0123abc";
    manifest.seeds = {{"train", 7}};
    manifest.memory = RunMemory{.parameters = 1, .peak = 2};
    return manifest;
  }
  static void append(RunWriter& writer, std::uint64_t step) {
    writer.append(HistogramRow{.step = step, .tensor = "fc1.weight", .kind = "weight", .loss_scale = 1024});
    if (step == 2) writer.append(OverflowRow{.step = step, .loss_scale = 1024, .parameters = {"fc1.weight"}});
    if (step == 2) writer.append(CulpritRow{.step = step});
    if (step == 2) writer.append(RecipeRow{.step = step, .mean_headroom = 1.0});
    writer.append(StepRow{.step = step, .loss = 1.0 / 3, .state_hash = 100 + step, .seconds = 0.25});
    writer.append(EvaluationRow{.step = step, .split = "test", .loss = 0.5, .accuracy = 0.75});
  }
  void write_run(std::optional<ExitState> end = ExitState::finished) const {
    RunWriter writer(folder, some_manifest());
    for (const std::uint64_t step : {1, 2, 3}) append(writer, step);
    if (end) writer.finish(*end);
  }
  void put(const std::string& name, std::size_t at, char byte) const {
    std::fstream file(folder / name, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(at)).put(byte);
  }
  /// The reader's words on the folder: an error, damage, notes; empty where it is read as a run to judge.
  std::string said() const {
    try {
      const RunFolder run = read_run_folder(folder);
      std::string all;
      for (const auto* lines : {&run.damage, &run.notes})
        for (const std::string& line : *lines) all += line + "\n";
      return all;
    } catch (const std::runtime_error& error) {
      return error.what();
    }
  }
  static std::vector<std::string> files() {
    std::vector<std::string> names{std::string(run_file::manifest), std::string(run_file::config)};
    for (const LineFileName& file : line_files) names.emplace_back(file.name);
    return names;
  }
};

TEST_F(RunDigests, AnyByteThatIsAnotherIsSaidWithItsFile) {
  write_run();
  ASSERT_EQ(said(), "");
  std::size_t bytes = 0;
  for (const std::string& name : files()) {
    const std::string whole = read_file(folder / name);
    ASSERT_FALSE(whole.empty()) << name;
    for (std::size_t i = 0; i < whole.size(); ++i) {
      std::set<char> others{static_cast<char>(whole[i] ^ 1), ' ', '0'};
      if (std::isdigit(static_cast<unsigned char>(whole[i])) != 0)
        others.insert(whole[i] == '9' ? '8' : static_cast<char>(whole[i] + 1));
      others.erase(whole[i]);
      for (const char other : others) {
        put(name, i, other);
        ASSERT_THAT(said(), HasSubstr(name)) << "byte " << i << " of " << name << " became " << other;
        ++bytes;
      }
      put(name, i, whole[i]);
    }
    for (const std::string& changed : {whole + "\n", whole + whole, whole.substr(1), std::string()}) {
      write_raw(name, changed);
      EXPECT_THAT(said(), HasSubstr(name));
    }
    write_raw(name, whole);
    ASSERT_EQ(said(), "");
  }
  EXPECT_GT(bytes, 5000u);
}

TEST_F(RunDigests, WhatIsDamagedTellsWhetherTheRunMayBeJudged) {
  const auto change = [&](std::string_view name, const std::string& from, const std::string& to) {
    std::string text = read_file(folder / name);
    ASSERT_NE(text.find(from), std::string::npos);
    write_raw(name, text.replace(text.find(from), from.size(), to));
  };
  const auto damage = [&] { return read_run_folder(folder).damage; };
  for (const ExitState state : {ExitState::finished, ExitState::diverged, ExitState::stopped}) {
    std::filesystem::remove(folder / run_file::manifest);
    write_run(state);
    EXPECT_THAT(damage(), IsEmpty());
    change(run_file::steps, "1,0.3333", "1,0.3332");
    EXPECT_THAT(damage(), ElementsAre("steps.csv is not what the run wrote (it has another SHA-256)"));
    EXPECT_FALSE(read_run_folder(folder).whole);
    EXPECT_TRUE(read_run_folder(folder).damaged(run_file::steps));
    change(run_file::steps, "1,0.3332", "1,0.3333");
    change(run_file::histograms, "fc1", "fc2");
    change(run_file::config, "seed = 7", "seed = 8");
    EXPECT_THAT(damage(), ElementsAre("config.toml is not what manifest.json says",
                                      "histograms.jsonl is not what the run wrote (it has another SHA-256)"));
    EXPECT_TRUE(read_run_folder(folder).whole) << "how it ended is known";
    std::filesystem::remove(folder / run_file::config);
    EXPECT_THAT(damage(), ::testing::Contains("config.toml is missing"));
    change(run_file::manifest, "\"train\": 7", "\"train\": 8");
    EXPECT_THAT(damage(),
                ::testing::Contains("manifest.json is not what the run wrote (it has another SHA-256)"));
    EXPECT_FALSE(read_run_folder(folder).whole);
    EXPECT_FALSE(read_run_folder(folder).finished());
  }
}

TEST_F(RunDigests, OlderFoldersHaveNoneAndAreReadAsTheyWere) {
  write_run();
  write_raw(run_file::manifest, testing_support::without_digests(read_file(folder / run_file::manifest)));
  EXPECT_EQ(said(), "");
  EXPECT_TRUE(read_run_folder(folder).finished());
  std::string steps = read_file(folder / run_file::steps);
  write_raw(run_file::steps, steps.replace(steps.find("1,0.3333"), 8, "1,0.3332"));
  EXPECT_EQ(said(), "") << "no digest shows the change";
}

TEST_F(RunDigests, TheDigestsAreThoseOfSha256sum) {
  write_run();
  const RunFolder run = read_run_folder(folder);
  for (const LineFileName& file : line_files)
    EXPECT_EQ(run.manifest.rows->sha256.at(std::string(file.name)), sha256_of_file(folder / file.name))
        << file.name;
  const std::string manifest = read_file(folder / run_file::manifest);
  const std::size_t seal = manifest.rfind(",\n  \"sha256\": \"");
  EXPECT_EQ(manifest.substr(seal), ",\n  \"sha256\": \"" + sha256_of(manifest.substr(0, seal)) + "\"\n}\n");
}

TEST_F(RunDigests, AContinuedRunHasThoseOfAllItsRows) {
  write_run(std::nullopt);
  EXPECT_EQ(said(), "") << "a run that is going on is read";
  std::ofstream(folder / run_file::steps, std::ios::app) << "4,torn";
  Manifest manifest = read_manifest(folder);
  EXPECT_TRUE(manifest.rows->sha256.empty());
  manifest.resumptions.push_back({2, utc_now(), "abc"});
  {
    RunWriter writer = RunWriter::resume(folder, manifest, 2, 102);
    for (const std::uint64_t step : {3, 4}) append(writer, step);
    writer.finish(ExitState::stopped);
  }
  EXPECT_EQ(said(), "");
  const RunRows rows = *read_manifest(folder).rows;
  for (const LineFileName& file : line_files)
    EXPECT_EQ(rows.sha256.at(std::string(file.name)), sha256_of_file(folder / file.name)) << file.name;
}

TEST_F(RunDigests, RowsBeforeACheckpointThatWereChangedAreNotContinued) {
  RunRows written;
  {
    RunWriter writer(folder, some_manifest());
    for (const std::uint64_t step : {1, 2}) {
      writer.append(HistogramRow{.step = step});
      writer.append(OverflowRow{.step = step});
      writer.append(CulpritRow{.step = step});
      writer.append(RecipeRow{.step = step, .mean_headroom = 1.0});
      writer.append(StepRow{.step = step, .loss = 0.5, .state_hash = 100 + step});
      if (step == 1) writer.append(EvaluationRow{.step = step, .split = "test", .loss = 0.5});
    }
    written = parse_run_rows(to_json(writer.rows()));  // as a checkpoint has them
    writer.append(StepRow{.step = 3, .state_hash = 103});
  }
  EXPECT_EQ(written.sha256.size(), 6u);
  EXPECT_EQ(find_cut(folder, 2, 102, written).steps.rows, 2u);
  for (const LineFileName& file : line_files) {
    const std::string whole = read_file(folder / file.name);
    std::string changed = whole;
    const std::string from =
        file.name == run_file::steps || file.name == run_file::evaluations ? "0.5," : "1.0";
    ASSERT_NE(changed.find(from), std::string::npos) << file.name << whole;
    changed[changed.find(from) + 2] = '1';
    write_raw(file.name, changed);
    EXPECT_THAT(message_of([&] { find_cut(folder, 2, 102, written); }),
                ::testing::AllOf(HasSubstr((folder / file.name).string() + ": the rows up to step "),
                                 HasSubstr("are not those that had been written before the checkpoint")));
    write_raw(file.name, whole);
  }
  EXPECT_EQ(find_cut(folder, 2, 102, written).rows().steps, 2u);
}

TEST_F(RunDigests, AReplayThatWasChangedSaysSo) {
  ReplayFile replay{
      .run = "r", .total_steps = 3, .observed_steps = 3, .policies = {{.name = "torch", .skips = {1, 2}}}};
  write_replay(folder, replay);
  EXPECT_EQ(read_replay(folder), replay);
  const std::string whole = read_file(folder / replay_name::json);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string changed = whole;
    changed[i] = std::isdigit(static_cast<unsigned char>(whole[i])) != 0 ? (whole[i] == '9' ? '8' : '9')
                                                                         : static_cast<char>(whole[i] ^ 1);
    write_raw(replay_name::json, changed);
    if (changed == whole) continue;
    ReplayFile read;
    try {
      read = read_replay(folder);
    } catch (const std::runtime_error&) {
      continue;
    }
    if (!read.altered) {  // the key of the seal is another: nothing else is
      EXPECT_GE(i, whole.rfind("\"sha256\""));
      EXPECT_EQ(read, replay);
    } else {
      EXPECT_THAT(read.notes,
                  ElementsAre("replay.json is not what fp16lab replay wrote (it has another SHA-256)"));
    }
  }
}

/// Everything that is written is as the umask lets it be.
TEST_F(RunDigests, FilesHonourTheUmask) {
  for (const mode_t mask : {mode_t{077}, mode_t{002}, mode_t{022}}) {
    const mode_t before = umask(mask);
    const std::filesystem::path run = folder / std::to_string(mask);
    {
      RunWriter writer(run, some_manifest());
      append(writer, 2);
      writer.finish(ExitState::finished);
      make_checkpoint_folder(run);
      write_file_atomically(checkpoint_path(run, 2), "x");
      write_replay(run, {});
    }
    umask(before);
    std::size_t seen = 0;
    struct stat found {};
    const auto check = [&](const std::filesystem::path& path, mode_t full) {
      ASSERT_EQ(stat(path.c_str(), &found), 0);
      EXPECT_EQ(found.st_mode & 0777, full & ~mask) << path;
      ++seen;
    };
    check(run, 0777);
    for (const auto& entry : std::filesystem::recursive_directory_iterator(run))
      check(entry.path(), entry.is_directory() ? 0777 : 0666);
    EXPECT_EQ(seen, 14u);
  }
}

}  // namespace
}  // namespace fp16lab
