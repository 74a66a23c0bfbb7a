// Every access of a thread: bounds, alignment, and whether another thread's access races with it.
//
// A race: two threads touch the same bytes, at least one writes, not both by atomic or volatile instructions, and no
// barrier stands between (PTX ISA, "Memory Consistency Model": conflicting weak operations without happens-before).
// bar.sync orders the threads of a block, bar.warp.sync those of a warp if all of its lanes take part; one of fewer
// lanes orders nothing here. Nothing orders threads of two blocks.
#include <fmt/format.h>

#include <algorithm>

#include "engine/backend/cuda/ptx/warp.hpp"

namespace fp16lab::engine::ptx {

namespace {

struct Watcher {
  const Warp& warp;
  const Block& block;
  int lane;
  std::uint64_t address;
  bool global;

  /// Did this earlier access happen before the current one for other reasons than being of the same thread?
  bool is_ordered(const Access& before, std::uint32_t thread) const {
    if (before.time == 0) return true;
    if (before.time == in_flight) return false;
    if (before.time < block.begin_time) return !global;  // another block's
    if (before.time < block.barrier_time) return true;
    return before.thread() == thread ||
           (before.thread() / lanes == thread / lanes && before.time < warp.sync_time);
  }

  void check(const Access& before, const Access& now) const {
    if (((before.who | now.who) & Access::wrote) == 0) return;
    if (is_ordered(before, now.thread())) return;
    if ((before.who & now.who & Access::strong) != 0 && before.time != in_flight) return;
    report(before, now);
  }

  [[noreturn]] void report(const Access& before, const Access& now) const {
    const std::string what =
        fmt::format("it {} {} memory at {:#x},", (now.who & Access::wrote) != 0 ? "writes" : "reads",
                    global ? "global" : "shared", address);
    const char* const did = (before.who & Access::wrote) != 0 ? "wrote" : "read";
    if (before.time == in_flight)
      warp.fail(lane,
                fmt::format("{} to which a copy of thread {} is on its way that nobody has waited for, of",
                            what, before.thread()),
                before.instruction());
    std::string whose = fmt::format("thread {} of this block", before.thread());
    if (global && before.time < block.begin_time && block.block_times != nullptr) {
      const auto& times = *block.block_times;
      auto other = std::upper_bound(times.begin(), times.end(), before.time,
                                    [](std::uint32_t time, const auto& entry) { return time < entry.first; });
      if (other != times.begin()) {
        const auto& index = std::prev(other)->second;
        whose = fmt::format("thread {} of block ({}, {}, {})", before.thread(), index[0], index[1], index[2]);
      }
    }
    warp.fail(lane, fmt::format("a race: {} which {} {} without a barrier between, at", what, whose, did),
              before.instruction());
  }

  void note(Cell& cell, const Access& now) const {
    check(cell.writer, now);
    Access &first = cell.readers[0], &second = cell.readers[1];
    if (first.time != 0) {
      check(first, now);
      if (second.time != 0) check(second, now);
    }
    if ((now.who & Access::wrote) != 0) {
      // An atomic write of another thread stays known beside this one.
      if ((cell.writer.who & Access::strong) != 0 && !is_ordered(cell.writer, now.thread()))
        remember(cell, cell.writer);
      cell.writer = now;
      return;
    }
    remember(cell, now);
  }

  void remember(Cell& cell, const Access now) const {
    Access &first = cell.readers[0], &second = cell.readers[1];
    const bool here = first.time >= block.begin_time && first.time != 0;
    if (here && first.thread() == now.thread() && ((first.who ^ now.who) & Access::wrote) == 0) {
      first = now;
      return;
    }
    const bool other_warp = first.time != 0 && (!here || first.thread() / lanes != now.thread() / lanes);
    const bool second_is_other =
        second.time != 0 &&
        (second.time < block.begin_time || second.thread() / lanes != now.thread() / lanes) &&
        !is_ordered(second, now.thread());
    if (other_warp || !second_is_other) second = first;
    first = now;
  }
};

}  // namespace

std::byte* Warp::access_global(int lane, std::uint64_t address, std::size_t bytes, Touch touch) {
  if (address % bytes != 0)
    fail(lane, fmt::format("an access of {} bytes at {:#x} is not aligned", bytes, address));
  Allocation* allocation = last_allocation;
  std::uint64_t offset = 0;
  if (allocation != nullptr) offset = address - reinterpret_cast<std::uintptr_t>(allocation->begin);
  if (allocation == nullptr || offset >= allocation->bytes || bytes > allocation->bytes - offset) {
    allocation = block->memory->find(address, bytes);
    if (allocation == nullptr)
      fail(lane, fmt::format("{} bytes of global memory at {:#x} are outside of all allocations: {}", bytes,
                             address, block->memory->nearest(address)));
    last_allocation = allocation;
    offset = address - reinterpret_cast<std::uintptr_t>(allocation->begin);
  }
  if (block->pages != nullptr) {
    const Watcher watcher{*this, *block, lane, address, true};
    const Access now{block->time, Access::name(thread(lane), place, touch.strong, touch.writes)};
    Cell* cell = block->pages->at(*allocation, offset);  // an aligned access lies in one page
    for (std::size_t done = 0; done < bytes; done += block->pages->granule()) watcher.note(*cell++, now);
  }
  return allocation->begin + offset;
}

void Warp::note_shared(int lane, std::uint64_t address, std::size_t bytes, Touch touch) {
  if (block->shared_cells.empty()) return;
  const auto granule = static_cast<std::size_t>(block->code->shared_granule);
  const Watcher watcher{*this, *block, lane, address, false};
  const Access now{block->time, Access::name(thread(lane), place, touch.strong, touch.writes)};
  Cell* cell = block->shared_cells.data() + (address - space_begin) / granule;
  for (std::size_t done = 0; done < bytes; done += granule) watcher.note(*cell++, now);
}

std::byte* Warp::access_shared(int lane, std::uint64_t address, std::size_t bytes, Touch touch) {
  if (address % bytes != 0)
    fail(lane, fmt::format("an access of {} bytes at {:#x} of shared memory is not aligned", bytes, address));
  const std::uint64_t offset = address - space_begin;
  if (offset >= block->shared_bytes || bytes > block->shared_bytes - offset)
    fail(lane, fmt::format("{} bytes at byte {} of shared memory; the block has {} bytes", bytes,
                           static_cast<std::int64_t>(offset), block->shared_bytes));
  note_shared(lane, address, bytes, touch);
  return block->shared.data() + offset;
}

std::byte* Warp::access_local(int lane, std::uint64_t address, std::size_t bytes) {
  if (address % bytes != 0)
    fail(lane, fmt::format("an access of {} bytes at {:#x} of local memory is not aligned", bytes, address));
  const std::size_t size = block->code->local_bytes;
  const std::uint64_t offset = address - space_begin;
  if (offset >= size || bytes > size - offset)
    fail(lane, fmt::format("{} bytes at byte {} of local memory; a thread has {} bytes", bytes,
                           static_cast<std::int64_t>(offset), size));
  return block->local.data() + thread(lane) * size + offset;
}

std::byte* Warp::access(Space space, int lane, std::uint64_t address, std::size_t bytes, Touch touch) {
  switch (space) {
    case Space::global:
      return access_global(lane, address, bytes, touch);
    case Space::shared:
      return access_shared(lane, address, bytes, touch);
    case Space::local:
      return access_local(lane, address, bytes);
    case Space::generic:
      if ((address & window_mask) == shared_window)
        return access_shared(lane, address & ~window_mask, bytes, touch);
      if ((address & window_mask) == local_window) return access_local(lane, address & ~window_mask, bytes);
      return access_global(lane, address, bytes, touch);
    case Space::constant: {
      if (touch.writes) fail(lane, "a write to constant memory");
      return access_global(lane, address, bytes, touch);
    }
    case Space::parameter:
      break;
  }
  if (touch.writes) fail(lane, "a write to parameters");
  if (address % bytes != 0)
    fail(lane, fmt::format("{} bytes at {:#x} of the parameters are not aligned", bytes, address));
  const std::uint64_t offset = address - space_begin;
  if (offset >= block->parameters.size() || bytes > block->parameters.size() - offset)
    fail(lane, fmt::format("{} bytes at byte {} of the parameters, which have {} bytes", bytes,
                           static_cast<std::int64_t>(offset), block->parameters.size()));
  return const_cast<std::byte*>(block->parameters.data()) + offset;
}

void Warp::delay_copy(int lane, std::uint64_t to, std::uint64_t from, std::size_t bytes, std::size_t valid) {
  if (valid > bytes) fail(lane, fmt::format("a copy of {} bytes with {} of them from memory", bytes, valid));
  if (from % bytes != 0)
    fail(lane, fmt::format("a copy of {} bytes from {:#x}, which is not aligned", bytes, from));
  if ((from & window_mask) != 0)
    fail(lane, fmt::format("a copy from {:#x}, which is no global address", from));
  access_shared(lane, to, bytes, {.writes = true});
  if (!block->shared_cells.empty()) {
    const auto granule = static_cast<std::size_t>(block->code->shared_granule);
    for (std::size_t done = 0; done < bytes; done += granule)
      block->shared_cells[(to - space_begin + done) / granule].writer.time = in_flight;
  }
  DelayedCopies& copies = block->copies[thread(lane)];
  copies.pending.push_back({static_cast<std::uint32_t>(to), place, from, static_cast<std::uint16_t>(valid),
                            static_cast<std::uint16_t>(bytes - valid)});
}

void Warp::commit_copies(int lane) {
  DelayedCopies& copies = block->copies[thread(lane)];
  copies.groups.push_back(copies.pending.size());
}

void Warp::finish_copies(int lane, std::size_t left, bool uncommitted) {
  DelayedCopies& copies = block->copies[thread(lane)];
  const std::size_t finished = copies.groups.size() > left ? copies.groups.size() - left : 0;
  std::size_t arriving = finished == 0 ? 0 : copies.groups[finished - 1];
  if (uncommitted) arriving = copies.pending.size();
  const std::uint32_t waiting_place = place;
  for (std::size_t i = 0; i < arriving; ++i) {
    const DelayedCopy& copy = copies.pending[i];
    place = copy.instruction;  // for messages
    std::byte* const to = block->shared.data() + (copy.to - space_begin);
    // Bytes that are copied need not be a power of two, but the granules that they lie in are the thread's to read.
    for (std::size_t done = 0; done < copy.bytes;) {
      const std::size_t piece = copy.bytes - done >= 16 ? 16
                                                        : std::size_t{1} << (copy.bytes - done >= 8   ? 3
                                                                             : copy.bytes - done >= 4 ? 2
                                                                             : copy.bytes - done >= 2 ? 1
                                                                                                      : 0);
      std::memcpy(to + done, access_global(lane, copy.from + done, piece, {}), piece);
      done += piece;
    }
    std::memset(to + copy.bytes, 0, copy.zeros);
    if (!block->shared_cells.empty()) {
      const auto granule = static_cast<std::size_t>(block->code->shared_granule);
      const std::size_t all = copy.bytes + std::size_t{copy.zeros};
      for (std::size_t done = 0; done < all; done += granule)
        block->shared_cells[(copy.to - space_begin + done) / granule].writer = {
            block->time, Access::name(thread(lane), copy.instruction, false, true)};
    }
  }
  place = waiting_place;
  copies.pending.erase(copies.pending.begin(),
                       copies.pending.begin() + static_cast<std::ptrdiff_t>(arriving));
  if (uncommitted) {
    copies.groups.clear();
    return;
  }
  copies.groups.erase(copies.groups.begin(), copies.groups.begin() + static_cast<std::ptrdiff_t>(finished));
  for (std::size_t& end : copies.groups) end -= arriving;
}

}  // namespace fp16lab::engine::ptx
