// The end of a product: accumulators become outputs by the rule of Backend::gemm (t = acc; t = add_rn(t,
// bias); t = add_rn(t, addend); one rounding), wherever they are.
#pragma once

#include <cstdint>

#include "engine/backend/cuda/product/epilogue_parameters.hpp"
#include "engine/backend/cuda/runtime/instructions.hpp"
#include "engine/backend/cuda/verbs/probe_counting.hpp"
#include "engine/backend/elementwise_functions.hpp"

namespace fp16lab::engine::gpu {

/// Element `i` of x as FP32; Half: the type of 16 bits (float where the product is one of FP32).
template <class Half>
__device__ __forceinline__ float loaded_from(const EpilogueTensor& x, std::int64_t i) {
  if (x.f32) return static_cast<const float*>(x.data)[i];
  return loaded(static_cast<const Half*>(x.data)[i]);
}

/// 8 neighbours, at a multiple of 16 bytes.
template <class T>
struct alignas(16) EightElements {
  T elements[8];
};
template <class Half>
__device__ __forceinline__ void load_eight(const EpilogueTensor& x, std::int64_t i, float (&values)[8]) {
  if (x.f32) {
    const auto eight = *reinterpret_cast<const EightElements<float>*>(static_cast<const float*>(x.data) + i);
#pragma unroll
    for (int j = 0; j < 8; ++j) values[j] = eight.elements[j];
  } else {
    const auto eight = *reinterpret_cast<const EightElements<Half>*>(static_cast<const Half*>(x.data) + i);
#pragma unroll
    for (int j = 0; j < 8; ++j) values[j] = loaded(eight.elements[j]);
  }
}

/// Rounds one t to T and stores it.
template <class T>
__device__ __forceinline__ void store_one(BlockProbe& probe, float t, void* out, std::int64_t i) {
  static_cast<T*>(out)[i] = probe.narrowed<T>(t);
}
template <class T>
__device__ __forceinline__ void store_eight(BlockProbe& probe, const float (&t)[8], void* out,
                                            std::int64_t i) {
  EightElements<T> eight;
#pragma unroll
  for (int j = 0; j < 8; ++j) eight.elements[j] = probe.narrowed<T>(t[j]);
  *reinterpret_cast<EightElements<T>*>(static_cast<T*>(out) + i) = eight;
}

/// The 8 outputs (m, n .. n + 7) from their accumulators; those outside the product are left out.
template <class Half, class Placement>
__device__ __forceinline__ void finish_eight(const Epilogue<Placement>& e, BlockProbe& probe,
                                             std::int64_t batch, int m, int n, float (&t)[8]) {
  if (m >= e.m_extent || n >= e.n_extent) return;
  const functions::Add add;
  const int count = e.n_extent - n < 8 ? e.n_extent - n : 8;
#pragma unroll
  for (int j = 0; j < 8; ++j) t[j] = canonicalize(t[j]);
  if (e.bias_axis != BiasAxis::none) {
    const bool per_column = e.bias_axis == BiasAxis::per_column;
    const std::int64_t first = batch * e.bias_step;
#pragma unroll
    for (int j = 0; j < 8; ++j)
      if (j < count) t[j] = add(t[j], loaded_from<Half>(e.bias, first + (per_column ? n + j : m)));
  }
  if (e.placement.together(batch, m, n)) {
    const std::int64_t first = e.placement.offset(batch, m, n);
    if (e.addend.data != nullptr) {
      float addend[8];
      load_eight<Half>(e.addend, first, addend);
#pragma unroll
      for (int j = 0; j < 8; ++j) t[j] = add(t[j], addend[j]);
    }
    if (e.out.f32) {
      store_eight<float>(probe, t, e.out.data, first);
    } else {
      store_eight<Half>(probe, t, e.out.data, first);
    }
    return;
  }
#pragma unroll
  for (int j = 0; j < 8; ++j)
    if (j < count) {
      const std::int64_t at = e.placement.offset(batch, m, n + j);
      if (e.addend.data != nullptr) t[j] = add(t[j], loaded_from<Half>(e.addend, at));
      if (e.out.f32) {
        store_one<float>(probe, t[j], e.out.data, at);
      } else {
        store_one<Half>(probe, t[j], e.out.data, at);
      }
    }
}

/// What a warp keeps in shared memory while it turns fragments into rows: `rows` rows of `columns` FP32
/// numbers, 8 more between rows so that the pairs of an accumulator fragment, half a warp at a time, meet in
/// no bank.
template <int rows, int columns>
struct WarpRows {
  static constexpr int pitch = columns + 8;
  static constexpr int bytes = rows * pitch * static_cast<int>(sizeof(float));

  /// All lanes of the warp, between two __syncwarp: finishes every row; row r is row `m_of(r)` of the product
  /// and column c is first_n + c.
  template <class Half, class Placement, class RowMap>
  static __device__ __forceinline__ void finish(const float* staged, const Epilogue<Placement>& epilogue,
                                                BlockProbe& probe, std::int64_t batch, const RowMap& m_of,
                                                int first_n) {
    constexpr int eights = rows * columns / 8;
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll 1
    for (int i = lane; i < eights; i += 32) {
      const int row = i / (columns / 8), column = i % (columns / 8) * 8;
      const float* const from = staged + row * pitch + column;
      auto eight = *reinterpret_cast<const EightElements<float>*>(from);
      finish_eight<Half>(epilogue, probe, batch, m_of(row), first_n + column, eight.elements);
    }
  }
};

}  // namespace fp16lab::engine::gpu
