// The preconditions of the step: its scalars, the passes over all gradients, the optimizers.
#include <fmt/format.h>

#include <cmath>

#include "engine/backend/checks.hpp"
#include "engine/backend/requirements.hpp"

namespace fp16lab::engine::checks {

using namespace requirements;

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
