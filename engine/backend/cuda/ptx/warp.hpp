// A warp in execution: its lanes, where they are, and what they wait for; and the block that it belongs to.
//
// Lanes that stand at the same instruction go together. Where they part, those at the least instruction go first, so
// that they meet again as early as the text allows; PTX promises no order (PTX ISA, "Divergence of Threads").
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "engine/backend/cuda/ptx/arithmetic.hpp"
#include "engine/backend/cuda/ptx/instruction.hpp"
#include "engine/backend/cuda/ptx/memory.hpp"

namespace fp16lab::engine::ptx {

class Warp;

/// cp.async: 16, 8 or 4 bytes for shared memory, of which the last are zeros.
struct DelayedCopy {
  std::uint32_t to;  ///< offset in shared memory
  std::uint32_t instruction;
  std::uint64_t from;  ///< global
  std::uint16_t bytes, zeros;
};
/// Of one thread, oldest first. groups[i]: copies up to the end of group i.
struct DelayedCopies {
  std::vector<DelayedCopy> pending;
  std::vector<std::size_t> groups;
};

/// What the warps of a block share, and what the machine knows of the launch.
struct Block {
  const Code* code = nullptr;
  const Machine::Options* options = nullptr;
  DeviceMemory::State* memory = nullptr;
  CellPages* pages = nullptr;
  std::span<const std::byte> parameters;
  std::array<std::uint32_t, 3> index{}, extent{}, grid{};  ///< of the block; threads; blocks
  std::uint32_t threads = 0;
  std::vector<std::byte> shared, local;
  std::size_t shared_bytes = 0;  ///< static and dynamic
  std::vector<Cell> shared_cells;
  std::vector<DelayedCopies> copies;  ///< of each thread
  std::uint32_t time = 0;             ///< of the race watch; goes on in the next block
  std::uint32_t begin_time = 0;       ///< of this block
  std::uint32_t barrier_time = 0;     ///< of its last barrier
  bool barrier_or = false;            ///< what bar.red has gathered
  /// Kernel and line for messages.
  std::string (*describe)(const Block& block, std::uint32_t instruction) = nullptr;
  const void* kernel = nullptr;
  std::vector<std::pair<std::uint32_t, std::array<std::uint32_t, 3>>>* block_times = nullptr;
};

class Warp {
 public:
  enum class Waiting : std::uint8_t { no, for_warp, for_block };
  /// Lanes at one instruction that do not go on at present.
  struct Group {
    std::uint32_t place = 0, mask = 0;
    Waiting waiting = Waiting::no;
    std::uint32_t needed = 0;  ///< lanes that have to come, too
  };

  /// Values of an operand, one for each lane.
  template <class T>
  T* values(std::uint32_t offset) {
    return reinterpret_cast<T*>(registers + offset);
  }
  std::uint32_t& predicate(std::uint32_t offset) {
    return *reinterpret_cast<std::uint32_t*>(registers + offset);
  }

  std::uint32_t thread(int lane) const { return number * lanes + static_cast<std::uint32_t>(lane); }

  /// Sets lanes `active` of an operand.
  template <class T>
  void assign(std::uint32_t offset, const T (&results)[lanes]) {
    T* const to = values<T>(offset);
    if (active == all_lanes) {
      std::memcpy(to, results, sizeof(results));
      return;
    }
    for (int lane = 0; lane < lanes; ++lane)
      if ((active >> lane & 1) != 0) to[lane] = results[lane];
  }
  void assign_predicate(std::uint32_t offset, std::uint32_t results) {
    std::uint32_t& to = predicate(offset);
    to = (to & ~active) | (results & active);
  }

  /// True if all of `needed` that have not exited are here; otherwise the active lanes wait for them, and the handler
  /// returns.
  bool meets(std::uint32_t needed);
  /// The active lanes wait for the block.
  void wait_for_block();
  /// The active lanes end.
  void exit_lanes();
  /// Active lanes go to `target`, the others of the group to the next instruction.
  void branch(std::uint32_t target, bool uniform);

  /// A Fault at the current instruction.
  [[noreturn]] void fail(int lane, const std::string& what) const;
  /// A Fault that names another place, too.
  [[noreturn]] void fail(int lane, const std::string& what, std::uint32_t other_place) const;

  // ---- memory (memory_access.cpp) ----

  struct Touch {
    bool writes = false;
    bool strong = false;
  };
  /// Host's place of an aligned access of `bytes` to this space, watched for races. Fault.
  std::byte* access(Space space, int lane, std::uint64_t address, std::size_t bytes, Touch touch);
  std::byte* access_global(int lane, std::uint64_t address, std::size_t bytes, Touch touch);
  std::byte* access_shared(int lane, std::uint64_t address, std::size_t bytes, Touch touch);
  std::byte* access_local(int lane, std::uint64_t address, std::size_t bytes);
  /// A read of a collective instruction on behalf of another lane.
  void note_shared(int lane, std::uint64_t address, std::size_t bytes, Touch touch);
  void delay_copy(int lane, std::uint64_t to, std::uint64_t from, std::size_t bytes, std::size_t valid);
  void commit_copies(int lane);
  /// All but the `pending` newest groups arrive; `uncommitted`: those that are in no group, too.
  void finish_copies(int lane, std::size_t pending, bool uncommitted);

  // ---- state ----

  std::byte* registers = nullptr;
  std::uint32_t active = 0;                 ///< lanes for which the instruction in execution counts
  std::uint32_t mask = 0;                   ///< lanes of the current group
  std::uint32_t place = 0;                  ///< its instruction
  std::uint32_t next = 0;                   ///< where it goes on
  std::uint32_t live = 0;                   ///< lanes that have not exited
  std::uint32_t least_other = 0xffffffffu;  ///< the first place where another group is ready
  std::uint32_t number = 0;                 ///< in the block
  std::uint32_t sync_time = 0;              ///< of its last bar.warp.sync
  Block* block = nullptr;
  Allocation* last_allocation = nullptr;
  std::vector<Group> groups;

  /// Chooses the group that goes on. False: none can, they all wait for the block or have ended. Fault if lanes wait
  /// for lanes that never come.
  bool choose();
  /// The place where all live lanes wait for the block. Fault if there are two.
  std::uint32_t barrier_place() const;
  void release_from_barrier();

 private:
  void park(std::uint32_t lanes_of_group, std::uint32_t where, Waiting waiting, std::uint32_t needed);
  void find_least_other();
};

template <class Do>
void for_each_lane(std::uint32_t mask, Do&& body) {
  if (mask == all_lanes) {
    for (int lane = 0; lane < lanes; ++lane) body(lane);
    return;
  }
  for (; mask != 0; mask &= mask - 1) body(__builtin_ctz(mask));
}

}  // namespace fp16lab::engine::ptx
