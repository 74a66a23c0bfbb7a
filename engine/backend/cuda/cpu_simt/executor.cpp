#include "engine/backend/cuda/cpu_simt/executor.hpp"

#include <boost/context/fiber.hpp>
#include <boost/context/fixedsize_stack.hpp>

#include <cstring>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "engine/backend/cuda/cpu_simt/block_memory.hpp"
#include "engine/backend/cuda/cpu_simt/host_machine.hpp"
#include "engine/backend/cuda/cpu_simt/stack_switch.hpp"

namespace fp16lab::engine::cpu_simt {

namespace {

using boost::context::fiber;

#if defined(__SANITIZE_ADDRESS__)
constexpr std::size_t stack_bytes = 1024 * 1024;  // red zones make frames larger
#else
constexpr std::size_t stack_bytes = 128 * 1024;
#endif
constexpr std::uint32_t warp_size = 32;

enum class Waiting : std::uint8_t { no, for_block, for_warp, done };

/// A fiber that runs thread after thread.
struct Worker {
  fiber continuation;
  Stack stack;
};

struct DelayedCopy {
  void* to;
  const void* from;
  std::size_t bytes, zeros;
};

struct Thread {
  Waiting waiting = Waiting::no;
  Worker* worker = nullptr;  // that is in the midst of it
  std::vector<std::vector<DelayedCopy>> groups;
  std::vector<DelayedCopy> uncommitted;
};

/// Gathers what the lanes of a warp give; full when all 32 have. What they then read stays while slower lanes
/// still read it, and the quicker ones already meet again: the meeting after that needs all 32, so that two
/// buffers do.
struct Warp {
  std::uint32_t arrived = 0;
  std::uint32_t buffer = 0;
  std::size_t bytes = 0;
  WarpFunction compute = nullptr;
  std::byte values[2][warp_size][warp_lane_bytes];
  std::byte results[warp_size][warp_lane_bytes];
};

/// Unwinds the stack of a thread that will never go on.
struct Unwinding {};

/// All that one thread of the host needs to execute grids.
class Machine {
 public:
  Machine() = default;
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
  ~Machine() { end_workers(); }

  void execute(const Launch& launch, Schedule schedule, const std::function<void()>& body) {
    launch_ = &launch;
    schedule_ = schedule;
    body_ = &body;
    place_.block_extent = {launch.threads, 1, 1};
    place_.grid_extent = {launch.x, launch.y, launch.z};
    const std::uint64_t blocks = std::uint64_t{launch.x} * launch.y * launch.z;
    for (std::uint64_t i = 0; i < blocks; ++i) {
      const std::uint64_t block = schedule == Schedule::descending ? blocks - 1 - i : i;
      place_.block = {static_cast<std::uint32_t>(block % launch.x),
                      static_cast<std::uint32_t>(block / launch.x % launch.y),
                      static_cast<std::uint32_t>(block / launch.x / launch.y)};
      run_block();
    }
  }

  const Place& place() const { return place_; }
  std::byte* shared() { return memory_.dynamic(); }
  std::byte* static_shared(const void* declaration, std::size_t bytes, std::size_t alignment) {
    std::byte* const address = memory_.declared(*launch_, declaration, bytes, alignment);
    if (address == nullptr) fail(memory_.refusal());
    return address;
  }
  void note_uncounted() const {
    if (launch_->shared_bytes > 0)
      fail(
          "a plain __shared__ beside dynamic shared memory, which nobody can count; expected FP16LAB_SHARED");
  }
  bool copies_at_once() const { return schedule_ == Schedule::warp_by_warp; }
  Schedule default_schedule = Schedule::ascending;
  int multiprocessors = 4;
  std::function<bool(const Launch&)> watcher;
  bool (*replaced_opt_in)(std::size_t, std::size_t) = nullptr;

  void block_barrier() { wait(Waiting::for_block); }

  /// Returns the values, or results, of all lanes, which stay until this lane meets the others again.
  const std::byte* meet(std::uint32_t mask, const void* value, std::size_t bytes, WarpFunction compute) {
    if (mask != 0xffffffffu) fail("a warp's exchange with a mask that is not full");
    if (bytes > warp_lane_bytes) fail("a warp's exchange of too many bytes");
    const std::uint32_t self = place_.thread.x, lane = self % warp_size;
    Warp& warp = warps_[self / warp_size];
    if (warp.arrived != 0 && (warp.bytes != bytes || warp.compute != compute))
      fail("lanes of a warp meet in different exchanges");
    warp.bytes = bytes;
    warp.compute = compute;
    std::byte(&values)[warp_size][warp_lane_bytes] = warp.values[warp.buffer];
    if (bytes > 0) std::memcpy(values[lane], value, bytes);
    if (++warp.arrived < warp_size) {
      wait(Waiting::for_warp);
    } else {
      warp.arrived = 0;
      warp.buffer = 1 - warp.buffer;
      if (compute != nullptr) compute(values[0], warp.results[0]);
      const std::uint32_t first = self - lane;
      for (std::uint32_t other = first; other < first + warp_size; ++other)
        if (threads_[other].waiting == Waiting::for_warp) threads_[other].waiting = Waiting::no;
    }
    return compute != nullptr ? warp.results[0] : values[0];
  }

  Thread& current() { return threads_[place_.thread.x]; }

  [[noreturn]] void fail(const std::string& what) const {
    throw std::logic_error(std::string("kernel ") + launch_->name + " on the host machine: " + what +
                           ", block (" + std::to_string(place_.block.x) + ", " +
                           std::to_string(place_.block.y) + ", " + std::to_string(place_.block.z) +
                           "), thread " + std::to_string(place_.thread.x));
  }

 private:
  void run_block() {
    const std::uint32_t count = launch_->threads;
    if (threads_.size() < count) threads_.resize(count);
    if (warps_.size() < (count + warp_size - 1) / warp_size)
      warps_.resize((count + warp_size - 1) / warp_size);
    for (std::uint32_t i = 0; i < count; ++i) {
      threads_[i].waiting = Waiting::no;
      threads_[i].groups.clear();
      threads_[i].uncommitted.clear();
    }
    for (Warp& warp : warps_) warp.arrived = 0;
    memory_.begin(launch_->shared_bytes);

    std::uint32_t left = count;
    while (left > 0) {
      bool progress = false;
      order_threads(count);
      if (schedule_ == Schedule::warp_by_warp) {
        for (std::uint32_t first = 0; first < count;) {
          const std::uint32_t behind = end_of_warp(first, count);
          while (run_ready(first, behind, left)) progress = true;
          first = behind;
        }
      } else {
        progress = run_ready(0, count, left);
      }
      if (left == 0) break;
      if (progress) continue;
      // Everybody waits. Threads that have ended do not take part in a barrier of the block.
      bool for_warp = false;
      for (std::uint32_t i = 0; i < count; ++i)
        for_warp = for_warp || threads_[i].waiting == Waiting::for_warp;
      if (for_warp) {
        end_workers();
        fail("a warp's exchange or __syncwarp that not all of its lanes reach");
      }
      for (std::uint32_t i = 0; i < count; ++i)
        if (threads_[i].waiting == Waiting::for_block) threads_[i].waiting = Waiting::no;
    }
  }

  /// Ends threads that wait too: their stacks are unwound.
  void end_workers() {
    ending_ = true;
    for (const std::unique_ptr<Worker>& worker : workers_) go_to(*worker);
    ending_ = false;
    for (Thread& parked : threads_) parked.worker = nullptr;
    idle_.clear();
    workers_.clear();
  }

  /// Lets those of order_[first .. behind) run that do not wait. False: there are none.
  bool run_ready(std::uint32_t first, std::uint32_t behind, std::uint32_t& left) {
    bool progress = false;
    for (std::uint32_t i = first; i < behind; ++i) {
      const std::uint32_t thread = order_[i];
      if (threads_[thread].waiting != Waiting::no) continue;
      progress = true;
      resume(thread);
      if (failure_) {
        const std::exception_ptr failure = std::exchange(failure_, nullptr);
        end_workers();
        std::rethrow_exception(failure);
      }
      if (threads_[thread].waiting == Waiting::done) --left;
    }
    return progress;
  }

  /// Behind the threads of order_[first]'s warp, which follow each other in order_.
  std::uint32_t end_of_warp(std::uint32_t first, std::uint32_t count) const {
    std::uint32_t behind = first + 1;
    while (behind < count && order_[behind] / warp_size == order_[first] / warp_size) ++behind;
    return behind;
  }

  void order_threads(std::uint32_t count) {
    const bool fixed = schedule_ == Schedule::ascending || schedule_ == Schedule::descending;
    if (order_.size() == count && schedule_ == ordered_by_ && fixed) return;
    ordered_by_ = schedule_;
    order_.resize(count);
    if (schedule_ == Schedule::warp_by_warp) {
      const std::uint64_t warps = (count + warp_size - 1) / warp_size;
      const auto first = static_cast<std::uint32_t>(round_++ % warps) * warp_size;
      for (std::uint32_t i = 0; i < count; ++i)
        order_[i] = i < count - first ? first + i : i - (count - first);
      return;
    }
    for (std::uint32_t i = 0; i < count; ++i)
      order_[i] = schedule_ == Schedule::descending ? count - 1 - i : i;
    if (schedule_ != Schedule::scrambled) return;
    std::uint64_t state = ++round_ * 0x9e3779b97f4a7c15u;
    for (std::uint64_t i = count; i > 1; --i) {  // Fisher and Yates, with Knuth's MMIX generator
      state = state * 6364136223846793005u + 1442695040888963407u;
      std::swap(order_[i - 1], order_[(state >> 32) * i >> 32]);
    }
  }

  void resume(std::uint32_t thread) {
    place_.thread = {thread, 0, 0};
    Thread& state = threads_[thread];
    if (state.worker == nullptr) {
      if (idle_.empty()) {
        workers_.push_back(std::make_unique<Worker>());
        Worker* const worker = workers_.back().get();
        boost::context::fixedsize_stack stacks(stack_bytes);
        const boost::context::stack_context stack = stacks.allocate();
        worker->stack = {static_cast<const std::byte*>(stack.sp) - stack.size, stack.size};
        const boost::context::preallocated all_of_it(stack.sp, stack.size, stack);
        worker->continuation = fiber(std::allocator_arg, all_of_it, stacks, [this](fiber&& caller) {
          StackSwitch().arrive(&scheduler_stack_);
          caller_ = std::move(caller);
          while (!ending_) {
            try {
              (*body_)();
            } catch (const Unwinding&) {
              break;
            } catch (...) {
              failure_ = std::current_exception();
            }
            current().waiting = Waiting::done;
            go_to_scheduler();
          }
          leave_for_good(scheduler_stack_);
          return std::move(caller_);
        });
        idle_.push_back(worker);
      }
      state.worker = idle_.back();
      idle_.pop_back();
    }
    Worker* const worker = state.worker;
    go_to(*worker);
    if (threads_[thread].waiting == Waiting::done) {
      idle_.push_back(worker);
      threads_[thread].worker = nullptr;
    }
  }

  void wait(Waiting what) {
    const Index3 self = place_.thread;
    current().waiting = what;
    go_to_scheduler();
    if (ending_) throw Unwinding{};
    place_.thread = self;
  }

  void go_to(Worker& worker) {
    StackSwitch switching;
    switching.leave(worker.stack);
    worker.continuation = std::move(worker.continuation).resume();
    switching.arrive();
  }

  void go_to_scheduler() {
    StackSwitch switching;
    switching.leave(scheduler_stack_);
    caller_ = std::move(caller_).resume();
    switching.arrive();
  }

  const Launch* launch_ = nullptr;
  const std::function<void()>* body_ = nullptr;
  Schedule schedule_ = Schedule::ascending;
  Schedule ordered_by_ = Schedule::ascending;
  std::vector<std::uint32_t> order_;
  std::uint64_t round_ = 0;
  Place place_;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  BlockMemory memory_;
  fiber caller_;  // the scheduler, while a thread runs
  Stack scheduler_stack_;
  std::exception_ptr failure_;
  bool ending_ = false;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<Worker*> idle_;
};

Machine& machine() {
  static thread_local Machine instance;
  return instance;
}

void perform(const DelayedCopy& copy) {
  std::memcpy(copy.to, copy.from, copy.bytes);
  std::memset(static_cast<std::byte*>(copy.to) + copy.bytes, 0, copy.zeros);
}

}  // namespace

const Place& place() { return machine().place(); }
int lane_of_thread() { return static_cast<int>(machine().place().thread.x % warp_size); }

void execute(const Launch& asked, Schedule schedule, const std::function<void()>& thread_body) {
  Launch launch = asked;
  if (machine().replaced_opt_in != nullptr) launch.opts_in = machine().replaced_opt_in;
  if (launch.threads == 0 || launch.threads > 1024)
    throw std::logic_error(std::string("kernel ") + launch.name + ": " + std::to_string(launch.threads) +
                           " threads in a block; from 1 to 1024 are possible");
  if (const std::string refusal = refusal_of_shared_memory(launch, 0); !refusal.empty())
    throw std::logic_error(std::string("kernel ") + launch.name + ": " + std::to_string(launch.shared_bytes) +
                           " bytes of dynamic shared memory; " + refusal);
  if (launch.y > 65535 || launch.z > 65535)
    throw std::logic_error(std::string("kernel ") + launch.name + ": a grid of (" + std::to_string(launch.x) +
                           ", " + std::to_string(launch.y) + ", " + std::to_string(launch.z) +
                           ") blocks; y and z reach to 65535");
  if (!machine().watcher || machine().watcher(launch)) machine().execute(launch, schedule, thread_body);
}

void set_schedule(Schedule schedule) { machine().default_schedule = schedule; }
Schedule current_schedule() { return machine().default_schedule; }
void set_multiprocessors(int count) { machine().multiprocessors = count; }
int multiprocessors() { return machine().multiprocessors; }
void watch_launches(std::function<bool(const Launch&)> watcher) { machine().watcher = std::move(watcher); }
void replace_opt_in(bool (*opts_in)(std::size_t, std::size_t)) { machine().replaced_opt_in = opts_in; }

void block_barrier() { machine().block_barrier(); }
void warp_barrier(std::uint32_t mask) { machine().meet(mask, nullptr, 0, nullptr); }
const std::byte* warp_exchange(std::uint32_t mask, const void* value, std::size_t bytes) {
  return machine().meet(mask, value, bytes, nullptr);
}
void warp_compute(const void* value, std::size_t bytes, WarpFunction compute, void* result,
                  std::size_t result_bytes) {
  const std::byte* const results = machine().meet(0xffffffffu, value, bytes, compute);
  std::memcpy(result, results + static_cast<std::size_t>(lane_of_thread()) * warp_lane_bytes, result_bytes);
}
std::byte* dynamic_shared_memory() { return machine().shared(); }
std::byte* static_shared_memory(const void* declaration, std::size_t bytes, std::size_t alignment) {
  return machine().static_shared(declaration, bytes, alignment);
}
void note_uncounted_shared_memory() { machine().note_uncounted(); }

void require_alignment(const void* address, std::size_t bytes) {
  const auto misplaced = reinterpret_cast<std::uintptr_t>(address) % bytes;
  if (misplaced != 0)
    machine().fail("an access of " + std::to_string(bytes) + " bytes, " + std::to_string(misplaced) +
                   " behind a multiple of that");
}

void delayed_copy(void* to, const void* from, std::size_t bytes, std::size_t zero_filled_bytes) {
  require_alignment(to, bytes + zero_filled_bytes);
  if (bytes > 0) require_alignment(from, bytes + zero_filled_bytes);
  const DelayedCopy copy{to, from, bytes, zero_filled_bytes};
  if (machine().copies_at_once()) return perform(copy);
  machine().current().uncommitted.push_back(copy);
}
void commit_delayed_copies() {
  Thread& thread = machine().current();
  thread.groups.push_back(std::move(thread.uncommitted));
  thread.uncommitted.clear();
}
void finish_delayed_copies(std::size_t pending) {
  auto& groups = machine().current().groups;
  while (groups.size() > pending) {
    for (const DelayedCopy& copy : groups.front()) perform(copy);
    groups.erase(groups.begin());
  }
}

}  // namespace fp16lab::engine::cpu_simt
