// Allocations of device memory, and the watch that finds races in them and in shared memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/backend/cuda/ptx/machine.hpp"

namespace fp16lab::engine::ptx {

/// One access of one thread: when (0: never), and who. Time goes on at every barrier.
struct Access {
  std::uint32_t time = 0;
  std::uint32_t who = 0;  ///< thread of the block, instruction, strong, wrote

  static constexpr std::uint32_t wrote = 1, strong = 2, most_instructions = 1u << 20;
  static constexpr std::uint32_t name(std::uint32_t thread, std::uint32_t instruction, bool is_strong,
                                      bool writes) {
    return thread << 22 | instruction << 2 | (is_strong ? strong : 0) | (writes ? wrote : 0);
  }
  std::uint32_t thread() const { return who >> 22; }
  std::uint32_t instruction() const { return who >> 2 & (most_instructions - 1); }
};

/// What is remembered of a granule: the last write, and two reads. The second is of another warp than the first if
/// there is one: so a write that races with any read races with one of these.
struct Cell {
  Access writer, readers[2];
};

/// A copy in flight will write here (cp.async): nobody may touch it.
inline constexpr std::uint32_t in_flight = 0xffffffffu;

struct Allocation {
  std::byte* begin = nullptr;
  std::size_t bytes = 0;
  std::string what;
  std::unique_ptr<std::byte[]> storage;
  std::vector<Cell*> pages;  ///< of the race watch, in launch `watched_launch`
  std::uint64_t watched_launch = 0;
};

struct DeviceMemory::State {
  mutable std::mutex mutex;
  std::map<std::uintptr_t, Allocation> allocations;

  /// The allocation that holds [address, address + bytes); null if there is none.
  Allocation* find(std::uint64_t address, std::size_t bytes);
  /// "behind the end of ... " and the like, for messages.
  std::string nearest(std::uint64_t address) const;
};

/// Hands out the cells of a launch: pages of 4096 bytes of an allocation, empty when they are first touched.
class CellPages {
 public:
  static constexpr std::size_t page_bytes = 4096;
  void begin_launch(int granule) {
    granule_ = static_cast<std::size_t>(granule);
    ++launch_;
    used_ = 0;
  }
  /// The cell of this byte of the allocation.
  Cell* at(Allocation& allocation, std::size_t offset) {
    const std::size_t page = offset / page_bytes;
    if (allocation.watched_launch != launch_ || allocation.pages[page] == nullptr) open(allocation, page);
    return allocation.pages[page] + offset % page_bytes / granule_;
  }
  std::size_t granule() const { return granule_; }

 private:
  void open(Allocation& allocation, std::size_t page);

  std::size_t granule_ = 4;
  std::uint64_t launch_ = next_launch();
  std::size_t used_ = 0;
  std::vector<std::vector<Cell>> pages_;
  static std::uint64_t next_launch();
};

}  // namespace fp16lab::engine::ptx
