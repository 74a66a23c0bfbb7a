// The order-independent digest of a tensor's bytes: one source for every back end.
//
// digest = sum over words, modulo 2^64, of mix64(word ^ mix64(key + (position + 1) * golden_gamma)).
// mix64 is the finaliser of SplitMix64 (Steele, Lea & Flood, "Fast splittable pseudorandom number
// generators", OOPSLA 2014; constants of Stafford's variant 13), a bijection with strong avalanche; the inner
// term is SplitMix64's output number `position` from seed `key`. For a fixed position and key the map word ->
// summand is a bijection, so changing one word always changes the digest. Addition commutes: threads and
// blocks may sum in any order.
#pragma once

#include <cstdint>

#include "numerics/platform/portability.hpp"

namespace fp16lab::engine::functions {

FP16LAB_HD constexpr std::uint64_t mix64(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// The summand of the little-endian 64-bit word at `position` (counted in words; the last one is padded with
/// zeros).
FP16LAB_HD constexpr std::uint64_t digest_word(std::uint64_t word, std::uint64_t position,
                                               std::uint64_t key) {
  return mix64(word ^ mix64(key + (position + 1) * 0x9e3779b97f4a7c15u));
}

}  // namespace fp16lab::engine::functions
