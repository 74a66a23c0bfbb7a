// Device memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace fp16lab::engine::ptx {

struct Cell;

struct Allocation {
  std::byte* begin = nullptr;
  std::size_t bytes = 0;
  std::string what;
  std::unique_ptr<std::byte[]> storage;
  std::vector<Cell*> pages = {};  ///< of the race watch, in launch `watched_launch`
  std::uint64_t watched_launch = 0;
};

/// Allocations with their bounds, each filled with a5 bytes when it is made. Addresses are those of host
/// memory, so that copies are copies; no two allocations touch.
class DeviceMemory {
 public:
  /// 256-byte aligned; nullptr where there is none left.
  std::byte* allocate(std::size_t bytes, std::string_view what = "memory");
  /// std::invalid_argument for what is no allocation's beginning.
  void free(std::byte* address);
  /// The allocation that holds [address, address + bytes); null if there is none.
  Allocation* find(std::uint64_t address, std::size_t bytes);
  /// "behind the end of ... " and the like, for messages.
  std::string nearest(std::uint64_t address) const;

 private:
  std::map<std::uintptr_t, Allocation> allocations_;
};

}  // namespace fp16lab::engine::ptx
