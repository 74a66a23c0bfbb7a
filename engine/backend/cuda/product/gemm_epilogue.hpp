// The epilogue of a GemmCall, for whichever kernel makes its accumulators.
#pragma once

#include <cstdint>

#include "engine/backend/cuda/product/product_epilogue.hpp"
#include "engine/backend/cuda/verbs/backend_impl.hpp"

namespace fp16lab::engine::gpu {

inline bool at_16_bytes(const Tensor& x) { return reinterpret_cast<std::uintptr_t>(x.data()) % 16 == 0; }

inline EpilogueTensor epilogue_tensor(const Tensor* x) {
  if (x == nullptr) return {};
  return {.data = x->data(), .f32 = x->dtype() == DType::f32};
}

inline Epilogue<RowMajorPlacement> gemm_epilogue(const GemmCall& call, const checks::GemmPlan& plan,
                                                 ProbeCounts* counts) {
  const auto& [m, n, k] = plan.shape;
  return {.placement = {.row_stride = n,
                        .batch_stride = m * n,
                        .n_extent = static_cast<std::int32_t>(n),
                        .aligned = n % 8 == 0 && at_16_bytes(call.out) &&
                                   (call.addend == nullptr || at_16_bytes(*call.addend))},
          .m_extent = static_cast<std::int32_t>(m),
          .n_extent = static_cast<std::int32_t>(n),
          .out = epilogue_tensor(&call.out),
          .bias = epilogue_tensor(call.bias),
          .bias_axis = call.bias == nullptr ? BiasAxis::none : BiasAxis::per_column,
          .addend = epilogue_tensor(call.addend),
          .probe = counts};
}

}  // namespace fp16lab::engine::gpu
