// A kernel's parameters for the end of a product: where its outputs are, and what is added to them. Host and
// device read it.
//
// **Placements** say where output (batch, m, n) is, in elements of out and of the addend. A placement is a
// POD with
//   __device__ std::int64_t offset(std::int64_t batch, int m, int n) const;
//   __device__ bool together(std::int64_t batch, int m, int n) const;
// where together() promises that the 8 outputs (m, n .. n + 7) exist, are neighbours in memory in that order,
// and begin at a multiple of 16 bytes in every tensor that the epilogue touches; saying false is always
// right, and slower. n is a multiple of 8.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "engine/backend/cuda/verbs/backend_impl.hpp"

namespace fp16lab::engine::gpu {

/// Row-major matrices, one after the other.
struct RowMajorPlacement {
  std::int64_t row_stride;
  std::int64_t batch_stride;
  std::int32_t n_extent;
  bool aligned;  ///< all addresses and both strides are multiples of 16 bytes

  __device__ __forceinline__ std::int64_t offset(std::int64_t batch, int m, int n) const {
    return batch * batch_stride + m * row_stride + n;
  }
  __device__ __forceinline__ bool together(std::int64_t /*batch*/, int /*m*/, int n) const {
    return aligned && n + 8 <= n_extent;
  }
};

enum class BiasAxis : std::uint8_t {
  none,
  per_row,     ///< bias[m]
  per_column,  ///< bias[n]
};

/// A vector or tensor that may have either of two element types; kernels are compiled for both at once.
struct EpilogueTensor {
  void* data = nullptr;
  bool f32 = false;  ///< else the 16-bit type of the operands
};

template <class Placement>
struct Epilogue {
  Placement placement;
  std::int32_t m_extent;
  std::int32_t n_extent;
  EpilogueTensor out;
  EpilogueTensor bias;  ///< has the extent of its axis
  BiasAxis bias_axis = BiasAxis::none;
  std::int32_t bias_step = 0;    ///< from the bias of one product of the batch to that of the next
  EpilogueTensor addend;         ///< data may be null: none
  ProbeCounts* probe = nullptr;  ///< counts t before and the stored value after rounding
};

}  // namespace fp16lab::engine::gpu
