// Matrix products: the accumulators of numerics/gemm.hpp, then the epilogue in blocks of rows.
#include "numerics/gemm.hpp"

#include "engine/backend/checks.hpp"
#include "engine/backend/emulated/backend_impl.hpp"
#include "engine/backend/emulated/product.hpp"

namespace fp16lab::engine {

namespace {

/// Matrix `index` of the (rows x columns) matrices of x, rows and columns as stored.
template <class T>
MatrixView<T> view(const Tensor& x, std::int64_t index, bool transposed) {
  const std::int64_t rows = x.shape()[-2], columns = x.shape()[-1];
  return {x.host<T>().data() + index * rows * columns, columns, transposed};
}

template <class T>
void accumulate_one(const TensorCoreModel& model, const GemmShape& shape, const GemmCall& call,
                    std::int64_t index, float* accumulators, int threads) {
  accumulate(model, shape, view<T>(call.a, index, call.transpose_a), view<T>(call.b, index, call.transpose_b),
             nullptr, accumulators + index * shape.m * shape.n, shape.n, threads);
}

/// Below, waking a thread costs more than it saves.
constexpr std::int64_t multiply_adds_per_task = std::int64_t{1} << 19;

}  // namespace

void EmulatedBackend::gemm(const GemmCall& call) {
  const checks::GemmPlan plan = checks::gemm(call);
  const GemmShape& shape = plan.shape;
  const std::int64_t n = shape.n;
  if (call.out.element_count() == 0) return;
  const bool half_out = call.out.dtype() == DType::f16;
  const Tensor accumulators = half_out ? empty(call.out.shape(), DType::f32) : call.out;
  float* const acc = accumulators.host<float>().data();
  const auto product = [&](std::int64_t index, int threads) {
    if (call.a.dtype() == DType::f16)
      accumulate_one<Float16>(model_, shape, call, index, acc, threads);
    else
      accumulate_one<float>(model_, shape, call, index, acc, threads);
  };

  const Tensor bias = call.bias == nullptr ? Tensor() : widened(*call.bias);
  const Tensor addend = call.addend == nullptr ? Tensor() : widened(*call.addend);
  const float* const bias_row = bias.defined() ? bias.host<float>().data() : nullptr;
  const float* const addend_rows = addend.defined() ? addend.host<float>().data() : nullptr;
  ProbedRounding round(call.probe);
  const auto finish = [&](std::int64_t begin, std::int64_t end) {  // rows of all products
    for (std::int64_t row = begin; row < end; ++row) {
      if (bias_row != nullptr) add_to(acc + row * n, bias_row, n);
      if (addend_rows != nullptr) add_to(acc + row * n, addend_rows + row * n, n);
    }
    const std::int64_t first = begin * n, count = (end - begin) * n;
    if (half_out)
      round(acc + first, count, call.out.host<Float16>().data() + first);
    else
      round(acc + first, count, acc + first);
  };

  // Many products share the threads; a few have them all, one after the other.
  if (plan.batch >= workers_.threads() && plan.batch > 1) {
    const std::int64_t work = std::max<std::int64_t>(1, shape.m * n * shape.k);
    const std::int64_t products_per_task = std::max<std::int64_t>(1, multiply_adds_per_task / work);
    workers_.for_each_chunk(plan.batch, products_per_task, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) product(i, 1);
      finish(begin * shape.m, end * shape.m);
    });
    return;
  }
  for (std::int64_t i = 0; i < plan.batch; ++i) product(i, workers_.threads());
  workers_.for_each_chunk(plan.batch * shape.m, std::max<std::int64_t>(1, elementwise_chunk / n), finish);
}

}  // namespace fp16lab::engine
