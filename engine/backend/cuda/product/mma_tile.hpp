// MmaTile: a block's tile of a product of 16-bit matrices on tensor cores, by mma.sync.m16n8k16; or, where
// its elements are floats, of TF32 ones, by mma.sync.m16n8k8. The caller rounds them to TF32 if needed.
//
// Every accumulator starts at +0 and takes its products 32 bytes at a time in ascending k: one instruction
// after the other on one register, so neither the tile's shape nor the schedule of warps touches the bits: no
// split-k, and k is never permuted across the blocks of an instruction.
#pragma once

#include <cstdint>

#include "engine/backend/cuda/product/product_epilogue.hpp"
#include "engine/backend/cuda/product/tile_pipeline.hpp"
#include "engine/backend/cuda/runtime/instructions.hpp"

namespace fp16lab::engine::gpu {

template <class Half, int m_extent, int n_extent, int warp_m_extent, int warp_n_extent, int stage_count>
struct MmaTile {
  using Element = Half;
  static constexpr int m = m_extent, n = n_extent, stages = stage_count;
  static constexpr int warp_m = warp_m_extent, warp_n = warp_n_extent;
  static constexpr int warps_n = n / warp_n;
  static constexpr int warps = (m / warp_m) * warps_n;
  static constexpr int threads = 32 * warps;
  static constexpr int slice_k = tile::slice_bytes / static_cast<int>(sizeof(Half));
  static_assert(warp_m % 16 == 0 && warp_n % 16 == 0);
  static constexpr bool on_sm_75 = multiplied_as<Half> == DType::f16;

  template <class SourceA, class SourceB>
  using Pipeline = TilePipeline<SourceA, SourceB, m, n, threads, stages>;
  using Staging = WarpRows<16, warp_n>;

  /// Bytes of dynamic shared memory; the epilogue stages where the slices were.
  static constexpr int shared_bytes = stages * (m + n) * tile::slice_bytes;
  static_assert(warps * Staging::bytes <= shared_bytes);

  /// All threads of the block: outputs [first_m, first_m + m) x [first_n, first_n + n) of product `batch`,
  /// over k.
  template <class SourceA, class SourceB, class Placement>
  static __device__ __forceinline__ void multiply(const SourceA& a, const SourceB& b,
                                                  const Epilogue<Placement>& epilogue, BlockProbe& probe,
                                                  int batch, int first_m, int first_n, int k);

 private:
  static constexpr int step_k = 32 / static_cast<int>(sizeof(Half));  ///< an instruction's
  static constexpr int steps = slice_k / step_k;
  static constexpr int fragments_m = warp_m / 16;
  static constexpr int fragments_n = warp_n / 8;

  struct Fragments {
    std::uint32_t a[fragments_m][4];
    std::uint32_t b[fragments_n][2];
  };

  struct alignas(8) Pair {
    float even, odd;  ///< columns
  };

  /// Four 8 x (16 bytes of k) parts of the block at (first + outer, k), where `first` is the warp's: part 1
  /// is along the outer axis if outer_first, else along k; 2 and 3 are along the other one. `run`: where the
  /// lane's run begins, in halves. ldmatrix turns 16-bit elements only: FP32 ones in runs along the outer
  /// axis come one by one.
  template <class Layout, bool outer_first>
  static __device__ __forceinline__ void load_parts(const unsigned char* slice, int first, int outer, int k,
                                                    const tile::BlockIndex& run, std::uint32_t (&to)[4]) {
    constexpr bool turned = Layout::runs == tile::Runs::along_outer;
    if constexpr (turned && sizeof(Half) == 4) {
      // The permutation acts on the low bits of a run's number: on two of them by the lane alone, on the
      // third by what is constant, on none of the warp's. So the offset is a sum, and a constant is left of
      // all but two of its addresses: a register for each would not fit beside the sums.
      static_assert(warp_m % 32 == 0 && warp_n % 32 == 0 && Layout::run_elements == 4);
      const int lane = static_cast<int>(threadIdx.x) % 32;
      const unsigned char* const of_warp = slice + Layout::offset_of(first, 0);
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const int outer_part = outer_first ? r % 2 : r / 2, k_part = outer_first ? r / 2 : r % 2;
        const int of_lane = Layout::offset_of(lane / 4 + 8 * outer_part, lane % 4) + lane / 4 % 4 * 4;
        to[r] = *reinterpret_cast<const std::uint32_t*>(of_warp + of_lane +
                                                        Layout::offset_of(outer, k + 4 * k_part));
      }
    } else {
      load_matrices_x4<turned>(
          to, slice + Layout::offset_of(first + outer + run.outer, k + run.k * Layout::run_elements / 8));
    }
  }

  /// The fragments of step `step` of a slice.
  template <class LayoutA, class LayoutB>
  static __device__ __forceinline__ void load(const unsigned char* a, const unsigned char* b, int warp_row,
                                              int warp_column, int step, Fragments& to) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const tile::BlockIndex in_a = tile::a_run_of_lane(lane, LayoutA::runs);
    const tile::BlockIndex in_b = tile::b_run_of_lane(lane, LayoutB::runs);
#pragma unroll
    for (int i = 0; i < fragments_m; ++i)
      load_parts<LayoutA, true>(a, warp_row, 16 * i, step_k * step, in_a, to.a[i]);
#pragma unroll
    for (int j = 0; j < fragments_n; j += 2) {
      std::uint32_t two[4];
      load_parts<LayoutB, false>(b, warp_column, 8 * j, step_k * step, in_b, two);
      to.b[j][0] = two[0];
      to.b[j][1] = two[1];
      to.b[j + 1][0] = two[2];
      to.b[j + 1][1] = two[3];
    }
  }
};

template <class Half, int m_extent, int n_extent, int warp_m_extent, int warp_n_extent, int stage_count>
template <class SourceA, class SourceB, class Placement>
__device__ __forceinline__ void MmaTile<Half, m_extent, n_extent, warp_m_extent, warp_n_extent,
                                        stage_count>::multiply(const SourceA& a, const SourceB& b,
                                                               const Epilogue<Placement>& epilogue,
                                                               BlockProbe& probe, int batch, int first_m,
                                                               int first_n, int k) {
  using Slices = Pipeline<SourceA, SourceB>;
  using LayoutA = typename Slices::LayoutA;
  using LayoutB = typename Slices::LayoutB;
  static_assert(Slices::shared_bytes == shared_bytes);

  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int warp_row = warp / warps_n * warp_m, warp_column = warp % warps_n * warp_n;
  // A warp whose outputs are all outside copies with the others, and multiplies nothing.
  const bool has_outputs =
      first_m + warp_row < epilogue.m_extent && first_n + warp_column < epilogue.n_extent;

  float sums[fragments_m][fragments_n][4];
#pragma unroll
  for (int i = 0; i < fragments_m; ++i)
#pragma unroll
    for (int j = 0; j < fragments_n; ++j)
#pragma unroll
      for (int r = 0; r < 4; ++r) sums[i][j][r] = 0.0f;

  const int whole_slices = k / slice_k, tail = k - whole_slices * slice_k;
  Slices pipeline(a, b, batch, first_m, first_n, whole_slices + (tail > 0 ? 1 : 0));
  pipeline.start();
  pipeline.arrive();

  // The fragments of a step are loaded while the step before it multiplies, across slices too: so the barrier
  // of the next slice comes before the last step of this one, whose fragments are in registers by then.
  Fragments fragments[2];
  if (has_outputs && whole_slices > 0)
    load<LayoutA, LayoutB>(pipeline.a(), pipeline.b(), warp_row, warp_column, 0, fragments[0]);
#pragma unroll 1
  for (int slice = 0; slice < whole_slices; ++slice) {
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      if (step == 0) pipeline.request();  // into the slice before this one, which all warps have left
      if (step == steps - 1) {
        pipeline.release();
        pipeline.arrive();
      }
      if (has_outputs) {
        // After the last slice this reads an old one, and nothing uses it.
        load<LayoutA, LayoutB>(pipeline.a(), pipeline.b(), warp_row, warp_column, (step + 1) % steps,
                               fragments[(step + 1) % 2]);
        const Fragments& now = fragments[step % 2];
#pragma unroll
        for (int i = 0; i < fragments_m; ++i)
#pragma unroll
          for (int j = 0; j < fragments_n; ++j) multiply_step<Half>(sums[i][j], now.a[i], now.b[j]);
      }
    }
  }

  // The rest of k is padded with +0 to 16 bytes, and no further: that many products is a block on
  // every tensor core, or part of one, and a block of nothing but zeros is not neutral. It would make +0 of
  // -0, where a chip kept the sign of BF16 products that underflow (our rows do not; no capture shows it).
  if (has_outputs) {
#pragma unroll 1
    for (int done = 0; done < tail; done += step_k) {
      load<LayoutA, LayoutB>(pipeline.a(), pipeline.b(), warp_row, warp_column, done / step_k, fragments[0]);
      if (tail - done > step_k / 2) {
#pragma unroll
        for (int i = 0; i < fragments_m; ++i)
#pragma unroll
          for (int j = 0; j < fragments_n; ++j)
            multiply_step<Half>(sums[i][j], fragments[0].a[i], fragments[0].b[j]);
      } else {
#pragma unroll
        for (int i = 0; i < fragments_m; ++i)
#pragma unroll
          for (int j = 0; j < fragments_n; ++j)
            multiply_half_step<Half>(sums[i][j], fragments[0].a[i], fragments[0].b[j]);
      }
    }
  }

  __syncthreads();  // the slices have been read; now their memory holds rows of FP32
  if (!has_outputs) return;
  float* const staged = dynamic_shared<float>() + warp * (Staging::bytes / static_cast<int>(sizeof(float)));
  const int row = lane / 4, column = lane % 4 * 2;
#pragma unroll 1  // the epilogue's code once; registers have no index, so each round picks its own
  for (int round = 0; round < fragments_m; ++round) {
#pragma unroll
    for (int i = 0; i < fragments_m; ++i) {
      if (i != round) continue;
#pragma unroll
      for (int j = 0; j < fragments_n; ++j)
#pragma unroll
        for (int r = 0; r < 4; r += 2)
          *reinterpret_cast<Pair*>(staged + (row + 4 * r) * Staging::pitch + 8 * j + column) = {
              sums[i][j][r], sums[i][j][r + 1]};
    }
    __syncwarp();
    const int first_row = first_m + warp_row + 16 * round;
    Staging::template finish<Half>(
        staged, epilogue, probe, batch, [=](int r) { return first_row + r; }, first_n + warp_column);
    __syncwarp();
  }
}

}  // namespace fp16lab::engine::gpu
