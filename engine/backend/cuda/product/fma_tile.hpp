// FmaTile: a block's tile of a product of FP32 matrices, every output one chain of fma over ascending k from
// +0.
//
// Each thread owns 8 x 8 outputs, each warp 32 x 64; slices come through the pipeline that MmaTile uses too.
#pragma once

#include <cstdint>

#include "engine/backend/cuda/product/product_epilogue.hpp"
#include "engine/backend/cuda/product/tile_pipeline.hpp"
#include "engine/backend/cuda/product/tile_source.hpp"
#include "engine/backend/cuda/runtime/instructions.hpp"

namespace fp16lab::engine::gpu {

template <int m_extent, int n_extent, int stage_count>
struct FmaTile {
  using Element = float;
  static constexpr int m = m_extent, n = n_extent, stages = stage_count;
  static constexpr int lanes_m = 4, lanes_n = 8, each = 8;
  static constexpr int warp_m = lanes_m * each, warp_n = lanes_n * each;
  static constexpr int warps_n = n / warp_n;
  static constexpr int warps = (m / warp_m) * warps_n;
  static constexpr int threads = 32 * warps;
  static constexpr int slice_k = tile::slice_bytes / static_cast<int>(sizeof(float));
  static constexpr bool on_sm_75 = true;

  template <class SourceA, class SourceB>
  using Pipeline = TilePipeline<SourceA, SourceB, m, n, threads, stages>;
  using Staging = WarpRows<lanes_m, warp_n>;

  static constexpr int shared_bytes = stages * (m + n) * tile::slice_bytes;
  static_assert(warps * Staging::bytes <= shared_bytes);

  /// As MmaTile::multiply.
  template <class SourceA, class SourceB, class Placement>
  static __device__ __forceinline__ void multiply(const SourceA& a, const SourceB& b,
                                                  const Epilogue<Placement>& epilogue, BlockProbe& probe,
                                                  int batch, int first_m, int first_n, int k) {
    using Slices = Pipeline<SourceA, SourceB>;
    using LayoutA = typename Slices::LayoutA;
    using LayoutB = typename Slices::LayoutB;

    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const int lane_m = lane / lanes_n, lane_n = lane % lanes_n;
    const int warp_row = warp / warps_n * warp_m, warp_column = warp % warps_n * warp_n;
    // The first of a thread's rows and columns are its least ones.
    const bool has_outputs =
        first_m + warp_row + tile::fma_outer_of(lane_m, lanes_m, 0, LayoutA::runs) < epilogue.m_extent &&
        first_n + warp_column + tile::fma_outer_of(lane_n, lanes_n, 0, LayoutB::runs) < epilogue.n_extent;

    float sums[each][each];
#pragma unroll
    for (int i = 0; i < each; ++i)
#pragma unroll
      for (int j = 0; j < each; ++j) sums[i][j] = 0.0f;

    const int slices = static_cast<int>((std::int64_t{k} + slice_k - 1) / slice_k);
    Slices pipeline(a, b, batch, first_m, first_n, slices);
    pipeline.start();
#pragma unroll 1
    for (int slice = 0; slice < slices; ++slice) {
      pipeline.arrive();
      pipeline.request();
      // The tail of k is not multiplied with zeros: fma(0, 0, -0) would make +0 of a sum of -0.
      const int count = k - slice * slice_k;
      if (has_outputs && count >= slice_k) {
#pragma unroll
        for (int group = 0; group < slice_k; group += 4)
          multiply_group<LayoutA, LayoutB>(pipeline.a(), pipeline.b(), warp_row, warp_column, group, 4, sums);
      } else if (has_outputs) {
#pragma unroll 1
        for (int group = 0; group < count; group += 4)
          multiply_group<LayoutA, LayoutB>(pipeline.a(), pipeline.b(), warp_row, warp_column, group,
                                           count - group, sums);
      }
      pipeline.release();
    }

    __syncthreads();  // the slices have been read; now their memory holds rows of outputs
    float* const staged = dynamic_shared<float>() + warp * (Staging::bytes / static_cast<int>(sizeof(float)));
#pragma unroll 1  // as in MmaTile
    for (int round = 0; round < each; ++round) {
#pragma unroll
      for (int i = 0; i < each; ++i) {
        if (i != round) continue;
#pragma unroll
        for (int j = 0; j < each; ++j)
          staged[lane_m * Staging::pitch + tile::fma_outer_of(lane_n, lanes_n, j, LayoutB::runs)] =
              sums[i][j];
      }
      __syncwarp();
      const int first_row = first_m + warp_row;
      Staging::template finish<float>(
          staged, epilogue, probe, batch,
          [=](int row) { return first_row + tile::fma_outer_of(row, lanes_m, round, LayoutA::runs); },
          first_n + warp_column);
      __syncwarp();
    }
  }

 private:
  /// The first `count` of k .. k + 3.
  template <class LayoutA, class LayoutB>
  static __device__ __forceinline__ void multiply_group(const unsigned char* a, const unsigned char* b,
                                                        int warp_row, int warp_column, int k, int count,
                                                        float (&sums)[each][each]) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    float of_a[4][each], of_b[4][each];
    load<LayoutA, lanes_m>(a, warp_row, lane / lanes_n, k, of_a);
    load<LayoutB, lanes_n>(b, warp_column, lane % lanes_n, k, of_b);
#pragma unroll
    for (int step = 0; step < 4; ++step)
      if (step < count) {
#pragma unroll
        for (int i = 0; i < each; ++i)
#pragma unroll
          for (int j = 0; j < each; ++j)
            sums[i][j] = fused_multiply_add(of_a[step][i], of_b[step][j], sums[i][j]);
      }
  }

  /// Elements (k .. k + 3) of a thread's 8 outer indices.
  template <class Layout, int lanes>
  static __device__ __forceinline__ void load(const unsigned char* slice, int warp_outer, int lane, int k,
                                              float (&to)[4][each]) {
    if constexpr (Layout::runs == tile::Runs::along_k) {
#pragma unroll
      for (int i = 0; i < each; ++i) {
        const int outer = warp_outer + tile::fma_outer_of(lane, lanes, i, Layout::runs);
        const auto run = *reinterpret_cast<const Run<float>*>(slice + Layout::offset_of(outer, k));
#pragma unroll
        for (int step = 0; step < 4; ++step) to[step][i] = run.elements[step];
      }
    } else {
#pragma unroll
      for (int step = 0; step < 4; ++step)
#pragma unroll
        for (int i = 0; i < each; i += 4) {
          const int outer = warp_outer + tile::fma_outer_of(lane, lanes, i, Layout::runs);
          const auto run = *reinterpret_cast<const Run<float>*>(slice + Layout::offset_of(outer, k + step));
#pragma unroll
          for (int j = 0; j < 4; ++j) to[step][i + j] = run.elements[j];
        }
    }
  }
};

}  // namespace fp16lab::engine::gpu
