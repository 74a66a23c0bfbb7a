// Device memory, and every access of a thread to any memory: bounds, alignment, and the race watch.
#include "tests/machines/ptx/machine.hpp"

#include <fmt/format.h>

#include <cstring>
#include <new>
#include <stdexcept>

#include "tests/machines/ptx/warp.hpp"

namespace fp16lab::engine::ptx {

// ---- allocations ----

std::byte* DeviceMemory::allocate(std::size_t bytes, std::string_view what) {
  constexpr std::size_t alignment = 256;
  // A gap before and after, so that no two allocations touch.
  const std::size_t all = bytes + 3 * alignment;
  if (all < bytes) return nullptr;
  std::unique_ptr<std::byte[]> storage(new (std::nothrow) std::byte[all]);
  if (storage == nullptr) return nullptr;
  const auto start = reinterpret_cast<std::uintptr_t>(storage.get());
  const std::uintptr_t address = (start + 2 * alignment - 1) / alignment * alignment;
  std::byte* const begin = storage.get() + (address - start);
  std::memset(begin, register_poison, bytes);
  allocations_.emplace(address, Allocation{begin, bytes, std::string(what), std::move(storage)});
  return begin;
}

void DeviceMemory::free(std::byte* address) {
  if (allocations_.erase(reinterpret_cast<std::uintptr_t>(address)) == 0)
    throw std::invalid_argument(
        fmt::format("free: {} is not the beginning of an allocation", static_cast<const void*>(address)));
}

Allocation* DeviceMemory::find(std::uint64_t address, std::size_t bytes) {
  const auto next = allocations_.upper_bound(address);
  if (next == allocations_.begin()) return nullptr;
  auto& [begin, candidate] = *std::prev(next);
  const std::uint64_t offset = address - begin;
  return offset <= candidate.bytes && bytes <= candidate.bytes - offset ? &candidate : nullptr;
}

std::string DeviceMemory::nearest(std::uint64_t address) const {
  if (allocations_.empty()) return "there is no allocation";
  auto nearest = allocations_.upper_bound(address);  // the next one, or that before it
  if (nearest != allocations_.begin()) {
    const auto& [begin, before] = *std::prev(nearest);
    const std::uint64_t end = begin + before.bytes;
    if (nearest == allocations_.end() || address < end || nearest->first - address >= address - end)
      --nearest;
  }
  const auto& [begin, allocation] = *nearest;
  const std::uint64_t end = begin + allocation.bytes;
  const std::string place = address < begin ? fmt::format("{} bytes before", begin - address)
                            : address < end ? fmt::format("at byte {} of", address - begin)
                                            : fmt::format("{} bytes after the end of", address - end);
  return fmt::format("{} {} of {} bytes", place, allocation.what, allocation.bytes);
}

// ---- accesses ----

void Warp::report_race(int lane, std::uint64_t address, std::uint32_t touch, const Access& before,
                       bool is_global) const {
  const std::string what =
      fmt::format("it {} {} memory at {:#x},", (touch & Access::wrote) != 0 ? "writes" : "reads",
                  is_global ? "global" : "shared", address);
  if (before.time == Access::in_flight)
    fail(FaultKind::race, lane,
         fmt::format("{} to which a copy of thread {} is on its way that nobody has waited for, of", what,
                     before.thread()),
         before.instruction());
  fail(FaultKind::race, lane,
       fmt::format("a race: {} which {} {} without a barrier between, at", what,
                   block->watch.describe(before, is_global), before.writes() ? "wrote" : "read"),
       before.instruction());
}

void Warp::require_aligned(int lane, const char* space, std::uint64_t address, std::size_t bytes) const {
  if ((address & (bytes - 1)) != 0)
    fail(
        FaultKind::alignment, lane,
        fmt::format("{0} bytes at {1:#x} of {2} memory are not aligned to {0} bytes", bytes, address, space));
}

std::byte* Warp::global_place(int lane, std::uint64_t address, std::size_t bytes, std::uint32_t touch) {
  require_aligned(lane, "global", address, bytes);
  const auto offset_in = [address](const Allocation& allocation) {
    return address - reinterpret_cast<std::uintptr_t>(allocation.begin);
  };
  Allocation*& allocation = last_allocation;
  if (allocation == nullptr || offset_in(*allocation) >= allocation->bytes ||
      bytes > allocation->bytes - offset_in(*allocation))
    allocation = block->memory->find(address, bytes);
  if (allocation == nullptr)
    fail(FaultKind::bounds, lane,
         fmt::format("{} bytes of global memory at {:#x} are outside of all allocations: {}", bytes, address,
                     block->memory->nearest(address)));
  const std::uint64_t offset = offset_in(*allocation);
  if (const Access* const before = block->watch.note_global(*allocation, offset, bytes, name(lane, touch)))
    report_race(lane, address, touch, *before, true);
  return allocation->begin + offset;
}

/// The place in memory whose addresses begin at space_begin and which `owner` has.
std::byte* Warp::place_of(const char* space, const char* owner, std::span<std::byte> memory, int lane,
                          std::uint64_t address, std::size_t bytes) const {
  const std::uint64_t offset = address - space_begin;
  require_aligned(lane, space, address, bytes);
  if (offset >= memory.size() || bytes > memory.size() - offset)
    fail(FaultKind::bounds, lane,
         fmt::format("{} bytes at byte {} of {} memory; {} has {} bytes", bytes,
                     static_cast<std::int64_t>(offset), space, owner, memory.size()));
  return memory.data() + offset;
}

std::byte* Warp::shared_place(int lane, std::uint64_t address, std::size_t bytes) const {
  return place_of("shared", "the block", block->shared, lane, address, bytes);
}

void Warp::watch_shared(int lane, std::uint64_t address, std::size_t bytes, std::uint32_t touch) {
  if (const Access* const before = block->watch.note_shared(address - space_begin, bytes, name(lane, touch)))
    report_race(lane, address, touch, *before, false);
}

std::byte* Warp::access(Space space, int lane, std::uint64_t address, std::size_t bytes,
                        std::uint32_t touch) {
  if (space == Space::generic) {
    const std::uint64_t window = address & window_mask;
    space = window == shared_window ? Space::shared : window == local_window ? Space::local : Space::global;
    if (space != Space::global) address &= ~window_mask;
  }
  if ((touch & Access::wrote) != 0 && (space == Space::constant || space == Space::parameter))
    fail(FaultKind::bounds, lane, "a write to memory that is only read");
  if (space == Space::global || space == Space::constant) return global_place(lane, address, bytes, touch);
  if (space == Space::shared) {
    std::byte* const place_in_shared = shared_place(lane, address, bytes);
    watch_shared(lane, address, bytes, touch);
    return place_in_shared;
  }
  if (space == Space::parameter)
    return place_of("parameter", "the kernel", block->parameters, lane, address, bytes);
  const std::size_t size = block->code->local_bytes;
  return place_of("local", "a thread", std::span(block->local).subspan(thread(lane) * size, size), lane,
                  address, bytes);
}

}  // namespace fp16lab::engine::ptx
