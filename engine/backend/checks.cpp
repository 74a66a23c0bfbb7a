#include "engine/backend/checks.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <stdexcept>
#include <string>

#include "engine/backend/requirements.hpp"

namespace fp16lab::engine::checks {

using namespace requirements;

namespace {

/// (rows, columns) of x.
MatrixExtents matrix(std::string_view verb, const Argument& x) {
  if (x.tensor.shape().rank() != 2) fail(verb, fmt::format("{}; (rows, columns) is needed", text(x)));
  return {x.tensor.shape()[0], x.tensor.shape()[1]};
}

}  // namespace

void transfer(std::string_view verb, std::size_t host_bytes, const Tensor& x) {
  require_defined(verb, {"the tensor", x});
  if (host_bytes != x.byte_count())
    fail(verb, fmt::format("{} host bytes for {}, which has {}", host_bytes, x.describe(), x.byte_count()));
}

void copy(const Tensor& x, const Tensor& out) {
  require_operands("copy", {{"x", &x, Takes::any}, {"out", &out, Takes::any, Access::in_place}});
  require_same_dtype("copy", {"x", x}, {"out", out});
  require_count("copy", {"out", out}, x.element_count(), "as x has");
}

void fill(const Tensor& out) { require_defined("fill", {"out", out}); }

void fill_uniform(const Tensor& out, float low, float high) {
  require_dtype("fill_uniform", {"out", out}, DType::f32);
  if (!(std::isfinite(low) && std::isfinite(high) && low <= high))
    fail("fill_uniform", fmt::format("[{}, {}) is not an interval of finite numbers", low, high));
}

void fill_normal(const Tensor& out, float mean, float deviation) {
  require_dtype("fill_normal", {"out", out}, DType::f32);
  if (!(std::isfinite(mean) && std::isfinite(deviation) && deviation >= 0.0f))
    fail("fill_normal", fmt::format("mean is {} and deviation {}; both must be finite, the deviation >= 0",
                                    mean, deviation));
}

void fill_bernoulli(const Tensor& out, float keep, const Tensor& step) {
  require_f("fill_bernoulli", {"out", out});
  if (!(keep >= 0.0f && keep <= 1.0f))
    fail("fill_bernoulli", fmt::format("keep is {}; a probability in [0, 1] is needed", keep));
  step_state("fill_bernoulli", step);
}

void permute(const Tensor& x, std::span<const int> axes, const Tensor& out) {
  const Argument from{"x", x}, to{"out", out};
  require_defined("permute", from);
  require_defined("permute", to);
  require_same_dtype("permute", from, to);
  const Shape& shape = x.shape();
  const auto rank = static_cast<std::size_t>(shape.rank());
  std::array<bool, Shape::max_rank> seen{};
  bool is_permutation = axes.size() == rank;
  for (std::size_t i = 0; is_permutation && i < rank; ++i) {
    const auto axis = static_cast<std::size_t>(axes[i]);  // negative ones become huge
    is_permutation = axis < rank && !seen[axis];
    if (is_permutation) seen[axis] = true;
  }
  if (!is_permutation)
    fail("permute", fmt::format("axes are ({}), not a permutation of the axes of {}", fmt::join(axes, ", "),
                                text(from)));
  for (std::size_t i = 0; i < rank; ++i)
    if (out.shape().rank() != shape.rank() || out.shape()[static_cast<int>(i)] != shape[axes[i]])
      fail("permute",
           fmt::format("{} with axes ({}) does not give {}", text(from), fmt::join(axes, ", "), text(to)));
  require_apart("permute", from, to);
}

namespace {

SlicePlan slice_plan(std::string_view verb, const Argument& whole, const Argument& part, int axis,
                     std::int64_t begin) {
  require_defined(verb, whole);
  require_defined(verb, part);
  require_same_dtype(verb, whole, part);
  const Shape& shape = whole.tensor.shape();
  const Shape& small = part.tensor.shape();
  const int rank = shape.rank();
  const int at = axis < 0 ? axis + rank : axis;
  if (at < 0 || at >= rank) fail(verb, fmt::format("{} and has no axis {}", text(whole), axis));
  SlicePlan plan{.rows = 1};
  std::int64_t inner = 1;
  bool alike = small.rank() == rank;
  for (int i = 0; alike && i < rank; ++i) {
    alike = i == at || small[i] == shape[i];
    (i < at ? plan.rows : inner) *= i == at ? 1 : shape[i];
  }
  if (!alike)
    fail(verb,
         fmt::format("{}, {}: their shapes differ on other axes than {}", text(whole), text(part), axis));
  if (begin < 0 || begin > shape[at] - small[at])
    fail(verb,
         fmt::format("{} from {} on, along axis {}, is not inside {}", small[at], begin, axis, text(whole)));
  require_apart(verb, whole, part);
  plan.run = small[at] * inner;
  plan.pitch = shape[at] * inner;
  plan.offset = begin * inner;
  return plan;
}

}  // namespace

SlicePlan slice(const Tensor& x, int axis, std::int64_t begin, const Tensor& out) {
  return slice_plan("slice", {"x", x}, {"out", out}, axis, begin);
}

SlicePlan insert(const Tensor& x, int axis, std::int64_t begin, const Tensor& out) {
  return slice_plan("insert", {"out", out}, {"x", x}, axis, begin);
}

void cast(const Tensor& x, const Tensor& out) {
  require_operands("cast", {{"x", &x, Takes::f}, {"out", &out, Takes::f, Access::written}});
  require_same_shape("cast", {"x", x}, {"out", out});
}

void cast_stochastic(const Tensor& x, const Tensor& out, const Tensor& step) {
  constexpr std::string_view verb = "cast_stochastic";
  require_operands(verb, {{"x", &x, Takes::f32}, {"out", &out, Takes::f, Access::written}});
  if (out.dtype() == DType::f32) fail(verb, fmt::format("{}; f16 or bf16 is needed", text({"out", out})));
  require_same_shape(verb, {"x", x}, {"out", out});
  step_state(verb, step);
}

void unary(std::string_view row, const Tensor& x, const Tensor& out) {
  require_operands(row, {{"x", &x, Takes::f}, {"out", &out, Takes::same, Access::in_place}});
  require_same_shape(row, {"x", x}, {"out", out});
}

BroadcastPlan binary(std::string_view row, const Tensor& a, const Tensor& b, const Tensor& out) {
  require_operands(
      row, {{"a", &a, Takes::f}, {"b", &b, Takes::same}, {"out", &out, Takes::same, Access::in_place}});
  for (const Argument& from : {Argument{"a", a}, Argument{"b", b}})
    if (!broadcasts_to(from.tensor.shape(), out.shape()))
      fail(row, fmt::format("{} does not broadcast to out {}", text(from), out.shape().to_string()));
  return plan_broadcast(a.shape(), b.shape(), out.shape());
}

ReducePlan reduce(ReduceOp op, const Tensor& x, int axis, const Tensor& out) {
  require_operands("reduce", {{"x", &x, Takes::f}, {"out", &out, Takes::same, Access::written}});
  const int rank = x.shape().rank();
  const int at = axis < 0 ? axis + rank : axis;
  if (at < 0 || at >= rank) fail("reduce", fmt::format("x is {} and has no axis {}", x.describe(), axis));
  ReducePlan plan;
  for (int i = 0; i < rank; ++i) (i < at ? plan.outer : i > at ? plan.inner : plan.extent) *= x.shape()[i];
  require_count("reduce", {"out", out}, plan.outer * plan.inner,
                [&] { return fmt::format("as {} has without axis {}", x.describe(), axis); });
  if (op == ReduceOp::max && plan.extent == 0 && out.element_count() > 0)
    fail("reduce", fmt::format("max over axis {} of {}, which has no elements", axis, x.describe()));
  return plan;
}

namespace {

MatrixExtents elements(std::string_view verb, const Operand& matrix_operand, const Tensor& index,
                       const Operand& values) {
  require_operands(verb, {matrix_operand, values, {"index", &index, Takes::i32}});
  const MatrixExtents extents = matrix(verb, matrix_operand.argument());
  require_count(verb, {"index", index}, extents.rows, "one per row");
  require_count(verb, values.argument(), extents.rows, "one per row");
  return extents;
}

/// table (V, E), index (n elements), rows (n, E): any shapes with these element counts after the table's.
MatrixExtents table_rows(std::string_view verb, const Operand& table, const Tensor& index,
                         const Operand& rows) {
  require_operands(verb, {table, rows, {"index", &index, Takes::i32}});
  const MatrixExtents extents = matrix(verb, table.argument());
  const std::int64_t count = index.element_count();
  require_count(verb, rows.argument(), (Extent(count) * extents.columns).value(),
                [&] { return fmt::format("{} rows of {}", count, extents.columns); });
  return extents;
}

}  // namespace

MatrixExtents pick(const Tensor& x, const Tensor& index, const Tensor& out) {
  return elements("pick", {"x", &x, Takes::f}, index, {"out", &out, Takes::same, Access::written});
}

MatrixExtents place(const Tensor& x, const Tensor& index, const Tensor& out) {
  return elements("place", {"out", &out, Takes::f, Access::written}, index, {"x", &x, Takes::same});
}

MatrixExtents gather_rows(const Tensor& table, const Tensor& index, const Tensor& out) {
  return table_rows("gather_rows", {"table", &table, Takes::f}, index,
                    {"out", &out, Takes::same, Access::written});
}

MatrixExtents scatter_rows(const Tensor& x, const Tensor& index, const Tensor& out) {
  return table_rows("scatter_rows", {"out", &out, Takes::f, Access::written}, index, {"x", &x, Takes::same});
}

void index_range(std::string_view verb, std::span<const std::int32_t> index, std::int64_t columns) {
  for (std::size_t row = 0; row < index.size(); ++row)
    if (index[row] < 0 || index[row] >= columns) index_out_of_range(verb, row, index[row], columns);
}

void index_out_of_range(std::string_view verb, std::uint64_t row, std::int32_t value, std::int64_t columns) {
  throw std::out_of_range(
      fmt::format("{}: index[{}] is {}, which is not in [0, {})", verb, row, value, columns));
}

namespace {

void require_operand_formats(const GemmCall& call) {
  const bool rounds_a = call.a_format.has_value(), rounds_b = call.b_format.has_value();
  if (rounds_a != rounds_b)
    fail("gemm", fmt::format("a_format is {} and b_format {}; both operands are rounded to FP8, or neither",
                             fp8_name(call.a_format), fp8_name(call.b_format)));
  require_tf32_operand("gemm", {"a", call.a}, call.tf32);
  if (rounds_a && call.a.dtype() == DType::f32)
    fail("gemm", fmt::format("{}, rounded to {}; f16 or bf16 operands are needed", text({"a", call.a}),
                             fp8_name(call.a_format)));
}

}  // namespace

const TensorCoreModel& product_row(std::string_view verb, const TensorCoreModel& row, DType operands) {
  if (row.operands.contains(operands)) return row;
  try {
    return tensor_core_model(row.name, operands);
  } catch (const std::invalid_argument& error) {
    fail(verb, error.what());
  }
}

GemmPlan gemm(const GemmCall& call) {
  const Argument a{"a", call.a}, b{"b", call.b}, out{"out", call.out};
  require_operands("gemm", {{"a", &call.a, Takes::f},
                            {"b", &call.b, Takes::same},
                            {"out", &call.out, Takes::f, Access::written},
                            {"bias", call.bias, Takes::f32_or_same},
                            {"addend", call.addend, Takes::f}});
  require_result_dtype("gemm", a, out);
  require_operand_formats(call);
  const int rank = call.out.shape().rank();
  if (rank != 2 && rank != 3)
    fail("gemm", text(out) + "; a matrix, or matrices along one batch axis, is needed");
  for (const Argument& matrix : {a, b})
    if (matrix.tensor.shape().rank() != rank)
      fail("gemm", fmt::format("{}, {}: their ranks differ", text(matrix), text(out)));

  const Shape& shape_a = call.a.shape();
  const Shape& shape_b = call.b.shape();
  const GemmPlan plan{.batch = rank == 3 ? call.out.shape()[0] : 1,
                      .shape = {.m = shape_a[call.transpose_a ? -1 : -2],
                                .n = shape_b[call.transpose_b ? -2 : -1],
                                .k = shape_a[call.transpose_a ? -2 : -1]}};
  const GemmShape& shape = plan.shape;
  const std::int64_t k_of_b = shape_b[call.transpose_b ? -1 : -2];
  const char* transposed_a = call.transpose_a ? " transposed" : "";
  const char* transposed_b = call.transpose_b ? " transposed" : "";
  if (rank == 3 && (shape_a[0] != plan.batch || shape_b[0] != plan.batch))
    fail("gemm", fmt::format("{}, {}, {}: their batch extents differ", text(a), text(b), text(out)));
  if (shape.k != k_of_b)
    fail("gemm", fmt::format("{}{}, {}{}: inner extents {} and {} differ", text(a), transposed_a, text(b),
                             transposed_b, shape.k, k_of_b));
  const Shape needed = rank == 3 ? Shape{plan.batch, shape.m, shape.n} : Shape{shape.m, shape.n};
  if (!(call.out.shape() == needed))
    fail("gemm", fmt::format("{}{}, {}{}: out must be {}, but {}", text(a), transposed_a, text(b),
                             transposed_b, needed.to_string(), text(out)));
  if (call.bias != nullptr) require_count("gemm", {"bias", *call.bias}, shape.n, "one per column of out");
  if (call.addend != nullptr) {
    require_f32_or_dtype_of("gemm", {"addend", *call.addend}, out);
    require_same_shape("gemm", {"addend", *call.addend}, out);
  }
  return plan;
}

void histogram(const Tensor& x) { require_f("histogram", {"x", x}); }
void count_update(const Tensor& before, const Tensor& weight, const Tensor& gradient) {
  require_operands(
      "count_update",
      {{"before", &before, Takes::f32}, {"weight", &weight, Takes::f}, {"gradient", &gradient, Takes::f}});
  require_same_shape("count_update", {"before", before}, {"weight", weight});
  require_same_shape("count_update", {"before", before}, {"gradient", gradient});
}
void digest(const Tensor& x) { require_defined("digest", {"x", x}); }

}  // namespace fp16lab::engine::checks
