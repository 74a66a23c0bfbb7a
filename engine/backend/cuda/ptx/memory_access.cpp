// Every access of a thread: bounds, alignment, and the race watch.
#include <fmt/format.h>

#include "engine/backend/cuda/ptx/warp.hpp"

namespace fp16lab::engine::ptx {

namespace {

[[noreturn]] void report_misaligned(const Warp& warp, int lane, const char* space, std::uint64_t address,
                                    std::size_t bytes) {
  warp.fail(
      FaultKind::alignment, lane,
      fmt::format("{0} bytes at {1:#x} of {2} memory are not aligned to {0} bytes", bytes, address, space));
}

}  // namespace

void Warp::report_race(int lane, std::uint64_t address, Touch touch, const Access& before,
                       bool is_global) const {
  const std::string what = fmt::format("it {} {} memory at {:#x},", touch.writes ? "writes" : "reads",
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

std::byte* Warp::global_place(int lane, std::uint64_t address, std::size_t bytes, Touch touch) {
  if ((address & (bytes - 1)) != 0) report_misaligned(*this, lane, "global", address, bytes);
  Allocation* allocation = last_allocation;
  std::uint64_t offset = 0;
  if (allocation != nullptr) offset = address - reinterpret_cast<std::uintptr_t>(allocation->begin);
  if (allocation == nullptr || offset >= allocation->bytes || bytes > allocation->bytes - offset) {
    allocation = block->memory->find(address, bytes);
    if (allocation == nullptr)
      fail(FaultKind::bounds, lane,
           fmt::format("{} bytes of global memory at {:#x} are outside of all allocations: {}", bytes,
                       address, block->memory->nearest(address)));
    last_allocation = allocation;
    offset = address - reinterpret_cast<std::uintptr_t>(allocation->begin);
  }
  if (const Access* const before = block->watch.note_global(*allocation, offset, bytes, name(lane, touch)))
    report_race(lane, address, touch, *before, true);
  return allocation->begin + offset;
}

/// Of memory whose addresses begin at space_begin and which `owner` has.
std::byte* Warp::place_of(const char* space, const char* owner, std::byte* begin, std::size_t size, int lane,
                          std::uint64_t address, std::size_t bytes) const {
  const std::uint64_t offset = address - space_begin;
  if ((address & (bytes - 1)) != 0) report_misaligned(*this, lane, space, address, bytes);
  if (offset >= size || bytes > size - offset)
    fail(FaultKind::bounds, lane,
         fmt::format("{} bytes at byte {} of {} memory; {} has {} bytes", bytes,
                     static_cast<std::int64_t>(offset), space, owner, size));
  return begin + offset;
}

std::byte* Warp::shared_place(int lane, std::uint64_t address, std::size_t bytes) const {
  return place_of("shared", "the block", block->shared.data(), block->shared.size(), lane, address, bytes);
}

void Warp::watch_shared(int lane, std::uint64_t address, std::size_t bytes, Touch touch) {
  if (const Access* const before = block->watch.note_shared(address - space_begin, bytes, name(lane, touch)))
    report_race(lane, address, touch, *before, false);
}

std::byte* Warp::access(Space space, int lane, std::uint64_t address, std::size_t bytes, Touch touch) {
  if (space == Space::generic) {
    const std::uint64_t window = address & window_mask;
    space = window == shared_window ? Space::shared : window == local_window ? Space::local : Space::global;
    if (space != Space::global) address &= ~window_mask;
  }
  if (touch.writes && (space == Space::constant || space == Space::parameter))
    fail(FaultKind::bounds, lane, "a write to memory that is only read");
  if (space == Space::global || space == Space::constant) return global_place(lane, address, bytes, touch);
  if (space == Space::shared) {
    std::byte* const place_in_shared = shared_place(lane, address, bytes);
    watch_shared(lane, address, bytes, touch);
    return place_in_shared;
  }
  if (space == Space::parameter)
    return place_of("parameter", "the kernel", block->parameters.data(), block->parameters.size(), lane,
                    address, bytes);
  const std::size_t size = block->code->local_bytes;
  return place_of("local", "a thread", block->local.data() + thread(lane) * size, size, lane, address, bytes);
}

}  // namespace fp16lab::engine::ptx
