// Finds where something is in an array, by a hash of it.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace fp16lab::engine {

/// Positions under hashes, for arrays that grow and are cleared again and again: clearing costs nothing and
/// keeps the memory, so that once warm nothing allocates.
class PositionTable {
 public:
  static constexpr std::size_t nowhere = ~std::size_t{0};

  /// A position that was put under `hash` and for which `same(position)` holds; `nowhere` if there is none.
  template <class Same>
  std::size_t find(std::uint64_t hash, const Same& same) const {
    if (slots_.empty()) return nowhere;
    for (std::size_t at = place_of(hash);; at = next(at)) {
      const Slot& slot = slots_[at];
      if (slot.round != round_) return nowhere;
      if (slot.hash == hash && same(slot.position)) return slot.position;
    }
  }
  /// It does not check whether it is there already.
  void put(std::uint64_t hash, std::size_t position) {
    if (2 * (count_ + 1) > slots_.size()) grow();
    std::size_t at = place_of(hash);
    while (slots_[at].round == round_) at = next(at);
    slots_[at] = {hash, position, round_};
    ++count_;
  }
  void clear() {
    ++round_;
    count_ = 0;
  }

 private:
  struct Slot {
    std::uint64_t hash = 0;
    std::size_t position = 0;
    std::uint64_t round = 0;  ///< if not the table's round: empty
  };
  std::size_t place_of(std::uint64_t hash) const {
    return static_cast<std::size_t>(hash * 0x9e3779b97f4a7c15u >> shift_);  // 2^64 over the golden ratio
  }
  std::size_t next(std::size_t at) const { return (at + 1) & (slots_.size() - 1); }
  void grow() {
    const std::vector<Slot> before =
        std::exchange(slots_, std::vector<Slot>(slots_.empty() ? 64 : 2 * slots_.size()));
    shift_ = 64 - std::countr_zero(slots_.size());
    count_ = 0;
    for (const Slot& slot : before)
      if (slot.round == round_) put(slot.hash, slot.position);
  }

  std::vector<Slot> slots_;  ///< a power of two; at most half of them are taken
  int shift_ = 0;
  std::size_t count_ = 0;
  std::uint64_t round_ = 1;
};

}  // namespace fp16lab::engine
