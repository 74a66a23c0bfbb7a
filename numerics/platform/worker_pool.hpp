// Worker threads: tasks that a caller shares with the idle ones.
//
// The caller never waits for a thread to come. It takes task after task itself; helpers, which spin for a
// while after their last task and then sleep, take others. What no helper has begun the caller does, so a
// helper that is late, because another process has its processor, costs nothing. Only a task that a helper
// has begun is waited for; if that takes long, a helper has lost its processor in the middle of a task, and
// the caller works alone for a while, longer each time it happens again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

namespace fp16lab {

/// One call of share_tasks with several tasks, as one thread does it.
struct SharedRegion {
  std::size_t tasks = 0;
  double seconds = 0;  ///< seconds of work, all tasks together
};

namespace worker_pool_detail {
using Function = void (*)(const void* task, std::size_t index, std::size_t seat);
void share(std::size_t count, int threads, Function function, const void* task);
}  // namespace worker_pool_detail

/// Calls task(i), or task(i, seat), once for every i in [0, count): on the calling thread, and on at most
/// threads - 1 helpers of the process. Which thread does which task, and in which order, is open: results
/// must not depend on it. No two tasks run at a time with the same seat in [0, threads): it chooses scratch
/// memory. Tasks must not throw. Every helper computes in a FloatingPointScope; the caller in its own
/// environment. A call from inside a task, or while another thread's call has the helpers, runs on the
/// calling thread alone (seat 0). A task should take microseconds, or longer: sharing a region costs about
/// one.
template <class Task>
void share_tasks(std::size_t count, int threads, const Task& task) {
  worker_pool_detail::share(
      count, threads,
      [](const void* held, std::size_t index, [[maybe_unused]] std::size_t seat) {
        if constexpr (std::is_invocable_v<const Task&, std::size_t, std::size_t>)
          (*static_cast<const Task*>(held))(index, seat);
        else
          (*static_cast<const Task*>(held))(index);
      },
      std::addressof(task));
}

/// GOMP_parallel of an OpenMP library (GNU's libgomp_g.h; LLVM's and Intel's have it, too).
using OpenmpParallel = void (*)(void (*body)(void* held), void* held, unsigned threads, unsigned flags);

/// From now on regions run on the threads of the OpenMP library that a host program computes with, and end when all
/// of its threads have come; nullptr: on helpers. For processes in which these threads wait for work by spinning, on
/// the processors that helpers would need. Not while a region is going on. A child of fork is alone.
void share_on_openmp_threads(OpenmpParallel parallel);

/// Until the next call every outermost region of one thread (threads == 1) with several tasks is appended to
/// `log`, in all threads: for benchmarks, which look at one thread. nullptr: no longer.
void log_shared_regions(std::vector<SharedRegion>* log);

}  // namespace fp16lab
