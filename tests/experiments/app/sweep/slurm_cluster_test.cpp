// fp16lab sweep --engine slurm on a real Slurm of three nodes on this machine: training processes killed,
// elements told to end, a node that crashes. `cmake --build build --target sweep_cluster` (label cluster; not
// in a plain ctest).
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "experiments/app/run/folder_claim.hpp"
#include "tests/experiments/app/sweep/slurm_cluster.hpp"
#include "tests/experiments/app/sweep/sweep_runs.hpp"

namespace fp16lab::experiments {
namespace {

using nlohmann::json;
using testing_support::SlurmCluster;

class SweepCluster : public SweepRuns {
 protected:
  void SetUp() override {
    if (const std::string missing = SlurmCluster::missing(); !missing.empty()) GTEST_SKIP() << missing;
  }
  void start(const std::string& more) {
    cluster_.emplace(folder_ / "cluster", more);
    ASSERT_TRUE(cluster_->is_up()) << cluster_->controller_log();
  }
  /// A sweep of two variants and so many seeds.
  void write_seeds(int seeds, const std::string& steps) {
    write_sweep(steps);
    std::string list = "1";
    for (int seed = 2; seed <= seeds; ++seed) list += ", " + std::to_string(seed);
    std::string text = read("sweep.toml");
    text.replace(text.find("1, 2"), 4, list);
    testing_support::write_bytes(path("sweep.toml"), text);
    for (const char* const variant : {"fp32", "fixed-2p3"})
      for (int seed = 1; seed <= seeds; ++seed)
        runs_.push_back(std::string("small-") + variant + "-seed" + std::to_string(seed));
  }
  testing_support::Finished submit(std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {"sweep", "-c", path("sweep.toml"), "-o", path("out"), "--engine", "slurm"});
    return testing_support::run_program(fp16lab_binary, more, folder_, cluster_->environment());
  }
  struct Element {
    std::string job, state, since, node;
  };
  std::vector<Element> queue() const {
    std::istringstream lines(cluster_->ask({"squeue", "--noheader", "--array", "--format=%A %T %M %N"}));
    std::vector<Element> elements;
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      Element element;
      words >> element.job >> element.state >> element.since >> element.node;
      elements.push_back(element);
    }
    return elements;
  }
  /// Until the queue is empty; jobs that Slurm holds for a while after a crash are let go at once.
  bool drained() const {
    for (int i = 0; i < 600; ++i) {
      const auto elements = queue();
      if (elements.empty()) return true;
      for (const Element& element : elements)
        if (element.state == "PENDING")
          cluster_->ask({"scontrol", "update", "jobid=" + element.job, "StartTime=now"});
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
    }
    return false;
  }
  int restarts(const std::string& job) const {
    const std::string text = cluster_->ask({"scontrol", "show", "job", job});
    const std::size_t at = text.find("Restarts=");
    return at == std::string::npos ? -1 : std::stoi(text.substr(at + 9));
  }
  bool any_running() const {
    const auto elements = queue();
    return std::any_of(elements.begin(), elements.end(),
                       [](const Element& e) { return e.state == "RUNNING"; });
  }
  json manifest(const std::string& run) const { return json::parse(written(run)); }

  std::optional<SlurmCluster> cluster_;
  std::vector<std::string> runs_;
};

TEST_F(SweepCluster, SixtyRunsAreCompleteOnceWhateverWasKilled) {
  write_seeds(30, "8000");
  ASSERT_EQ(fp16lab({"sweep", "-c", path("sweep.toml"), "-o", path("whole"), "--jobs", "2", "--threads", "2",
                     "--quiet"})
                .exit_code,
            0);
  start("");  // without RequeueExit: the script itself asks for its requeueing
  const auto submitted = submit({"--runs-per-element", "4", "--set", "checkpoint.every=200"});
  ASSERT_EQ(submitted.exit_code, 0) << submitted.err;
  EXPECT_NE(submitted.err.find("sweep: 60 runs in Slurm's job "), std::string::npos) << submitted.err;
  const std::string again = submit({"--set", "checkpoint.every=200"}).err;
  EXPECT_NE(again.find("is still in the queue"), std::string::npos) << again;

  // Training processes die.
  std::set<std::int64_t> killed;
  ASSERT_TRUE(wait_for([&] {
    for (const std::string& run : runs_) {
      const auto owner = claimant_of(path("out/" + run));
      if (!owner || rows(run) < 300 || killed.size() == 3 || !killed.insert(owner->process).second) continue;
      kill(static_cast<pid_t>(owner->process), SIGKILL);
    }
    return killed.size() == 3;
  }));
  // Elements are told to end, each a few seconds after its start.
  std::set<std::string> told;
  ASSERT_TRUE(wait_for([&] {
    for (const Element& element : queue()) {
      const bool young = element.state == "RUNNING" && element.since >= "0:02" && element.since <= "0:04";
      if (!young || !told.insert(element.job).second) continue;
      // scancel sends it at once, then tries for a long time again, because a part of the array has ended
      // already.
      cluster_->ask({"scancel", "--batch", "--signal=TERM", element.job}, 1);
      break;
    }
    return told.size() == 3;
  }));
  // A node's power goes, and comes back.
  ASSERT_TRUE(wait_for([&] {
    const auto elements = queue();
    return std::any_of(elements.begin(), elements.end(),
                       [](const Element& e) { return e.state == "RUNNING" && e.node == "s2"; });
  }));
  cluster_->kill_node("s2");
  ASSERT_TRUE(wait_for([&] {
    return cluster_->ask({"sinfo", "--noheader", "--nodes=s2", "--format=%t"}).starts_with("down");
  }));
  cluster_->start_node("s2");
  ASSERT_TRUE(drained()) << cluster_->controller_log();
  for (const std::string& job : told) EXPECT_GE(restarts(job), 1) << job;

  const auto collected = fp16lab({"sweep", "--collect", "-o", path("out")});
  EXPECT_NE(collected.err.find("60 of 60 runs are complete\n"), std::string::npos) << collected.err;
  std::size_t resumptions = 0;
  for (const std::string& run : runs_) {
    EXPECT_EQ(digests("out/" + run), digests("whole/" + run)) << run;
    EXPECT_EQ(rows(run), 8001u) << run;
    EXPECT_FALSE(std::filesystem::exists(path("out/" + run + "/claim.json"))) << run;
    resumptions += manifest(run).at("resumptions").size();
  }
  EXPECT_GE(resumptions, killed.size());
  EXPECT_EQ(submit({"--set", "checkpoint.every=200"}).out, "") << "nothing is left";
}

TEST_F(SweepCluster, AtItsTimeLimitAnElementIsQueuedAgainAndCancelledItStaysSo) {
  write_seeds(1, "100000000");
  start("RequeueExit=143\n");
  const auto submitted = submit({"--set", "observe.histograms_every=0", "--jobs", "1", "--time", "1:00",
                                 "--sbatch=--signal=B:TERM@55"});
  ASSERT_EQ(submitted.exit_code, 0) << submitted.err;
  const std::string& run = runs_.front();
  ASSERT_TRUE(wait_for([&] { return any_running(); }));
  const std::string job = queue().front().job;
  const auto resumed = [&] {
    for (int i = 0; i < 300; ++i, std::this_thread::sleep_for(std::chrono::milliseconds(500)))
      if (std::filesystem::exists(path("out/" + run + "/manifest.json")) &&
          manifest(run).at("resumptions").size() == 1)
        return true;
    return false;
  };
  EXPECT_TRUE(resumed()) << cluster_->controller_log();
  EXPECT_EQ(restarts(queue().front().job), 1);
  EXPECT_GT(manifest(run).at("resumptions").at(0).at("step").get<int>(), 0) << "it had saved";

  const std::string array = submitted.out.substr(0, submitted.out.find('\n'));
  cluster_->ask({"scancel", array});
  EXPECT_TRUE(wait_for([&] { return queue().empty(); }));
  EXPECT_EQ(manifest(run).at("state"), "stopped") << "it saved";
  std::this_thread::sleep_for(std::chrono::seconds(8));
  EXPECT_TRUE(queue().empty()) << "a cancelled job does not queue itself again";
}

}  // namespace
}  // namespace fp16lab::experiments
