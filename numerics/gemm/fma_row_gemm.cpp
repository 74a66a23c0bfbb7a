// The GEMM of rows whose stages are fmas alone: operands widened to FP32 in the order in which an instruction
// takes its products, then the chain over ascending k of fma_chain_gemm.cpp.
#include <vector>

#include "numerics/convert/convert.hpp"
#include "numerics/formats/bits.hpp"
#include "numerics/gemm/fma_chain_kernels.hpp"
#include "numerics/gemm/gemm_support.hpp"
#include "numerics/platform/worker_pool.hpp"

namespace fp16lab::gemm_detail {
namespace {

/// Elements of an operand as FP32 numbers, exactly.
template <class F>
void widen_codes(const typename F::Bits* codes, float* to, std::size_t count) {
  constexpr int low_bits = ignored_bits<F>;
  if constexpr (low_bits != 0) {  // an FP32 register
    for (std::size_t i = 0; i < count; ++i) to[i] = float_from_bits(codes[i] >> low_bits << low_bits);
  } else {
    widen(std::span(reinterpret_cast<const SmallFloat<F>*>(codes), count), std::span(to, count));
  }
}

/// A matrix in memory: `outer` lines of `inner` elements. One of the two runs along K, which becomes `padded`
/// long and has the order of `positions`, with +0 where an operand has nothing.
struct Lines {
  std::int64_t outer, inner;
  bool k_is_inner;
  std::int64_t padded;
  std::span<const std::int64_t> positions;  ///< positions of element k
};

template <class F>
void widen_lines(const Operand& x, const Lines& lines, int threads, float* to) {
  const auto* const codes = static_cast<const typename F::Bits*>(x.data);
  const std::size_t count = to_size(lines.inner);
  share_tasks(to_size(lines.outer), threads, [&](std::size_t line) {
    const auto* const from = codes + to_index(line) * x.leading_dimension;
    if (!lines.k_is_inner) return widen_codes<F>(from, to + lines.positions[line] * lines.inner, count);
    static thread_local std::vector<float> ascending;
    ascending.resize(count);
    widen_codes<F>(from, ascending.data(), count);
    float* const row = to + to_index(line) * lines.padded;
    for (std::size_t k = 0; k < count; ++k) row[lines.positions[k]] = ascending[k];
  });
}

/// The logical operand with `rows` x `columns`; `k_is_columns` says which of them is K.
MatrixView<float> widened(const Operand& x, std::int64_t other, std::span<const std::int64_t> positions,
                          std::int64_t padded, bool k_is_columns, int threads, std::vector<float>& to) {
  const bool k_is_inner = k_is_columns != x.transposed;
  const auto k = to_index(positions.size());
  const Lines lines{k_is_inner ? other : k, k_is_inner ? k : other, k_is_inner, padded, positions};
  to.assign(to_size(padded * other), 0.0F);
  visit_dtype<is_operand>(x.format, [&](auto dtype) {
    widen_lines<typename decltype(dtype)::Format>(x, lines, threads, to.data());
  });
  return {to.data(), k_is_inner ? padded : other, x.transposed};
}

}  // namespace

std::optional<FmaOrder> fma_order(const TensorCoreModel& model) {
  FmaOrder found;
  for (const Stage& stage : model.stages) {
    if (stage.sum != Sum::fma || stage.output != model.block().output) return std::nullopt;
    if (stage.entry != (&stage == model.stages.begin() ? Entry::accumulator : Entry::previous))
      return std::nullopt;
    for (int k = 0; k < model.products(); ++k)
      if (stage.share.contains(k)) found.products.push_back(k);
  }
  found.flushes = model.block().output == BlockOutput::fp32_nearest_even_flushed;
  return found;
}

void fma_row_gemm(const FmaOrder& order, GemmShape shape, const Operand& a, const Operand& b, const float* c,
                  float* d, std::int64_t ldd, int threads) {
  const auto length = to_index(order.products.size());
  std::vector<std::int64_t> place(order.products.size()), positions(to_size(shape.k));
  for (std::size_t i = 0; i < place.size(); ++i) place[to_size(order.products[i])] = to_index(i);
  for (std::int64_t k = 0; k < shape.k; ++k)
    positions[to_size(k)] = k / length * length + place[to_size(k % length)];
  const std::int64_t padded = to_index(round_up(to_size(shape.k), order.products.size()));
  std::vector<float> a_values, b_values;
  const MatrixView<float> left = widened(a, shape.m, positions, padded, true, threads, a_values);
  const MatrixView<float> right = widened(b, shape.n, positions, padded, false, threads, b_values);
  fma_chain({shape.m, shape.n, padded}, left, right, c, d, ldd, threads, order.flushes);
}

}  // namespace fp16lab::gemm_detail
