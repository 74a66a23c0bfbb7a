// Asynchronous copies to shared memory (PTX ISA 9.7.9.25.3). They arrive as late as a wait allows, with what
// global memory holds by then; until then nobody may touch the place where they go.
#pragma once

#include <fmt/format.h>

#include <bit>
#include <stdexcept>

#include "engine/backend/cuda/ptx/warp.hpp"

namespace fp16lab::engine::ptx {

/// Addresses: in shared memory, in global memory. `constant`: bytes; operand: how many of them are copied,
/// all if absent.
inline void copy(Warp& warp, const Instruction& instruction) {
  const auto bytes = static_cast<std::size_t>(instruction.constant);
  for_each_lane(warp.active, [&](int lane) {
    const std::uint64_t to = warp.address(instruction.addresses[0], lane),
                        from = warp.address(instruction.addresses[1], lane);
    const std::uint32_t source = instruction.operands[0];
    const std::size_t valid = source == no_operand ? bytes : warp.values<std::uint32_t>(source)[lane];
    if (valid > bytes)
      warp.fail(FaultKind::bounds, lane,
                fmt::format("a copy of {} bytes with {} of them from memory", bytes, valid));
    if (from % bytes != 0)
      warp.fail(FaultKind::alignment, lane,
                fmt::format("a copy of {} bytes from {:#x}, which is not aligned", bytes, from));
    warp.access(Space::shared, lane, to, bytes, {.writes = true});
    warp.block->watch.note_copy(to - space_begin, bytes, warp.name(lane, {.writes = true}), false);
    auto& [pending, groups] = warp.block->copies[warp.thread(lane)];
    pending.push_back({to, from, valid, bytes - valid, warp.place, groups});
  });
}

inline void arrive(Warp& warp, int lane, const DelayedCopy& copy) {
  std::byte* const to = warp.shared_place(lane, copy.to, copy.bytes + copy.zeros);
  // Bytes that are copied need not be a power of two.
  for (std::size_t done = 0; done < copy.bytes;) {
    const std::size_t piece = std::bit_floor(copy.bytes - done);
    std::memcpy(to + done, warp.access(Space::global, lane, copy.from + done, piece, {}), piece);
    done += piece;
  }
  std::memset(to + copy.bytes, 0, copy.zeros);
  warp.block->watch.note_copy(copy.to - space_begin, copy.bytes + copy.zeros,
                              warp.name(lane, {.writes = true}), true);
}

template <int least_bytes>
Handler bind_copy(Instruction& instruction) {
  const std::int64_t bytes = instruction.constant;
  if (bytes < least_bytes || (bytes != 4 && bytes != 8 && bytes != 16))
    throw std::invalid_argument(fmt::format("a copy of {} bytes", bytes));
  const auto& [to, from] = instruction.addresses;
  if ((to.base != no_operand && to.is_wide) || from.base == no_operand)
    throw std::invalid_argument(
        "a copy whose address is in no register of 32 bits (shared memory) and 64 bits (global memory)");
  return &copy;
}

inline void commit_copies(Warp& warp, const Instruction&) {
  for_each_lane(warp.active, [&](int lane) { ++warp.block->copies[warp.thread(lane)].groups; });
}
/// All groups of a thread but the newest `constant` ones arrive.
inline void wait_for_groups(Warp& warp, const Instruction& instruction) {
  const std::uint32_t waiting_place = warp.place;
  for_each_lane(warp.active, [&](int lane) {
    auto& [pending, groups] = warp.block->copies[warp.thread(lane)];
    auto copy = pending.begin();
    for (; copy != pending.end(); ++copy) {
      if (copy->group + static_cast<std::size_t>(instruction.constant) >= groups) break;
      warp.place = copy->instruction;  // for messages
      arrive(warp, lane, *copy);
    }
    pending.erase(pending.begin(), copy);
    warp.place = waiting_place;
  });
}
inline void wait_for_all_copies(Warp& warp, const Instruction& instruction) {
  commit_copies(warp, instruction);
  wait_for_groups(warp, instruction);
}

}  // namespace fp16lab::engine::ptx
