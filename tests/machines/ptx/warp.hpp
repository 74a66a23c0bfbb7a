// A warp in execution: its lanes, where they are, and what they wait for; and the block that it belongs to.
//
// Lanes at the same instruction go together. Where they part, those at the least instruction go
// first, so that they meet again as early as the text allows; PTX promises no order (PTX ISA, "Divergence of
// Threads").
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "tests/machines/ptx/instruction.hpp"
#include "tests/machines/ptx/machine.hpp"
#include "tests/machines/ptx/race_watch.hpp"

namespace fp16lab::engine::ptx {

/// cp.async: 16, 8 or 4 bytes for shared memory, of which the last are zeros.
struct DelayedCopy {
  std::uint64_t to;    ///< in shared memory
  std::uint64_t from;  ///< global
  std::size_t bytes, zeros;
  std::uint32_t instruction;
  std::size_t group;
};
struct DelayedCopies {
  std::vector<DelayedCopy> pending;  ///< one thread's, oldest first
  std::size_t groups = 0;            ///< that it has committed
};

/// What the warps of a block share, and what the machine knows of the launch.
struct Block {
  const Kernel* kernel = nullptr;
  const Code* code = nullptr;
  const Machine::Options* options = nullptr;
  DeviceMemory* memory = nullptr;
  std::array<std::uint32_t, 3> index{}, extent{}, grid{};  ///< the block's; in threads; in blocks
  std::uint32_t threads = 0;
  std::vector<std::byte> parameters, shared, local;
  std::vector<DelayedCopies> copies;  ///< one per thread
  bool barrier_or = false;            ///< what bar.red has gathered
  RaceWatch watch;
};

class Warp {
 public:
  /// Lanes at one instruction that do not go on at present.
  struct Group {
    std::uint32_t place = 0, mask = 0;
    std::uint32_t needed = 0;  ///< 0: they could. Otherwise they wait for these lanes
  };
  static constexpr std::uint32_t nowhere = 0xffffffffu;

  /// Values of an operand, one for each lane.
  template <class T>
  T* values(std::uint32_t offset) {
    return reinterpret_cast<T*>(registers + offset);
  }
  std::uint32_t& predicate(std::uint32_t offset) { return *values<std::uint32_t>(offset); }
  std::uint64_t address(const Address& of, int lane) {
    const auto displacement = static_cast<std::uint64_t>(of.displacement);
    if (of.base == no_operand) return displacement;
    if (of.is_wide) return values<std::uint64_t>(of.base)[lane] + displacement;
    // A 32-bit register holds an address of shared memory; sums stay in 32 bits.
    return static_cast<std::uint32_t>(values<std::uint32_t>(of.base)[lane] + displacement);
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

  // ---- control (warp.cpp) ----

  /// These lanes of the current group wait for others or for their turn.
  void park(Group group);
  /// True if all of `needed` that have not exited are here; otherwise the active lanes wait for them, and the
  /// handler returns.
  bool meets(std::uint32_t needed);
  /// .aligned: Fault unless all lanes of the warp that `needed` has are active.
  void require_together(std::uint32_t needed) const;
  /// Chooses the group that goes on. False: none can, the warp waits for the block or has ended. Fault if
  /// lanes wait for lanes that never come.
  bool choose();

  /// A Fault at the current instruction; it may name another place, too.
  [[noreturn]] void fail(FaultKind kind, int lane, const std::string& what,
                         std::uint32_t other_place = nowhere) const;

  // ---- memory (memory.cpp) ----

  /// Host's place of an aligned access of `bytes` to this space, watched for races. Fault. `touch`:
  /// Access::wrote, Access::strong.
  std::byte* access(Space space, int lane, std::uint64_t address, std::size_t bytes, std::uint32_t touch);
  std::byte* access(const Instruction& by, int lane, std::size_t bytes, std::uint32_t touch) {
    return access(by.space, lane, address(by.addresses[0], lane), bytes,
                  touch | (by.is_strong ? Access::strong : 0));
  }
  /// The same for shared memory, without the watch and with it alone: for instructions in which one lane
  /// names what others read, or which touch memory later.
  std::byte* shared_place(int lane, std::uint64_t address, std::size_t bytes) const;
  void watch_shared(int lane, std::uint64_t address, std::size_t bytes, std::uint32_t touch);
  /// Access::who
  std::uint32_t name(int lane, std::uint32_t touch) const { return thread(lane) << 22 | place << 2 | touch; }

  // ---- state ----

  std::byte* registers = nullptr;
  std::uint32_t active = 0;             ///< lanes for which the instruction in execution counts
  std::uint32_t mask = 0;               ///< lanes of the current group
  std::uint32_t place = 0;              ///< its instruction
  std::uint32_t next = 0;               ///< where it goes on
  std::uint32_t live = 0;               ///< lanes that have not exited
  std::uint32_t least_other = nowhere;  ///< the first place where another group is ready
  std::uint32_t number = 0;             ///< in the block
  bool waits_for_block = false;         ///< at `place`
  Block* block = nullptr;
  Allocation* last_allocation = nullptr;
  std::vector<Group> groups;

 private:
  std::byte* global_place(int lane, std::uint64_t address, std::size_t bytes, std::uint32_t touch);
  std::byte* place_of(const char* space, const char* owner, std::span<std::byte> memory, int lane,
                      std::uint64_t address, std::size_t bytes) const;
  void require_aligned(int lane, const char* space, std::uint64_t address, std::size_t bytes) const;
  [[noreturn]] void report_race(int lane, std::uint64_t address, std::uint32_t touch, const Access& before,
                                bool is_global) const;
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
