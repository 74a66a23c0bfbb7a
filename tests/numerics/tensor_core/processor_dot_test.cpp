// The row avx512_bf16 against the instruction of the processor that runs this.
#include "numerics/tensor_core/processor_dot.hpp"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <vector>

#include "numerics/tensor_core/tensor_core_model.hpp"

namespace fp16lab {
namespace {

/// Exponent fields of operands and of c, fractions of c, and how often the row with a change differs there.
struct Regime {
  const char* name;
  std::uint32_t first_operand, operands, first_c, cs;
  std::uint32_t operand_fractions, c_fractions;
};
constexpr std::array regimes{
    Regime{"any word", 0, 256, 0, 256, 0x7f, 0x7fffff},
    Regime{"near one", 122, 10, 120, 12, 0x7f, 0x7fffff},
    Regime{"products and sums around 2^-126", 60, 7, 0, 8, 0x7f, 0x7fffff},
    Regime{"2^-126 from below", 63, 2, 0, 3, 3, 3},
};

class Words {
 public:
  explicit Words(const Regime& regime) : regime_(regime) {}

  std::uint32_t operand() {
    return sign() << 15 | (regime_.first_operand + below(regime_.operands)) << 7 |
           (bits() & regime_.operand_fractions);
  }
  std::uint32_t c() {
    const std::uint32_t high = regime_.c_fractions == 3 && sign() != 0 ? 0x7ffffcU : 0U;
    return sign() << 31 | (regime_.first_c + below(regime_.cs)) << 23 | high | (bits() & regime_.c_fractions);
  }
  std::uint32_t below(std::uint32_t n) { return bits() % n; }

 private:
  std::uint32_t bits() { return static_cast<std::uint32_t>(random_()); }
  std::uint32_t sign() { return bits() >> 31; }
  const Regime& regime_;
  std::mt19937 random_{20261127};
};

TEST(ProcessorDot, IsTheRow) {
  if (!has_processor_dot()) GTEST_SKIP() << "this processor has no AVX512_BF16";
  const TensorCoreModel& row = tensor_core_model("avx512_bf16", DType::bf16);
  TensorCoreModel low_first = row, unflushed = row;
  for (Stage& stage : low_first.stages) stage.share.group = 1 - stage.share.group;
  unflushed.set(&Stage::output, BlockOutput::fp32_nearest_even);
  int order_shows = 0, flush_shows = 0;
  for (const Regime& regime : regimes) {
    Words words(regime);
    for (int i = 0; i < 100'000; ++i) {
      std::vector<std::uint32_t> a(1 + words.below(6)), b(a.size());
      for (std::uint32_t& word : a) word = words.operand();
      for (std::uint32_t& word : b) word = words.operand();
      const std::uint32_t c = words.c(), d = processor_dot(a, b, c);
      const auto of = [&](const TensorCoreModel& model) {
        return fused_dot_add(model, DType::bf16, a, DType::bf16, b, c);
      };
      ASSERT_EQ(of(row), d) << regime.name << ", line " << i;
      order_shows += of(low_first) != d ? 1 : 0;
      flush_shows += of(unflushed) != d ? 1 : 0;
    }
  }
  EXPECT_GT(order_shows, 10'000);
  EXPECT_GT(flush_shows, 10'000);
}

}  // namespace
}  // namespace fp16lab
