// Picking elements and rows by index, and the adjoints.
#include <array>

#include "engine/autograd/by_shard.hpp"
#include "engine/autograd/dispatch.hpp"
#include "engine/autograd/ops.hpp"

namespace fp16lab::engine::ops {

Variable pick(const Variable& input, const Tensor& index) {
  const auto inputs = dispatched<1>(Op::pick, {input});
  const Variable x = inputs[0];
  if (x.shape().rank() != 2 || index.dtype() != DType::i32 || !(index.shape() == Shape{x.shape()[0]})) {
    reject(Op::pick,
           "x (rows, columns) and index i32 (rows) do not fit: " + describe(x) + " and " + index.describe());
  }
  Backend& backend = x.tape().backend();
  Tensor out = backend.empty({x.shape()[0]}, x.dtype());
  backend.pick(x.tensor(), index, out);
  return recorded(Op::pick, out, {{x, [index, columns = x.shape()[1]](const Variable& g, const Variable&) {
                                     return place(g, index, columns);
                                   }}});
}

Variable place(const Variable& input, const Tensor& index, std::int64_t columns) {
  const auto inputs = dispatched<1>(Op::place, {input});
  const Variable x = inputs[0];
  if (x.shape().rank() != 1 || index.dtype() != DType::i32 || !(index.shape() == x.shape())) {
    reject(Op::place,
           "x (rows) and index i32 (rows) do not fit: " + describe(x) + " and " + index.describe());
  }
  Backend& backend = x.tape().backend();
  Tensor out = backend.empty({x.shape()[0], columns}, x.dtype());
  backend.place(x.tensor(), index, out);
  return recorded(Op::place, out,
                  {{x, [index](const Variable& g, const Variable&) { return pick(g, index); }}});
}

namespace {

void require_index(Op op, const Tensor& index) {
  if (!index.defined() || index.dtype() != DType::i32)
    reject(op, "the index is " + index.describe() + "; i32 is needed");
}

/// Rows of `table` by index. Only as `embedding` is its gradient one of a weight.
Variable gather_rows(const Variable& table, const Tensor& index, SlotLabel label) {
  if (table.shape().rank() != 2)
    reject(Op::embedding, "the table must be (rows, columns), not " + describe(table));
  require_index(Op::embedding, index);
  const std::int64_t rows = table.shape()[0], columns = table.shape()[1];
  ShapeBuilder extents;
  for (const std::int64_t extent : index.shape().extents()) extents.push(extent);
  extents.push(columns);
  const Shape shape = extents.shape();
  Backend& backend = table.tape().backend();
  Tensor out = backend.empty({index.element_count(), columns}, table.dtype());
  backend.gather_rows(table.tensor(), index, out);
  return recorded(
      Op::embedding, out.reshaped(shape),
      {{table,
        [index, rows](const Variable& g, const Variable&) {
          return stack_of(
              [rows](const Variable& of, const Variable& at) { return scatter_rows(of, at.tensor(), rows); },
              g, g.tape().constant(index));
        },
        label}});
}

}  // namespace

Variable embedding(const Variable& table, const Tensor& index) {
  return gather_rows(dispatched<1>(Op::embedding, {table})[0], index, SlotLabel::weight);
}

Variable scatter_rows(const Variable& input, const Tensor& index, std::int64_t rows) {
  const auto inputs = dispatched<1>(Op::scatter_rows, {input});
  const Variable x = inputs[0];
  require_index(Op::scatter_rows, index);
  const Shape shape = x.shape();
  const bool fits = shape.rank() == index.shape().rank() + 1 && rows >= 0 &&
                    reduced_shape(shape, shape.rank() - 1, false) == index.shape();
  if (!fits) {
    reject(Op::scatter_rows, "x (s..., columns) and index (s...) do not fit: " + describe(x) + " and " +
                                 index.describe() + ", into " + std::to_string(rows) + " rows");
  }
  Tape& tape = x.tape();
  const std::int64_t columns = shape[-1];
  const Shape sums{rows, columns};
  // The verb's results have its operands' dtype: in FP32 it takes widened ones.
  Tensor out = rounded_result(tape, sums, x.dtype(), [&](Tensor& result, CastProbe* probe) {
    const Tensor values = result.dtype() == x.dtype() ? x.tensor() : wide_copy(tape.backend(), x.tensor());
    tape.backend().scatter_rows(values.reshaped({index.element_count(), columns}), index, result, probe);
  });
  offer_wide_of(
      tape, out,
      [index, columns](Backend& backend, Tensor& result, const Tensor& value) {
        backend.scatter_rows(value.reshaped({index.element_count(), columns}), index, result);
      },
      x.tensor());
  return recorded(
      Op::scatter_rows, out,
      {{x, [index](const Variable& g, const Variable&) { return gather_rows(g, index, SlotLabel::none); }}});
}

}  // namespace fp16lab::engine::ops
