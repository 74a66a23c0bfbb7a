// Matrix products: Backend::gemm by our own kernels, or by the library where its algorithm has been pinned.
#include <stdexcept>

#include "engine/backend/cuda/product/gemm_epilogue.hpp"
#include "engine/backend/cuda/product/product.hpp"
#include "engine/backend/cuda/runtime/element_types.hpp"
#include "engine/backend/cuda/verbs/backend_impl.hpp"

namespace fp16lab::engine::gpu {

namespace {

/// An operand where kernels can read it: matrices with so many elements between rows.
struct Operand {
  Tensor matrices;
  std::int64_t leading_dimension;

  bool aligned() const {
    const auto row_bytes = leading_dimension * static_cast<std::int64_t>(size_of(matrices.dtype()));
    return at_16_bytes(matrices) && row_bytes % tile::run_bytes == 0;
  }
};

template <class T, tile::Runs runs, RowStart row_start>
MatrixSource<T, runs, row_start> source_of(const Operand& x, std::int64_t outer, std::int64_t k) {
  const std::int64_t rows = runs == tile::Runs::along_k ? outer : k;
  return {.data = elements<T>(x.matrices),
          .leading_dimension = x.leading_dimension,
          .batch_stride = rows * x.leading_dimension,
          .outer_extent = static_cast<std::int32_t>(outer),
          .k_extent = static_cast<std::int32_t>(k)};
}

/// visitor(integral constant) with where the runs of an operand go.
template <class Visitor>
void with_runs(bool along_k, const Visitor& visitor) {
  if (along_k)
    visitor(std::integral_constant<tile::Runs, tile::Runs::along_k>{});
  else
    visitor(std::integral_constant<tile::Runs, tile::Runs::along_outer>{});
}

}  // namespace

void CudaBackend::do_gemm(const GemmCall& call, const checks::GemmPlan& plan) {
  if (call.a_format.any())
    throw std::invalid_argument(
        "gemm: FP8 operands, and those with scales for blocks, are emulated only; use backend.device = "
        "\"emulated\"");
  require_products("gemm", call.a.dtype(), call.tf32);
  const std::int64_t k = plan.shape.k;
  if (k >= tile::extent_limit)
    throw std::invalid_argument("gemm: " + std::to_string(k) +
                                " inner elements; on a GPU there must be fewer than " +
                                std::to_string(tile::extent_limit));
  if (call.out.element_count() == 0) return;

  if (library_ == nullptr || call.tf32 || k == 0) return own_gemm(call, plan);
  library_gemm(call, plan);
}

void CudaBackend::own_gemm(const GemmCall& call, const checks::GemmPlan& plan) {
  const auto& [m, n, k] = plan.shape;
  const Epilogue<RowMajorPlacement> epilogue =
      gemm_epilogue(call, plan, counts_of(call.probe, call.out.element_count()));
  const tile::Outputs outputs{.m = m, .n = n, .batch = plan.batch};
  const auto multiply = [&](auto tag) {
    using Multiplied = decltype(tag);
    using T = InMemory<Multiplied>;
    constexpr bool tf32 = std::is_same_v<Multiplied, Tf32>;
    // Rows that begin anywhere cost a load for each element. A small product bears that; a larger one moves
    // its operands first, to where rows are aligned: one pass over what it will read many times.
    // Those of TF32 always: there is no kernel for them whose rows begin anywhere.
    const bool small = !tf32 && product_plan<Multiplied>(runtime_, outputs).size == tile::Size::small;
    const auto operand_of = [&](const Tensor& x) {
      const Operand as_stored{x, x.shape()[-1]};
      if (small || as_stored.aligned() || k == 0) return as_stored;
      const std::int64_t in_run = Run<T>::size, padded = (x.shape()[-1] + in_run - 1) / in_run * in_run;
      const Shape& shape = x.shape();
      Operand moved{
          empty(shape.rank() == 3 ? Shape{shape[0], shape[1], padded} : Shape{shape[0], padded}, x.dtype()),
          padded};
      insert(x, shape.rank() - 1, 0, moved.matrices);
      return moved;
    };
    const Operand a = operand_of(operand(call.a, tf32)), b = operand_of(operand(call.b, tf32));
    with_runs(!call.transpose_a, [&](auto runs_a) {
      with_runs(call.transpose_b, [&](auto runs_b) {
        if constexpr (tf32) {  // aligned, or k is 0 and nothing is read
          launch_product<Tf32, tile::Size::medium>(
              runtime_, "gemm, tf32", outputs, k, source_of<T, runs_a.value, RowStart::aligned>(a, m, k),
              source_of<T, runs_b.value, RowStart::aligned>(b, n, k), epilogue);
        } else if (a.aligned() && b.aligned()) {
          launch_product<T>(runtime_, "gemm", outputs, k,
                            source_of<T, runs_a.value, RowStart::aligned>(a, m, k),
                            source_of<T, runs_b.value, RowStart::aligned>(b, n, k), epilogue);
        } else {
          launch_product<T, tile::Size::small>(runtime_, "gemm, rows anywhere", outputs, k,
                                               source_of<T, runs_a.value, RowStart::anywhere>(a, m, k),
                                               source_of<T, runs_b.value, RowStart::anywhere>(b, n, k),
                                               epilogue);
        }
      });
    });
  };
  if (call.tf32)
    multiply(Tf32{});
  else
    with_element_type(call.a.dtype(), multiply);
}

}  // namespace fp16lab::engine::gpu
