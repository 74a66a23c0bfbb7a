// The watch that finds races.
//
// A race: two threads touch the same bytes, at least one writes, not both by atomic or volatile instructions,
// and no barrier comes between (PTX ISA, "Memory Consistency Model": conflicting weak operations without
// happens-before). bar.sync orders the threads of a block, bar.warp.sync those of a warp if all of its lanes
// take part; one of fewer lanes orders nothing here. Nothing orders threads of two blocks.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "tests/machines/ptx/instruction.hpp"
#include "tests/machines/ptx/machine.hpp"

namespace fp16lab::engine::ptx {

/// One access of one thread: when (0: never), and who. Time goes on at every barrier.
struct Access {
  std::uint32_t time = 0;
  std::uint32_t who = 0;  ///< thread of the block << 22, instruction << 2, strong, wrote

  static constexpr std::uint32_t wrote = 1, strong = 2, most_instructions = 1u << 20;
  /// The time of a copy on its way to memory (cp.async): no thread may touch it.
  static constexpr std::uint32_t in_flight = 0xffffffffu;
  std::uint32_t thread() const { return who >> 22; }
  std::uint32_t instruction() const { return who >> 2 & (most_instructions - 1); }
  bool writes() const { return (who & wrote) != 0; }
  bool is_strong() const { return (who & strong) != 0; }
};

/// What is remembered of a granule: the last write, and two reads. The second is of another warp than the
/// first if there is one: so a write that races with any read races with one of these.
struct Cell {
  Access writer, readers[2];
};

class RaceWatch {
 public:
  void begin_launch(bool is_on, const Code& code, std::size_t shared_bytes, std::uint32_t warps);
  void begin_block(const std::array<std::uint32_t, 3>& index) {
    begin_time_ = barrier_time_ = ++time_;
    if (is_on_) blocks_.emplace_back(begin_time_, index);
  }
  /// All threads of the block have met; all lanes of a warp have.
  void meet_block() { barrier_time_ = ++time_; }
  void meet_warp(std::uint32_t warp) { warp_times_[warp] = ++time_; }

  /// An aligned access. The earlier one that it races with; null: none. `who`: as Access has it.
  const Access* note_global(Allocation& allocation, std::size_t offset, std::size_t bytes, std::uint32_t who);
  const Access* note_shared(std::size_t offset, std::size_t bytes, std::uint32_t who);
  /// A copy to shared memory, which is on its way, or has arrived.
  void note_copy(std::size_t offset, std::size_t bytes, std::uint32_t who, bool has_arrived);

  /// "thread 3 of this block", "thread 3 of block (1, 0, 0)".
  std::string describe(const Access& access, bool is_global) const;

 private:
  static constexpr std::size_t page_bytes = 4096;

  const Access* note(Cell* cell, std::size_t bytes, std::size_t granule, std::uint32_t who, bool is_global);
  bool races(const Access& before, Access now, bool is_global) const;
  bool is_ordered(const Access& before, std::uint32_t thread, bool is_global) const;
  void remember_read(Cell& cell, Access now, bool is_global) const;
  void open_page(Allocation& allocation, std::size_t page);

  bool is_on_ = false;
  std::uint32_t time_ = 0, begin_time_ = 0, barrier_time_ = 0;  ///< now; the block's; its last barrier's
  std::vector<std::pair<std::uint32_t, std::array<std::uint32_t, 3>>> blocks_;  ///< the launch's, by time
  std::vector<std::uint32_t> warp_times_;  ///< times of each warp's last barrier
  std::size_t shared_granule_ = 16, global_granule_ = 16;
  std::vector<Cell> shared_;

  static inline std::uint64_t launches = 0;  ///< by all machines: pages of one are none of another's
  std::uint64_t launch_ = 0;
  std::size_t used_pages_ = 0;
  std::vector<std::vector<Cell>> pages_;
};

}  // namespace fp16lab::engine::ptx
