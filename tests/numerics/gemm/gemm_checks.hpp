// Runs emulated_gemm in any storage layout and on any instruction set, and judges it by the scalar
// definition, fused_dot_add.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "numerics/gemm/gemm.hpp"
#include "numerics/platform/highway_targets.hpp"
// After highway_targets.hpp, which selects the targets.
#include "hwy/highway.h"
#include "tests/numerics/gemm/gemm_cases.hpp"

namespace fp16lab::test {

/// Forces one instruction set for its lifetime.
class ForcedTarget {
 public:
  explicit ForcedTarget(std::int64_t target) { force(target); }
  ForcedTarget(const ForcedTarget&) = delete;
  ForcedTarget& operator=(const ForcedTarget&) = delete;
  ~ForcedTarget() { force(0); }

 private:
  static void force(std::int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().DeInit();
  }
};

template <class T>
T from_word(std::uint32_t word) {
  return T::from_bits(static_cast<typename T::Bits>(word));
}
template <>
inline float from_word<float>(std::uint32_t word) {
  return float_from_bits(word);
}
inline std::uint32_t word_of(float x) { return bits_of(x); }
template <class F>
std::uint32_t word_of(SmallFloat<F> x) {
  return x.bits();
}

/// A matrix in memory: stored transposed or not, with columns to spare that hold poison.
template <class T>
class Stored {
 public:
  Stored(const std::vector<std::uint32_t>& dense, std::int64_t rows, std::int64_t columns, bool transposed,
         std::int64_t padding, std::uint32_t poison)
      : transposed_(transposed), stride_((transposed ? rows : columns) + padding) {
    data_.assign(static_cast<std::size_t>((transposed ? columns : rows) * stride_), from_word<T>(poison));
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j)
        data_[static_cast<std::size_t>(transposed ? j * stride_ + i : i * stride_ + j)] =
            from_word<T>(dense[static_cast<std::size_t>(i * columns + j)]);
  }
  MatrixView<T> view() const { return {data_.data(), stride_, transposed_}; }

 private:
  bool transposed_;
  std::int64_t stride_;
  std::vector<T> data_;
};

/// D between guard elements, filled with sentinels or, to alias it, with C.
template <class T>
class Output {
 public:
  Output(std::int64_t m, std::int64_t n, std::int64_t padding) : m_(m), n_(n), ldd_(n + padding) {
    data_.assign(static_cast<std::size_t>(m_ * ldd_ + 2 * guard), from_word<T>(sentinel));
  }
  T* data() { return data_.data() + guard; }
  std::int64_t ldd() const { return ldd_; }
  void fill(const std::vector<std::uint32_t>& dense) {
    for (std::int64_t i = 0; i < m_; ++i)
      for (std::int64_t j = 0; j < n_; ++j)
        data()[i * ldd_ + j] = from_word<T>(dense[static_cast<std::size_t>(i * n_ + j)]);
  }
  /// Are the m x n outputs `expected`, bit for bit, and is everything around them untouched?
  ::testing::AssertionResult equals(const std::vector<std::uint32_t>& expected) {
    for (std::int64_t x = -guard; x < m_ * ldd_ + guard; ++x) {
      const std::int64_t i = x < 0 ? -1 : x / ldd_, j = x < 0 ? -1 : x % ldd_;
      const bool inside = i >= 0 && i < m_ && j < n_;
      const std::uint32_t want = inside ? expected[static_cast<std::size_t>(i * n_ + j)] : sentinel;
      if (word_of(data()[x]) != want)
        return ::testing::AssertionFailure()
               << fmt::format("{} ({}, {}) is {:x}, should be {:x}", inside ? "output" : "outside of D", i, j,
                              word_of(data()[x]), want);
    }
    return ::testing::AssertionSuccess();
  }

 private:
  static constexpr std::int64_t guard = 70;
  static constexpr std::uint32_t sentinel = 0x4321;
  std::int64_t m_, n_, ldd_;
  std::vector<T> data_;
};

inline std::vector<std::uint32_t> definition(const TensorCoreModel& model, const Problem& p) {
  const auto at = [](std::int64_t x) { return static_cast<std::size_t>(x); };
  std::vector<std::uint32_t> d(at(p.m * p.n)), column(at(p.k));
  for (std::int64_t j = 0; j < p.n; ++j) {
    for (std::int64_t x = 0; x < p.k; ++x) column[at(x)] = p.b[at(x * p.n + j)];
    for (std::int64_t i = 0; i < p.m; ++i) {
      const std::span row(p.a.data() + i * p.k, at(p.k));
      d[at(i * p.n + j)] =
          fused_dot_add(model, p.a_format, row, p.b_format, column, p.c.empty() ? 0 : p.c[at(i * p.n + j)]);
    }
  }
  return d;
}

/// Memory for a packed operand, exactly so long that a sanitizer sees what writes beyond it.
class PackedBytes {
 public:
  explicit PackedBytes(std::size_t bytes)
      : memory_(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{64}))) {}
  ~PackedBytes() { ::operator delete (memory_, std::align_val_t{64}); }
  PackedBytes(const PackedBytes&) = delete;
  PackedBytes& operator=(const PackedBytes&) = delete;
  std::byte* data() const { return memory_; }

 private:
  std::byte* memory_;
};

/// The layout of a problem in memory, four bits: A transposed, B transposed, D is C, spare columns.
using Layout = unsigned;
inline constexpr Layout all_layouts = 16;

template <class A, class B, class D>
void check_typed(const TensorCoreModel& model, const Problem& p, const std::vector<std::uint32_t>& expected,
                 Layout layout, int threads) {
  const bool a_transposed = (layout & 1) != 0, b_transposed = (layout & 2) != 0, in_place = (layout & 4) != 0;
  const std::int64_t padding = (layout & 8) != 0 ? 3 : 0;
  constexpr std::uint32_t poison = 0x7fff7fff;  // a NaN in every format: reading it would show
  const Stored<A> a(p.a, p.m, p.k, a_transposed, padding, poison);
  const Stored<B> b(p.b, p.k, p.n, b_transposed, padding, poison);
  Output<D> d(p.m, p.n, padding), c(p.m, p.n, padding);
  if (!p.c.empty()) (in_place ? d : c).fill(p.c);
  const D* initial = p.c.empty() ? nullptr : in_place ? d.data() : c.data();
  const GemmShape shape{p.m, p.n, p.k};
  // With B packed, of which nothing is read then.
  if (const std::size_t bytes = packed_b_bytes(model, shape, b.view()); bytes > 0) {
    const PackedBytes packed(bytes);
    pack_b(model, shape, b.view(), packed.data(), threads);
    Output<D> from_packed(p.m, p.n, padding);
    if (!p.c.empty()) from_packed.fill(p.c);
    const Stored<B> nothing(std::vector<std::uint32_t>(p.b.size(), poison), p.k, p.n, b_transposed, padding,
                            poison);
    emulated_gemm(model, shape, a.view(), nothing.view(), p.c.empty() ? nullptr : from_packed.data(),
                  from_packed.data(), from_packed.ldd(), threads, packed.data());
    ASSERT_TRUE(from_packed.equals(expected)) << "packed";
  }
  emulated_gemm(model, shape, a.view(), b.view(), initial, d.data(), d.ldd(), threads);
  ASSERT_TRUE(d.equals(expected));
}

/// One call in one storage layout, compared with `expected`.
inline void check_layout(const TensorCoreModel& model, const Problem& p,
                         const std::vector<std::uint32_t>& expected, Layout layout, int threads) {
  SCOPED_TRACE(
      fmt::format("{}: {} {}; {} x {} -> {}, {}x{}x{} layout {} "
                  "threads {}",
                  gemm_target_name(), model.name, stages_text(model), name_of(p.a_format),
                  name_of(p.b_format), name_of(p.c_format), p.m, p.n, p.k, layout, threads));
  const auto with_output = [&]<class A, class B>() {
    if (p.c_format == DType::f32)
      check_typed<A, B, float>(model, p, expected, layout, threads);
    else
      check_typed<A, B, Float16>(model, p, expected, layout, threads);
  };
  switch (p.a_format) {
    case DType::f16:
      return with_output.operator()<Float16, Float16>();
    case DType::bf16:
      return with_output.operator()<BFloat16, BFloat16>();
    case DType::tf32:
      return with_output.operator()<float, float>();
    case DType::e4m3:
      return p.b_format == DType::e4m3 ? with_output.operator()<Float8E4M3, Float8E4M3>()
                                       : with_output.operator()<Float8E4M3, Float8E5M2>();
    case DType::e5m2:
      return p.b_format == DType::e4m3 ? with_output.operator()<Float8E5M2, Float8E4M3>()
                                       : with_output.operator()<Float8E5M2, Float8E5M2>();
    default:
      throw std::logic_error("check_layout: operands of A");
  }
}

/// The pairs of operand formats that a row has, but for those of 6 and 4 bits (scaled_gemm_test.cpp).
inline std::vector<std::pair<DType, DType>> operand_pairs(const TensorCoreModel& model) {
  using enum DType;
  std::vector<std::pair<DType, DType>> pairs;
  for (const DType format : dtypes<is_low_precision>)
    if ((!is_byte_format(format) || is_fp8(format)) && model.operands.contains(format))
      pairs.emplace_back(format, format);
  if (model.operands.contains(e4m3) && model.operands.contains(e5m2)) {
    pairs.emplace_back(e4m3, e5m2);
    pairs.emplace_back(e5m2, e4m3);
  }
  return pairs;
}

/// A row that no hardware has: any parameters that the definition takes.
inline TensorCoreModel random_model(CaseMaker& maker) {
  const auto below = [&](unsigned n) { return static_cast<int>(maker.random() % n); };
  const auto rows = tensor_core_models();
  TensorCoreModel model = rows[static_cast<std::size_t>(below(static_cast<unsigned>(rows.size())))];
  model.name = "modified";
  model.operands = OperandFormats(DType::f16, DType::bf16, DType::tf32, DType::e4m3, DType::e5m2);
  static constexpr int fast_sizes[] = {4, 8, 16, 32};
  const int bits = below(2) == 0 ? 20 + below(7) : 1 + below(48);
  const auto output = static_cast<BlockOutput>(below(3));
  const int floor = below(3) == 0   ? -140 + below(160)
                    : below(3) == 0 ? -30 + below(20)
                                    : model.block().exponent_floor;
  const int products = below(2) == 0 ? fast_sizes[below(4)] : 1 + below(max_block_size);
  const bool joined = below(9) < 2;
  model.stages = joined ? two_blocks_then_c(below(2) == 0 ? 2 : 16, bits, output, floor)
                        : fused_block(products, bits, output, floor);
  model.as_fp16 = joined;
  if (below(8) == 0) {  // one fma after the other, in some order
    const int group = below(2);
    const auto rounding =
        below(2) == 0 ? BlockOutput::fp32_nearest_even : BlockOutput::fp32_nearest_even_flushed;
    Stage first{.sum = Sum::fma, .products = 1 + below(4), .output = rounding};
    first.share = {first.products, 2, group};
    Stage second = first;
    second.share.group = 1 - group;
    second.entry = Entry::previous;
    model.stages = {first, second};
  }
  model.subnormal_accumulator = static_cast<SubnormalAccumulator>(below(2));
  model.underflow_zero = static_cast<UnderflowZero>(below(2));
  return model;
}

}  // namespace fp16lab::test
