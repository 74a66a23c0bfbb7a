// Matrix products: the accumulators of numerics/gemm.hpp, then one epilogue pass.
#include "numerics/gemm.hpp"

#include "engine/backend/checks.hpp"
#include "engine/backend/elementwise_functions.hpp"
#include "engine/backend/emulated/backend_impl.hpp"
#include "engine/backend/emulated/vector_clones.hpp"
#include "numerics/convert.hpp"

namespace fp16lab::engine {

namespace {

/// t = add_rn(t, addend), n elements.
FP16LAB_VECTOR_CLONES
void add_to(float* t, const float* addend, std::int64_t n) {
  const functions::Add add;
  FP16LAB_INDEPENDENT_ITERATIONS
  for (std::int64_t i = 0; i < n; ++i) t[i] = add(t[i], addend[i]);
}

template <class T>
MatrixView<T> view(const Tensor& matrix, bool transposed) {
  return {matrix.host<T>().data(), matrix.shape()[1], transposed};
}

}  // namespace

void EmulatedBackend::gemm(const GemmCall& call) {
  const GemmShape shape = checks::gemm(call);
  Tensor accumulators = call.out.dtype() == DType::f32 ? call.out : empty(call.out.shape(), DType::f32);
  float* const acc = accumulators.host<float>().data();
  if (call.a.dtype() == DType::f16) {
    emulated_gemm(model_, shape, view<Float16>(call.a, call.transpose_a),
                  view<Float16>(call.b, call.transpose_b), nullptr, acc, shape.n, workers_.threads());
  } else {
    fma_chain_gemm(shape, view<float>(call.a, call.transpose_a), view<float>(call.b, call.transpose_b), acc,
                   shape.n, workers_.threads());
  }
  if (shape.m == 0 || shape.n == 0) return;

  // t = acc; t = add_rn(t, bias); t = add_rn(t, addend): elementwise, row by row.
  const Tensor bias = call.bias == nullptr ? Tensor() : widened(*call.bias);
  const Tensor addend = call.addend == nullptr ? Tensor() : widened(*call.addend);
  if (bias.defined() || addend.defined()) {
    const float* const bias_row = bias.defined() ? bias.host<float>().data() : nullptr;
    const float* const addend_rows = addend.defined() ? addend.host<float>().data() : nullptr;
    const std::int64_t n = shape.n;
    const std::int64_t rows = std::max<std::int64_t>(1, elementwise_chunk / n);
    workers_.for_each_chunk(shape.m, rows, [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        if (bias_row != nullptr) add_to(acc + row * n, bias_row, n);
        if (addend_rows != nullptr) add_to(acc + row * n, addend_rows + row * n, n);
      }
    });
  }
  store(accumulators, call.out, call.probe);
}

}  // namespace fp16lab::engine
