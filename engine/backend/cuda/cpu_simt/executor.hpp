// The host machine: executes a grid of a CUDA kernel on the host, thread by thread.
//
// A block's threads are fibers (Boost.Context). A fiber runs until it reaches a barrier or an exchange of its
// warp; in which order the runnable ones go is the machine's Schedule, so that code which leans on an order
// that CUDA does not promise gives other bits under another schedule. A barrier that some threads of the
// block (a warp's exchange that some of its lanes) can never reach throws std::logic_error naming the kernel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace fp16lab::engine::cpu_simt {

class Runtime;

struct Index3 {
  std::uint32_t x = 0, y = 0, z = 0;
};

/// Where the running thread is: CUDA's threadIdx, blockIdx, blockDim, gridDim.
struct Place {
  Index3 thread, block, block_extent, grid_extent;
};
const Place& place();
int lane_of_thread();

struct Launch {
  const char* name = "";
  const void* kernel = nullptr;
  std::uint32_t x = 1, y = 1, z = 1;
  std::uint32_t threads = 1;
  std::size_t shared_bytes = 0;
  /// Is the kernel told beforehand (cudaFuncSetAttribute) that a block has so many bytes of static and of
  /// dynamic shared memory? Null: never. Without it 48 KiB of both together are all that a block may have.
  bool (*opts_in)(std::size_t static_bytes, std::size_t dynamic_bytes) = nullptr;
};

enum class Schedule : std::uint8_t {
  ascending,   ///< by thread number
  descending,  ///< the other way round, blocks too
  scrambled,   ///< a fixed pseudo-random order, another one after every barrier
  /// One warp after the other as far as it can go, another one first after every barrier; and asynchronous
  /// copies arrive at once, where the other schedules let them arrive when they are waited for.
  warp_by_warp,
};

/// Runs it now, or keeps it if the runtime is recording.
void execute_or_record(Runtime& runtime, const Launch& launch, std::function<void()> thread_body);
/// Runs it now. What a thread throws, or std::logic_error about barriers, ends the launch.
void execute(const Launch& launch, Schedule schedule, const std::function<void()>& thread_body);

/// How the launches of this thread of the host are ordered from now on.
void set_schedule(Schedule schedule);
/// How many multiprocessors the devices say that they have, which this thread of the host opens from now on.
/// 4 at first, so that small products are cut into tiles of every size.
void set_multiprocessors(int count);
int multiprocessors();
/// Called before every launch of this thread that is executed now; false: the launch is left out. Empty:
/// nobody watches.
void watch_launches(std::function<bool(const Launch& launch)> watcher);

// ---- what running threads call ----
void block_barrier();
void warp_barrier(std::uint32_t mask);
/// The lanes of a warp, `warp_lane_bytes` apart.
inline constexpr std::size_t warp_lane_bytes = 128;
/// Every lane gives `bytes` bytes (at most warp_lane_bytes) and sees those of all lanes, until it exchanges
/// again. The mask must be full.
const std::byte* warp_exchange(std::uint32_t mask, const void* value, std::size_t bytes);
/// Every lane gives `bytes` bytes; `compute` sees those of all lanes and writes a result for each; every lane
/// gets its own. `compute` must be the same in all lanes.
using WarpFunction = void (*)(const std::byte* values, std::byte* results);
void warp_compute(const void* value, std::size_t bytes, WarpFunction compute, void* result,
                  std::size_t result_bytes);
/// Several bytes in one access need an address that is a multiple of their number: std::logic_error
/// otherwise, as a GPU ends the kernel ("misaligned address").
void require_alignment(const void* address, std::size_t bytes);
/// The block's dynamic shared memory, 128-byte aligned; filled with a0 bytes when the block begins.
std::byte* dynamic_shared_memory();
/// The block's memory of one declaration of FP16LAB_SHARED (instructions.hpp), which `declaration`
/// identifies; filled with a0 bytes when the first thread of the block comes to it. std::logic_error where it
/// makes a launch one that CUDA refuses.
std::byte* static_shared_memory(const void* declaration, std::size_t bytes, std::size_t alignment);
/// Before a declaration whose bytes nobody counts: std::logic_error in a kernel that is launched with dynamic
/// shared memory.
void note_uncounted_shared_memory();

/// A copy that is only seen after a wait, as cp.async may be late; under Schedule::warp_by_warp it is early.
/// Groups as in PTX.
void delayed_copy(void* to, const void* from, std::size_t bytes, std::size_t zero_filled_bytes);
void commit_delayed_copies();
/// All but the `pending` newest groups of this thread are done.
void finish_delayed_copies(std::size_t pending);

}  // namespace fp16lab::engine::cpu_simt
