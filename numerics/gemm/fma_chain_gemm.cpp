// The FP32 GEMM whose every output is one fma chain over ascending k: blocking and threads around the
// kernels.
#include <algorithm>
#include <optional>

#include "numerics/gemm/fma_chain_kernels.hpp"
#include "numerics/gemm/gemm.hpp"
#include "numerics/gemm/gemm_support.hpp"
#include "numerics/platform/floating_point_scope.hpp"
#include "numerics/platform/worker_pool.hpp"

namespace fp16lab {
namespace {

using gemm_detail::to_index;
using gemm_detail::to_size;

// Cache blocks, in elements. Between blocks of K the FP32 accumulators rest in D, which changes no bit.
constexpr std::int64_t k_block = 256;
constexpr std::int64_t m_block = 768;
constexpr std::int64_t n_block = 2048;
constexpr std::int64_t multiply_adds_per_thread = std::int64_t{1} << 20;

struct PackedOperands {
  gemm_detail::Scratch<float> a, b;
};

std::int64_t panels_of(std::int64_t columns) {
  const auto width = to_index(gemm_detail::fma_kernels().columns);
  return (columns + width - 1) / width;
}
/// Elements of a panel in memory.
std::size_t panel_elements(GemmShape shape) {
  return gemm_detail::fma_kernels().columns * to_size(std::min(shape.k, k_block));
}

}  // namespace

void fma_chain_gemm(GemmShape shape, MatrixView<float> a, MatrixView<float> b, const float* c, float* d,
                    std::int64_t ldd, int threads, const float* packed_b) {
  gemm_detail::fma_chain(shape, a, b, c, d, ldd, threads, false, packed_b);
}

std::size_t fma_chain_packed_b_bytes(GemmShape shape) {
  const std::int64_t blocks = (shape.k + k_block - 1) / k_block;
  return to_size(panels_of(shape.n) * blocks) * panel_elements(shape) * sizeof(float);
}

void fma_chain_pack_b(GemmShape shape, MatrixView<float> b, float* packed_b, int threads) {
  const auto& kernels = gemm_detail::fma_kernels();
  const std::int64_t panels = panels_of(shape.n), blocks = (shape.k + k_block - 1) / k_block;
  share_tasks(to_size(panels * blocks), threads, [&](std::size_t task) {
    const std::int64_t k = to_index(task) / panels * k_block;
    kernels.pack_b(b, shape, to_index(task) % panels * to_index(kernels.columns), k,
                   to_size(std::min(shape.k - k, k_block)), packed_b + task * panel_elements(shape));
  });
}

void gemm_detail::fma_chain(GemmShape shape, MatrixView<float> a, MatrixView<float> b, const float* c,
                            float* d, std::int64_t ldd, int threads, [[maybe_unused]] bool flushes,
                            const float* packed_b) {
  gemm_detail::check_arguments("fma_chain_gemm", shape, a, b, d, ldd, threads);
  if (shape.m == 0 || shape.n == 0) return;
  if (c != d && (c != nullptr || shape.k == 0)) {
    for (std::int64_t i = 0; i < shape.m; ++i) {
      if (c == nullptr)
        std::fill_n(d + i * ldd, shape.n, 0.0f);
      else
        std::copy_n(c + i * ldd, shape.n, d + i * ldd);
    }
  }
  if (shape.k == 0) return;
  const bool from_zero = c == nullptr;
  threads = gemm_detail::useful_threads(shape, threads, multiply_adds_per_thread);

  static thread_local PackedOperands packed;
  const auto& kernels = gemm_detail::fma_kernels();
  const std::size_t height = kernels.rows;
  const std::size_t width = kernels.columns;
  const std::size_t max_depth = to_size(std::min(shape.k, k_block));
  float* const packed_a =
      a.transposed
          ? packed.a.reserve(gemm_detail::round_up(to_size(std::min(shape.m, m_block)), height) * max_depth)
          : nullptr;
  float* const b_scratch =
      packed_b == nullptr
          ? packed.b.reserve(to_size(panels_of(std::min(shape.n, n_block))) * width * max_depth)
          : nullptr;
  const float* const all_panels = packed_b == nullptr ? b_scratch : packed_b;

  // Packing a panel costs about as much as three strips of A save by it.
  const bool b_in_place = packed_b == nullptr && !b.transposed && shape.m <= 3 * to_index(height);

  // All tiles of one panel of B for a few strips of A: the panel stays in the first-level cache.
  const auto run = [&](std::int64_t strip, std::int64_t panel, std::int64_t row, std::int64_t column,
                       std::int64_t k, std::size_t depth, bool first, bool last) {
    const std::size_t rows = std::min(height, to_size(shape.m - row));
    const std::size_t columns = std::min(width, to_size(shape.n - column));
    const gemm_detail::FmaLines strip_a =
        a.transposed
            ? gemm_detail::FmaLines{packed_a + to_size(strip) * height * depth, 1, height}
            : gemm_detail::FmaLines{a.data + row * a.leading_dimension + k, to_size(a.leading_dimension), 1};
    gemm_detail::FmaLines panel_b{all_panels + to_size(panel) * width * max_depth, 1, width};
    if (b_in_place && columns == width)
      panel_b = {b.data + k * b.leading_dimension + column, 1, to_size(b.leading_dimension)};
    float* const out = d + row * ldd + column;
    if (columns == width)
      return kernels.run_tile(strip_a, panel_b, depth, rows, columns, first, last, out, to_size(ldd));
    float edge[gemm_detail::max_fma_tile] = {};
    for (std::size_t r = 0; r < rows && !first; ++r)
      std::copy_n(out + to_index(r) * ldd, columns, edge + r * width);
    kernels.run_tile(strip_a, panel_b, depth, rows, columns, first, last, edge, width);
    for (std::size_t r = 0; r < rows; ++r) std::copy_n(edge + r * width, columns, out + to_index(r) * ldd);
  };

  constexpr std::int64_t strips_at_once = 8;  // in one task
  const FloatingPointScope scope;
  for (std::int64_t column = 0; column < shape.n; column += n_block) {
    for (std::int64_t k = 0; k < shape.k; k += k_block) {
      for (std::int64_t row = 0; row < shape.m; row += m_block) {
        const std::size_t depth = to_size(std::min(shape.k - k, k_block));
        const auto h = to_index(height), w = to_index(width);
        const std::int64_t strips = (std::min(shape.m - row, m_block) + h - 1) / h;
        const std::int64_t panels = panels_of(std::min(shape.n - column, n_block));
        // The first panel's number in memory.
        const std::int64_t place = packed_b == nullptr ? 0 : k / k_block * panels_of(shape.n) + column / w;
        const std::int64_t bands = (strips + strips_at_once - 1) / strips_at_once;
        // Panels of B, once for all rows, and bands of an A that is transposed.
        const std::int64_t packed_panels = row == 0 && packed_b == nullptr ? panels : 0;
        share_tasks(to_size(packed_panels + (a.transposed ? bands : 0)), threads, [&](std::size_t task) {
          const std::int64_t i = to_index(task);
          if (i < packed_panels && b_in_place && (i + 1) * w <= shape.n - column) return;
          if (i < packed_panels)
            return kernels.pack_b(b, shape, column + i * w, k, depth,
                                  b_scratch + to_size(i) * width * max_depth);
          const std::int64_t first = (i - packed_panels) * strips_at_once;
          kernels.pack_a(a, shape, row + first * h, to_size(std::min(strips - first, strips_at_once)), k,
                         depth, packed_a + to_size(first) * height * depth);
        });
        // One panel and one band, so that small products also feed all threads.
        share_tasks(to_size(panels * bands), threads, [&](std::size_t task) {
#if defined(__SSE__)
          std::optional<FlushingScope> flushing;
          if (flushes) flushing.emplace();
#endif
          const std::int64_t panel = to_index(task) / bands;
          const std::int64_t first = to_index(task) % bands * strips_at_once;
          for (std::int64_t s = first; s < std::min(strips, first + strips_at_once); ++s)
            run(s, place + panel, row + s * h, column + panel * w, k, depth, from_zero && k == 0,
                k + k_block >= shape.k);
        });
      }
    }
  }
}

}  // namespace fp16lab
