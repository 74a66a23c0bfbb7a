// One optimizer step of one parameter: scalars from the step state, then one pass over its elements.
#include "engine/backend/checks.hpp"
#include "engine/backend/emulated/backend_impl.hpp"
#include "engine/backend/emulated/element_types.hpp"
#include "engine/backend/optimizer_functions.hpp"
#include "numerics/platform/vector_clones.hpp"

namespace fp16lab::engine {

namespace {

using functions::DecayRule;
using functions::Gives;
using functions::VelocityRule;

template <Gives gives, VelocityRule Rule, bool Nesterov, bool Decays>
inline void sgd_loop(const functions::SgdCoefficients& coefficients, float* weight, const float* gradient,
                     float* velocity, std::int64_t n) {
  FP16LAB_INDEPENDENT_ITERATIONS
  for (std::int64_t i = 0; i < n; ++i) {
    float v = 0.0f;
    if constexpr (Rule == VelocityRule::running) v = velocity[i];
    functions::sgd_element<Rule, Nesterov, Decays>(coefficients, gives, weight[i], gradient[i], v);
    if constexpr (Rule != VelocityRule::none) velocity[i] = v;
  }
}

template <Gives gives, VelocityRule Rule, bool Nesterov>
inline void sgd_loop(bool decays, const functions::SgdCoefficients& coefficients, float* weight,
                     const float* gradient, float* velocity, std::int64_t n) {
  if (decays) {
    sgd_loop<gives, Rule, Nesterov, true>(coefficients, weight, gradient, velocity, n);
  } else {
    sgd_loop<gives, Rule, Nesterov, false>(coefficients, weight, gradient, velocity, n);
  }
}

template <Gives gives, VelocityRule Rule>
inline void sgd_loop(bool nesterov, bool decays, const functions::SgdCoefficients& coefficients,
                     float* weight, const float* gradient, float* velocity, std::int64_t n) {
  if (nesterov) {
    sgd_loop<gives, Rule, true>(decays, coefficients, weight, gradient, velocity, n);
  } else {
    sgd_loop<gives, Rule, false>(decays, coefficients, weight, gradient, velocity, n);
  }
}

template <Gives gives>
inline void sgd_loop(VelocityRule rule, bool nesterov, const functions::SgdCoefficients& coefficients,
                     float* weight, const float* gradient, float* velocity, std::int64_t n) {
  const functions::SgdCoefficients c = coefficients;  // a local: the stores below cannot change it
  const bool decays = c.weight_decay != 0.0f;
  switch (rule) {
    case VelocityRule::none:
      return sgd_loop<gives, VelocityRule::none, false>(decays, c, weight, gradient, velocity, n);
    case VelocityRule::first:
      return sgd_loop<gives, VelocityRule::first>(nesterov, decays, c, weight, gradient, velocity, n);
    case VelocityRule::running:
      return sgd_loop<gives, VelocityRule::running>(nesterov, decays, c, weight, gradient, velocity, n);
  }
}

FP16LAB_VECTOR_CLONES
void sgd_range(Gives gives, VelocityRule rule, bool nesterov, const functions::SgdCoefficients& coefficients,
               float* weight, const float* gradient, float* velocity, std::int64_t n) {
  if (gives == Gives::change)
    return sgd_loop<Gives::change>(rule, nesterov, coefficients, weight, gradient, velocity, n);
  sgd_loop<Gives::weight>(rule, nesterov, coefficients, weight, gradient, velocity, n);
}

struct AdamRange {
  float* weight;
  const float* gradient;
  float* first_moment;
  float* second_moment;
  std::int64_t count;
};

template <Gives gives, DecayRule Rule>
inline void adam_loop(const functions::AdamCoefficients& coefficients, const AdamRange& range) {
  float* const weight = range.weight;
  const float* const gradient = range.gradient;
  float* const first_moment = range.first_moment;
  float* const second_moment = range.second_moment;
  FP16LAB_INDEPENDENT_ITERATIONS
  for (std::int64_t i = 0; i < range.count; ++i)
    functions::adam_element<Rule>(coefficients, gives, weight[i], gradient[i], first_moment[i],
                                  second_moment[i]);
}

template <Gives gives>
inline void adam_loop(DecayRule rule, const functions::AdamCoefficients& coefficients,
                      const AdamRange& range) {
  const functions::AdamCoefficients c = coefficients;
  const AdamRange r = range;
  switch (rule) {
    case DecayRule::none:
      return adam_loop<gives, DecayRule::none>(c, r);
    case DecayRule::gradient:
      return adam_loop<gives, DecayRule::gradient>(c, r);
    case DecayRule::decoupled:
      return adam_loop<gives, DecayRule::decoupled>(c, r);
  }
}

FP16LAB_VECTOR_CLONES
void adam_range(Gives gives, DecayRule rule, const functions::AdamCoefficients& coefficients,
                const AdamRange& range) {
  if (gives == Gives::change) return adam_loop<Gives::change>(rule, coefficients, range);
  adam_loop<Gives::weight>(rule, coefficients, range);
}

FP16LAB_VECTOR_CLONES
void direction_range(const functions::DirectionCoefficients& coefficients, const AdamRange& range,
                     float* direction) {
  const functions::DirectionCoefficients c = coefficients;
  const AdamRange r = range;
  FP16LAB_INDEPENDENT_ITERATIONS
  for (std::int64_t i = 0; i < r.count; ++i)
    direction[i] =
        functions::direction_element(c, r.weight[i], r.gradient[i], r.first_moment[i], r.second_moment[i]);
}

template <Gives gives>
inline void follow_loop(float rate, float* weight, const float* direction, std::int64_t n) {
  FP16LAB_INDEPENDENT_ITERATIONS
  for (std::int64_t i = 0; i < n; ++i) functions::follow_element(rate, gives, weight[i], direction[i]);
}

FP16LAB_VECTOR_CLONES
void follow_range(Gives gives, float rate, float* weight, const float* direction, std::int64_t n) {
  if (gives == Gives::change) return follow_loop<Gives::change>(rate, weight, direction, n);
  follow_loop<Gives::weight>(rate, weight, direction, n);
}

struct RmspropRange {
  float* weight;
  const float* gradient;
  float* square;
  float* average;   // null unless centered
  float* velocity;  // null without momentum
  std::int64_t count;
};

template <Gives gives, bool Centered, bool Momentum>
inline void rmsprop_loop(const functions::RmspropCoefficients& coefficients, const RmspropRange& range) {
  float* const weight = range.weight;
  const float* const gradient = range.gradient;
  float* const square = range.square;
  float* const average = range.average;
  float* const velocity = range.velocity;
  FP16LAB_INDEPENDENT_ITERATIONS
  for (std::int64_t i = 0; i < range.count; ++i) {
    float a = 0.0f, v = 0.0f;
    if constexpr (Centered) a = average[i];
    if constexpr (Momentum) v = velocity[i];
    functions::rmsprop_element<Centered, Momentum>(coefficients, gives, weight[i], gradient[i], square[i], a,
                                                   v);
    if constexpr (Centered) average[i] = a;
    if constexpr (Momentum) velocity[i] = v;
  }
}

template <Gives gives>
inline void rmsprop_loop(const functions::RmspropCoefficients& coefficients, const RmspropRange& range) {
  const functions::RmspropCoefficients c = coefficients;
  const RmspropRange r = range;
  if (r.average != nullptr && r.velocity != nullptr) return rmsprop_loop<gives, true, true>(c, r);
  if (r.average != nullptr) return rmsprop_loop<gives, true, false>(c, r);
  if (r.velocity != nullptr) return rmsprop_loop<gives, false, true>(c, r);
  rmsprop_loop<gives, false, false>(c, r);
}

FP16LAB_VECTOR_CLONES
void rmsprop_range(Gives gives, const functions::RmspropCoefficients& coefficients,
                   const RmspropRange& range) {
  if (gives == Gives::change) return rmsprop_loop<Gives::change>(coefficients, range);
  rmsprop_loop<Gives::weight>(coefficients, range);
}

// ---- storing ----

/// change[i] becomes y, sum[i] what is to be rounded.
FP16LAB_VECTOR_CLONES
void compensate_strip(const float* weight, const float* compensation, float* change, float* sum,
                      std::int64_t n) {
  FP16LAB_INDEPENDENT_ITERATIONS
  for (std::int64_t i = 0; i < n; ++i) {
    change[i] = functions::compensated_change(compensation[i], change[i]);
    sum[i] = functions::compensated_sum(weight[i], change[i]);
  }
}

/// y[i] becomes the next compensation.
FP16LAB_VECTOR_CLONES
void leave_strip(const float* weight, const float* rounded, float* y, std::int64_t n) {
  FP16LAB_INDEPENDENT_ITERATIONS
  for (std::int64_t i = 0; i < n; ++i) y[i] = functions::compensation_left(weight[i], y[i], rounded[i]);
}

/// Kahan's sum for one strip: `change` is overwritten.
template <class Half>
void compensate(Half* weight, Half* compensation, float* change, std::int64_t n) {
  Strip old, kept, sum;
  widen_strip(weight, n, old.data());
  widen_strip(compensation, n, kept.data());
  compensate_strip(old.data(), kept.data(), change, sum.data(), n);
  narrow_strip(sum.data(), n, weight);
  widen_strip(weight, n, sum.data());
  leave_strip(old.data(), sum.data(), change, n);
  narrow_strip(change, n, compensation);
}

Gives gives_of(const WeightStore& store) {
  return store.compensation == nullptr ? Gives::weight : Gives::change;
}

/// With the iteration that the step state has.
WeightStore in_iteration(const WeightStore& store, const StepState& state) {
  WeightStore current = store;
  current.random.iteration = static_cast<std::uint32_t>(state.iteration);
  return current;
}

FP16LAB_VECTOR_CLONES
void multiply_to(const float* x, float factor, float* out, std::int64_t n) {
  const functions::Multiply multiply;
  FP16LAB_INDEPENDENT_ITERATIONS
  for (std::int64_t i = 0; i < n; ++i) out[i] = multiply(x[i], factor);
}

/// update(weight, gradient, first, count) with FP32 arrays for runs of elements [first, first + count). Where
/// the weight or the gradient has 16 bits, or the gradient a factor, the runs are strips: widened,
/// multiplied, and the weight rounded once when it is done, as `store` says.
template <class Update>
void for_each_update(const Workers& workers, Tensor& weight, const Tensor& gradient, float factor,
                     const WeightStore& store, const Update& update) {
  with_element_type(weight.dtype(), [&](auto weight_tag) {
    with_element_type(gradient.dtype(), [&](auto gradient_tag) {
      using Weight = decltype(weight_tag);
      using Gradient = decltype(gradient_tag);
      Weight* const weights = weight.host<Weight>().data();
      const Gradient* const gradients = gradient.host<Gradient>().data();
      Weight* const compensation =
          store.compensation == nullptr ? nullptr : store.compensation->host<Weight>().data();
      workers.for_each_element_chunk(weight.element_count(), [&](std::int64_t begin, std::int64_t end) {
        if constexpr (!is_half<Weight> && !is_half<Gradient>)
          if (factor == 1.0f) return update(weights + begin, gradients + begin, begin, end - begin);
        Strip wide_weight, wide_gradient;
        for_each_strip_of(end - begin, [&](std::int64_t first, std::int64_t count) {
          first += begin;
          const float* g = wide_gradient.data();
          if constexpr (is_half<Gradient>)
            widen_strip(gradients + first, count, wide_gradient.data());
          else
            g = gradients + first;
          if (factor != 1.0f) {
            multiply_to(g, factor, wide_gradient.data(), count);
            g = wide_gradient.data();
          }
          if constexpr (is_half<Weight>) {
            float* const w = wide_weight.data();
            const auto some = static_cast<std::size_t>(count);
            widen_strip(weights + first, count, w);
            update(w, g, first, count);
            if (compensation != nullptr)
              compensate(weights + first, compensation + first, w, count);
            else if (store.stochastic)
              narrow_stochastic(std::span<const float>(w, some), std::span(weights + first, some),
                                store.random, static_cast<std::uint64_t>(first));
            else
              narrow_strip(w, count, weights + first);
          } else {
            update(weights + first, g, first, count);
          }
        });
      });
    });
  });
}

bool is_skipped(const StepState& state, std::size_t optimizer) { return state.found_inf[optimizer] != 0.0f; }

}  // namespace

void EmulatedBackend::sgd_step(const SgdOptions& options, Tensor& weight, const Tensor& gradient,
                               Tensor& velocity, int optimizer, const Tensor& step,
                               const WeightStore& store) {
  const FloatingPointScope scope;
  checks::step_state("sgd_step", step);
  checks::optimizer_index("sgd_step", optimizer);
  checks::sgd_step(options, weight, gradient, velocity);
  checks::weight_store("sgd_step", weight, gradient, store);
  const StepState state = read_step_state(step);
  const auto slot = static_cast<std::size_t>(optimizer);
  if (is_skipped(state, slot)) return;
  const functions::SgdCoefficients coefficients = functions::sgd_coefficients(options, state, slot);
  const VelocityRule rule = functions::velocity_rule(options, state, slot);
  float* const v = rule == VelocityRule::none ? nullptr : velocity.host<float>().data();
  for_each_update(workers_, weight, gradient, options.gradient_factor, in_iteration(store, state),
                  [&](float* w, const float* g, std::int64_t first, std::int64_t count) {
                    sgd_range(gives_of(store), rule, options.nesterov, coefficients, w, g,
                              v == nullptr ? nullptr : v + first, count);
                  });
}

void EmulatedBackend::adam_step(const AdamOptions& options, Tensor& weight, const Tensor& gradient,
                                Tensor& first_moment, Tensor& second_moment, int optimizer,
                                const Tensor& step, const WeightStore& store) {
  const FloatingPointScope scope;
  checks::step_state("adam_step", step);
  checks::optimizer_index("adam_step", optimizer);
  checks::adam_step(options, weight, gradient, first_moment, second_moment);
  checks::weight_store("adam_step", weight, gradient, store);
  const StepState state = read_step_state(step);
  const auto slot = static_cast<std::size_t>(optimizer);
  if (is_skipped(state, slot)) return;
  float* const m = first_moment.host<float>().data();
  float* const v = second_moment.host<float>().data();
  if (options.uncorrected) {
    const functions::DirectionCoefficients coefficients = functions::direction_coefficients(options);
    const float rate = state.learning_rate[slot];
    for_each_update(workers_, weight, gradient, options.gradient_factor, in_iteration(store, state),
                    [&](float* w, const float* g, std::int64_t first, std::int64_t count) {
                      for_each_strip_of(count, [&](std::int64_t begin, std::int64_t some) {
                        Strip direction;
                        direction_range(coefficients,
                                        {w + begin, g + begin, m + first + begin, v + first + begin, some},
                                        direction.data());
                        follow_range(gives_of(store), rate, w + begin, direction.data(), some);
                      });
                    });
    return;
  }
  const functions::AdamCoefficients coefficients = functions::adam_coefficients(options, state, slot);
  const DecayRule rule = functions::decay_rule(options);
  for_each_update(workers_, weight, gradient, options.gradient_factor, in_iteration(store, state),
                  [&](float* w, const float* g, std::int64_t first, std::int64_t count) {
                    adam_range(gives_of(store), rule, coefficients, {w, g, m + first, v + first, count});
                  });
}

void EmulatedBackend::rmsprop_step(const RmspropOptions& options, Tensor& weight, const Tensor& gradient,
                                   Tensor& square_average, Tensor& gradient_average, Tensor& velocity,
                                   int optimizer, const Tensor& step, const WeightStore& store) {
  const FloatingPointScope scope;
  checks::step_state("rmsprop_step", step);
  checks::optimizer_index("rmsprop_step", optimizer);
  checks::rmsprop_step(options, weight, gradient, square_average, gradient_average, velocity);
  checks::weight_store("rmsprop_step", weight, gradient, store);
  const StepState state = read_step_state(step);
  const auto slot = static_cast<std::size_t>(optimizer);
  if (is_skipped(state, slot)) return;
  const functions::RmspropCoefficients coefficients = functions::rmsprop_coefficients(options, state, slot);
  float* const s = square_average.host<float>().data();
  float* const a = options.centered ? gradient_average.host<float>().data() : nullptr;
  float* const v = options.momentum != 0.0f ? velocity.host<float>().data() : nullptr;
  for_each_update(workers_, weight, gradient, options.gradient_factor, in_iteration(store, state),
                  [&](float* w, const float* g, std::int64_t first, std::int64_t count) {
                    rmsprop_range(gives_of(store), coefficients,
                                  {w, g, s + first, a == nullptr ? nullptr : a + first,
                                   v == nullptr ? nullptr : v + first, count});
                  });
}

void EmulatedBackend::lamb_step(const LambOptions& options, Tensor& weight, const Tensor& gradient,
                                Tensor& first_moment, Tensor& second_moment, int optimizer,
                                const Tensor& step, const WeightStore& store) {
  const FloatingPointScope scope;
  checks::step_state("lamb_step", step);
  checks::optimizer_index("lamb_step", optimizer);
  checks::lamb_step(options, weight, gradient, first_moment, second_moment);
  checks::weight_store("lamb_step", weight, gradient, store);
  const StepState state = read_step_state(step);
  const auto slot = static_cast<std::size_t>(optimizer);
  if (is_skipped(state, slot)) return;
  const functions::DirectionCoefficients coefficients =
      functions::direction_coefficients(options, state, slot);
  float* const m = first_moment.host<float>().data();
  float* const v = second_moment.host<float>().data();
  Tensor direction = empty(weight.shape(), DType::f32);
  float* const d = direction.host<float>().data();
  for_each_update(workers_, weight, gradient, options.gradient_factor, {},  // the weights stay
                  [&](float* w, const float* g, std::int64_t first, std::int64_t count) {
                    direction_range(coefficients, {w, g, m + first, v + first, count}, d + first);
                  });
  const double weight_norm = functions::square_root_f64(sum_of_squares(weight));
  const double direction_norm = functions::square_root_f64(sum_of_squares(direction));
  const float rate = functions::lamb_rate(state.learning_rate[slot], weight_norm, direction_norm);
  for_each_update(workers_, weight, direction, 1.0f, in_iteration(store, state),
                  [&](float* w, const float* along, std::int64_t, std::int64_t count) {
                    follow_range(gives_of(store), rate, w, along, count);
                  });
}

}  // namespace fp16lab::engine
