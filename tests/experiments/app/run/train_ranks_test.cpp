// fp16lab train under mpirun: the same run folder on any number of ranks and either MPI, resumed on another
// number, and one line where a rank cannot begin.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <ostream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "engine/amp/policy.hpp"
#include "numerics/files/run/run_folder.hpp"
#include "tests/support/launched_ranks.hpp"
#include "tests/support/temporary_folder.hpp"

namespace fp16lab::experiments {
namespace {

using ::testing::HasSubstr;
using testing_support::Finished;
using testing_support::Mpi;

class RankFolders : public testing::Test {
 protected:
  /// `fp16lab train` into `folder`, the later of two settings counts.
  std::vector<std::string> line(const std::string& folder, const std::string& config,
                                const std::vector<std::string>& settings, bool resume = false) const {
    std::vector<std::string> arguments{"train",   "-c", config,
                                       "--quiet", "-o", (temporary_.path() / folder).string()};
    for (const std::string& setting : settings) arguments.insert(arguments.end(), {"--set", setting});
    if (resume) arguments.emplace_back("--resume");
    return arguments;
  }
  RunFolder run(const std::string& folder) const { return read_run_folder(temporary_.path() / folder); }

  void expect_same(const std::string& folder, const RunFolder& expected) const {
    const RunFolder found = run(folder);
    EXPECT_TRUE(found.damage.empty());
    ASSERT_EQ(found.steps.size(), expected.steps.size()) << folder;
    for (std::size_t i = 0; i < found.steps.size(); ++i) {
      ASSERT_EQ(found.steps[i].state_hash, expected.steps[i].state_hash) << folder << ", step " << i + 1;
      ASSERT_EQ(found.steps[i].loss, expected.steps[i].loss) << folder << ", step " << i + 1;
      ASSERT_EQ(found.steps[i].loss_scale, expected.steps[i].loss_scale) << folder << ", step " << i + 1;
    }
    const auto counts = [](const RunFolder& of) {
      return testing_support::slurp(of.path / run_file::histograms);
    };
    EXPECT_TRUE(counts(found) == counts(expected)) << folder << ": different histograms";
    ASSERT_EQ(found.evaluations.size(), expected.evaluations.size());
    for (std::size_t i = 0; i < found.evaluations.size(); ++i)
      EXPECT_EQ(found.evaluations[i].loss, expected.evaluations[i].loss) << folder;
  }
  static inline const std::string program = FP16LAB_BIN_DIR "/fp16lab";

  testing_support::TemporaryFolder temporary_;
};

class TrainRanks : public RankFolders, public testing::WithParamInterface<Mpi> {
 protected:
  void SetUp() override { FP16LAB_NEEDS_RANKS(GetParam()); }

  /// Twelve steps of a small classifier in four shards.
  Finished train(int ranks, const std::string& folder, const std::vector<std::string>& more = {},
                 bool resume = false, const std::map<std::string, std::string>& environment = {}) {
    std::vector<std::string> settings{"data.name=random-images",   "train.batch_size=16", "amp.level=O1",
                                      "checkpoint.every=4",        "train.steps=12",      "parallel.shards=4",
                                      "observe.histograms_every=4"};
    settings.insert(settings.end(), more.begin(), more.end());
    return testing_support::run_ranks(GetParam(), ranks, program,
                                      line(folder, "classifier", settings, resume), temporary_.path(),
                                      environment);
  }
  int most_ranks() const { return GetParam() == Mpi::open_mpi ? 4 : 2; }
};
INSTANTIATE_TEST_SUITE_P(Of, TrainRanks, testing::Values(Mpi::open_mpi, Mpi::mpich), [](const auto& test) {
  return std::string(test.param == Mpi::open_mpi ? "openmpi" : "mpich");
});

/// This host has two pretended devices.
TEST_P(TrainRanks, RanksOfAHostTakeItsDevicesInTurn) {
  const std::map<std::string, std::string> devices{{"FP16LAB_CUDA_PLUGIN", FP16LAB_PRETENDED_PLUGIN},
                                                   {"FP16LAB_PRETENDED_DEVICES", "2"}};
  const auto step = [&](int ranks, const std::string& folder, std::vector<std::string> more) {
    more.insert(more.end(), {"data.name=random-images", "train.batch_size=2", "amp.level=O1", "train.steps=1",
                             "parallel.shards=2"});
    std::vector<std::string> arguments = line(folder, "classifier", more);
    std::erase(arguments, "--quiet");
    return testing_support::run_ranks(GetParam(), ranks, program, arguments, temporary_.path(), devices);
  };
  const Finished two = step(2, "two", {"backend.device=cuda", "backend.gemm=mma", "backend.ordinal=1"});
  ASSERT_EQ(two.exit_code, 0) << two.err;
  EXPECT_THAT(two.err, HasSubstr("ranks 0 to 1 compute on devices 1, 0 of their hosts"));
  ASSERT_EQ(step(1, "one", {}).exit_code, 0);
  EXPECT_EQ(run("two").steps.back().state_hash, run("one").steps.back().state_hash);
}

TEST_P(TrainRanks, AnyNumberWritesTheFolderOfOne) {
  ASSERT_EQ(train(1, "one").exit_code, 0);
  const RunFolder one = run("one");
  EXPECT_FALSE(one.manifest.ranks.has_value());
  for (int ranks = 2; ranks <= most_ranks(); ++ranks) {
    const std::string folder = std::to_string(ranks);
    const Finished finished = train(ranks, folder);
    ASSERT_EQ(finished.exit_code, 0) << finished.err;
    expect_same(folder, one);
    ASSERT_TRUE(run(folder).manifest.ranks.has_value());
    EXPECT_EQ(run(folder).manifest.ranks->hosts.size(), static_cast<std::size_t>(ranks));
    EXPECT_THAT(run(folder).manifest.ranks->library,
                HasSubstr(GetParam() == Mpi::open_mpi ? "Open MPI" : "MPICH"));
  }
}

TEST_P(TrainRanks, AnotherNumberResumesARun) {
  ASSERT_EQ(train(2, "whole").exit_code, 0);
  ASSERT_EQ(train(most_ranks(), "parts", {"train.steps=4"}).exit_code, 0);
  ASSERT_EQ(train(1, "parts", {"train.steps=8"}, true).exit_code, 0);
  const Finished last = train(2, "parts", {"parallel.time_limit=60"}, true);
  ASSERT_EQ(last.exit_code, 0) << last.err;
  const RunFolder whole = run("whole"), parts = run("parts");
  ASSERT_EQ(parts.steps.size(), whole.steps.size());
  for (std::size_t i = 0; i < parts.steps.size(); ++i)
    EXPECT_EQ(parts.steps[i].state_hash, whole.steps[i].state_hash) << "step " << i + 1;
}

TEST_P(TrainRanks, WhatARankLacksIsOneLine) {
  ASSERT_EQ(train(2, "many", {"train.steps=1"}).exit_code, 0);
  const Finished again = train(2, "many");
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_THAT(again.err, HasSubstr("fp16lab: error: --out: "));
  EXPECT_THAT(again.err, HasSubstr("holds a finished run"));
  EXPECT_EQ(again.err.find("fp16lab: error:"), again.err.rfind("fp16lab: error:"));
}

TEST_P(TrainRanks, MoreRanksThanShardsAreRefused) {
  if (GetParam() == Mpi::mpich) return;  // needs a core for each rank
  const Finished finished = train(5, "five");
  EXPECT_EQ(finished.exit_code, 2);
  EXPECT_THAT(finished.err,
              HasSubstr("fp16lab: error: parallel.shards = 4 on 5 ranks: a rank needs a shard; expected "
                        "parallel.shards = 8 or more, or fewer ranks\n"));
}

TEST_P(TrainRanks, EndThatIsNoSuccessIsTheFirstRanksToTell) {
  const std::vector<std::string> overflowing{"scaler.policy=fixed", "scaler.initial_scale=2^100",
                                             "train.skip_limit=3"};
  for (const bool again : {false, true}) {
    const Finished finished = train(2, "diverges", overflowing, again);
    EXPECT_EQ(finished.exit_code, 4) << finished.err;
    EXPECT_THAT(finished.out, HasSubstr("\"state\":\"diverged\"")) << finished.err;
  }
}

TEST_P(TrainRanks, DataThatAnotherRankLacksAreOneLine) {
  const std::filesystem::path text = temporary_.path() / "words.txt", none = temporary_.path() / "none.txt";
  std::ofstream(text) << testing_support::slurp(FP16LAB_SOURCE_DIR "/README.md");
  const std::vector<std::string> same{"data.name=text", "parallel.shards=2"};
  const auto of_file = [&](const std::filesystem::path& file) {
    return line("lacks", "charlm_lstm", {same[0], same[1], "data.path=" + file.string()});
  };
  std::vector<std::string> arguments = of_file(text);
  arguments.insert(arguments.end(), {":", "-np", "1", program});
  for (const std::string& argument : of_file(none)) arguments.push_back(argument);
  const Finished finished = testing_support::run_ranks(GetParam(), 1, program, arguments, temporary_.path());
  EXPECT_NE(finished.exit_code, 0);
  EXPECT_THAT(finished.err, HasSubstr("fp16lab: error: rank 1 on "));
  EXPECT_THAT(finished.err, HasSubstr("there is no file " + none.string()));
  EXPECT_EQ(finished.err.find("fp16lab: error:"), finished.err.rfind("fp16lab: error:"));
  EXPECT_FALSE(is_run_folder(temporary_.path() / "lacks"));
}

TEST_P(TrainRanks, RankWithOtherBitsLeavesItsState) {
  // One message of the gradients that go back from rank 1 to the last rank has another bit.
  const int ranks = most_ranks();
  const Finished finished =
      train(ranks, "differ", {}, false,
            testing_support::misbehaving(GetParam(), "flip 1 " + std::to_string(2 * (ranks - 1))));
  EXPECT_NE(finished.exit_code, 0);
  EXPECT_THAT(finished.err, HasSubstr("fp16lab: error: step 1: "));
  EXPECT_THAT(finished.err,
              HasSubstr("of " + std::to_string(ranks) + " ranks have the same state, but not rank"));
  EXPECT_EQ(finished.err.find("fp16lab: error:"), finished.err.rfind("fp16lab: error:"));
  const std::filesystem::path states = temporary_.path() / "differ" / run_file::ranks_differ;
  int kept = 0;
  for (const auto& entry : std::filesystem::directory_iterator(states)) {
    EXPECT_THAT(entry.path().filename().string(), testing::MatchesRegex("step-1-rank-[0-9].safetensors"));
    ++kept;
  }
  EXPECT_EQ(kept, 2);
  EXPECT_EQ(run("differ").manifest.state, ExitState::failed);
  EXPECT_THAT(run("differ").manifest.message, HasSubstr(states.string()));

  ASSERT_EQ(train(1, "differ", {}, true).exit_code, 0);  // goes on as if nothing had been
  ASSERT_EQ(train(1, "one").exit_code, 0);
  expect_same("differ", run("one"));
}

TEST_P(TrainRanks, FullDiskOfTheFirstRankEndsAll) {
  if (GetParam() == Mpi::mpich) return;  // its shared memory would meet the limit first
  // No file of the first rank gets larger than 16 MiB; a checkpoint would.
  std::vector<std::string> arguments{
      "-c", "trap '' XFSZ; test $OMPI_COMM_WORLD_RANK = 0 && ulimit -f 32768; exec \"$0\" \"$@\"", program};
  for (const std::string& argument : line("full", "paddle_linear9",
                                          {"model.scale_down=8", "train.batch_size=16", "train.steps=3",
                                           "parallel.shards=2", "checkpoint.every=1"}))
    arguments.push_back(argument);
  const Finished finished =
      testing_support::run_ranks(GetParam(), 2, "/bin/sh", arguments, temporary_.path());
  EXPECT_NE(finished.exit_code, 0);
  EXPECT_THAT(finished.err,
              testing::ContainsRegex("fp16lab: error: rank 0 on [^,]*, [^:]*: [^\n]*File too large"));
  EXPECT_EQ(run("full").manifest.state, ExitState::failed);
}

// ---- the promise's table

/// A training of few steps.
struct TableRow {
  std::string name, config;
  std::vector<std::string> settings;
};
void PrintTo(const TableRow& row, std::ostream* out) { *out << row.name; }

const bool whole_table = std::getenv("FP16LAB_RANKS_TABLE") != nullptr;

std::vector<TableRow> table_rows() {
  const std::vector<std::string> images{"data.name=random-images"};
  const std::vector<std::string> text{"data.name=text", "data.path=" FP16LAB_SOURCE_DIR "/README.md",
                                      "data.subset=0", "data.test_subset=0"};
  const std::vector<std::string> few{"data.subset=200", "data.test_subset=40"};
  const auto plus = [](std::vector<std::string> all, const std::vector<std::string>& more) {
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  std::vector<TableRow> rows{
      {"classifier", "classifier", plus(images, {"amp.level=O1"})},
      {"lenet5", "lenet5", plus(images, {"amp.level=O1"})},
      {"resnet20", "resnet20",
       plus(images, {"amp.level=O1", "schedule.warmup_steps=1", "train.batch_size=8"})},
      {"resnet20_sync_bn", "resnet20",
       plus(images, {"amp.level=O1", "schedule.warmup_steps=1", "train.batch_size=8",
                     "parallel.sync_batch_norm=true"})},
      {"lstm_dropout", "lstm_dropout.toml", plus(text, {"amp.level=O1"})},
      {"gpt", "charlm_transformer", plus(text, {"amp.level=O1", "schedule.warmup_steps=1"})},
      {"clipping", "recipe_clipping", plus(images, {"amp.dialect=apex", "amp.level=O2"})},
      {"accumulation", "recipe_accumulation", plus(images, {"train.accumulate=2"})},
      {"two_models_per_loss", "recipe_two_models", plus(images, {"scaler.per_loss=true"})},
      {"gan", "recipe_gan", few},
      {"gradient_penalty", "recipe_gradient_penalty", images},
      {"rescue", "classifier",
       plus(images,
            {"amp.level=O1", "scaler.policy=torch", "scaler.initial_scale=2^30", "scaler.rescue=20"})},
      {"wire_f16_ring", "classifier",
       plus(images, {"amp.level=O1", "parallel.wire=f16", "parallel.order=nccl-ring"})},
  };
  for (const engine::amp::PolicyDescription& policy : engine::amp::scale_policies()) {
    const std::string name(policy.name);
    if (policy.per_layer || name == "groups" || name == "layerwise") continue;  // refused with shards
    if (!whole_table && name != "torch" && name != "megatron" && name != "lost-mass") continue;
    TableRow row{"policy_" + name, "classifier",
                 plus(images, {"amp.dialect=apex", "amp.level=O2", "scaler.policy=" + name})};
    // As high as it may be, so that a scale that moves overflows at first.
    if (policy.find("initial_scale") != nullptr && !policy.constant) {
      const engine::amp::PolicyParameter* const most = policy.find("max_scale");
      row.settings.push_back(fmt::format("scaler.initial_scale={}", most == nullptr || most->fallback == 0
                                                                        ? 0x1p32
                                                                        : std::min(0x1p32, most->fallback)));
    }
    std::ranges::replace_if(
        row.name, [](char c) { return c == '-' || c == '.'; }, '_');
    rows.push_back(std::move(row));
  }
  return rows;
}

/// Some rows on three ranks; with FP16LAB_RANKS_TABLE set (target full_ranks) all on all numbers of them,
/// over both MPIs, and with a rank killed.
class RanksTable : public RankFolders, public testing::WithParamInterface<TableRow> {
 protected:
  void SetUp() override {
    FP16LAB_NEEDS_RANKS(Mpi::open_mpi);
    std::string text = testing_support::slurp(FP16LAB_SOURCE_DIR "/experiments/configs/charlm_lstm.toml");
    for (std::size_t at = text.find("p = 0.0"); at != std::string::npos; at = text.find("p = 0.0"))
      text.replace(at, 7, "p = 0.25");
    std::ofstream(temporary_.path() / "lstm_dropout.toml") << text;
  }
  std::vector<std::string> line_of(const std::string& folder, bool resume = false) const {
    std::vector<std::string> settings{"train.batch_size=16",        "train.steps=9",
                                      "train.evaluate_every=0",     "checkpoint.every=2",
                                      "observe.histograms_every=4", "parallel.time_limit=250"};
    const TableRow& row = GetParam();
    settings.insert(settings.end(), row.settings.begin(), row.settings.end());
    settings.emplace_back("parallel.shards=8");
    const bool written = row.config.ends_with(".toml");
    return line(folder, written ? (temporary_.path() / row.config).string() : row.config, settings, resume);
  }
  Finished train(Mpi mpi, int ranks, const std::string& folder, bool resume = false) const {
    return testing_support::run_ranks(mpi, ranks, program, line_of(folder, resume), temporary_.path());
  }

  /// The processes of `folder`'s ranks.
  std::vector<pid_t> ranks_of(const std::string& folder) const {
    std::vector<pid_t> all;
    const std::string out = (temporary_.path() / folder).string();
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const std::string name = entry.path().filename().string();
      if (name.find_first_not_of("0123456789") != std::string::npos) continue;
      const std::string arguments = testing_support::slurp(entry.path() / "cmdline");
      if (arguments.starts_with(program + '\0') && arguments.find(out + '\0') != std::string::npos)
        all.push_back(static_cast<pid_t>(std::stol(name)));
    }
    return all;
  }
  /// Begins on `ranks` ranks and kills one of them after some step. False: it came to its end before.
  bool begin_and_kill(int ranks, const std::string& folder, std::mt19937& random) const {
    testing_support::Spawned job =
        testing_support::start_ranks(Mpi::open_mpi, ranks, program, line_of(folder), temporary_.path());
    const std::filesystem::path rows = temporary_.path() / folder / run_file::steps;
    const auto wanted = static_cast<std::ptrdiff_t>(2 + random() % 6);
    while (job.running()) {
      const std::string text = testing_support::slurp(rows);
      if (std::ranges::count(text, '\n') >= wanted) {
        const std::vector<pid_t> all = ranks_of(folder);
        if (all.size() == static_cast<std::size_t>(ranks)) {
          kill(all[random() % all.size()], SIGKILL);
          return job.wait().exit_code != 0;
        }
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }
};
INSTANTIATE_TEST_SUITE_P(Of, RanksTable, testing::ValuesIn(table_rows()),
                         [](const auto& row) { return row.param.name; });

TEST_P(RanksTable, HasTheBitsOfOneProcess) {
  const Finished alone = testing_support::run_program(program, line_of("one"), temporary_.path());
  ASSERT_EQ(alone.exit_code, 0) << alone.err;
  const RunFolder one = run("one");
  ASSERT_EQ(one.steps.size(), 9U);
  const std::vector<int> counts = whole_table ? std::vector<int>{2, 3, 4, 5, 8} : std::vector<int>{3};
  for (const int ranks : counts) {
    const std::string folder = std::to_string(ranks);
    const Finished finished = train(Mpi::open_mpi, ranks, folder);
    ASSERT_EQ(finished.exit_code, 0) << finished.err;
    expect_same(folder, one);
  }
  if (!whole_table) return;
  if (!testing_support::launcher_of(Mpi::mpich).empty()) {
    const Finished finished = train(Mpi::mpich, 2, "mpich");
    ASSERT_EQ(finished.exit_code, 0) << finished.err;
    expect_same("mpich", one);
  }
  std::mt19937 random(static_cast<unsigned>(std::hash<std::string>{}(GetParam().name)));
  const std::vector<int> all{1, 2, 3, 4, 5, 8};
  bool killed = false;
  for (int attempt = 0; attempt < 10 && !killed; ++attempt) {
    const std::string folder = "killed-" + std::to_string(attempt);
    killed = begin_and_kill(all[1 + random() % 5], folder, random);
    if (!killed) continue;
    const Finished finished = train(Mpi::open_mpi, all[random() % 6], folder, true);
    ASSERT_EQ(finished.exit_code, 0) << finished.err;
    expect_same(folder, one);
  }
  EXPECT_TRUE(killed) << "no rank could be killed before the run came to its end";
}

}  // namespace
}  // namespace fp16lab::experiments
