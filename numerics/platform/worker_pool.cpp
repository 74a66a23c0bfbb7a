#include "numerics/platform/worker_pool.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#endif
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "numerics/platform/floating_point_scope.hpp"

namespace fp16lab {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using worker_pool_detail::Function;

/// How long a helper looks out for the next region before it sleeps.
constexpr microseconds patience{60};
/// Work left that is worth waking a helper for.
constexpr microseconds worth_waking{40};
/// A wait for a begun task that shows a helper without a processor: tasks are shorter.
constexpr microseconds late_wait{400};
/// How long the caller then works alone: doubled each time, halved whenever helpers were in time.
constexpr microseconds shortest_pause{10000}, longest_pause{500000};

/// Work left that is worth a region of OpenMP's.
constexpr microseconds worth_sharing{15};
std::atomic<OpenmpParallel> openmp_parallel = nullptr;

void relax() {
#if defined(__SSE2__)
  _mm_pause();
#endif
}

/// A few hundred nanoseconds of looking between two looks at the clock.
constexpr int looks = 16;

std::vector<SharedRegion>* region_log = nullptr;

class WorkerPool {
 public:
  WorkerPool() : threads_(new std::vector<std::thread>) {
#if defined(__unix__) || defined(__APPLE__)
    // A child of fork has no helpers: their handles are left alone, and calls do all tasks themselves.
    static WorkerPool* forked = nullptr;
    forked = this;
    pthread_atfork(nullptr, nullptr, [] { forked->forget_helpers(); });
#endif
  }
  ~WorkerPool() {
    if (threads_ == nullptr) return;
    ending_.store(true);
    wake();
    for (std::thread& thread : *threads_) thread.join();
    delete threads_;
  }
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  void share(std::size_t count, int threads, Function function, const void* task) {
    const std::size_t helpers = std::min<std::size_t>(static_cast<std::size_t>(threads - 1), most_helpers);
    if (count > most_tasks || busy_.test_and_set(std::memory_order_acquire))
      return alone(count, function, task);
    const auto began = Clock::now();
    if (const OpenmpParallel parallel = openmp_parallel.load(); parallel != nullptr) {
      share_with_openmp(parallel, began, count, static_cast<unsigned>(helpers + 1), function, task);
    } else if (began < alone_until_ || !hire(helpers)) {
      alone(count, function, task);
    } else {
      function_ = function;
      task_ = task;
      count_ = count;
      unfinished_.store(count, std::memory_order_relaxed);
      tickets_.store(Ticket::open(++region_, helpers, count), std::memory_order_seq_cst);
      const std::size_t done = work_and_wake(began);
      if (unfinished_.load(std::memory_order_acquire) != 0)
        wait_for_begun_tasks(began, done);
      else
        in_time();
    }
    busy_.clear(std::memory_order_release);
  }

  /// The first task shows whether the others are worth a region, in which every thread is waited for.
  static void share_with_openmp(OpenmpParallel parallel, Clock::time_point began, std::size_t count,
                                unsigned threads, Function function, const void* task) {
    function(task, 0, 0);
    if (static_cast<std::int64_t>(count - 1) * (Clock::now() - began) <= worth_sharing) {
      for (std::size_t index = 1; index < count; ++index) function(task, index, 0);
      return;
    }
    struct Region {
      std::size_t count;
      Function function;
      const void* task;
      std::thread::id caller = std::this_thread::get_id();
      std::atomic<std::size_t> begun = 1, helpers = 0;
    } region{count, function, task};
    const auto take_tasks = [](void* held) {
      auto& of = *static_cast<Region*>(held);
      const bool helps = std::this_thread::get_id() != of.caller;
      std::optional<FloatingPointScope> scope;
      if (helps) scope.emplace();
      const std::size_t seat = helps ? ++of.helpers : 0;
      for (std::size_t index; (index = of.begun++) < of.count;) of.function(of.task, index, seat);
    };
    parallel(take_tasks, &region, threads, 0);
  }

  static void alone(std::size_t count, Function function, const void* task) {
    for (std::size_t index = 0; index < count; ++index) function(task, index, 0);
  }

 private:
  /// The number of the region, who may help, and how many of its tasks are not begun: who takes one task off
  /// it holds the region open, and may read what belongs to it.
  struct Ticket {
    static constexpr int task_bits = 24, helper_bits = 8;
    static std::uint64_t open(std::uint32_t region, std::size_t helpers, std::size_t tasks) {
      return std::uint64_t{region} << (task_bits + helper_bits) | helpers << task_bits | tasks;
    }
    static std::size_t tasks(std::uint64_t ticket) { return ticket & most_tasks; }
    static std::size_t helpers(std::uint64_t ticket) { return ticket >> task_bits & most_helpers; }
  };
  static constexpr std::size_t most_tasks = (std::size_t{1} << Ticket::task_bits) - 1;
  static constexpr std::size_t most_helpers = (std::size_t{1} << Ticket::helper_bits) - 1;

  /// Does tasks until all are begun, or `most`, on `seat`: 0, or one above a helper's number. Returns how
  /// many.
  std::size_t work(std::size_t seat, std::size_t most = most_tasks) {
    std::size_t done = 0;
    std::uint64_t ticket = tickets_.load(std::memory_order_acquire);
    while (done < most && Ticket::tasks(ticket) != 0 && seat <= Ticket::helpers(ticket)) {
      if (!tickets_.compare_exchange_weak(ticket, ticket - 1, std::memory_order_acq_rel,
                                          std::memory_order_acquire))
        continue;
      function_(task_, count_ - Ticket::tasks(ticket), seat);
      unfinished_.fetch_sub(1, std::memory_order_acq_rel);
      ++done;
      ticket = tickets_.load(std::memory_order_acquire);
    }
    return done;
  }

  /// The caller's tasks of a region that began then. Waking a helper costs microseconds, and it comes tens of
  /// microseconds later: the first task shows whether that pays.
  std::size_t work_and_wake(Clock::time_point began) {
    if (sleepers_.load(std::memory_order_seq_cst) == 0) return work(0);
    const std::size_t first = work(0, 1);
    const auto left = static_cast<std::int64_t>(Ticket::tasks(tickets_.load(std::memory_order_acquire)));
    if (first > 0 && left * (Clock::now() - began) > worth_waking) wake();
    return first + work(0);
  }

  /// The caller has done `done` tasks of a region that began then.
  void wait_for_begun_tasks(Clock::time_point began, std::size_t done) {
    const auto waits_from = Clock::now();
    const auto own_task = (waits_from - began) / static_cast<std::int64_t>(std::max<std::size_t>(done, 1));
    const auto limit = std::max<Clock::duration>(late_wait, 4 * own_task);
    bool late = false;
    while (unfinished_.load(std::memory_order_acquire) != 0) {
      for (int look = 0; look < looks; ++look) relax();
      if (!late) late = Clock::now() - waits_from > limit;
      if (late) std::this_thread::yield();
    }
    if (!late) return in_time();
    alone_until_ = Clock::now() + pause_;
    pause_ = std::min(2 * pause_, longest_pause);
    regions_in_time_ = 0;
  }
  void in_time() {
    constexpr int enough = 2048;
    if (pause_ == shortest_pause || ++regions_in_time_ < enough) return;
    regions_in_time_ = 0;
    pause_ = std::max(pause_ / 2, shortest_pause);
  }

  /// Are there helpers? Makes them on the first call.
  bool hire(std::size_t helpers) {
    if (threads_ == nullptr) return false;
    try {
      while (threads_->size() < helpers)
        threads_->emplace_back([this, seat = threads_->size() + 1] { help(seat); });
    } catch (const std::system_error&) {
      return !threads_->empty();  // the system gives no more threads: those that are there help
    }
    return true;
  }

  /// What a helper does all its life.
  void help(std::size_t seat) {
    const FloatingPointScope scope;
    auto idle_since = Clock::now();
    while (!ending_.load(std::memory_order_relaxed)) {
      if (work(seat) > 0) idle_since = Clock::now();
      for (int look = 0; look < looks; ++look) relax();
      if (Clock::now() - idle_since < patience) continue;
      sleep();
      idle_since = Clock::now();
    }
  }

  /// Until there is a task to begin, or the end.
  void sleep() {
    const int calls = calls_.load(std::memory_order_acquire);
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    if (Ticket::tasks(tickets_.load(std::memory_order_seq_cst)) == 0 && !ending_.load()) calls_.wait(calls);
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
  }
  void wake() {
    calls_.fetch_add(1, std::memory_order_release);
    calls_.notify_all();
  }

  void forget_helpers() {
    openmp_parallel = nullptr;
    threads_ = nullptr;
    busy_.clear();
  }

  std::vector<std::thread>* threads_;  ///< null in a child of fork
  std::atomic_flag busy_;              ///< a region is going on
  std::uint32_t region_ = 0;
  Function function_ = nullptr;
  const void* task_ = nullptr;
  std::size_t count_ = 0;
  Clock::time_point alone_until_{};
  microseconds pause_ = shortest_pause;
  int regions_in_time_ = 0;
  alignas(64) std::atomic<std::uint64_t> tickets_ = 0;
  alignas(64) std::atomic<std::size_t> unfinished_ = 0;
  alignas(64) std::atomic<int> sleepers_ = 0;
  std::atomic<int> calls_ = 0;
  std::atomic<bool> ending_ = false;
};

WorkerPool& the_pool() {
  static WorkerPool pool;
  return pool;
}

}  // namespace

namespace worker_pool_detail {

void share(std::size_t count, int threads, Function function, const void* task) {
  if (count > 1 && threads == 1 && region_log != nullptr) {
    std::vector<SharedRegion>* const log =
        std::exchange(region_log, nullptr);  // regions inside are part of it
    const auto began = Clock::now();
    WorkerPool::alone(count, function, task);
    log->push_back({count, std::chrono::duration<double>(Clock::now() - began).count()});
    region_log = log;
    return;
  }
  if (count <= 1 || threads <= 1) return WorkerPool::alone(count, function, task);
  the_pool().share(count, threads, function, task);
}

}  // namespace worker_pool_detail

void share_on_openmp_threads(OpenmpParallel parallel) {
  the_pool();  // knows of forks
  openmp_parallel = parallel;
}

void log_shared_regions(std::vector<SharedRegion>* log) { region_log = log; }

}  // namespace fp16lab
