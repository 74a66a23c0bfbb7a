#include "engine/backend/cuda/ptx/warp.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace fp16lab::engine::ptx {

namespace {

std::string place_of(const Warp& warp, int lane) {
  const Block& block = *warp.block;
  const std::uint32_t thread = warp.thread(lane), x = block.extent[0], y = block.extent[1];
  return fmt::format("block ({}, {}, {}), thread ({}, {}, {})", block.index[0], block.index[1],
                     block.index[2], thread % x, thread / x % y, thread / x / y);
}

}  // namespace

void Warp::fail(int lane, const std::string& what) const {
  throw Fault(fmt::format("{}: {}; {}", block->describe(*block, place), what, place_of(*this, lane)));
}

void Warp::fail(int lane, const std::string& what, std::uint32_t other_place) const {
  fail(lane, fmt::format("{} {}", what, block->describe(*block, other_place)));
}

void Warp::park(std::uint32_t lanes_of_group, std::uint32_t where, Waiting waiting, std::uint32_t needed) {
  for (Group& group : groups)
    if (group.place == where && group.waiting == waiting) {
      group.mask |= lanes_of_group;
      group.needed |= needed;
      return;
    }
  groups.push_back({where, lanes_of_group, waiting, needed});
  if (waiting == Waiting::no) least_other = std::min(least_other, where);
}

void Warp::find_least_other() {
  least_other = 0xffffffffu;
  for (const Group& group : groups)
    if (group.waiting == Waiting::no) least_other = std::min(least_other, group.place);
}

void Warp::branch(std::uint32_t target, bool uniform) {
  if (active == mask) {
    next = target;
    return;
  }
  if (active == 0) return;
  if (uniform) fail(std::countr_zero(active), "bra.uni that not all active lanes take");
  const std::uint32_t staying = mask & ~active;
  if (target <= next) {
    park(staying, next, Waiting::no, 0);
    mask = active;
    next = target;
  } else {
    park(active, target, Waiting::no, 0);
    mask = staying;
  }
}

bool Warp::meets(std::uint32_t needed) {
  for (std::size_t i = 0; i < groups.size(); ++i)
    if (groups[i].place == place && groups[i].waiting == Waiting::for_warp) {
      active |= groups[i].mask;
      mask |= groups[i].mask;
      groups.erase(groups.begin() + static_cast<std::ptrdiff_t>(i));
      break;
    }
  if ((needed & live & ~active) == 0) return true;
  park(active, place, Waiting::for_warp, needed);
  mask &= ~active;
  return false;
}

void Warp::wait_for_block() {
  park(active, place, Waiting::for_block, 0);
  mask &= ~active;
}

void Warp::exit_lanes() {
  for_each_lane(active, [&](int lane) {
    if (thread(lane) >= block->copies.size()) return;
    if (const DelayedCopies& copies = block->copies[thread(lane)]; !copies.pending.empty())
      fail(lane, "a thread ends before a copy of it has been waited for, that of",
           copies.pending.front().instruction);
  });
  live &= ~active;
  mask &= ~active;
}

bool Warp::choose() {
  for (;;) {
    if (mask != 0) park(mask, place, Waiting::no, 0);
    mask = 0;
    Group* best = nullptr;
    for (Group& group : groups)
      if (group.waiting == Waiting::no && (best == nullptr || group.place < best->place)) best = &group;
    if (best == nullptr) {
      // Lanes may have exited that others waited for.
      for (Group& group : groups)
        if (group.waiting == Waiting::for_warp && (group.needed & live & ~group.mask) == 0) best = &group;
    }
    if (best != nullptr) {
      place = best->place;
      mask = best->mask;
      groups.erase(groups.begin() + (best - groups.data()));
      find_least_other();
      return true;
    }
    least_other = 0xffffffffu;
    for (const Group& group : groups) {
      if (group.waiting != Waiting::for_warp) continue;
      Warp at = *this;
      at.place = group.place;
      const int lane = std::countr_zero(group.mask);
      const std::uint32_t missing = group.needed & live & ~group.mask;
      for (const Group& other : groups)
        if ((other.mask & missing) != 0)
          at.fail(lane, fmt::format("it waits for lane {}, which waits at", std::countr_zero(missing)),
                  other.place);
      at.fail(lane, fmt::format("it waits for lane {}, which never comes", std::countr_zero(missing)));
    }
    return false;
  }
}

std::uint32_t Warp::barrier_place() const {
  for (const Group& group : groups)
    if (group.place != groups.front().place) {
      Warp at = *this;
      at.place = group.place;
      at.fail(std::countr_zero(group.mask),
              "a barrier at which not all threads arrive; others of its warp wait at", groups.front().place);
    }
  return groups.front().place;
}

void Warp::release_from_barrier() {
  groups.front().waiting = Waiting::no;
  ++groups.front().place;
  find_least_other();
}

}  // namespace fp16lab::engine::ptx
