#include "engine/backend/checks.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

#include "engine/backend/requirements.hpp"
#include "numerics/convert/convert.hpp"
#include "numerics/formats/bits.hpp"

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

namespace {

template <class Integer>
std::uint64_t integer_pattern(double value, DType dtype) {
  using Limits = std::numeric_limits<Integer>;
  const bool in_range =
      value >= static_cast<double>(Limits::min()) && value < std::ldexp(1.0, Limits::digits);
  if (!in_range || static_cast<double>(static_cast<Integer>(value)) != value) {
    throw std::invalid_argument(fmt::format("fill: {} is not an integer in the range of {}, [{}, {}]", value,
                                            name_of(dtype), +Limits::min(), +Limits::max()));
  }
  return static_cast<std::uint64_t>(static_cast<Integer>(value)) &
         ~std::uint64_t{0} >> (64 - 8 * sizeof(Integer));
}

}  // namespace

std::uint64_t fill(const Tensor& out, double value) {
  require_defined("fill", {"out", out});
  const DType dtype = out.dtype();
  return visit_dtype(dtype, [&](auto row) -> std::uint64_t {
    using T = typename decltype(row)::Element;
    if constexpr (is_floating(DTypeOf<T>::value))
      // One rounding, not through FP32.
      return convert<typename FormatOf<T>::type>(SmallFloat<Binary64>::from_bits(bits_of(value))).bits();
    else
      return integer_pattern<T>(value, dtype);
  });
}

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

Permutation permute(const Tensor& x, std::span<const int> axes, const Tensor& out) {
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
  return simplified(shape, axes);
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
  const OperandRounding &a = call.a_format, &b = call.b_format;
  const auto pair = [&] { return fmt::format("a_format is {} and b_format {}; ", a.name(), b.name()); };
  const bool quantized = a.quantizer != nullptr;
  if (a.fp8.has_value() != b.fp8.has_value() && !quantized && b.quantizer == nullptr)
    fail("gemm", pair() + "both operands are rounded to FP8, or neither");
  if (quantized != (b.quantizer != nullptr)) fail("gemm", pair() + "both have scales, or neither");
  require_tf32_operand("gemm", {"a", call.a}, call.tf32);
  if (a.any() && call.a.dtype() == DType::f32)
    fail("gemm",
         fmt::format("{}, rounded to {}; f16 or bf16 operands are needed", text({"a", call.a}), a.name()));
  if (!quantized) return;
  if (call.out.shape().rank() != 2)
    fail("gemm", text({"out", call.out}) + "; operands with scales for blocks have no batch axis");
  if (a.hadamard != b.hadamard) fail("gemm", pair() + "both go through a Hadamard transform, or neither");
  if ((a.stochastic && call.a_quantizer.step == nullptr) ||
      (b.stochastic && call.b_quantizer.step == nullptr))
    fail("gemm", pair() + "stochastic codes need the StepState in QuantizerCall::step");
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

// ---- recurrent cells ----

namespace {

void require_shape(std::string_view verb, const Argument& x, const Shape& shape) {
  if (!(x.tensor.shape() == shape)) fail(verb, fmt::format("{}; {} is needed", text(x), shape.to_string()));
}

/// The plan of a step of `cells` (T B, H) with a batch like `batch_rows`.
LstmPlan lstm_plan(std::string_view verb, std::int64_t step, const Argument& cells,
                   const Argument& batch_rows) {
  for (const Argument& matrix : {cells, batch_rows})
    if (matrix.tensor.shape().rank() != 2) fail(verb, text(matrix) + "; (rows, columns) is needed");
  const std::int64_t rows = cells.tensor.shape()[0], batch = batch_rows.tensor.shape()[0];
  if (batch < 1 || rows % batch != 0 || step < 0 || step >= rows / batch)
    fail(verb, fmt::format("{} has no step {} of {} rows", text(cells), step, batch));
  return {step * batch, batch, cells.tensor.shape()[1]};
}

}  // namespace

LstmPlan lstm_cell(const LstmCellCall& call) {
  constexpr std::string_view verb = "lstm_cell";
  require_operands(verb, {{"cells", &call.cells, Takes::f, Access::written},
                          {"products", &call.products, Takes::same},
                          {"recurrent", &call.recurrent, Takes::same},
                          {"gates", &call.gates, Takes::same, Access::written},
                          {"outputs", &call.outputs, Takes::same, Access::written},
                          {"hidden", &call.hidden, Takes::same, Access::written}});
  const LstmPlan plan = lstm_plan(verb, call.step, {"cells", call.cells}, {"recurrent", call.recurrent});
  const std::int64_t rows = call.cells.shape()[0];
  require_shape(verb, {"products", call.products}, {rows, 4 * plan.hidden});
  require_shape(verb, {"recurrent", call.recurrent}, {plan.batch, 4 * plan.hidden});
  require_shape(verb, {"gates", call.gates}, {rows, 4 * plan.hidden});
  require_shape(verb, {"outputs", call.outputs}, {rows, plan.hidden});
  require_shape(verb, {"hidden", call.hidden}, {plan.batch, plan.hidden});
  return plan;
}

LstmPlan lstm_cell_gradient(const LstmCellGradientCall& call) {
  constexpr std::string_view verb = "lstm_cell_gradient";
  const Argument gates{"gates", call.gates}, cells{"cells", call.cells}, gradient{"gradient", call.gradient};
  const Argument all{"gate_gradients", call.gate_gradients}, step{"step_gradients", call.step_gradients};
  const Tensor* const previous = call.previous_cell_gradient;
  require_operands(verb, {{"cells", &call.cells, Takes::f},
                          {"gates", &call.gates, Takes::same},
                          {"gradient", &call.gradient, Takes::same},
                          {"hidden_gradient", call.hidden_gradient, Takes::same},
                          {"cell_gradient", call.cell_gradient, Takes::same},
                          {"gate_gradients", &call.gate_gradients, Takes::f32_or_same, Access::written},
                          {"step_gradients", &call.step_gradients, Takes::f32_or_same, Access::written},
                          {"previous_cell_gradient", previous, Takes::f32_or_same}});
  require_same_dtype(verb, step, all);
  const LstmPlan plan = lstm_plan(verb, call.step, cells, step);
  const std::int64_t rows = call.cells.shape()[0];
  const Shape units{plan.batch, plan.hidden};
  require_shape(verb, gates, {rows, 4 * plan.hidden});
  require_shape(verb, gradient, call.cells.shape());
  require_shape(verb, all, call.gates.shape());
  require_shape(verb, step, {plan.batch, 4 * plan.hidden});
  for (const auto& [name, tensor] :
       {std::pair{"hidden_gradient", call.hidden_gradient}, std::pair{"cell_gradient", call.cell_gradient},
        std::pair{"previous_cell_gradient", previous}})
    if (tensor != nullptr) require_shape(verb, {name, *tensor}, units);
  if (previous == nullptr) return plan;
  const Argument out{"previous_cell_gradient", *previous};
  for (const Argument& input : {gates, cells, gradient}) require_apart(verb, input, out);
  if (call.hidden_gradient != nullptr) require_apart(verb, {"hidden_gradient", *call.hidden_gradient}, out);
  if (call.cell_gradient != nullptr) require_apart_or_same(verb, {"cell_gradient", *call.cell_gradient}, out);
  return plan;
}

// ---- the step: its scalars, the passes over all gradients, updates ----

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
    require_f(verb, {fmt::format("gradient {}", i), gradients[i]});
}

void max_norm(double max_norm) {
  if (!(std::isfinite(max_norm) && max_norm >= 0.0))
    fail("clip_by_norm", fmt::format("max_norm is {}; it must be finite and >= 0", max_norm));
}

void max_value(float max_value) {
  if (!(std::isfinite(max_value) && max_value > 0.0f))
    fail("clip_by_value", fmt::format("max_value is {}; it must be finite and > 0", max_value));
}

void optimizer_index(std::string_view verb, int optimizer) {
  if (optimizer < 0 || optimizer >= max_optimizers)
    fail(verb, fmt::format("optimizer {} is not in [0, {})", optimizer, max_optimizers));
}

namespace {

void require_beside(std::string_view verb, const Argument& weight, const Argument& other) {
  require_same_shape(verb, weight, other);
  require_apart(verb, weight, other);
}

/// The weight and its gradient; their dtypes may differ.
void require_update(std::string_view verb, const Argument& weight, const Argument& gradient,
                    float gradient_factor) {
  require_f(verb, weight);
  require_f(verb, gradient);
  require_beside(verb, weight, gradient);
  if (!std::isfinite(gradient_factor))
    fail(verb, fmt::format("gradient_factor is {}; it must be finite", gradient_factor));
}

void require_state(std::string_view verb, const Argument& weight, const Argument& gradient,
                   const Argument& state) {
  require_dtype(verb, state, DType::f32);
  require_beside(verb, weight, state);
  require_apart(verb, gradient, state);
}

void require_store(std::string_view verb, const Tensor& weight, const Tensor& gradient,
                   const WeightStore& store) {
  const Argument w{"weight", weight};
  const bool wide = weight.dtype() == DType::f32;
  if (store.stochastic && wide)
    fail(verb, fmt::format("{}; only f16 and bf16 are rounded stochastically", text(w)));
  if (store.compensation == nullptr) return;
  const Argument c{"compensation", *store.compensation};
  require_defined(verb, c);
  if (store.stochastic)
    fail(verb,
         "a compensation and stochastic rounding; what is kept of one rounding is no error of the other");
  if (wide) fail(verb, fmt::format("{}; only f16 and bf16 have a compensation", text(w)));
  require_same_dtype(verb, w, c);
  require_beside(verb, w, c);
  require_apart(verb, {"gradient", gradient}, c);
}

}  // namespace

void update(const UpdateCall& call) {
  const UpdateRuleInfo& rule = info_of(call.rule);
  const std::string_view verb = rule.name;
  step_state(verb, call.step);
  optimizer_index(verb, call.optimizer);
  const Argument w{"weight", call.weight}, g{"gradient", call.gradient};
  require_update(verb, w, g, call.options.gradient_factor);
  const Tensor undefined;
  const auto state = [&](std::size_t i) -> Argument {
    return {rule.states[i], call.states[i] == nullptr ? undefined : *call.states[i]};
  };
  for (std::size_t i = 0; i < rule.states.size(); ++i) {
    if (!rule.uses(call.options, static_cast<int>(i))) continue;
    require_state(verb, w, g, state(i));
    for (std::size_t other = 0; other < i; ++other)
      if (rule.uses(call.options, static_cast<int>(other))) require_apart(verb, state(other), state(i));
  }
  require_store(verb, call.weight, call.gradient, call.store);
  for (const Tensor* norm : call.norms)
    if (rule.reads_norms) step_state(verb, norm == nullptr ? undefined : *norm);
}

}  // namespace fp16lab::engine::checks
