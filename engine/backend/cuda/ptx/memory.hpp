// Allocations of device memory.
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

struct Cell;

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

}  // namespace fp16lab::engine::ptx
