// Backend::gemm by cuBLAS: the library makes accumulators, or 16-bit outputs where nothing is added to them
// and are not counted, and the epilogue is ours.
#include <cstdint>

#include "engine/backend/cuda/library/product_library.hpp"
#include "engine/backend/cuda/product/gemm_epilogue.hpp"
#include "engine/backend/cuda/runtime/element_types.hpp"
#include "engine/backend/cuda/runtime/fast_division.hpp"
#include "engine/backend/cuda/runtime/launch.hpp"
#include "engine/backend/cuda/verbs/backend_impl.hpp"

namespace fp16lab::engine::gpu {

namespace {

constexpr std::uint32_t threads_of_block = 256;

/// Outputs from accumulators in memory, row-major and dense; 8 neighbours of a row by one thread. `eights` is
/// how many of them a row has. Accumulators and outputs may be the same memory.
template <class Half>
__global__ void finish_products(const float* accumulators, Epilogue<RowMajorPlacement> epilogue,
                                functions::Divisor eights, functions::Divisor rows, std::int64_t total) {
  __shared__ BlockCounts counts;
  BlockProbe probe(counts, epilogue.probe);
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < total; i += stride) {
    std::int64_t batch = i;
    const auto n = static_cast<int>(eights.take(batch)) * 8;
    const auto m = static_cast<int>(rows.take(batch));
    const float* const from = accumulators + epilogue.placement.offset(batch, m, n);
    float t[8];
    if (epilogue.n_extent % 8 == 0) {
      const auto eight = *reinterpret_cast<const EightElements<float>*>(from);
      for (int j = 0; j < 8; ++j) t[j] = eight.elements[j];
    } else {
      for (int j = 0; j < 8; ++j) t[j] = n + j < epilogue.n_extent ? from[j] : 0.0f;
    }
    finish_eight<Half>(epilogue, probe, batch, m, n, t);
  }
  probe.flush();
}

}  // namespace

void CudaBackend::library_gemm(const GemmCall& call, const checks::GemmPlan& plan) {
  const auto& [m, n, k] = plan.shape;
  const bool finish = call.bias != nullptr || call.addend != nullptr || call.probe != nullptr;
  const std::int64_t count = call.out.element_count();
  // It may die before the kernels run: all memory of the pool is used in the stream's order.
  Tensor wide;
  std::byte* accumulators = call.out.data();
  if (finish && call.out.dtype() != DType::f32)
    accumulators = reinterpret_cast<std::byte*>(scratch<float>(count, wide));
  library_->run({.m = m,
                 .n = n,
                 .k = k,
                 .batch = plan.batch,
                 .operands = call.a.dtype(),
                 .out = finish ? DType::f32 : call.out.dtype(),
                 .transpose_a = call.transpose_a,
                 .transpose_b = call.transpose_b},
                call.a.data(), call.b.data(), accumulators);
  ++*library_products_;
  if (!finish) return;

  ProbeCounts* const counts = counts_of(call.probe, count);
  const std::int64_t eights = (n + 7) / 8, total = plan.batch * m * eights;
  // A block that counts pays for its slots once: so many as are resident at a time, and no more.
  const std::int64_t resident = std::int64_t{8} * runtime_.device().multiprocessors;
  const LaunchShape shape{.x = counts == nullptr ? blocks_for(total, threads_of_block)
                                                 : blocks_for(total, threads_of_block, resident),
                          .threads = threads_of_block};
  with_element_type(call.a.dtype(), [&](auto tag) {
    launch(runtime_, "finish_products", &finish_products<decltype(tag)>, shape,
           reinterpret_cast<const float*>(accumulators), gemm_epilogue(call, plan, counts),
           functions::Divisor(eights), functions::Divisor(m), total);
  });
}

}  // namespace fp16lab::engine::gpu
