// The preconditions of the recurrent cells.
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
  const LstmPlan plan = plan_of(verb, call.step, {"cells", call.cells}, {"recurrent", call.recurrent});
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
  const LstmPlan plan = plan_of(verb, call.step, cells, step);
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

}  // namespace fp16lab::engine::checks
