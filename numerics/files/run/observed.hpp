// What a run can count of its tensors (observe.tensors), and what a line of histograms.jsonl is about.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "numerics/text/named_enum.hpp"

namespace fp16lab {

/// HistogramRow defines what the counts of each mean.
enum class Observed : std::uint8_t { gradients, activations, weights, updates, optimizer_state };

constexpr std::array<std::string_view, 5> names_of(Observed) {
  return {"gradients", "activations", "weights", "updates", "optimizer_state"};
}

/// Any of them.
class ObservedSet {
 public:
  constexpr ObservedSet() = default;
  constexpr ObservedSet(std::initializer_list<Observed> members) {
    for (const Observed member : members) insert(member);
  }
  constexpr void insert(Observed member) { bits_ |= bit(member); }
  constexpr bool contains(Observed member) const { return (bits_ & bit(member)) != 0; }
  constexpr bool empty() const { return bits_ == 0; }
  /// Below 2^every<Observed>.size(), another one for each set.
  constexpr unsigned number() const { return bits_; }
  constexpr bool operator==(const ObservedSet&) const = default;

 private:
  static constexpr unsigned bit(Observed member) { return 1U << static_cast<unsigned>(member); }
  unsigned bits_ = 0;
};

}  // namespace fp16lab
