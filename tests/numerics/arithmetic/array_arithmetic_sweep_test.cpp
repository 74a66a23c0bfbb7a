// FP16 array add and mul over all pairs of operands, or those with every n-th second operand:
// FP16LAB_SWEEP_STRIDE (an odd number; 1 is everything). Judged by the scalar operations.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "numerics/arithmetic/arithmetic.hpp"
#include "numerics/arithmetic/array_arithmetic.hpp"

namespace fp16lab {
namespace {

TEST(ArrayArithmeticSweep, AddAndMulEqualTheScalarOperations) {
  const char* text = std::getenv("FP16LAB_SWEEP_STRIDE");
  const std::int64_t stride = (text == nullptr ? 29 : std::stoll(text)) | 1;
  constexpr std::size_t codes = 0x10000;
  std::vector<Float16> all(codes);
  for (std::size_t i = 0; i < codes; ++i) all[i] = Float16::from_bits(static_cast<std::uint16_t>(i));
  std::uint64_t wrong = 0;
#pragma omp parallel for schedule(dynamic) reduction(+ : wrong) num_threads(2)
  for (std::int64_t bits = 0; bits < static_cast<std::int64_t>(codes); bits += stride) {
    const std::vector<Float16> same(codes, Float16::from_bits(static_cast<std::uint16_t>(bits)));
    std::vector<Float16> sums(codes), products(codes);
    add<Binary16>(all, same, sums);
    mul<Binary16>(all, same, products);
    for (std::size_t i = 0; i < codes; ++i) {
      wrong += static_cast<std::uint64_t>(sums[i].bits() != add(all[i], same[i]).bits());
      wrong += static_cast<std::uint64_t>(products[i].bits() != mul(all[i], same[i]).bits());
    }
  }
  EXPECT_EQ(wrong, 0u);
}

}  // namespace
}  // namespace fp16lab
