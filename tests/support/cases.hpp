// Inputs that decide about rounding: every value and every midpoint of a format, with their neighbours.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace fp16lab::cases {

/// Positive floats at which an FP16 result can change: each finite half, each midpoint of adjacent halves
/// (the one between 65504 and 65536 included), and for all of them the floats one and two ulps away; then the
/// far ends.
inline std::vector<float> half_corners() {
  std::vector<float> result;
  const auto add = [&](float x) {
    const float infinity = std::numeric_limits<float>::infinity();
    const float down = std::nextafterf(x, 0.0f);
    const float up = std::nextafterf(x, infinity);
    for (const float y : {std::nextafterf(down, 0.0f), down, x, up, std::nextafterf(up, infinity)})
      result.push_back(y);
  };
  // Halves as exact floats, from their definition: fraction * 2^-24, then (1024 + fraction) * 2^(exponent -
  // 10).
  std::vector<float> halves;
  halves.reserve(1024 * 31 + 1);
  for (int fraction = 0; fraction < 1024; ++fraction)
    halves.push_back(std::ldexp(static_cast<float>(fraction), -24));
  for (int exponent = -14; exponent <= 15; ++exponent)
    for (int fraction = 0; fraction < 1024; ++fraction)
      halves.push_back(std::ldexp(static_cast<float>(1024 + fraction), exponent - 10));
  halves.push_back(65536.0f);
  for (std::size_t i = 0; i < halves.size(); ++i) {
    add(halves[i]);
    if (i + 1 < halves.size()) add(0.5f * (halves[i] + halves[i + 1]));
  }
  for (const float x : {0x1p-149f, 0x1p-126f, 0x1p-27f, 0x1p-26f, 0x1p-25f, 65504.0f, 65519.0f, 65520.0f,
                        65521.0f, 131072.0f, 0x1p100f, std::numeric_limits<float>::max()})
    add(x);
  std::erase_if(result, [](float x) { return std::isinf(x); });
  return result;
}

}  // namespace fp16lab::cases
