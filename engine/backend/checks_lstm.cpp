// The preconditions of the recurrent cells.
#include <array>
#include <span>

#include "engine/backend/checks.hpp"
#include "engine/backend/requirements.hpp"

namespace fp16lab::engine::checks {

using namespace requirements;

namespace {

void require_shape(std::string_view verb, const Argument& x, const Shape& shape) {
  if (!(x.tensor.shape() == shape)) fail(verb, fmt::format("{}; {} is needed", text(x), shape.to_string()));
}

/// The plan of a step of `cells` (T B, H) with a batch like `batch_rows`.
LstmPlan plan_of(std::string_view verb, std::int64_t step, const Argument& cells,
                 const Argument& batch_rows) {
  require_f(verb, cells);
  require_f(verb, batch_rows);
  for (const Argument& matrix : {cells, batch_rows})
    if (matrix.tensor.shape().rank() != 2) fail(verb, text(matrix) + "; (rows, columns) is needed");
  const std::int64_t rows = cells.tensor.shape()[0], batch = batch_rows.tensor.shape()[0];
  if (batch < 1 || rows % batch != 0 || step < 0 || step >= rows / batch)
    fail(verb, fmt::format("{} has no step {} of {} rows", text(cells), step, batch));
  return {step * batch, batch, cells.tensor.shape()[1]};
}

/// Every output apart from every other argument.
void require_all_apart(std::string_view verb, std::span<const Argument> inputs,
                       std::span<const Argument> outputs) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    for (const Argument& input : inputs) require_apart(verb, input, outputs[i]);
    for (std::size_t j = 0; j < i; ++j) require_apart(verb, outputs[j], outputs[i]);
  }
}

}  // namespace

LstmPlan lstm_cell(const LstmCellCall& call) {
  constexpr std::string_view verb = "lstm_cell";
  const std::array inputs{Argument{"products", call.products}, Argument{"recurrent", call.recurrent}};
  const std::array outputs{Argument{"gates", call.gates}, Argument{"cells", call.cells},
                           Argument{"outputs", call.outputs}, Argument{"hidden", call.hidden}};
  const LstmPlan plan = plan_of(verb, call.step, outputs[1], inputs[1]);
  const std::int64_t rows = call.cells.shape()[0];
  const Shape all_gates{rows, 4 * plan.hidden}, all_units{rows, plan.hidden};
  require_shape(verb, inputs[0], all_gates);
  require_shape(verb, inputs[1], {plan.batch, 4 * plan.hidden});
  require_shape(verb, outputs[0], all_gates);
  require_shape(verb, outputs[2], all_units);
  require_shape(verb, outputs[3], {plan.batch, plan.hidden});
  for (const Argument& x : {inputs[0], inputs[1], outputs[0], outputs[2], outputs[3]})
    require_same_dtype(verb, x, outputs[1]);
  require_all_apart(verb, inputs, outputs);
  return plan;
}

LstmPlan lstm_cell_gradient(const LstmCellGradientCall& call) {
  constexpr std::string_view verb = "lstm_cell_gradient";
  const Argument gates{"gates", call.gates}, cells{"cells", call.cells}, gradient{"gradient", call.gradient};
  const Argument all{"gate_gradients", call.gate_gradients}, step{"step_gradients", call.step_gradients};
  const LstmPlan plan = plan_of(verb, call.step, cells, step);
  const std::int64_t rows = call.cells.shape()[0];
  const Shape units{plan.batch, plan.hidden};
  require_shape(verb, gates, {rows, 4 * plan.hidden});
  require_shape(verb, gradient, call.cells.shape());
  require_shape(verb, all, call.gates.shape());
  require_shape(verb, step, {plan.batch, 4 * plan.hidden});
  require_same_dtype(verb, gates, cells);
  require_same_dtype(verb, gradient, cells);
  require_f32_or_dtype_of(verb, all, cells);
  require_same_dtype(verb, step, all);
  const std::array inputs{gates, cells, gradient};
  const std::array outputs{all, step};
  require_all_apart(verb, inputs, outputs);
  const auto of_step = [&](const char* name, const Tensor* tensor) {
    if (tensor == nullptr) return;
    const Argument x{name, *tensor};
    require_shape(verb, x, units);
    for (const Argument& output : outputs) require_apart(verb, x, output);
  };
  of_step("hidden_gradient", call.hidden_gradient);
  of_step("cell_gradient", call.cell_gradient);
  of_step("previous_cell_gradient", call.previous_cell_gradient);
  if (call.hidden_gradient != nullptr)
    require_same_dtype(verb, {"hidden_gradient", *call.hidden_gradient}, cells);
  if (call.cell_gradient != nullptr) require_same_dtype(verb, {"cell_gradient", *call.cell_gradient}, cells);
  if (call.previous_cell_gradient == nullptr) return plan;
  const Argument previous{"previous_cell_gradient", *call.previous_cell_gradient};
  require_f32_or_dtype_of(verb, previous, cells);
  for (const Argument& input : inputs) require_apart(verb, input, previous);
  if (call.hidden_gradient != nullptr)
    require_apart(verb, {"hidden_gradient", *call.hidden_gradient}, previous);
  if (call.cell_gradient != nullptr)
    require_apart_or_same(verb, {"cell_gradient", *call.cell_gradient}, previous);
  return plan;
}

}  // namespace fp16lab::engine::checks
