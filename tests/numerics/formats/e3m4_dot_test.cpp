// The scalar tensor-core dot product of a format that no source names, from one row of the list of formats.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <stdexcept>
#include <vector>

#include "numerics/convert/convert.hpp"
#include "numerics/formats/bits.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"
#include "tests/support/tensor_core_twin.hpp"

namespace fp16lab {
namespace {

TEST(E3M4, TensorCoresMultiplyItWhereARowSaysSo) {
  EXPECT_EQ(operand_format("e3m4"), DType::e3m4);
  std::mt19937 random(34);
  const auto words = [&random](std::size_t count) {
    std::vector<std::uint32_t> list(count);
    for (std::uint32_t& word : list) {
      word = random() % 256;
      if (word % 128 >= 0x70 && random() % 64 != 0) word ^= 0x40;  // few infinities and NaNs
    }
    return list;
  };
  std::size_t finite = 0, cases = 0;
  for (TensorCoreModel row : tensor_core_models()) {
    if (!row.operands.contains(DType::e4m3)) continue;
    EXPECT_THROW(fused_dot_add(row, DType::e3m4, {}, DType::e3m4, {}, 0), std::invalid_argument) << row.name;
    row.operands = OperandFormats(DType::e3m4, DType::e4m3);
    const oracle::Twin twin(row);
    for (int i = 0; i < 200; ++i) {
      const std::size_t size = random() % 80;
      const auto a = words(size), b = words(size);
      const DType b_format = i % 2 == 0 ? DType::e3m4 : DType::e4m3;
      const bool wide = row.accumulator() == DType::f32;
      const std::uint32_t c =
          wide ? bits_of(std::ldexp(static_cast<float>(random() % 4096) - 2048, -9))
               : narrow<Binary16>(std::ldexp(static_cast<float>(random() % 4096) - 2048, -9)).bits();
      const std::uint32_t d = fused_dot_add(row, DType::e3m4, a, b_format, b, c);
      ASSERT_EQ(d, twin.dot(DType::e3m4, a, b_format, b, c)) << row.name << " K = " << size;
      ++cases;
      if ((d & (wide ? 0x7f800000u : 0x7c00u)) != (wide ? 0x7f800000u : 0x7c00u)) ++finite;
    }
  }
  EXPECT_GE(cases, 2000u);
  EXPECT_GE(finite, cases / 4);
}

}  // namespace
}  // namespace fp16lab
