#include "engine/backend/checks.hpp"

#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <stdexcept>
#include <string>

namespace fp16lab::engine::checks {

namespace {

struct Argument {
  std::string_view name;
  const Tensor& tensor;
};

[[noreturn]] void fail(std::string_view verb, const std::string& what) {
  throw std::invalid_argument(fmt::format("{}: {}", verb, what));
}

std::string text(const Argument& argument) {
  return fmt::format("{} is {}", argument.name, argument.tensor.describe());
}

void require_defined(std::string_view verb, const Argument& x) {
  if (!x.tensor.defined()) fail(verb, fmt::format("{} is an undefined tensor", x.name));
}

void require_dtype(std::string_view verb, const Argument& x, DType dtype) {
  require_defined(verb, x);
  if (x.tensor.dtype() != dtype) fail(verb, fmt::format("{}; {} is needed", text(x), name_of(dtype)));
}

/// f of the verbs' comments.
void require_f(std::string_view verb, const Argument& x) {
  require_defined(verb, x);
  if (x.tensor.dtype() != DType::f32 && x.tensor.dtype() != DType::f16)
    fail(verb, fmt::format("{}; f32 or f16 is needed", text(x)));
}

void require_same_dtype(std::string_view verb, const Argument& x, const Argument& y) {
  if (x.tensor.dtype() != y.tensor.dtype())
    fail(verb, fmt::format("{}, {}: their dtypes differ", text(x), text(y)));
}

void require_same_shape(std::string_view verb, const Argument& x, const Argument& y) {
  if (!(x.tensor.shape() == y.tensor.shape()))
    fail(verb, fmt::format("{}, {}: their shapes differ", text(x), text(y)));
}

void require_count(std::string_view verb, const Argument& x, std::int64_t count, std::string_view why) {
  if (x.tensor.element_count() != count)
    fail(verb, fmt::format("{}; it must have {} elements, {}", text(x), count, why));
}

bool overlap(const Tensor& x, const Tensor& y) {
  const std::less<const std::byte*> before;
  return before(x.data(), y.data() + y.byte_count()) && before(y.data(), x.data() + x.byte_count());
}

void require_apart(std::string_view verb, const Argument& x, const Argument& out) {
  if (overlap(x.tensor, out.tensor))
    fail(verb, fmt::format("{} and {} overlap in memory: {}, {}", x.name, out.name, text(x), text(out)));
}

/// In place is allowed: the same elements, or no common byte.
void require_apart_or_same(std::string_view verb, const Argument& x, const Argument& out) {
  const bool same =
      x.tensor.data() == out.tensor.data() && x.tensor.element_count() == out.tensor.element_count();
  if (!same) require_apart(verb, x, out);
}

MatrixExtents matrix_and_index(std::string_view verb, const Argument& matrix, const Argument& index,
                               const Argument& values) {
  require_f(verb, matrix);
  require_f(verb, values);
  require_same_dtype(verb, matrix, values);
  require_dtype(verb, index, DType::i32);
  if (matrix.tensor.shape().rank() != 2)
    fail(verb, fmt::format("{}; (rows, columns) is needed", text(matrix)));
  const MatrixExtents extents{matrix.tensor.shape()[0], matrix.tensor.shape()[1]};
  require_count(verb, index, extents.rows, "one per row");
  require_count(verb, values, extents.rows, "one per row");
  return extents;
}

}  // namespace

void transfer(std::string_view verb, std::size_t host_bytes, const Tensor& x) {
  require_defined(verb, {"the tensor", x});
  if (host_bytes != x.byte_count())
    fail(verb, fmt::format("{} host bytes for {}, which has {}", host_bytes, x.describe(), x.byte_count()));
}

void copy(const Tensor& x, const Tensor& out) {
  const Argument from{"x", x}, to{"out", out};
  require_defined("copy", from);
  require_defined("copy", to);
  require_same_dtype("copy", from, to);
  require_count("copy", to, x.element_count(), "as x has");
  require_apart_or_same("copy", from, to);
}

void fill(const Tensor& out) { require_defined("fill", {"out", out}); }

void fill_uniform(const Tensor& out, float low, float high) {
  require_dtype("fill_uniform", {"out", out}, DType::f32);
  if (!(std::isfinite(low) && std::isfinite(high) && low <= high))
    fail("fill_uniform", fmt::format("[{}, {}) is not an interval of finite numbers", low, high));
}

void cast(const Tensor& x, const Tensor& out) {
  const Argument from{"x", x}, to{"out", out};
  require_f("cast", from);
  require_f("cast", to);
  require_same_shape("cast", from, to);
  require_apart("cast", from, to);
}

void unary(UnaryOp op, const Tensor& x, const Tensor& out) {
  const Argument from{"x", x}, to{"out", out};
  require_f("unary", from);
  require_f("unary", to);
  require_same_dtype("unary", from, to);
  require_same_shape("unary", from, to);
  require_apart_or_same("unary", from, to);
  if (op == UnaryOp::exp || op == UnaryOp::log) require_dtype("unary exp/log", from, DType::f32);
}

BroadcastPlan binary(const Tensor& a, const Tensor& b, const Tensor& out) {
  const Argument to{"out", out};
  require_f("binary", to);
  for (const Argument& from : {Argument{"a", a}, Argument{"b", b}}) {
    require_f("binary", from);
    require_same_dtype("binary", from, to);
    if (!broadcasts_to(from.tensor.shape(), out.shape()))
      fail("binary", fmt::format("{} does not broadcast to out {}", text(from), out.shape().to_string()));
    require_apart_or_same("binary", from, to);
  }
  return plan_broadcast(a.shape(), b.shape(), out.shape());
}

void scale_or_divide(std::string_view verb, const Tensor& x, const Tensor& out) {
  const Argument from{"x", x}, to{"out", out};
  require_f(verb, from);
  require_f(verb, to);
  require_same_dtype(verb, from, to);
  require_same_shape(verb, from, to);
  require_apart_or_same(verb, from, to);
}

ReducePlan reduce(ReduceOp op, const Tensor& x, int axis, const Tensor& out) {
  const Argument from{"x", x}, to{"out", out};
  require_f("reduce", from);
  require_f("reduce", to);
  require_same_dtype("reduce", from, to);
  const int rank = x.shape().rank();
  const int at = axis < 0 ? axis + rank : axis;
  if (at < 0 || at >= rank) fail("reduce", fmt::format("x is {} and has no axis {}", x.describe(), axis));
  ReducePlan plan;
  for (int i = 0; i < rank; ++i) (i < at ? plan.outer : i > at ? plan.inner : plan.extent) *= x.shape()[i];
  require_count("reduce", to, plan.outer * plan.inner,
                fmt::format("as {} has without axis {}", x.describe(), axis));
  require_apart("reduce", from, to);
  if (op == ReduceOp::max && plan.extent == 0 && out.element_count() > 0)
    fail("reduce", fmt::format("max over axis {} of {}, which has no elements", axis, x.describe()));
  return plan;
}

MatrixExtents pick(const Tensor& x, const Tensor& index, const Tensor& out) {
  const MatrixExtents extents = matrix_and_index("pick", {"x", x}, {"index", index}, {"out", out});
  require_apart("pick", {"x", x}, {"out", out});
  require_apart("pick", {"index", index}, {"out", out});
  return extents;
}

MatrixExtents place(const Tensor& x, const Tensor& index, const Tensor& out) {
  const MatrixExtents extents = matrix_and_index("place", {"out", out}, {"index", index}, {"x", x});
  require_apart("place", {"x", x}, {"out", out});
  require_apart("place", {"index", index}, {"out", out});
  return extents;
}

void index_range(std::string_view verb, std::span<const std::int32_t> index, std::int64_t columns) {
  for (std::size_t row = 0; row < index.size(); ++row)
    if (index[row] < 0 || index[row] >= columns)
      throw std::out_of_range(
          fmt::format("{}: index[{}] is {}, which is not in [0, {})", verb, row, index[row], columns));
}

GemmShape gemm(const GemmCall& call) {
  const Argument a{"a", call.a}, b{"b", call.b}, out{"out", call.out};
  require_f("gemm", a);
  require_f("gemm", b);
  require_f("gemm", out);
  require_same_dtype("gemm", a, b);
  if (call.a.dtype() == DType::f32 && call.out.dtype() != DType::f32)
    fail("gemm", fmt::format("{}, {}: f32 operands give f32", text(a), text(out)));
  for (const Argument& matrix : {a, b, out})
    if (matrix.tensor.shape().rank() != 2) fail("gemm", text(matrix) + "; a matrix is needed");

  const Shape& shape_a = call.a.shape();
  const Shape& shape_b = call.b.shape();
  const GemmShape shape{.m = shape_a[call.transpose_a ? 1 : 0],
                        .n = shape_b[call.transpose_b ? 0 : 1],
                        .k = shape_a[call.transpose_a ? 0 : 1]};
  const std::int64_t k_of_b = shape_b[call.transpose_b ? 1 : 0];
  const char* transposed_a = call.transpose_a ? " transposed" : "";
  const char* transposed_b = call.transpose_b ? " transposed" : "";
  if (shape.k != k_of_b)
    fail("gemm", fmt::format("{}{}, {}{}: inner extents {} and {} differ", text(a), transposed_a, text(b),
                             transposed_b, shape.k, k_of_b));
  if (!(call.out.shape() == Shape{shape.m, shape.n}))
    fail("gemm", fmt::format("{}{}, {}{}: out must be ({}, {}), but {}", text(a), transposed_a, text(b),
                             transposed_b, shape.m, shape.n, text(out)));
  require_apart("gemm", a, out);
  require_apart("gemm", b, out);
  if (call.bias != nullptr) {
    const Argument bias{"bias", *call.bias};
    require_f("gemm", bias);
    if (bias.tensor.dtype() != DType::f32) require_same_dtype("gemm", bias, a);
    require_count("gemm", bias, shape.n, "one per column of out");
    require_apart("gemm", bias, out);
  }
  if (call.addend != nullptr) {
    const Argument addend{"addend", *call.addend};
    require_f("gemm", addend);
    if (addend.tensor.dtype() != DType::f32) require_same_dtype("gemm", addend, out);
    require_same_shape("gemm", addend, out);
    require_apart("gemm", addend, out);
  }
  return shape;
}

void step_state(std::string_view verb, const Tensor& step) {
  const Argument state{"step", step};
  require_dtype(verb, state, DType::u8);
  require_count(verb, state, static_cast<std::int64_t>(sizeof(StepState)), "the bytes of a StepState");
}

void scalar_program(const ScalarProgram& program) {
  if (program.function == nullptr) fail("run", fmt::format("program \"{}\" has no function", program.name));
}

void fill_scale(const Tensor& out) {
  require_dtype("fill_scale", {"out", out}, DType::f32);
  require_count("fill_scale", {"out", out}, 1, "the loss scale");
}

void gradients(std::string_view verb, std::span<const Tensor> gradients) {
  for (std::size_t i = 0; i < gradients.size(); ++i)
    require_dtype(verb, {fmt::format("gradient {}", i), gradients[i]}, DType::f32);
}

void max_norm(double max_norm) {
  if (!(std::isfinite(max_norm) && max_norm >= 0.0))
    fail("clip_by_norm", fmt::format("max_norm is {}; it must be finite and >= 0", max_norm));
}

void optimizer_index(std::string_view verb, int optimizer) {
  if (optimizer < 0 || optimizer >= max_optimizers)
    fail(verb, fmt::format("optimizer {} is not in [0, {})", optimizer, max_optimizers));
}

namespace {

void require_alike(std::string_view verb, const Argument& weight, const Argument& other) {
  require_dtype(verb, other, DType::f32);
  require_same_shape(verb, weight, other);
  require_apart(verb, weight, other);
}

}  // namespace

void sgd_step(const SgdOptions& options, const Tensor& weight, const Tensor& gradient,
              const Tensor& velocity) {
  const Argument w{"weight", weight};
  require_dtype("sgd_step", w, DType::f32);
  require_alike("sgd_step", w, {"gradient", gradient});
  if (options.momentum == 0.0f) return;
  require_alike("sgd_step", w, {"velocity", velocity});
  require_apart("sgd_step", {"gradient", gradient}, {"velocity", velocity});
}

void adam_step(const Tensor& weight, const Tensor& gradient, const Tensor& first_moment,
               const Tensor& second_moment) {
  const Argument w{"weight", weight}, g{"gradient", gradient}, m{"first_moment", first_moment},
      v{"second_moment", second_moment};
  require_dtype("adam_step", w, DType::f32);
  for (const Argument& other : {g, m, v}) require_alike("adam_step", w, other);
  require_apart("adam_step", g, m);
  require_apart("adam_step", g, v);
  require_apart("adam_step", m, v);
}

void histogram(const Tensor& x) { require_f("histogram", {"x", x}); }
void digest(const Tensor& x) { require_defined("digest", {"x", x}); }

}  // namespace fp16lab::engine::checks
