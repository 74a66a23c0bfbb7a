// Control flow, barriers, and what the lanes of a warp tell each other (PTX ISA 9.7.12, 9.7.13, 9.7.9.6).
#include <fmt/format.h>

#include <bit>

#include "engine/backend/cuda/ptx/handlers.hpp"
#include "engine/backend/cuda/ptx/table.hpp"
#include "engine/backend/cuda/ptx/warp.hpp"

namespace fp16lab::engine::ptx {

namespace {

template <bool uniform>
void branch(Warp& warp, const Instruction& instruction) {
  warp.branch(static_cast<std::uint32_t>(instruction.constant), uniform);
}
void leave(Warp& warp, const Instruction&) { warp.exit_lanes(); }

/// bar.sync 0: the block goes on when all threads that have not exited are here (9.7.13.1).
void block_barrier(Warp& warp, const Instruction&) { warp.wait_for_block(); }

/// bar.red.or.pred p, 0, c: p is the disjunction of c over the block.
void block_barrier_or(Warp& warp, const Instruction& instruction) {
  const std::uint32_t own = warp.predicate(instruction.operands[1]) ^ (instruction.negated ? all_lanes : 0);
  if ((own & warp.active) != 0) warp.block->barrier_or = true;
  warp.wait_for_block();
}

/// membar.cta: the order of memory operations as others see them. Lanes here go one after the other, so that there is
/// nothing to do; that it orders no threads by itself is what the race watch takes it for.
void memory_barrier(Warp&, const Instruction&) {}

/// All active lanes must name the same members, and be members.
std::uint32_t members(Warp& warp, std::uint32_t operand) {
  const std::uint32_t* const masks = warp.values<std::uint32_t>(operand);
  const std::uint32_t mask = masks[std::countr_zero(warp.active)];
  for_each_lane(warp.active, [&](int lane) {
    if (masks[lane] != mask)
      warp.fail(lane, fmt::format("its member mask is {:08x} and that of another lane here {:08x}",
                                  masks[lane], mask));
    if ((mask >> lane & 1) == 0) warp.fail(lane, fmt::format("it is no member of its own mask {:08x}", mask));
  });
  return mask;
}

void warp_barrier(Warp& warp, const Instruction& instruction) {
  const std::uint32_t mask = members(warp, instruction.operands[0]);
  if (!warp.meets(mask)) return;
  if ((warp.live & ~warp.active) == 0) warp.sync_time = ++warp.block->time;
}

enum class Mode : std::uint8_t { up, down, butterfly, index };

/// 9.7.9.6: c has the clamp in bits 0-4 and the segment mask in bits 8-12. A source lane that is not active here gives an
/// unpredictable value: poison.
template <Mode mode>
void shuffle(Warp& warp, const Instruction& instruction) {
  const auto& operands = instruction.operands;
  if (!warp.meets(members(warp, operands[5]))) return;
  const auto* const a = warp.values<std::uint32_t>(operands[2]);
  const auto* const b = warp.values<std::uint32_t>(operands[3]);
  const auto* const c = warp.values<std::uint32_t>(operands[4]);
  std::uint32_t results[lanes], in_range = 0;
  for (std::uint32_t lane = 0; lane < lanes; ++lane) {
    const std::uint32_t segment = c[lane] >> 8 & 0x1f, clamp = c[lane] & 0x1f, offset = b[lane] & 0x1f;
    const std::uint32_t greatest = (lane & segment) | (clamp & ~segment), least = lane & segment;
    std::uint32_t source = 0;
    bool valid = false;
    if constexpr (mode == Mode::up) {
      source = lane - offset;
      valid = static_cast<std::int32_t>(source) >= static_cast<std::int32_t>(greatest);
    }
    if constexpr (mode == Mode::down) {
      source = lane + offset;
      valid = source <= greatest;
    }
    if constexpr (mode == Mode::butterfly) {
      source = lane ^ offset;
      valid = source <= greatest;
    }
    if constexpr (mode == Mode::index) {
      source = least | (offset & ~segment);
      valid = source <= greatest;
    }
    if (!valid) source = lane;
    in_range |= static_cast<std::uint32_t>(valid) << lane;
    results[lane] = (warp.active >> source & 1) != 0 ? a[source] : 0xa5a5a5a5u;
  }
  warp.assign(operands[0], results);
  if (operands[1] != no_operand) warp.assign_predicate(operands[1], in_range);
}

enum class Vote : std::uint8_t { ballot, any, all };

/// vote.sync (9.7.13.9). operands: result, predicate, members.
template <Vote vote>
void ballot(Warp& warp, const Instruction& instruction) {
  const auto& operands = instruction.operands;
  const std::uint32_t mask = members(warp, operands[2]);
  if (!warp.meets(mask)) return;
  const std::uint32_t votes =
      (warp.predicate(operands[1]) ^ (instruction.negated ? all_lanes : 0)) & warp.active;
  if constexpr (vote == Vote::ballot) {
    std::uint32_t results[lanes];
    for (std::uint32_t& result : results) result = votes;
    warp.assign(operands[0], results);
  } else {
    const bool result = vote == Vote::any ? votes != 0 : votes == warp.active;
    warp.assign_predicate(operands[0], result ? all_lanes : 0);
  }
}

}  // namespace

Handler barrier_or_handler() { return &block_barrier_or; }

void bind_control(Form& form, std::string_view name) {
  if (name == "bra") form.handler = form.parts[0] == "uni" ? &branch<true> : &branch<false>;
  if (name == "ret" || name == "exit") form.handler = &leave;
  if (name == "bar.sync") form.handler = &block_barrier;
  if (name == "bar.red") form.handler = &block_barrier_or;
  if (name == "bar.warp") form.handler = &warp_barrier;
  if (name == "membar") form.handler = &memory_barrier;
}

void bind_exchange(Form& form, std::string_view name) {
  if (name == "shfl") {
    const std::string_view mode = form.parts[1];
    if (mode == "up") form.handler = &shuffle<Mode::up>;
    if (mode == "down") form.handler = &shuffle<Mode::down>;
    if (mode == "bfly") form.handler = &shuffle<Mode::butterfly>;
    if (mode == "idx") form.handler = &shuffle<Mode::index>;
    return;
  }
  const std::string_view mode = form.parts[0] == "sync" ? form.parts[1] : form.parts[0];
  if (mode == "ballot") form.handler = &ballot<Vote::ballot>;
  if (mode == "any") form.handler = &ballot<Vote::any>;
  if (mode == "all") form.handler = &ballot<Vote::all>;
}

}  // namespace fp16lab::engine::ptx
