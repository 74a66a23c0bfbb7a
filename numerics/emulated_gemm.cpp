// The emulated tensor-core GEMM: blocking, threads, and which path computes which output.
//
// The ladder from definition to speed:
//   fused_dot_add (tensor_core_model.hpp)   the definition, one output at a time
//   emulated_gemm_pack-inl.h                operands decoded once, in the order of use
//   emulated_gemm_kernel-inl.h              the definition in vector lanes, for finite operands
//   special_outputs.hpp                     the outputs that meet a NaN or an infinity in an operand
//   this file                               cache blocks and threads around them
#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "numerics/bits.hpp"
#include "numerics/emulated_gemm_kernels.hpp"
#include "numerics/gemm.hpp"
#include "numerics/gemm_support.hpp"
#include "numerics/special_outputs.hpp"

namespace fp16lab {
namespace {

using gemm_detail::row_block;
using gemm_detail::to_index;
using gemm_detail::to_size;

// Cache blocks: they bound the packed operands to 18 MiB. Between blocks of K an accumulator rests in D as
// the FP32 number that it is anyway.
constexpr std::int64_t m_block = 1024;
constexpr std::int64_t n_block = 2048;
constexpr std::int64_t k_block = 1024;
static_assert(m_block % row_block == 0 && n_block % gemm_detail::max_columns == 0 &&
              k_block % gemm_detail::group == 0);

struct PackedOperands {
  gemm_detail::Scratch<float> a_values, b_values;
  gemm_detail::Scratch<std::uint32_t> a_exponents;
  gemm_detail::Scratch<std::int8_t> b_exponents;
};

/// Do the vector kernels cover this row of the table? (They would be wrong, not slow, elsewhere.)
bool has_kernel(const TensorCoreModel& model) {
  const bool block = model.block_size == 4 || model.block_size == 8 || model.block_size == 16;
  return block && model.fraction_bits >= 23 && model.fraction_bits <= 25 && model.exponent_floor < -126 &&
         model.output == BlockOutput::fp32_toward_zero;
}

void scalar_gemm(const TensorCoreModel& model, GemmShape shape, MatrixView<Float16> a, MatrixView<Float16> b,
                 const float* c, float* d, std::int64_t ldd) {
  std::vector<Float16> row(to_size(shape.k)), column(to_size(shape.k));
  for (std::int64_t i = 0; i < shape.m; ++i) {
    for (std::int64_t k = 0; k < shape.k; ++k)
      row[to_size(k)] = a.data[a.transposed ? k * a.leading_dimension + i : i * a.leading_dimension + k];
    for (std::int64_t j = 0; j < shape.n; ++j) {
      for (std::int64_t k = 0; k < shape.k; ++k)
        column[to_size(k)] = b.data[b.transposed ? j * b.leading_dimension + k : k * b.leading_dimension + j];
      d[i * ldd + j] = fused_dot_add(model, row, column, c == nullptr ? 0.0f : c[i * ldd + j]);
    }
  }
}

void copy_accumulators(GemmShape shape, const float* c, float* d, std::int64_t ldd) {
  if (c == d) return;
  for (std::int64_t i = 0; i < shape.m; ++i) {
    if (c == nullptr)
      std::fill_n(d + i * ldd, shape.n, 0.0f);
    else
      std::copy_n(c + i * ldd, shape.n, d + i * ldd);
  }
}

/// Steps between neighbouring outputs in memory. The kernel's rows are D's rows, or D's columns where D^T is
/// computed.
struct OutputStrides {
  std::int64_t row, column;
  std::int64_t offset(std::int64_t i, std::int64_t j) const { return i * row + j * column; }
};

/// A narrow, tall D would leave most lanes of a tile empty. a * b is commutative bit for bit and every output
/// is its own chain over ascending k, so D^T = B^T A^T has the same bits.
bool transpose_fits_better(GemmShape shape, std::size_t width) {
  const auto padded = [width](std::int64_t n) { return to_index(gemm_detail::round_up(to_size(n), width)); };
  return padded(shape.m) * shape.n < padded(shape.n) * shape.m;
}

/// Brings accumulators into a tile (null: +0); NaNs become canonical. Returns whether some are not hot.
bool load_tile(const float* c, OutputStrides strides, std::size_t rows, std::size_t columns,
               std::size_t width, float* tile) {
  if (c == nullptr || columns < width) std::fill_n(tile, row_block * width, 0.0f);
  if (c == nullptr) return false;
  bool all_hot = true;
  for (std::size_t r = 0; r < rows; ++r) {
    const float* from = c + to_index(r) * strides.row;
    for (std::size_t j = 0; j < columns; ++j) {
      const std::uint32_t bits = bits_of(from[to_index(j) * strides.column]);
      all_hot = all_hot & gemm_detail::is_hot_accumulator(bits);
      const bool nan = (bits & Binary32::magnitude_mask) > Binary32::infinity;
      tile[r * width + j] = float_from_bits(nan ? Binary32::canonical_nan : bits);
    }
  }
  return !all_hot;
}

void store_tile(const float* tile, OutputStrides strides, std::size_t rows, std::size_t columns,
                std::size_t width, float* d) {
  if (strides.column == 1) {
    for (std::size_t r = 0; r < rows; ++r)
      std::memcpy(d + to_index(r) * strides.row, tile + r * width, columns * sizeof(float));
  } else {
    for (std::size_t j = 0; j < columns; ++j) {
      for (std::size_t r = 0; r < rows; ++r)
        d[strides.offset(to_index(r), to_index(j))] = tile[r * width + j];
    }
  }
}

/// One block of the product: all tiles of `extent` outputs at (row, column), for K in [k, k + extent.k).
struct Block {
  std::int64_t row, column, k;
  GemmShape extent;
};

}  // namespace

void emulated_gemm(const TensorCoreModel& model, GemmShape shape, MatrixView<Float16> a,
                   MatrixView<Float16> b, const float* c, float* d, std::int64_t ldd, int threads) {
  gemm_detail::check_arguments("emulated_gemm", shape, a, b, d, ldd, threads);
  if (shape.m == 0 || shape.n == 0) return;
  if (shape.k == 0) return copy_accumulators(shape, c, d, ldd);
  if (!has_kernel(model)) return scalar_gemm(model, shape, a, b, c, d, ldd);

  threads = gemm_detail::useful_threads(shape, threads);
  gemm_detail::SpecialOutputs special(shape, a, b, threads);
  if (!special.none()) special.compute(a, b, c, ldd);
  if (special.cover(0, shape.m, 0, shape.n)) return special.store(d, ldd);

  static thread_local PackedOperands packed;
  const auto& kernels = gemm_detail::emulated_kernels();
  const std::size_t width = kernels.columns;
  // From here on m, n, a, b, rows and columns are the kernel's.
  const bool transposed = transpose_fits_better(shape, width);
  const OutputStrides strides = transposed ? OutputStrides{1, ldd} : OutputStrides{ldd, 1};
  if (transposed) {
    std::swap(shape.m, shape.n);
    std::swap(a, b);
    a.transposed = !a.transposed;
    b.transposed = !b.transposed;
  }
  const std::size_t max_depth =
      gemm_detail::round_up(to_size(std::min(shape.k, k_block)), gemm_detail::group);
  const std::size_t max_rows = gemm_detail::round_up(to_size(std::min(shape.m, m_block)), row_block);
  const std::size_t max_columns = gemm_detail::round_up(to_size(std::min(shape.n, n_block)), width);
  float* const a_values = packed.a_values.reserve(max_rows * max_depth);
  std::uint32_t* const a_exponents = packed.a_exponents.reserve(max_rows * max_depth);
  float* const b_values = packed.b_values.reserve(max_columns * max_depth);
  std::int8_t* const b_exponents = packed.b_exponents.reserve(max_columns * max_depth);

  const auto pack_a = [&](const Block& block, std::size_t depth, std::int64_t index) {
    const std::size_t at = to_size(index) * row_block * depth;
    kernels.pack_a(a, shape, block.row + index * to_index(row_block), block.k, depth, a_values + at,
                   a_exponents + at);
  };
  const auto pack_b = [&](const Block& block, std::size_t depth, std::int64_t index) {
    const std::size_t at = to_size(index) * width * depth;
    kernels.pack_b(b, shape, block.column + index * to_index(width), block.k, depth, b_values + at,
                   b_exponents + at);
  };
  const auto run = [&](const Block& block, std::size_t depth, std::int64_t a_index, std::int64_t b_index) {
    const std::int64_t row = block.row + a_index * to_index(row_block);
    const std::int64_t column = block.column + b_index * to_index(width);
    const std::int64_t row_end = std::min(row + to_index(row_block), shape.m);
    const std::int64_t column_end = std::min(column + to_index(width), shape.n);
    if (transposed ? special.cover(column, column_end, row, row_end)
                   : special.cover(row, row_end, column, column_end))
      return;
    const std::size_t rows = to_size(row_end - row), columns = to_size(column_end - column);

    alignas(64) float tile[row_block * gemm_detail::max_columns];
    const float* initial = block.k > 0 ? d : c;
    const std::int64_t at = strides.offset(row, column);
    const bool careful =
        load_tile(initial == nullptr ? nullptr : initial + at, strides, rows, columns, width, tile);
    const std::size_t a_at = to_size(a_index) * row_block * depth;
    const std::size_t b_at = to_size(b_index) * width * depth;
    kernels.run_tile({a_values + a_at, a_exponents + a_at, b_values + b_at, b_exponents + b_at, depth, rows,
                      model.block_size, model.fraction_bits, careful, tile});
    store_tile(tile, strides, rows, columns, width, d + at);
  };

#pragma omp parallel num_threads(threads) if (threads > 1)
  for (std::int64_t column = 0; column < shape.n; column += n_block) {
    for (std::int64_t k = 0; k < shape.k; k += k_block) {
      for (std::int64_t row = 0; row < shape.m; row += m_block) {
        const Block block{row,
                          column,
                          k,
                          {std::min(shape.m - row, m_block), std::min(shape.n - column, n_block),
                           std::min(shape.k - k, k_block)}};
        const std::size_t depth = gemm_detail::round_up(to_size(block.extent.k), gemm_detail::group);
        const std::int64_t panels = (block.extent.n + to_index(width) - 1) / to_index(width);
        const std::int64_t row_blocks = (block.extent.m + to_index(row_block) - 1) / to_index(row_block);
        if (row == 0) {
#pragma omp for schedule(dynamic) nowait
          for (std::int64_t i = 0; i < panels; ++i) pack_b(block, depth, i);
        }
#pragma omp for schedule(dynamic)  // its barrier also ends the packing of B
        for (std::int64_t i = 0; i < row_blocks; ++i) pack_a(block, depth, i);
#pragma omp for schedule(dynamic)
        for (std::int64_t i = 0; i < panels * row_blocks; ++i)
          run(block, depth, i % row_blocks, i / row_blocks);
      }
    }
  }
  if (!special.none()) special.store(d, ldd);
}

}  // namespace fp16lab
