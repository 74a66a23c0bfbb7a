// fp16lab report --follow through the real binary: the page grows with its runs, and is whole when they end.
#include <gmock/gmock.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <thread>

#include "numerics/files/run/run_folder.hpp"
#include "tests/experiments/app/small_runs.hpp"

namespace fp16lab::experiments {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class Follow : public SmallRuns {
 protected:
  static bool soon(const std::function<bool()>& is_so) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(40);
    while (!is_so()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return true;
  }
  std::string page() const {
    return std::filesystem::exists(path("runs/report.html")) ? read("runs/report.html") : "";
  }
  /// The manifest of a run that is going on, as train writes it.
  static Manifest manifest() {
    Manifest manifest;
    manifest.config = "[model]\nname = \"net\"\n[data]\nname = \"made\"\n[amp]\nlevel = \"O0\"\n";
    return manifest;
  }
  testing_support::Spawned follow() const {
    return {fp16lab_binary, {"report", path("runs"), "--follow", "--every", "1"}, path("")};
  }
};

TEST_F(Follow, RewritesThePageAsRowsArriveAndEndsWithTheRuns) {
  RunWriter writer(path("runs/one"), manifest());
  writer.append(StepRow{.step = 1, .loss = 0.5});
  testing_support::Spawned program = follow();
  ASSERT_TRUE(soon([&] { return !page().empty(); }));
  EXPECT_THAT(page(), HasSubstr("\"follow\":1,"));
  EXPECT_THAT(page(), Not(HasSubstr("0.015625")));
  writer.append(StepRow{.step = 2, .loss = 0.015625});
  EXPECT_TRUE(soon([&] { return page().find("0.015625") != std::string::npos; })) << "the new row";
  EXPECT_TRUE(program.running());
  writer.append(EvaluationRow{.step = 2, .split = "test", .loss = 0.25});
  writer.finish(ExitState::finished);
  EXPECT_TRUE(soon([&] { return !program.running(); }));
  const testing_support::Finished finished = program.wait();
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_THAT(finished.out, HasSubstr("report.html\n"));
  EXPECT_THAT(page(), HasSubstr("\"follow\":0,"));
}

TEST_F(Follow, AnInterruptedOneLeavesAPageThatDoesNotReload) {
  RunWriter writer(path("runs/one"), manifest());
  writer.append(StepRow{.step = 1, .loss = 0.5});
  testing_support::Spawned program = follow();
  ASSERT_TRUE(soon([&] { return page().find("\"follow\":1,") != std::string::npos; }));
  program.signal(SIGINT);
  EXPECT_EQ(program.wait().exit_code, 0);
  EXPECT_THAT(page(), HasSubstr("\"follow\":0,"));
}

}  // namespace
}  // namespace fp16lab::experiments
