// Products with block scales, and of formats of 6 and 4 bits: every output against fused_dot_add.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "numerics/formats/bits.hpp"
#include "numerics/gemm/strided_gemm.hpp"
#include "tests/numerics/gemm/gemm_checks.hpp"
#include "tests/support/message_of.hpp"

namespace fp16lab {
namespace {

using testing::HasSubstr;
using testing_support::message_of;

/// Bytes of a matrix, row-major or with its columns together.
struct Codes {
  std::int64_t rows, columns;
  bool transposed;
  std::vector<std::uint8_t> codes;

  std::uint8_t at(std::int64_t i, std::int64_t j) const {
    return codes[static_cast<std::size_t>(transposed ? j * rows + i : i * columns + j)];
  }
  StridedMatrix view(DType format) const {
    return {format, codes.data(), transposed ? 1 : columns, transposed ? rows : 1};
  }
  std::vector<std::uint32_t> row(std::int64_t i) const {
    std::vector<std::uint32_t> words;
    for (std::int64_t j = 0; j < columns; ++j) words.push_back(at(i, j));
    return words;
  }
  std::vector<std::uint32_t> column(std::int64_t j) const {
    std::vector<std::uint32_t> words;
    for (std::int64_t i = 0; i < rows; ++i) words.push_back(at(i, j));
    return words;
  }
};

class Random {
 public:
  std::uint32_t below(std::uint32_t bound) { return static_cast<std::uint32_t>(engine_() % bound); }

  /// Of every product few elements are special, or most are.
  Codes operand(DType format, std::int64_t rows, std::int64_t columns) {
    Codes x{rows, columns, below(2) == 1,
            std::vector<std::uint8_t>(static_cast<std::size_t>(rows * columns))};
    const std::uint32_t codes = format == DType::e2m1 ? 16 : is_fp8(format) ? 256 : 64;
    const bool any = below(4) == 0, sparse = below(3) == 0;
    for (std::uint8_t& code : x.codes) {
      do code = static_cast<std::uint8_t>(sparse && below(8) != 0 ? 0 : below(codes));
      while (!any && is_special(format, code));
    }
    return x;
  }

  Codes scales(DType format, std::int64_t rows, std::int64_t columns) {
    Codes x{rows, columns, below(2) == 1,
            std::vector<std::uint8_t>(static_cast<std::size_t>(rows * columns))};
    const std::uint32_t last = format == DType::e8m0 ? 255 : 127, one = format == DType::e8m0 ? 127 : 56;
    const std::uint32_t kind = below(6);
    if (kind > 3) return near_one(x, one, kind == 4 ? 1 + below(3) : 1 + below(30));
    // Beyond both ends of FP32, and NaN here and there.
    const std::uint32_t center = kind == 0 ? one - 50 : kind == 1 && format == DType::e8m0 ? one + 60 : one;
    for (std::uint8_t& code : x.codes) {
      const std::uint32_t near = std::min(center - 5 + below(11), last - 1);
      code = static_cast<std::uint8_t>(kind == 3 ? below(last) : near);
      if (below(400) == 0) code = static_cast<std::uint8_t>(below(2) == 0 ? last : 0);
    }
    return x;
  }

  float accumulator() {
    const std::uint32_t kind = below(5);
    if (kind == 0) return 0;
    if (kind == 1) return float_from_bits(static_cast<std::uint32_t>(engine_()) & 0x807fffff);
    return float_from_bits((static_cast<std::uint32_t>(engine_()) & 0x807fffff) |
                           (100 + below(kind == 2 ? 155 : 40)) << 23);
  }

  /// Multiples of one power of two, near or far from the last and first places of products; of few bits or 24.
  std::vector<float> accumulators_of_one_unit(std::size_t count, int unit) {
    const std::uint32_t multiples = 1U << (1 + below(24));
    std::vector<float> result(count);
    for (float& x : result)
      x = std::ldexp(static_cast<float>(below(multiples)) * (below(2) == 0 ? 1.0F : -1.0F), unit);
    return result;
  }

 private:
  /// Scales of so many neighbouring binades, with fractions where the format has them.
  Codes near_one(Codes x, std::uint32_t one, std::uint32_t binades) {
    for (std::uint8_t& code : x.codes)
      code = static_cast<std::uint8_t>(one == 127 ? 127 - below(binades)
                                                  : std::max<std::int64_t>(0, 120 - below(8 * binades)));
    return x;
  }
  static bool is_special(DType format, std::uint8_t code) {
    if (format == DType::e4m3) return (code & 127) == 127;
    return format == DType::e5m2 && (code & 127) >= 124;
  }

  std::mt19937_64 engine_{7};
};

/// One product of m x k and k x n codes with scales (of block 0: none), and what it is added to.
struct Case {
  DType a_format, b_format;
  ScaleKind kind;
  Codes a = {}, b = {};
  std::optional<Codes> a_scales = {}, b_scales = {};
  std::vector<float> c = {};  ///< empty: +0
  int threads = 1;
};

/// Every output against its dot product, by an instruction set that rotates; what was seen among them.
void judge(const TensorCoreModel& row, const Case& x, bool& negative, bool& special) {
  const std::int64_t m = x.a.rows, n = x.b.columns, k = x.a.columns;
  StridedScales scales;
  if (x.kind.block > 0)
    scales = {x.kind.block, x.a_scales->view(x.kind.format), x.b_scales->view(x.kind.format)};
  std::vector<float> d(static_cast<std::size_t>(m * n));
  {
    static const std::vector<std::int64_t> targets = hwy::SupportedAndGeneratedTargets();
    static std::size_t turn = 0;
    const test::ForcedTarget forced(targets[turn++ % targets.size()]);
    emulated_gemm(row, {m, n, k}, x.a.view(x.a_format), x.b.view(x.b_format),
                  x.c.empty() ? nullptr : x.c.data(), d.data(), n, x.threads, scales);
  }
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      const auto at = static_cast<std::size_t>(i * n + j);
      const std::vector<std::uint32_t> of_a = x.a_scales ? x.a_scales->row(i) : std::vector<std::uint32_t>{},
                                       of_b =
                                           x.b_scales ? x.b_scales->column(j) : std::vector<std::uint32_t>{};
      const std::uint32_t right = fused_dot_add(row, x.a_format, x.a.row(i), x.b_format, x.b.column(j),
                                                x.c.empty() ? 0 : bits_of(x.c[at]), {x.kind, of_a, of_b});
      ASSERT_EQ(bits_of(d[at]), right)
          << row.name << ' ' << name_of(x.a_format) << " * " << name_of(x.b_format) << ", scales of "
          << name_of(x.kind.format) << " for " << x.kind.block << ", " << m << " x " << n << " x " << k
          << " at " << i << ", " << j << ", " << stages_text(row);
      negative = negative || (right >> 31) == 1;
      special = special || (right & 0x7f800000) == 0x7f800000;
    }
}

/// One random product by this row; `kind` with block 0: without scales.
void judge(const TensorCoreModel& row, DType a_format, DType b_format, ScaleKind kind, Random& random,
           bool& negative, bool& special, std::int64_t blocks = 0) {
  const std::int64_t m = 1 + random.below(40), n = 1 + random.below(90);
  if (blocks == 0) blocks = 1 + random.below(random.below(8) == 0 ? 40 : 6);
  const std::int64_t k = kind.block > 0 ? kind.block * blocks : 1 + random.below(200);
  Case x{a_format, b_format, kind, random.operand(a_format, m, k), random.operand(b_format, k, n)};
  if (kind.block > 0) {
    x.a_scales = random.scales(kind.format, m, k / kind.block);
    x.b_scales = random.scales(kind.format, k / kind.block, n);
  }
  const std::uint32_t accumulators = random.below(3);
  x.c.resize(accumulators == 0 ? 0 : static_cast<std::size_t>(m * n));
  if (accumulators == 1)
    for (float& c : x.c) c = random.accumulator();
  if (accumulators == 2)
    x.c = random.accumulators_of_one_unit(x.c.size(), static_cast<int>(random.below(50)) - 44);
  x.threads = 1 + static_cast<int>(random.below(3));
  judge(row, x, negative, special);
}

TEST(ScaledGemm, EveryOutputIsTheDotProductOfItsRow) {
  Random random;
  bool negative = false, special = false;
  for (const TensorCoreModel& row : all_tensor_core_models()) {
    if (!row.is_scaled()) continue;
    for (const DType a : dtypes<is_operand>)
      for (const DType b : dtypes<is_operand>)
        for (const ScaleKind& kind : row.scales) {
          if (!row.operands.contains(a) || !row.operands.contains(b) || kind.block == 0) continue;
          for (int i = 0; i < (row.block().exact_group > 1 ? 60 : 4); ++i) {
            judge(row, a, b, kind, random, negative, special);
            if (HasFatalFailure()) return;
          }
        }
  }
  EXPECT_TRUE(negative && special);
}

// Where nothing of an exact group is cut, a faster kernel adds: scales of every distance from one another, groups
// of greatest and least numbers, and accumulators around its bounds (emulated_gemm_groups-inl.h).
TEST(ScaledGemm, ExactGroupsAtTheBoundsOfTheirKernel) {
  Random random;
  bool negative = false, special = false;
  const TensorCoreModel& row = tensor_core_model("blackwell-mxf4nvf4", DType::e2m1);
  const auto filled = [](std::int64_t rows, std::int64_t columns, const auto& code) {
    Codes x{rows, columns, false, {}};
    for (std::int64_t i = 0; i < rows * columns; ++i) x.codes.push_back(static_cast<std::uint8_t>(code()));
    return x;
  };
  for (int distance = 0; distance < 32; ++distance)
    for (int unit = -48; unit < 16; ++unit) {
      const std::int64_t m = 1 + random.below(4), n = 1 + random.below(4), k = 32 * (1 + random.below(12));
      Case x{DType::e2m1, DType::e2m1, row.scales[distance > 13 ? 1 + random.below(2) : 0]};
      const std::int64_t of_k = k / x.kind.block;
      // Scales of a: the greatest and the least, the former with all bits of their fraction.
      const int high = distance > 13 ? 127 : 14 * 8 + 7, low = high - (distance > 13 ? 1 : 8) * distance;
      const std::uint32_t lows = random.below(4);
      x.a_scales = filled(m, of_k, [&] { return random.below(4) < lows ? low : high; });
      x.b_scales = filled(of_k, n, [&] { return distance > 13 ? 127 : 7 * 8 + 7; });
      // Products of the greatest numbers and one sign; or groups with the greatest scale add up to zero.
      const std::uint32_t kind = random.below(3);
      const auto element = [&] {
        return static_cast<int>(kind == 0 ? 7 : 1 + random.below(random.below(2) == 0 ? 1 : 15));
      };
      x.a = filled(m, k, element);
      x.b = filled(k, n, element);
      if (kind == 1)
        for (std::int64_t at = 1; at < k; at += 2) {
          for (std::int64_t j = 0; j < n; ++j) x.b.codes[at * n + j] = x.b.codes[(at - 1) * n + j];
          for (std::int64_t i = 0; i < m; ++i)
            if (x.a_scales->at(i, at / x.kind.block) == high)
              x.a.codes[i * k + at] = x.a.codes[i * k + at - 1] ^ 8;
        }
      if (random.below(4) != 0) x.c = random.accumulators_of_one_unit(static_cast<std::size_t>(m * n), unit);
      judge(row, x, negative, special);
      if (HasFatalFailure()) return;
    }
  EXPECT_TRUE(negative);
}

TEST(ScaledGemm, RowsOfOnesOwnAreTheirDotProductsToo) {
  Random random;
  bool negative = false, special = false;
  TensorCoreModel small = tensor_core_model("blackwell-mxf8f6f4", DType::e4m3);
  small.set(&Stage::products, 24);  // no kernel: two scales in an instruction
  TensorCoreModel halves = small;
  halves.set(&Stage::products, 16);  // K = 1056 is two parts, of which no scale may belong to both
  TensorCoreModel groups = tensor_core_model("blackwell-mxf4nvf4", DType::e2m1);
  groups.set(&Stage::exact_group, 8);
  groups.set(&Stage::fraction_bits, 30);
  TensorCoreModel exact = groups;
  exact.set(&Stage::fraction_bits, 40);  // more than FP64 holds
  for (int i = 0; i < 4; ++i) {
    judge(small, DType::e4m3, DType::e2m3, small.scales[0], random, negative, special);
    judge(halves, DType::e5m2, DType::e2m1, halves.scales[0], random, negative, special, 33);
    judge(groups, DType::e2m1, DType::e2m1, groups.scales[0], random, negative, special);
    judge(exact, DType::e2m1, DType::e2m1, exact.scales[2], random, negative, special);
    if (HasFatalFailure()) return;
  }
}

TEST(ScaledGemm, FormatsOfSixAndFourBitsMultiplyWithoutScales) {
  Random random;
  bool negative = false, special = false;
  const TensorCoreModel& row = tensor_core_model("blackwell-tcgen05", DType::e2m1);
  for (const DType a : dtypes<is_operand>)
    for (const DType b : dtypes<is_operand>)
      if (row.operands.contains(a) && row.operands.contains(b)) {
        judge(row, a, b, {}, random, negative, special);
        if (HasFatalFailure()) return;
      }
}

TEST(ScaledGemm, BadScalesAreRefusedInOneLine) {
  const std::vector<std::uint8_t> codes(64 * 64);
  float d[4] = {};
  const auto told = [&](const char* name, DType format, std::int64_t k, DType of, int block) {
    const StridedMatrix a{format, codes.data(), k, 1}, b{format, codes.data(), 2, 1};
    return message_of([&] {
      emulated_gemm(tensor_core_model(name, format), {2, 2, k}, a, b, nullptr, d, 2, 1,
                    {block, {of, codes.data(), 4, 1}, {of, codes.data(), 2, 1}});
    });
  };
  EXPECT_THAT(told("blackwell-mxf8f6f4", DType::e4m3, 64, DType::e8m0, 0),
              HasSubstr("needs block scales of a and of b: e8m0 for 32 elements"));
  EXPECT_THAT(told("blackwell-mxf8f6f4", DType::e4m3, 48, DType::e8m0, 32),
              HasSubstr("K must be a multiple of that, not 48"));
  EXPECT_THAT(told("blackwell-mxf8f6f4", DType::e4m3, 64, DType::ue4m3, 32),
              HasSubstr("has no scales of ue4m3 for 32 elements; it has e8m0 for 32 elements"));
  EXPECT_THAT(told("blackwell-mxf4nvf4", DType::e2m1, 64, DType::ue4m3, 32),
              HasSubstr("it has ue4m3 for 16 elements, e8m0 for 16 elements, e8m0 for 32 elements"));
  EXPECT_THAT(told("blackwell-tcgen05", DType::e4m3, 64, DType::e8m0, 32),
              HasSubstr("takes no block scales; blackwell-mxf8f6f4 and blackwell-mxf4nvf4 do"));
  const std::vector<std::uint32_t> words(64), scales(2), three(3);
  const TensorCoreModel& row = tensor_core_model("blackwell-mxf4nvf4", DType::e2m1);
  EXPECT_THAT(
      message_of([&] {
        fused_dot_add(row, DType::e2m1, words, DType::e2m1, words, 0, {{DType::e8m0, 32}, scales, three});
      }),
      HasSubstr("needs 2 scales of each operand for K = 64; a has 2 and b has 3"));
}

}  // namespace
}  // namespace fp16lab
