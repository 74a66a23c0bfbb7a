#include "numerics/gemm/quantized_gemm.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "numerics/convert/convert.hpp"
#include "numerics/gemm/fma_chain_kernels.hpp"
#include "numerics/gemm/strided_gemm.hpp"
#include "numerics/platform/floating_point_scope.hpp"

namespace fp16lab {
namespace {

std::size_t index(std::int64_t n) { return static_cast<std::size_t>(n); }

/// Elements of K that share a scale.
std::int64_t run_of(const QuantizedMatrix& x) {
  return x.quantizer.block.columns == 0 ? x.size.columns : x.quantizer.block.columns;
}

/// Blocks of scales down and across; the last ones down may have fewer rows.
MatrixSize scales_of(const QuantizedMatrix& x) {
  const std::int64_t rows = std::max<std::int64_t>(1, x.quantizer.block.rows);
  return x.quantizer.scales_of({(x.size.rows + rows - 1) / rows * rows, x.size.columns});
}

void check(const QuantizedMatrix& x, const char* name) {
  x.quantizer.check();
  const MatrixSize scales = scales_of(x);
  if (x.codes.size() != index(x.size.rows * x.size.columns) ||
      x.scales.size() != index(scales.rows * scales.columns))
    throw std::invalid_argument(fmt::format(
        "{} is {} x {} with {} codes and {} scales; {} and {} are needed", name, x.size.rows, x.size.columns,
        x.codes.size(), x.scales.size(), x.size.rows * x.size.columns, scales.rows * scales.columns));
}

/// The scale of row `row` for the block number `block` of K.
float scale_at(const QuantizedMatrix& x, std::int64_t row, std::int64_t block) {
  const std::int64_t rows = x.quantizer.block.rows == 0 ? x.size.rows : x.quantizer.block.rows;
  return x.scales[index(row / rows * (x.size.columns / run_of(x)) + block)];
}

/// A scale's code for each row and block of K.
std::vector<std::uint8_t> codes_of_scales(const QuantizedMatrix& x) {
  const std::int64_t blocks = x.size.columns / run_of(x);
  std::vector<float> scales(index(x.size.rows * blocks));
  for (std::int64_t row = 0; row < x.size.rows; ++row)
    for (std::int64_t block = 0; block < blocks; ++block)
      scales[index(row * blocks + block)] = scale_at(x, row, block);
  std::vector<std::uint8_t> codes(scales.size());
  visit_dtype<is_low_precision>(x.quantizer.scale, [&](auto dtype) {
    using Code = typename decltype(dtype)::Element;
    if constexpr (sizeof(Code) == 1)
      narrow<typename Code::Format>(std::span<const float>(scales),
                                    std::span(reinterpret_cast<Code*>(codes.data()), codes.size()));
  });
  return codes;
}

}  // namespace

const TensorCoreModel& row_of_quantized(const Quantizer& a, const Quantizer& b, std::string_view name) {
  if (a.scale != b.scale)
    throw std::invalid_argument(
        fmt::format("scales of {} and of {}; a product needs one kind", name_of(a.scale), name_of(b.scale)));
  const bool fours = a.element == DType::e2m1 && b.element == DType::e2m1;
  // A Blackwell chip or generation has both rows with block scales.
  const std::span<const std::string_view> generations = generations_of(name);
  const bool blackwell =
      !generations.empty() && generations.front().starts_with("blackwell") &&
      std::ranges::find(block_scaled_names(), generations.front()) == block_scaled_names().end();
  if (name.empty() || (blackwell && a.scale != DType::f32))
    name = a.scale == DType::f32 ? "hopper-wgmma" : fours ? "blackwell-mxf4nvf4" : "blackwell-mxf8f6f4";
  const TensorCoreModel& row = tensor_core_model(name, a.element, b.element, DType::f32);
  if (row.is_scaled() == (a.scale == DType::f32))
    throw std::invalid_argument(fmt::format(
        "tensor-core model '{}' takes {}; these scales are {}", row.name,
        row.is_scaled() ? "scales of " + scales_text(row)
                        : fmt::format("no block scales, as {} do", fmt::join(block_scaled_names(), " and ")),
        name_of(a.scale)));
  return row;
}

void quantized_gemm(const TensorCoreModel& row, const QuantizedMatrix& a, const QuantizedMatrix& b,
                    std::span<float> d, int threads) {
  check(a, "a");
  check(b, "b");
  const std::int64_t m = a.size.rows, n = b.size.rows, k = a.size.columns, run = run_of(a);
  if (b.size.columns != k || run_of(b) != run || d.size() != index(m * n))
    throw std::invalid_argument(fmt::format(
        "a is {} x {} in runs of {}, b {} x {} in runs of {}, and d has {} numbers: K and its runs must "
        "agree, and d have {}",
        m, k, run, n, b.size.columns, run_of(b), d.size(), m * n));
  if (d.empty()) return;
  const StridedMatrix left{a.quantizer.element, a.codes.data(), k, 1},
      right{b.quantizer.element, b.codes.data(), 1, k};
  const FloatingPointScope scope;
  if (a.quantizer.scale != DType::f32) {
    const std::int64_t blocks = run == 0 ? 0 : k / run;
    const std::vector<std::uint8_t> of_a = codes_of_scales(a), of_b = codes_of_scales(b);
    emulated_gemm(row, {m, n, k}, left, right, nullptr, d.data(), n, threads,
                  {static_cast<int>(run),
                   {a.quantizer.scale, of_a.data(), blocks, 1},
                   {b.quantizer.scale, of_b.data(), 1, blocks}});
    const float both = a.tensor_scale * b.tensor_scale;
    if (both != 1)
      for (float& x : d) x *= both;
    return;
  }
  std::ranges::fill(d, 0.0F);
  std::vector<float> chain(d.size()), scales(index(n));
  for (std::int64_t block = 0; block * run < k; ++block) {
    const auto part = [&](StridedMatrix matrix) {
      matrix.data = static_cast<const std::uint8_t*>(matrix.data) + block * run;
      return matrix;
    };
    emulated_gemm(row, {m, n, run}, part(left), part(right), nullptr, chain.data(), n, threads);
    for (std::int64_t j = 0; j < n; ++j) scales[index(j)] = scale_at(b, j, block);
    for (std::int64_t i = 0; i < m; ++i)
      gemm_detail::fma_kernels().add_scaled(scale_at(a, i, block), scales.data(), chain.data() + i * n,
                                            index(n), d.data() + i * n);
  }
}

}  // namespace fp16lab
