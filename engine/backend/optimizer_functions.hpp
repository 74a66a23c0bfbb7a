// The arithmetic of the step verbs: one source for every back end, host and device.
//
// Scalars of a step are combined in FP64 and rounded to FP32 once, as PyTorch does with its Python floats;
// elements are FP32, one rounding per written operation, in the order written, no fma. Stored NaNs are
// canonical.
#pragma once

#include "engine/backend/backend.hpp"
#include "engine/backend/elementwise_functions.hpp"
#include "engine/backend/step_state.hpp"
#include "numerics/formats/bits.hpp"
#include "numerics/platform/portability.hpp"

namespace fp16lab::engine::functions {

/// Does clip_by_norm multiply at all? Otherwise the gradients keep every byte. A norm that is not finite
/// clips nothing: such a step is skipped.
FP16LAB_HD inline bool clips(double grad_norm, double max_norm) {
  return grad_norm - grad_norm == 0.0 && grad_norm > max_norm;
}

/// What it multiplies by: one FP64 quotient, rounded once to FP32 (PyTorch's clip_grad_norm_).
FP16LAB_HD inline float clip_factor(double grad_norm, double max_norm) {
  return static_cast<float>(max_norm / (grad_norm + 1e-6));
}

/// What the element functions below leave in `weight`: the new weight, or what the update takes from it, for
/// WeightStore::compensation.
enum class Gives { weight, change };

FP16LAB_HD inline float given(Gives gives, float weight, float change) {
  return gives == Gives::change ? change : canonicalize(weight - change);
}

/// The three steps of WeightStore::compensation, in FP32: y, the sum to be rounded, and from the rounded one
/// the next compensation, to be rounded too.
FP16LAB_HD inline float compensated_change(float compensation, float change) { return compensation - change; }
FP16LAB_HD inline float compensated_sum(float weight, float y) { return canonicalize(weight + y); }
FP16LAB_HD inline float compensation_left(float weight, float y, float rounded) {
  return rounded - rounded == 0.0f ? y - (rounded - weight) : 0.0f;
}

/// How the velocity of SGD enters.
enum class VelocityRule {
  none,     ///< momentum == 0: the velocity tensor is neither read nor written
  first,    ///< v = d: the first taken step (PyTorch's momentum buffer starts as a copy, without dampening)
  running,  ///< v = momentum * v + (1 - dampening) * d
};

/// The scalars of one sgd_step.
struct SgdCoefficients {
  float learning_rate;
  float weight_decay;
  float momentum;
  float one_minus_dampening;
};

FP16LAB_HD inline SgdCoefficients sgd_coefficients(const SgdOptions& options, const StepState& step,
                                                   std::size_t optimizer) {
  return {step.learning_rate[optimizer], options.weight_decay, options.momentum, 1.0f - options.dampening};
}

/// The rule that holds for `step`, whose taken_steps already counts this step.
FP16LAB_HD inline VelocityRule velocity_rule(const SgdOptions& options, const StepState& step,
                                             std::size_t optimizer) {
  if (options.momentum == 0.0f) return VelocityRule::none;
  return step.taken_steps[optimizer] == 1 ? VelocityRule::first : VelocityRule::running;
}

/// One weight. `Decays` is weight_decay != 0: without decay nothing is added, so that -0 and 0 * infinity
/// stay out.
template <VelocityRule Rule, bool Nesterov, bool Decays>
FP16LAB_HD inline void sgd_element(const SgdCoefficients& c, Gives gives, float& weight, float gradient,
                                   float& velocity) {
  float d = gradient;
  if constexpr (Decays) d = gradient + c.weight_decay * weight;
  if constexpr (Rule != VelocityRule::none) {
    float v = d;
    if constexpr (Rule == VelocityRule::running) v = c.momentum * velocity + c.one_minus_dampening * d;
    velocity = canonicalize(v);
    if constexpr (Nesterov) {
      d = d + c.momentum * v;
    } else {
      d = v;
    }
  }
  weight = given(gives, weight, c.learning_rate * d);
}

/// The scalars of one adam_step.
struct AdamCoefficients {
  float beta1;
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  float epsilon;
  float step_size;        ///< float(lr / (1 - beta1^t))
  float root_correction;  ///< float(sqrt(1 - beta2^t))
  float weight_decay;     ///< added to the gradient (Adam); 0 for AdamW
  float kept_weight;   ///< float(1 - lr * weight_decay), multiplied into the weight first (AdamW); 1 for Adam
  float taken_weight;  ///< float(lr * weight_decay) of AdamW, where a change is wanted; 0 for Adam
};

FP16LAB_HD inline AdamCoefficients adam_coefficients(const AdamOptions& options, const StepState& step,
                                                     std::size_t optimizer) {
  const double rate = static_cast<double>(step.learning_rate[optimizer]);
  const double decay = static_cast<double>(options.weight_decay);
  AdamCoefficients c{};
  c.beta1 = options.beta1;
  c.one_minus_beta1 = 1.0f - options.beta1;
  c.beta2 = options.beta2;
  c.one_minus_beta2 = 1.0f - options.beta2;
  c.epsilon = options.epsilon;
  c.step_size = static_cast<float>(rate / (1.0 - step.beta1_power[optimizer]));
  c.root_correction = static_cast<float>(square_root_f64(1.0 - step.beta2_power[optimizer]));
  c.weight_decay = options.decoupled_decay ? 0.0f : options.weight_decay;
  c.kept_weight = options.decoupled_decay ? static_cast<float>(1.0 - rate * decay) : 1.0f;
  c.taken_weight = options.decoupled_decay ? static_cast<float>(rate * decay) : 0.0f;
  return c;
}

/// Which of the two kinds of decay acts; none of them leaves weight and gradient untouched.
enum class DecayRule { none, gradient, decoupled };

FP16LAB_HD inline DecayRule decay_rule(const AdamOptions& options) {
  if (options.weight_decay == 0.0f) return DecayRule::none;
  return options.decoupled_decay ? DecayRule::decoupled : DecayRule::gradient;
}

/// One weight (Kingma & Ba, ICLR 2015, with the bias corrections moved into scalars as PyTorch does;
/// decoupled decay: Loshchilov & Hutter, ICLR 2019).
template <DecayRule Rule>
FP16LAB_HD inline void adam_element(const AdamCoefficients& c, Gives gives, float& weight, float gradient,
                                    float& first_moment, float& second_moment) {
  float w = weight;
  float g = gradient;
  if constexpr (Rule == DecayRule::decoupled) w = w * c.kept_weight;
  if constexpr (Rule == DecayRule::gradient) g = g + c.weight_decay * w;
  const float m = c.beta1 * first_moment + c.one_minus_beta1 * g;
  const float v = c.beta2 * second_moment + (c.one_minus_beta2 * g) * g;
  const float denominator = square_root_f32(v) / c.root_correction + c.epsilon;
  first_moment = canonicalize(m);
  second_moment = canonicalize(v);
  float change = (c.step_size * m) / denominator;
  if constexpr (Rule == DecayRule::decoupled)
    if (gives == Gives::change) change = change + c.taken_weight * weight;
  weight = given(gives, w, change);
}

// ---- what moves by a direction that the weight decay is a part of ----

/// The scalars of the direction that LAMB and AdamWeightDecay compute.
struct DirectionCoefficients {
  float beta1;
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  float epsilon;
  float first_correction;  ///< float(1 - beta1^t); 1 without corrections: dividing by it changes nothing
  float root_correction;   ///< float(sqrt(1 - beta2^t)); 1 likewise
  float weight_decay;
};

FP16LAB_HD inline DirectionCoefficients direction_coefficients(const LambOptions& options,
                                                               const StepState& step, std::size_t optimizer) {
  return {options.beta1,
          1.0f - options.beta1,
          options.beta2,
          1.0f - options.beta2,
          options.epsilon,
          static_cast<float>(1.0 - step.beta1_power[optimizer]),
          static_cast<float>(square_root_f64(1.0 - step.beta2_power[optimizer])),
          options.weight_decay};
}

/// Of AdamOptions::uncorrected.
FP16LAB_HD inline DirectionCoefficients direction_coefficients(const AdamOptions& options) {
  return {options.beta1, 1.0f - options.beta1, options.beta2, 1.0f - options.beta2, options.epsilon, 1.0f,
          1.0f,          options.weight_decay};
}

/// The direction of one weight's step; moves the moments.
FP16LAB_HD inline float direction_element(const DirectionCoefficients& c, float weight, float gradient,
                                          float& first_moment, float& second_moment) {
  const float m = c.beta1 * first_moment + c.one_minus_beta1 * gradient;
  const float v = c.beta2 * second_moment + (c.one_minus_beta2 * gradient) * gradient;
  const float direction = (m / c.first_correction) / (square_root_f32(v) / c.root_correction + c.epsilon);
  first_moment = canonicalize(m);
  second_moment = canonicalize(v);
  return c.weight_decay == 0.0f ? direction : direction + c.weight_decay * weight;
}

/// What LAMB multiplies its direction by: the rate times the trust ratio (You et al., ICLR 2020).
FP16LAB_HD inline float lamb_rate(float learning_rate, double weight_norm, double direction_norm) {
  const double ratio = weight_norm == 0.0 || direction_norm == 0.0 ? 1.0 : weight_norm / direction_norm;
  return static_cast<float>(static_cast<double>(learning_rate) * ratio);
}

/// One weight, along its direction.
FP16LAB_HD inline void follow_element(float rate, Gives gives, float& weight, float direction) {
  weight = given(gives, weight, rate * direction);
}

// ---- RMSprop ----

/// The scalars of one rmsprop_step.
struct RmspropCoefficients {
  float learning_rate;
  float alpha;
  float one_minus_alpha;
  float epsilon;
  float momentum;
  float weight_decay;
};

FP16LAB_HD inline RmspropCoefficients rmsprop_coefficients(const RmspropOptions& options,
                                                           const StepState& step, std::size_t optimizer) {
  return {
      step.learning_rate[optimizer], options.alpha, 1.0f - options.alpha, options.epsilon, options.momentum,
      options.weight_decay};
}

/// One weight. `average` is read and written where Centered, `velocity` where Momentum.
template <bool Centered, bool Momentum>
FP16LAB_HD inline void rmsprop_element(const RmspropCoefficients& c, Gives gives, float& weight,
                                       float gradient, float& square, float& average, float& velocity) {
  const float g = c.weight_decay == 0.0f ? gradient : gradient + c.weight_decay * weight;
  const float s = c.alpha * square + (c.one_minus_alpha * g) * g;
  float variance = s;
  if constexpr (Centered) {
    const float a = c.alpha * average + c.one_minus_alpha * g;
    const float difference = s - a * a;
    variance = difference < 0.0f ? 0.0f : difference;  // a NaN stays
    average = canonicalize(a);
  }
  float d = g / (square_root_f32(variance) + c.epsilon);
  if constexpr (Momentum) {
    d = c.momentum * velocity + d;
    velocity = canonicalize(d);
  }
  square = canonicalize(s);
  weight = given(gives, weight, c.learning_rate * d);
}

}  // namespace fp16lab::engine::functions
