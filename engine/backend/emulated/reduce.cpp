// Reductions in TREE order.
#include "engine/backend/checks.hpp"
#include "engine/backend/emulated/backend_impl.hpp"
#include "numerics/arithmetic/tree_reduce.hpp"
#include "numerics/formats/bits.hpp"
#include "numerics/platform/vector_clones.hpp"

namespace fp16lab::engine {

namespace {

/// out[row] = op over x[row, 0 .. extent) for rows [begin, end).
template <class Op>
inline void reduce_rows(const float* x, std::int64_t extent, float* out, std::int64_t begin, std::int64_t end,
                        Op op) {
  for (std::int64_t row = begin; row < end; ++row) {
    const float* const values = x + row * extent;
    out[row] = canonicalize(tree_reduce<float>(
        extent, [values](std::int64_t i) { return values[i]; }, op));
  }
}

FP16LAB_VECTOR_CLONES
void reduce_rows(ReduceOp op, const float* x, std::int64_t extent, float* out, std::int64_t begin,
                 std::int64_t end) {
  switch (op) {
    case ReduceOp::sum:
      return reduce_rows(x, extent, out, begin, end, TreeSum{});
    case ReduceOp::max:
      return reduce_rows(x, extent, out, begin, end, TreeMax{});
  }
}

/// out[column] = op over x[0 .. extent, column] for `columns` columns of a matrix with rows of `stride`
/// elements.
template <class Op>
inline void reduce_columns(const float* x, std::int64_t extent, std::int64_t columns, std::int64_t stride,
                           float* out, Op op) {
  tree_reduce_columns<float>(
      extent, columns, [=](std::int64_t row, std::int64_t column) { return x[row * stride + column]; },
      [=](std::int64_t column, float result) { out[column] = result; }, op);
}

FP16LAB_VECTOR_CLONES
void reduce_columns(ReduceOp op, const float* x, std::int64_t extent, std::int64_t columns,
                    std::int64_t stride, float* out) {
  switch (op) {
    case ReduceOp::sum:
      return reduce_columns(x, extent, columns, stride, out, TreeSum{});
    case ReduceOp::max:
      return reduce_columns(x, extent, columns, stride, out, TreeMax{});
  }
}

constexpr std::int64_t column_block = 64;  // the width at which tree_reduce_columns walks

/// How many rows (or blocks) of `elements` elements make a chunk worth a thread.
std::int64_t chunk_of(std::int64_t elements) {
  return std::max<std::int64_t>(1, elementwise_chunk / std::max<std::int64_t>(1, elements));
}

}  // namespace

void EmulatedBackend::do_reduce(ReduceOp op, const Tensor& x, int, Tensor& out, CastProbe* probe,
                                const checks::ReducePlan& plan) {
  const FloatingPointScope scope;
  const Tensor wide = widened(x);
  Tensor result = out.dtype() == DType::f32 ? out : empty(out.shape(), DType::f32);
  const float* const from = wide.host<float>().data();
  float* const to = result.host<float>().data();
  if (plan.extent == 0) {
    fill(result, 0.0);
  } else if (plan.inner == 1) {
    workers_.for_each_chunk(plan.outer, chunk_of(plan.extent), [=](std::int64_t begin, std::int64_t end) {
      reduce_rows(op, from, plan.extent, to, begin, end);
    });
  } else {
    const std::int64_t blocks = (plan.inner + column_block - 1) / column_block;
    workers_.for_each_chunk(plan.outer * blocks, chunk_of(plan.extent * column_block),
                            [=](std::int64_t begin, std::int64_t end) {
                              for (std::int64_t task = begin; task < end; ++task) {
                                const std::int64_t outer = task / blocks;
                                const std::int64_t left = task % blocks * column_block;
                                reduce_columns(op, from + outer * plan.extent * plan.inner + left,
                                               plan.extent, std::min(column_block, plan.inner - left),
                                               plan.inner, to + outer * plan.inner + left);
                              }
                            });
  }
  store(result, out, probe);
}

}  // namespace fp16lab::engine
