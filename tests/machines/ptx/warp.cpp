#include "tests/machines/ptx/warp.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "tests/machines/ptx/module.hpp"

namespace fp16lab::engine::ptx {

void Warp::fail(FaultKind kind, int lane, const std::string& what, std::uint32_t other_place) const {
  const auto describe = [&](std::uint32_t instruction) {
    const Module& module = *block->kernel->module;
    const std::uint32_t line = block->code->instructions[instruction].line;
    return fmt::format("{}:{}: '{}' of {}", module.file, line, module.text_of_line(line),
                       block->kernel->facts.name);
  };
  const std::uint32_t i = thread(lane), x = block->extent[0], y = block->extent[1];
  throw Fault(kind, fmt::format("{}: {}{}{}; block ({}, {}, {}), thread ({}, {}, {})", describe(place), what,
                                other_place == nowhere ? "" : " ",
                                other_place == nowhere ? "" : describe(other_place), block->index[0],
                                block->index[1], block->index[2], i % x, i / x % y, i / x / y));
}

void Warp::park(Group group) {
  for (Group& other : groups)
    if (other.place == group.place && (other.needed == 0) == (group.needed == 0)) {
      other.mask |= group.mask;
      other.needed |= group.needed;
      return;
    }
  groups.push_back(group);
  if (group.needed == 0) least_other = std::min(least_other, group.place);
}

bool Warp::meets(std::uint32_t needed) {
  const auto waiting = std::find_if(groups.begin(), groups.end(), [this](const Group& group) {
    return group.place == place && group.needed != 0;
  });
  if (waiting != groups.end()) {
    active |= waiting->mask;
    mask |= waiting->mask;
    groups.erase(waiting);
  }
  if ((needed & live & ~active) == 0) return true;
  park({place, active, needed});
  mask &= ~active;
  return false;
}

void Warp::require_together(std::uint32_t needed) const {
  const std::uint32_t missing = needed & ~active;
  if (missing == 0) return;
  const int here = std::countr_zero(active), other = std::countr_zero(missing);
  const auto says = [&](const char* why) {
    return fmt::format("a barrier at which not all threads arrive: lane {} of its warp {}", other, why);
  };
  for (const Group& group : groups)
    if ((group.mask >> other & 1) != 0) fail(FaultKind::barrier, here, says("is at"), group.place);
  fail(FaultKind::barrier, here, says((live >> other & 1) != 0 ? "has another guard" : "has ended"));
}

bool Warp::choose() {
  if (waits_for_block || live == 0) return false;
  if (mask != 0) park({place, mask});
  mask = 0;
  auto best = groups.end();
  for (auto group = groups.begin(); group != groups.end(); ++group)
    if (group->needed == 0 && (best == groups.end() || group->place < best->place)) best = group;
  if (best == groups.end())  // lanes may have exited that others waited for
    best = std::find_if(groups.begin(), groups.end(),
                        [this](const Group& group) { return (group.needed & live & ~group.mask) == 0; });
  if (best == groups.end()) {
    place = groups.front().place;
    const int lane = std::countr_zero(groups.front().mask);
    const int missing = std::countr_zero(groups.front().needed & live & ~groups.front().mask);
    for (const Group& other : groups)
      if ((other.mask >> missing & 1) != 0)
        fail(FaultKind::barrier, lane, fmt::format("it waits for lane {}, which waits at", missing),
             other.place);
    fail(FaultKind::barrier, lane, fmt::format("it waits for lane {}, which never comes", missing));
  }
  place = best->place;
  mask = best->mask;
  groups.erase(best);
  least_other = nowhere;
  for (const Group& group : groups)
    if (group.needed == 0) least_other = std::min(least_other, group.place);
  return true;
}

}  // namespace fp16lab::engine::ptx
