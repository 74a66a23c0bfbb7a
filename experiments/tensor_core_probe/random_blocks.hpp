// Random operands for a comparison of a device with the emulator: ordinary data and everything that could
// tell two tensor cores apart.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/tensor_core_probe/device.hpp"
#include "numerics/text/named_enum.hpp"

namespace fp16lab::probe {

enum class Distribution : std::uint8_t {
  ordinary,       ///< numbers within a few binades of 1
  wide,           ///< any normal exponent
  raw_bits,       ///< any code: NaN, infinity, subnormals, TF32's ignored bits
  subnormal,      ///< half of the operands subnormal, c too
  zeros,          ///< mostly zeros of both signs
  cancelling,     ///< products in pairs of opposite sign, some an ulp apart
  near_overflow,  ///< sums around the accumulator's largest number
  floor,          ///< sums around its smallest, products far below
  special,        ///< ordinary, sprinkled with NaN, infinity and zero
};
constexpr std::array<std::string_view, 9> names_of(Distribution) {
  return {"ordinary",   "wide",          "raw bits", "subnormal", "zeros",
          "cancelling", "near overflow", "floor",    "special"};
}

/// Tiles first_tile ... first_tile + count - 1 of an endless sequence fixed by instruction, distribution and
/// seed.
Tiles random_tiles(const Instruction& instruction, Distribution distribution, std::uint64_t seed,
                   std::uint64_t first_tile, std::size_t count, int threads);

/// What computes one output on the host: a row of A, a column of B (k words each) and c.
using DotProduct = std::function<std::uint32_t(std::span<const std::uint32_t> a,
                                               std::span<const std::uint32_t> b, std::uint32_t c)>;

struct Difference {
  std::vector<std::uint32_t> a, b;
  std::uint32_t c = 0;
  std::uint32_t device = 0;    ///< the word that the device gave
  std::uint32_t expected = 0;  ///< the host's
};

struct Comparison {
  std::uint64_t outputs = 0;
  std::uint64_t differing = 0;
  std::vector<Difference> first;  ///< the first few in the order of the tiles
};

/// Runs at least `outputs` random outputs on the device and compares each with `expected`, bit for bit.
/// Differences do not depend on `threads`.
Comparison compare_random(Device& device, const Instruction& instruction, Distribution distribution,
                          std::uint64_t seed, std::uint64_t outputs, int threads, const DotProduct& expected);

/// Compares outputs that the device has already given.
void compare_tiles(const Instruction& instruction, const Tiles& tiles, std::span<const std::uint32_t> d,
                   int threads, const DotProduct& expected, Comparison& comparison);

}  // namespace fp16lab::probe
