// fp16lab train through the real binary: the run folder, reproducibility, interruption, SIGKILL.
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>

#include "tests/experiments/app/small_runs.hpp"

namespace fp16lab::experiments {
namespace {

using nlohmann::json;

class Train : public SmallRuns {
 protected:
  json manifest(const std::string& run) const { return json::parse(read(run + "/manifest.json")); }
  std::size_t rows(const std::string& run) const {
    const std::string text = read(run + "/steps.csv");
    return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
  }
  /// Starts a long run and waits until it has written some steps.
  std::unique_ptr<testing_support::Spawned> start_long_run(const std::string& run) {
    auto child = std::make_unique<testing_support::Spawned>(
        fp16lab_binary,
        std::vector<std::string>{"train", "-c", write_config("1000000").string(), "-o", path(run),
                                 "--threads", "1"},
        folder_);
    const auto start = std::chrono::steady_clock::now();
    while (rows(run) < 5 && child->running() &&
           std::chrono::steady_clock::now() - start < std::chrono::seconds(60))
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_GE(rows(run), 5u);
    return child;
  }
};

TEST_F(Train, WritesACompleteRunFolder) {
  const auto result = train("run", {"--seed", "3"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json summary = json::parse(result.out);
  EXPECT_EQ(summary.at("state"), "finished");
  EXPECT_EQ(summary.at("steps"), 40);
  EXPECT_NE(result.err.find("chosen by data.path"), std::string::npos) << "says which data was taken";

  const json m = manifest("run");
  EXPECT_EQ(m.dump().find("running"), std::string::npos);
  EXPECT_NE(m.dump().find("finished"), std::string::npos);
  EXPECT_NE(m.dump().find("train-images-idx3-ubyte.gz"), std::string::npos);
  EXPECT_EQ(column("run/steps.csv", "step").size(), 40u);
  EXPECT_EQ(column("run/steps.csv", "step").back(), "40");
  EXPECT_EQ(column("run/evaluations.csv", "step"), std::vector<std::string>{"40"});
  EXPECT_EQ(summary.at("state_hash"), column("run/steps.csv", "state_hash").back());
  // Weights, gradients and momentum of a 784-16-10 net in FP32, and not a hundred times as much.
  constexpr std::size_t state_bytes = 3 * sizeof(float) * (784 * 16 + 16 + 16 * 10 + 10);
  EXPECT_GT(summary.at("peak_tensor_bytes"), state_bytes);
  EXPECT_LT(summary.at("peak_tensor_bytes"), 100 * state_bytes);
  // Steps 1, 20 and 40 have histograms; the classifier learns something.
  std::istringstream lines(read("run/histograms.jsonl"));
  std::set<int> observed;
  for (std::string line; std::getline(lines, line);) observed.insert(json::parse(line).at("step").get<int>());
  EXPECT_EQ(observed, (std::set<int>{1, 20, 40}));
  EXPECT_LT(std::stod(column("run/steps.csv", "loss").back()),
            std::stod(column("run/steps.csv", "loss").front()));
  EXPECT_NE(column("run/steps.csv", "underflow_rate").front(), "");

  // The resolved configuration makes the same run again.
  const auto again = fp16lab({"train", "-c", path("run/config.toml"), "-o", path("again"), "--quiet"});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(again.err, "") << "--quiet";
  EXPECT_EQ(read("run/config.toml"), read("again/config.toml"));
  EXPECT_EQ(column("run/steps.csv", "state_hash"), column("again/steps.csv", "state_hash"));
}

TEST_F(Train, SameBitsForAnyNumberOfThreadsAndOtherBitsForAnotherSeed) {
  for (const char* level : {"O0", "O1"}) {
    const std::string set = std::string("amp.level=") + level;
    ASSERT_EQ(train("one", {"--threads", "1", "--set", set, "--force"}).exit_code, 0);
    ASSERT_EQ(train("two", {"--threads", "2", "--set", set, "--force"}).exit_code, 0);
    ASSERT_EQ(train("repeated", {"--threads", "2", "--set", set, "--force"}).exit_code, 0);
    ASSERT_EQ(train("other", {"--seed", "2", "--set", set, "--force"}).exit_code, 0);
    const auto hashes = column("one/steps.csv", "state_hash");
    EXPECT_EQ(hashes.size(), 40u);
    EXPECT_EQ(std::set<std::string>(hashes.begin(), hashes.end()).size(), 40u)
        << "the state moves at every step";
    EXPECT_EQ(column("two/steps.csv", "state_hash"), hashes);
    EXPECT_EQ(column("repeated/steps.csv", "state_hash"), hashes);
    EXPECT_NE(column("other/steps.csv", "state_hash").front(), hashes.front());
  }
}

TEST_F(Train, ATwinPartsFromItsRunInTheFirstStepAndIsARunLikeAnyOther) {
  const std::vector<std::string> fp32{"--set", "amp.level=O0", "--seed", "2"};
  const auto twin = [&](const std::string& run, std::vector<std::string> more) {
    more.insert(more.end(), fp32.begin(), fp32.end());
    more.insert(more.end(), {"--set", "train.perturb_ulps=1"});
    ASSERT_EQ(train(run, more).exit_code, 0);
  };
  ASSERT_EQ(train("run", fp32).exit_code, 0);
  twin("one", {"--threads", "1"});
  twin("two", {"--threads", "2"});
  const auto hashes = column("run/steps.csv", "state_hash"), moved = column("one/steps.csv", "state_hash");
  EXPECT_EQ(moved.size(), hashes.size());
  for (std::size_t i = 0; i < std::min(hashes.size(), moved.size()); ++i) EXPECT_NE(moved[i], hashes[i]) << i;
  EXPECT_EQ(column("two/steps.csv", "state_hash"), moved);
  // One ulp is nothing yet: the first loss agrees as far as FP32 sums of 20 losses do.
  const double loss = std::stod(column("run/steps.csv", "loss").front());
  EXPECT_NEAR(std::stod(column("one/steps.csv", "loss").front()), loss, 1e-5 * loss);

  EXPECT_NE(read("one/config.toml").find("\nperturb_ulps = 1\n"), std::string::npos);
  EXPECT_NE(read("run/config.toml").find("\nperturb_ulps = 0\n"), std::string::npos);
  EXPECT_EQ(manifest("one").at("config"), read("one/config.toml"));
  const auto again = fp16lab({"train", "-c", path("one/config.toml"), "-o", path("again"), "--quiet"});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(column("again/steps.csv", "state_hash"), moved);
}

TEST_F(Train, WatchingGradientsChangesNoBit) {
  ASSERT_EQ(train("watched", {"--set", "observe.histograms_every=1"}).exit_code, 0);
  ASSERT_EQ(train("unwatched", {"--set", "observe.histograms_every=0"}).exit_code, 0);
  EXPECT_EQ(column("watched/steps.csv", "state_hash"), column("unwatched/steps.csv", "state_hash"));
  EXPECT_EQ(read("unwatched/histograms.jsonl"), "");
}

TEST_F(Train, AFinishedRunIsNotOverwritten) {
  ASSERT_EQ(train("run").exit_code, 0);
  const std::string before = read("run/manifest.json");
  expect_one_line_error(train("run", {"--quiet"}), 2, "holds a finished run");
  // Not even with --force, if the new run cannot begin.
  expect_one_line_error(train("run", {"--force", "--quiet", "--set", "data.path=/nonexistent"}), 1,
                        "/nonexistent");
  EXPECT_EQ(read("run/manifest.json"), before);
  EXPECT_EQ(train("run", {"--force", "--set", "train.steps=5"}).exit_code, 0);
  EXPECT_EQ(column("run/steps.csv", "step").size(), 5u);
}

TEST_F(Train, DivergenceHasItsOwnExitCode) {
  const auto result =
      train("run", {"--set", "optimizer.lr=1e30", "--set", "amp.level=O0", "--set", "train.steps=200"});
  EXPECT_EQ(result.exit_code, 4) << result.err;
  EXPECT_NE(result.err.find("diverged"), std::string::npos);
  EXPECT_NE(manifest("run").dump().find("diverged"), std::string::npos);
  EXPECT_LT(column("run/steps.csv", "step").size(), 200u);
}

TEST_F(Train, CtrlCFinishesTheStepAndSaysSo) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const std::string run = "run" + std::to_string(signal);
    const auto child = start_long_run(run);
    child->signal(signal);
    const auto result = child->wait();
    EXPECT_EQ(result.exit_code, 130) << result.err;
    EXPECT_EQ(json::parse(result.out).at("state"), "stopped");
    EXPECT_NE(manifest(run).dump().find("stopped"), std::string::npos);
    EXPECT_EQ(read(run + "/steps.csv").back(), '\n') << "the last row is whole";
  }
}

TEST_F(Train, ARunKilledInTheMiddleLeavesAReadableFolderThatIsNotFinished) {
  const auto child = start_long_run("run");
  child->signal(SIGKILL);
  EXPECT_EQ(child->wait().exit_code, 128 + SIGKILL);
  EXPECT_NE(manifest("run").dump().find("running"), std::string::npos) << "not passed off as finished";
  EXPECT_GE(column("run/steps.csv", "step").size(), 4u);
  EXPECT_EQ(fp16lab({"hist", path("run")}).exit_code, 0) << "what there is can be read";
  // And the folder can be used again without --force.
  EXPECT_EQ(train("run", {"--quiet"}).exit_code, 0);
  EXPECT_EQ(column("run/steps.csv", "step").size(), 40u);
}

TEST_F(Train, TwoProcessesCannotWriteOneRun) {
  const auto child = start_long_run("run");
  expect_one_line_error(train("run", {"--force", "--quiet"}), 2, "another process");
  EXPECT_TRUE(child->running());
}

TEST_F(Train, HistJudgesAtAnyScale) {
  ASSERT_EQ(train("run", {"--set", "scaler.policy=fixed", "--set", "scaler.initial_scale=8"}).exit_code, 0);
  const auto as_recorded = fp16lab({"hist", path("run"), "--json"});
  ASSERT_EQ(as_recorded.exit_code, 0) << as_recorded.err;
  const json at_eight = json::parse(as_recorded.out);
  EXPECT_EQ(at_eight.at("scale"), 8.0);
  EXPECT_NE(as_recorded.err.find("step 40"), std::string::npos) << "the last recorded step";
  const auto at = [&](const std::string& scale) {
    const auto result = fp16lab({"hist", path("run"), "--scale", scale, "--step", "20", "--json"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return json::parse(result.out).at("merged");
  };
  EXPECT_EQ(at("2^3"), at("8"));
  // A larger scale never loses more.
  EXPECT_GE(at("2^-10").at("lost").at(0), at("1").at("lost").at(0));
  EXPECT_GE(at("1").at("lost").at(0), at("2^10").at("lost").at(0));
  EXPECT_EQ(at("1").at("total"), at("2^10").at("total"));
  EXPECT_NE(fp16lab({"hist", path("run")}).out.find("fc1.weight"), std::string::npos);
  expect_one_line_error(fp16lab({"hist", path("run"), "--step", "7"}), 2, "1, 20, 40");
  expect_one_line_error(fp16lab({"hist", path("run"), "--scale", "-1"}), 2, "--scale");
  expect_one_line_error(fp16lab({"hist", path("run"), "--scale", "big"}), 2, "--scale");
}

}  // namespace
}  // namespace fp16lab::experiments
