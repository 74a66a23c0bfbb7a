// Control flow, barriers, and exchanges between the lanes of a warp (PTX ISA 9.7.12, 9.7.13, 9.7.9.6).
#pragma once

#include <fmt/format.h>

#include <bit>

#include "tests/machines/ptx/warp.hpp"

namespace fp16lab::engine::ptx {

inline std::uint32_t predicate_of(Warp& warp, const Instruction& instruction, std::uint32_t operand) {
  return warp.predicate(operand) ^ (instruction.negated ? all_lanes : 0);
}

/// All active lanes must name the same members, and be members.
inline std::uint32_t members(Warp& warp, std::uint32_t operand) {
  const std::uint32_t* const masks = warp.values<std::uint32_t>(operand);
  const std::uint32_t mask = masks[std::countr_zero(warp.active)];
  for_each_lane(warp.active, [&](int lane) {
    if (masks[lane] != mask)
      warp.fail(
          FaultKind::barrier, lane,
          fmt::format("its member mask is {:08x} and that of another lane here {:08x}", masks[lane], mask));
    if ((mask >> lane & 1) == 0)
      warp.fail(FaultKind::barrier, lane, fmt::format("it is no member of its own mask {:08x}", mask));
  });
  return mask;
}

/// For an instruction about the order of memory or about caches: lanes here go one after the other, and the
/// race watch assumes that it orders no threads by itself.
inline void nothing(Warp&, const Instruction&) {}

/// Active lanes go to the target, the others of the group to the next instruction.
template <bool is_uniform>
void branch(Warp& warp, const Instruction& instruction) {
  const auto target = static_cast<std::uint32_t>(instruction.constant);
  const std::uint32_t staying = warp.mask & ~warp.active;
  if (staying != 0 && is_uniform)
    warp.fail(FaultKind::barrier, std::countr_zero(warp.active), "bra.uni that not all active lanes take");
  if (staying != 0 && target > warp.next) {
    warp.park({target, warp.active});
    warp.mask = staying;
    return;
  }
  if (staying != 0) warp.park({warp.next, staying});
  warp.mask = warp.active;
  warp.next = target;
}

inline void trap(Warp& warp, const Instruction&) {
  warp.fail(FaultKind::instruction, std::countr_zero(warp.active), "the kernel traps");
}

/// The active lanes end.
inline void leave(Warp& warp, const Instruction&) {
  for_each_lane(warp.active, [&](int lane) {
    if (const auto& pending = warp.block->copies[warp.thread(lane)].pending; !pending.empty())
      warp.fail(FaultKind::race, lane, "a thread ends before a copy of it has been waited for, that of",
                pending.front().instruction);
  });
  warp.live &= ~warp.active;
  warp.mask &= ~warp.active;
}

/// bar.sync, and bar.red.or: p is the disjunction of c over the block. It is .aligned, and the block goes on
/// when all threads that have not exited are here (9.7.13.1).
inline void block_barrier(Warp& warp, const Instruction& instruction) {
  if (const std::uint32_t c = instruction.operands[1]; c != no_operand)
    if ((predicate_of(warp, instruction, c) & warp.active) != 0) warp.block->barrier_or = true;
  warp.require_together(warp.live);
  warp.next = warp.place;
  warp.mask = 0;
  warp.waits_for_block = true;
}

inline void warp_barrier(Warp& warp, const Instruction& instruction) {
  if (!warp.meets(members(warp, instruction.operands[0]))) return;
  if ((warp.live & ~warp.active) == 0) warp.block->watch.meet_warp(warp.number);
}

enum class Shuffle : std::uint8_t { up, down, butterfly, index };
/// 9.7.9.6: c has the clamp in bits 0-4 and the segment mask in bits 8-12. A source lane that is not active
/// here gives an unpredictable value: poison.
template <Shuffle mode>
void shuffle(Warp& warp, const Instruction& instruction) {
  const auto& operands = instruction.operands;
  if (!warp.meets(members(warp, operands[5]))) return;
  const auto* const a = warp.values<std::uint32_t>(operands[2]);
  const auto* const b = warp.values<std::uint32_t>(operands[3]);
  const auto* const c = warp.values<std::uint32_t>(operands[4]);
  std::uint32_t results[lanes], in_range = 0;
  for (std::uint32_t lane = 0; lane < lanes; ++lane) {
    const std::uint32_t segment = c[lane] >> 8 & 0x1f, clamp = c[lane] & 0x1f, offset = b[lane] & 0x1f;
    const std::uint32_t least = lane & segment, bound = least | (clamp & ~segment);
    std::uint32_t source = lane - offset;
    if (mode == Shuffle::down) source = lane + offset;
    if (mode == Shuffle::butterfly) source = lane ^ offset;
    if (mode == Shuffle::index) source = least | (offset & ~segment);
    const bool is_valid = mode == Shuffle::up
                              ? static_cast<std::int32_t>(source) >= static_cast<std::int32_t>(bound)
                              : source <= bound;
    if (!is_valid) source = lane;
    in_range |= static_cast<std::uint32_t>(is_valid) << lane;
    results[lane] = (warp.active >> source & 1) != 0 ? a[source] : 0xa5a5a5a5u;
  }
  warp.assign(operands[0], results);
  if (operands[1] != no_operand) warp.assign_predicate(operands[1], in_range);
}

enum class Vote : std::uint8_t { ballot, any, all };
/// Operands: result, predicate, members.
template <Vote mode>
void vote(Warp& warp, const Instruction& instruction) {
  const auto& operands = instruction.operands;
  if (!warp.meets(members(warp, operands[2]))) return;
  const std::uint32_t votes = predicate_of(warp, instruction, operands[1]) & warp.active;
  if constexpr (mode == Vote::ballot) {
    std::uint32_t results[lanes];
    for (std::uint32_t& result : results) result = votes;
    warp.assign(operands[0], results);
  } else {
    const bool result = mode == Vote::any ? votes != 0 : votes == warp.active;
    warp.assign_predicate(operands[0], result ? all_lanes : 0);
  }
}

}  // namespace fp16lab::engine::ptx
