#include "tests/machines/ptx/race_watch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace fp16lab::engine::ptx {

void RaceWatch::begin_launch(bool is_on, const Code& code, std::size_t shared_bytes, std::uint32_t warps) {
  is_on_ = is_on;
  time_ = 0;
  blocks_.clear();
  shared_granule_ = static_cast<std::size_t>(code.shared_granule);
  global_granule_ = static_cast<std::size_t>(code.global_granule);
  shared_.assign(is_on ? (shared_bytes + shared_granule_ - 1) / shared_granule_ : 0, Cell{});
  warp_times_.assign(warps, 0);
  launch_ = ++launches;
  used_pages_ = 0;
}

/// Did this earlier access happen before one of `thread` now?
inline bool RaceWatch::is_ordered(const Access& before, std::uint32_t thread, bool is_global) const {
  if (before.time == 0) return true;
  if (before.time == Access::in_flight) return false;
  if (before.time < begin_time_) return !is_global;  // another block's
  if (before.time < barrier_time_ || before.thread() == thread) return true;
  return before.thread() / lanes == thread / lanes && before.time < warp_times_[thread / lanes];
}

inline bool RaceWatch::races(const Access& before, Access now, bool is_global) const {
  if (((before.who | now.who) & Access::wrote) == 0 || is_ordered(before, now.thread(), is_global))
    return false;
  return !(before.is_strong() && now.is_strong()) || before.time == Access::in_flight;
}

void RaceWatch::remember_read(Cell& cell, Access now, bool is_global) const {
  Access &first = cell.readers[0], &second = cell.readers[1];
  const bool is_here = first.time >= begin_time_ && first.time != 0;
  if (is_here && first.thread() == now.thread() && first.writes() == now.writes()) {
    first = now;
    return;
  }
  const auto is_of_other_warp = [&](const Access& access) {
    return access.time != 0 && (access.time < begin_time_ || access.thread() / lanes != now.thread() / lanes);
  };
  const bool keeps_second = is_of_other_warp(second) && !is_ordered(second, now.thread(), is_global);
  if (is_of_other_warp(first) || !keeps_second) second = first;
  first = now;
}

inline const Access* RaceWatch::note(Cell* cell, std::size_t bytes, std::size_t granule, std::uint32_t who,
                                     bool is_global) {
  const Access now{time_, who};
  for (std::size_t done = 0; done < bytes; done += granule, ++cell) {
    for (const Access* before : {&cell->writer, &cell->readers[0], &cell->readers[1]})
      if (races(*before, now, is_global)) return before;
    if (!now.writes()) {
      remember_read(*cell, now, is_global);
      continue;
    }
    // An atomic write of another thread stays known beside this one.
    if (cell->writer.is_strong() && !is_ordered(cell->writer, now.thread(), is_global))
      remember_read(*cell, cell->writer, is_global);
    cell->writer = now;
  }
  return nullptr;
}

const Access* RaceWatch::note_shared(std::size_t offset, std::size_t bytes, std::uint32_t who) {
  if (!is_on_) return nullptr;
  return note(shared_.data() + (offset >> std::countr_zero(shared_granule_)), bytes, shared_granule_, who,
              false);
}

const Access* RaceWatch::note_global(Allocation& allocation, std::size_t offset, std::size_t bytes,
                                     std::uint32_t who) {
  if (!is_on_) return nullptr;
  const std::size_t page = offset / page_bytes;  // an aligned access is within one
  if (allocation.watched_launch != launch_ || allocation.pages[page] == nullptr) open_page(allocation, page);
  return note(allocation.pages[page] + (offset % page_bytes >> std::countr_zero(global_granule_)), bytes,
              global_granule_, who, true);
}

void RaceWatch::note_copy(std::size_t offset, std::size_t bytes, std::uint32_t who, bool has_arrived) {
  if (!is_on_) return;
  for (std::size_t done = 0; done < bytes; done += shared_granule_)
    shared_[(offset + done) / shared_granule_].writer = {has_arrived ? time_ : Access::in_flight, who};
}

std::string RaceWatch::describe(const Access& access, bool is_global) const {
  if (is_global && access.time < begin_time_) {
    const auto next =
        std::upper_bound(blocks_.begin(), blocks_.end(), access.time,
                         [](std::uint32_t time, const auto& block) { return time < block.first; });
    const auto& index = std::prev(next)->second;
    return fmt::format("thread {} of block ({}, {}, {})", access.thread(), index[0], index[1], index[2]);
  }
  return fmt::format("thread {} of this block", access.thread());
}

/// Pages are empty when a launch first touches them.
void RaceWatch::open_page(Allocation& allocation, std::size_t page) {
  if (allocation.watched_launch != launch_) {
    allocation.pages.assign((allocation.bytes + page_bytes - 1) / page_bytes, nullptr);
    allocation.watched_launch = launch_;
  }
  if (used_pages_ == pages_.size()) pages_.emplace_back();
  std::vector<Cell>& cells = pages_[used_pages_++];
  cells.assign(page_bytes / global_granule_, Cell{});
  allocation.pages[page] = cells.data();
}

}  // namespace fp16lab::engine::ptx
