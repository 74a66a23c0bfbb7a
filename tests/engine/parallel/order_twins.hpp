// Orders of sums by their definitions, rounded after every addition by a function of FP64, which share
// nothing with numerics/ and engine/parallel; and values that distinguish orders.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "numerics/random/philox.hpp"

namespace fp16lab::engine::parallel {

/// Mixed magnitudes and signs, so that the order of additions shows; FP16 numbers.
inline std::vector<std::vector<double>> mixed(int ranks, std::size_t elements) {
  std::vector<std::vector<double>> all;
  for (int rank = 0; rank < ranks; ++rank) {
    const PhiloxStream stream{.seed = static_cast<std::uint64_t>(rank), .stream = stream_id("allreduce")};
    std::vector<double>& values = all.emplace_back();
    for (std::size_t i = 0; i < elements; ++i) {
      const std::uint32_t word = stream.word(i);
      const double magnitude =
          std::ldexp(1.0 + (word >> 8 & 1023) / 1024.0, static_cast<int>(word >> 20 & 15) - 8);
      values.push_back(word % 2 == 0 ? magnitude : -magnitude);
    }
  }
  return all;
}

/// Rounded to a format of 16 bits by its definition: `digits` significant bits, steps of 2^`least` at least,
/// ties to even, Inf from 2^`end` on.
inline double rounded(double x, int digits, int least, int end) {
  if (x == 0 || !std::isfinite(x)) return x;
  const double step = std::ldexp(1.0, std::max(std::ilogb(x) - digits + 1, least));
  const double result = std::nearbyint(x / step) * step;
  return std::fabs(result) < std::ldexp(1.0, end) ? result
                                                  : std::copysign(std::numeric_limits<double>::infinity(), x);
}
inline double to_half(double x) { return rounded(x, 11, -24, 16); }
inline double to_brain(double x) { return rounded(x, 8, -133, 128); }
inline double to_single(double x) { return static_cast<double>(static_cast<float>(x)); }

/// Rounded after every addition by `round`, by the definition in nccl_order.hpp.
template <class Round>
double ring_twin(const std::vector<std::vector<double>>& x, std::size_t i, std::size_t elements,
                 const Round& round) {
  const std::size_t ranks = x.size();
  std::size_t chunk = 0;
  while (elements * (chunk + 1) / ranks <= i) ++chunk;
  double sum = x[(chunk + 1) % ranks][i];
  for (std::size_t hop = 2; hop <= ranks; ++hop) sum = round(sum + x[(chunk + hop) % ranks][i]);
  return sum;
}
/// The tree as an interval: the node in the middle of (low, high) has the middles of both halves as children.
template <class Round>
double subtree(const std::vector<double>& x, int low, int high, const Round& round) {
  int step = 1;
  while (step * 2 < high - low) step *= 2;
  const int ranks = static_cast<int>(x.size());
  int node = low + step;
  while (node >= ranks) {  // a missing node hands its place to its lower half
    high = node;
    step /= 2;
    node = low + step;
  }
  double sum = x[static_cast<std::size_t>(node)];
  if (node - low > 1) sum = round(sum + subtree(x, low, node, round));
  if (node + 1 < std::min(high, ranks)) sum = round(sum + subtree(x, node, high, round));
  return sum;
}
template <class Round>
double tree_twin(const std::vector<std::vector<double>>& x, std::size_t i, std::size_t elements,
                 const Round& round) {
  const std::size_t ranks = x.size();
  const bool second = i >= elements / 2;
  std::vector<double> placed;
  for (std::size_t position = 0; position < ranks; ++position) {
    const std::size_t mirrored = ranks - 1 - position, shifted = (position + 1) % ranks;
    placed.push_back(x[!second ? position : ranks % 2 == 0 ? mirrored : shifted][i]);
  }
  int top = 1;
  while (top < static_cast<int>(ranks)) top *= 2;
  return round(placed[0] + subtree(placed, 0, top, round));
}

/// The binary tree over a power of two of shards, by halves.
template <class Round>
double binary_twin(const std::vector<std::vector<double>>& x, std::size_t i, std::size_t first,
                   std::size_t count, const Round& round) {
  if (count == 1) return x[first][i];
  return round(binary_twin(x, i, first, count / 2, round) +
               binary_twin(x, i, first + count / 2, count / 2, round));
}

}  // namespace fp16lab::engine::parallel
