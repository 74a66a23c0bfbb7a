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

/// Weight, gradient and the two moments of Adam and its kin.
void require_moments(std::string_view verb, float gradient_factor, const Tensor& weight,
                     const Tensor& gradient, const Tensor& first_moment, const Tensor& second_moment) {
  const Argument w{"weight", weight}, g{"gradient", gradient}, m{"first_moment", first_moment},
      v{"second_moment", second_moment};
  require_update(verb, w, g, gradient_factor);
  require_state(verb, w, g, m);
  require_state(verb, w, g, v);
  require_apart(verb, m, v);
}

}  // namespace

void weight_store(std::string_view verb, const Tensor& weight, const Tensor& gradient,
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

void sgd_step(const SgdOptions& options, const Tensor& weight, const Tensor& gradient,
              const Tensor& velocity) {
  const Argument w{"weight", weight}, g{"gradient", gradient};
  require_update("sgd_step", w, g, options.gradient_factor);
  if (options.momentum != 0.0f) require_state("sgd_step", w, g, {"velocity", velocity});
}

void adam_step(const AdamOptions& options, const Tensor& weight, const Tensor& gradient,
               const Tensor& first_moment, const Tensor& second_moment) {
  require_moments("adam_step", options.gradient_factor, weight, gradient, first_moment, second_moment);
}

void lamb_step(const LambOptions& options, const Tensor& weight, const Tensor& gradient,
               const Tensor& first_moment, const Tensor& second_moment) {
  require_moments("lamb_step", options.gradient_factor, weight, gradient, first_moment, second_moment);
}

void rmsprop_step(const RmspropOptions& options, const Tensor& weight, const Tensor& gradient,
                  const Tensor& square_average, const Tensor& gradient_average, const Tensor& velocity) {
  constexpr std::string_view verb = "rmsprop_step";
  const Argument w{"weight", weight}, g{"gradient", gradient}, s{"square_average", square_average},
      a{"gradient_average", gradient_average}, v{"velocity", velocity};
  require_update(verb, w, g, options.gradient_factor);
  require_state(verb, w, g, s);
  if (options.centered) {
    require_state(verb, w, g, a);
    require_apart(verb, s, a);
  }
  if (options.momentum != 0.0f) {
    require_state(verb, w, g, v);
    require_apart(verb, s, v);
    if (options.centered) require_apart(verb, a, v);
  }
}

}  // namespace fp16lab::engine::checks
