// share_tasks: every task once, whichever thread is late, nested, from several threads, after a fork, on OpenMP.
#include "numerics/platform/worker_pool.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cfenv>
#include <chrono>
#include <thread>

namespace fp16lab {
namespace {

using namespace std::chrono_literals;

/// On helpers, and on the threads of libgomp.
class WorkerPool : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (!GetParam()) return;
    void* const library = dlopen("libgomp.so.1", RTLD_NOW);
    if (library == nullptr) GTEST_SKIP() << "there is no libgomp.so.1";
    const auto parallel = reinterpret_cast<OpenmpParallel>(dlsym(library, "GOMP_parallel"));
    ASSERT_NE(parallel, nullptr);
    share_on_openmp_threads(parallel);
  }
  void TearDown() override { share_on_openmp_threads(nullptr); }
};
INSTANTIATE_TEST_SUITE_P(, WorkerPool, testing::Bool(),
                         [](const auto& tested) { return tested.param ? "OnOpenmpThreads" : "OnHelpers"; });

TEST_P(WorkerPool, DoesEveryTaskOnce) {
  for (const int threads : {1, 2, 3, 8})
    for (const std::size_t count : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> done(count);
      for (int repetition = 1; repetition <= 20; ++repetition) {
        share_tasks(count, threads, [&](std::size_t i) { done[i].fetch_add(1); });
        for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(done[i].load(), repetition) << threads << ' ' << i;
      }
    }
}

TEST_P(WorkerPool, SeatsAreBelowThreadsAndNeverSharedAtATime) {
  for (const int threads : {2, 5, 3}) {
    std::vector<std::atomic<int>> sitting(static_cast<std::size_t>(threads));
    std::atomic<bool> shared = false;
    for (int repetition = 0; repetition < 50; ++repetition)
      share_tasks(64, threads, [&](std::size_t, std::size_t seat) {
        if (seat >= sitting.size()) {
          shared = true;
          return;
        }
        if (sitting[seat].fetch_add(1) != 0) shared = true;
        std::this_thread::sleep_for(1us);
        sitting[seat].fetch_sub(1);
      });
    EXPECT_FALSE(shared) << threads;
  }
}

/// Helpers have nothing to do with it: the calling thread is alone in this region.
TEST_P(WorkerPool, NestedCallsRunOnTheThreadThatMakesThem) {
  std::atomic<int> done = 0;
  std::atomic<bool> elsewhere = false;
  share_tasks(8, 2, [&](std::size_t) {
    const auto outer = std::this_thread::get_id();
    share_tasks(8, 2, [&](std::size_t, std::size_t seat) {
      if (std::this_thread::get_id() != outer || seat != 0) elsewhere = true;
      done.fetch_add(1);
    });
  });
  EXPECT_EQ(done.load(), 64);
  EXPECT_FALSE(elsewhere);
}

TEST_P(WorkerPool, SeveralCallersAtATimeEachGetTheirTasksDone) {
  std::atomic<int> done = 0;
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller)
    callers.emplace_back([&] {
      for (int repetition = 0; repetition < 200; ++repetition)
        share_tasks(5, 2, [&](std::size_t) { done.fetch_add(1); });
    });
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(done.load(), 4 * 200 * 5);
}

/// A helper that stays away for 30 ms in the middle of a task is waited for. From then on, for 10 ms at
/// least, the caller shares nothing; later it shares again.
TEST(OwnHelpers, AHelperThatIsLateIsLeftAlone) {
  using Clock = std::chrono::steady_clock;
  const auto caller = std::this_thread::get_id();
  std::atomic<int> helped = 0;
  std::atomic<Clock::time_point> helper_ended;
  Clock::time_point caller_began, caller_ended;
  const auto region = [&](std::chrono::microseconds of_helper) {
    helped = 0;
    caller_began = {};
    share_tasks(40, 2, [&](std::size_t) {
      if (std::this_thread::get_id() == caller) {
        if (caller_began == Clock::time_point{}) caller_began = Clock::now();
        std::this_thread::sleep_for(50us);
        caller_ended = Clock::now();
      } else {
        ++helped;
        std::this_thread::sleep_for(of_helper);
        helper_ended = Clock::now();
      }
    });
    return helped.load();
  };
  bool seen = false;
  const auto end = Clock::now() + 20s;
  while (!seen && Clock::now() < end) {
    // An attempt counts if the caller had its own tasks done in time, and waited.
    if (region(30ms) == 0 || caller_ended - caller_began > 40ms) continue;
    if (helper_ended.load() - caller_ended < 10ms) continue;
    const int of_next = region(50us);
    if (caller_began - helper_ended.load() > 5ms) continue;  // this thread was away itself: inconclusive
    EXPECT_EQ(of_next, 0);
    seen = true;
  }
  if (!seen) GTEST_SKIP() << "this machine is too busy to tell who was late";
  int later = 0;
  for (int attempt = 0; attempt < 2000 && later == 0; ++attempt) later = region(50us);
  EXPECT_GT(later, 0);
}

TEST_P(WorkerPool, HelpersRoundToNearestWhateverTheCallerDoes) {
  const auto caller = std::this_thread::get_id();
  const int before = std::fegetround();
  std::fesetround(FE_UPWARD);
  std::atomic<bool> wrong = false;
  std::atomic<int> helped = 0;
  for (int repetition = 0; repetition < 200 && helped == 0; ++repetition)
    share_tasks(40, 3, [&](std::size_t) {
      std::this_thread::sleep_for(20us);
      if (std::this_thread::get_id() == caller) return;
      ++helped;
      if (std::fegetround() != FE_TONEAREST) wrong = true;
    });
  std::fesetround(before);
  EXPECT_GT(helped.load(), 0);
  EXPECT_FALSE(wrong);
}

TEST_P(WorkerPool, AChildOfForkDoesItsTasksAndEnds) {
  std::atomic<int> warm = 0;
  share_tasks(8, 3, [&](std::size_t) { warm.fetch_add(1); });
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    int done = 0;
    share_tasks(8, 3, [&](std::size_t) { ++done; });  // no other thread is there
    std::exit(done == 8 ? 0 : 1);                     // with destructors
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST(OwnHelpers, LogsWhatOneThreadCouldShare) {
  std::vector<SharedRegion> log;
  log_shared_regions(&log);
  share_tasks(3, 1, [](std::size_t) {
    share_tasks(2, 1, [](std::size_t) {});  // part of the outer one
    std::this_thread::sleep_for(1ms);
  });
  share_tasks(1, 1, [](std::size_t) {});
  log_shared_regions(nullptr);
  share_tasks(3, 1, [](std::size_t) {});
  ASSERT_EQ(log.size(), 1u);
  EXPECT_EQ(log[0].tasks, 3u);
  EXPECT_GE(log[0].seconds, 3e-3);
}

}  // namespace
}  // namespace fp16lab
