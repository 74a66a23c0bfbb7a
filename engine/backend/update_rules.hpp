// The table of update rules: one source for every back end, host and device.
//
// A rule is a struct:
//   name, states     for messages; the names of its FP32 states
//   uses             whether a state is read and written with such options
//   moves_weight     false: it leaves the weight alone, and only its states show it
//   Scalars          the numbers that all elements share. They are combined in FP64 and rounded to FP32 once,
//                    as PyTorch does with its Python floats
//   variants         how many loops it has, each without branches, and which of them a step takes
//   element          one weight: in `weight` it leaves what `given` gives. FP32, one rounding per written
//                    operation, in the order written, no fma; stored NaNs are canonical
// Its driver on each back end (emulated/update.cpp, cuda/verbs/update.cu) widens, multiplies the gradient by
// gradient_factor, and stores the weight as WeightStore says. Weights and states keep every byte where the
// step is skipped.
#pragma once

#include <cstddef>
#include <type_traits>

#include "engine/backend/elementwise_functions.hpp"
#include "engine/backend/step_state.hpp"
#include "engine/backend/update.hpp"
#include "numerics/formats/bits.hpp"
#include "numerics/platform/portability.hpp"

namespace fp16lab::engine::functions {

/// What `element` leaves in a weight: the new one, or what the update takes from it, for
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

/// The sources of a step's scalars.
struct StepView {
  const StepState& state;
  std::size_t optimizer;
  double weight_norm = 0, gradient_norm = 0;  ///< UpdateCall::norms

  FP16LAB_HD float rate() const { return state.learning_rate[optimizer]; }
  FP16LAB_HD bool is_first() const { return state.taken_steps[optimizer] == 1; }
  /// 1 - beta^t, t >= 1 counting this step.
  FP16LAB_HD double first_correction() const { return 1.0 - state.beta1_power[optimizer]; }
  FP16LAB_HD double second_correction() const { return 1.0 - state.beta2_power[optimizer]; }
};

/// body(std::integral_constant<int, variant>) for a variant that is known at run time.
template <class Rule, int V = 0, class Body>
FP16LAB_HD inline void with_variant(int variant, const Body& body) {
  if constexpr (V + 1 == Rule::variants) {
    body(std::integral_constant<int, V>{});
  } else {
    if (variant == V) return body(std::integral_constant<int, V>{});
    with_variant<Rule, V + 1>(variant, body);
  }
}

namespace updates {

/// SGD in torch's documented order:
///   d = g + wd * w                                (d = g if wd == 0, so that -0 and 0 * infinity stay out)
///   v = momentum * v + (1 - dampening) * d        (v = d in the first taken step, without dampening)
///   d = nesterov ? d + momentum * v : v           (v and this line only if momentum != 0)
///   w = w - lr * d
struct Sgd {
  static constexpr std::string_view name = "sgd_step";
  static constexpr std::string_view states[] = {"velocity"};
  static constexpr bool moves_weight = true;
  static bool uses(const UpdateOptions& options, int) { return options.momentum != 0.0f; }

  struct Scalars {
    float rate, weight_decay, momentum, one_minus_dampening;
  };
  FP16LAB_HD static Scalars scalars(const UpdateOptions& options, const StepView& step) {
    return {step.rate(), options.weight_decay, options.momentum, 1.0f - options.dampening};
  }

  static constexpr int decays = 1, nesterov = 2, first = 4, running = 8, variants = 12;
  FP16LAB_HD static int variant(const UpdateOptions& options, const StepView& step) {
    const int with_decay = options.weight_decay != 0.0f ? decays : 0;
    if (options.momentum == 0.0f) return with_decay;
    return with_decay | (options.nesterov ? nesterov : 0) | (step.is_first() ? first : running);
  }
  FP16LAB_HD static constexpr unsigned used(int variant) { return variant >= first ? 1u : 0u; }

  template <int Variant>
  FP16LAB_HD static void element(const Scalars& c, Gives gives, float& weight, float gradient,
                                 float (&state)[most_update_states]) {
    float d = gradient;
    if constexpr ((Variant & decays) != 0) d = gradient + c.weight_decay * weight;
    if constexpr (Variant >= first) {
      float v = d;
      if constexpr ((Variant & running) != 0) v = c.momentum * state[0] + c.one_minus_dampening * d;
      state[0] = canonicalize(v);
      if constexpr ((Variant & nesterov) != 0)
        d = d + c.momentum * v;
      else
        d = v;
    }
    weight = given(gives, weight, c.rate * d);
  }
};

/// What all rules with two moments share.
struct Moments {
  static constexpr std::string_view states[] = {"first_moment", "second_moment"};
  static constexpr bool moves_weight = true;
  static bool uses(const UpdateOptions&, int) { return true; }
  FP16LAB_HD static constexpr unsigned used(int) { return 3u; }

  float beta1, one_minus_beta1, beta2, one_minus_beta2;
  FP16LAB_HD static Moments of(const UpdateOptions& options) {
    return {options.beta1, 1.0f - options.beta1, options.beta2, 1.0f - options.beta2};
  }
  /// m = b1 * m + (1 - b1) * g and v = b2 * v + ((1 - b2) * g) * g; the states become them.
  FP16LAB_HD void move(float g, float (&state)[most_update_states], float& m, float& v) const {
    m = beta1 * state[0] + one_minus_beta1 * g;
    v = beta2 * state[1] + (one_minus_beta2 * g) * g;
    state[0] = canonicalize(m);
    state[1] = canonicalize(v);
  }
};

/// Adam (Kingma & Ba, ICLR 2015) with the bias corrections moved into scalars as PyTorch does; the quotient
/// lr / (1 - b1^t) and the root sqrt(1 - b2^t) are FP64, rounded once:
///   g = g + wd * w        (wd != 0)
///   m, v                  (Moments)
///   w = w - ((lr / (1 - b1^t)) * m) / (sqrt(v) / sqrt(1 - b2^t) + eps)
/// Decoupled (AdamW: Loshchilov & Hutter, ICLR 2019): in the first line's place w = w * (1 - lr * wd), a
/// factor of FP64, rounded once.
template <bool Decoupled>
struct AdamKind : Moments {
  static constexpr std::string_view name = Decoupled ? "adamw_step" : "adam_step";

  struct Scalars {
    Moments moments;
    float epsilon, step_size, root_correction;
    float decay;  ///< the gradient's; decoupled: what is left of the weight
    float taken;  ///< decoupled: float(lr * wd), where a change is wanted
  };
  FP16LAB_HD static Scalars scalars(const UpdateOptions& options, const StepView& step) {
    const double rate = static_cast<double>(step.rate()), decay = static_cast<double>(options.weight_decay);
    return {of(options),
            options.epsilon,
            static_cast<float>(rate / step.first_correction()),
            static_cast<float>(square_root_f64(step.second_correction())),
            Decoupled ? static_cast<float>(1.0 - rate * decay) : options.weight_decay,
            Decoupled ? static_cast<float>(rate * decay) : 0.0f};
  }

  static constexpr int variants = 2;  ///< without decay, and with it
  FP16LAB_HD static int variant(const UpdateOptions& options, const StepView&) {
    return options.weight_decay == 0.0f ? 0 : 1;
  }

  template <int Variant>
  FP16LAB_HD static void element(const Scalars& c, Gives gives, float& weight, float gradient,
                                 float (&state)[most_update_states]) {
    float w = weight, g = gradient, m = 0.0f, v = 0.0f;
    if constexpr (Variant == 1 && Decoupled) w = w * c.decay;
    if constexpr (Variant == 1 && !Decoupled) g = g + c.decay * w;
    c.moments.move(g, state, m, v);
    const float denominator = square_root_f32(v) / c.root_correction + c.epsilon;
    float change = (c.step_size * m) / denominator;
    if constexpr (Variant == 1 && Decoupled)
      if (gives == Gives::change) change = change + c.taken * weight;
    weight = given(gives, w, change);
  }
};
using Adam = AdamKind<false>;
using AdamW = AdamKind<true>;

/// The direction of LAMB (You et al., ICLR 2020, algorithm 2, with the identity for its phi), as apex's
/// FusedLAMB with use_nvlamb computes it. The weight stays; the third state is the direction:
///   u = (m / (1 - b1^t)) / (sqrt(v) / sqrt(1 - b2^t) + eps)
///   u = u + wd * w        (wd != 0)
struct LambDirection : Moments {
  static constexpr std::string_view name = "lamb_step";
  static constexpr std::string_view states[] = {"first_moment", "second_moment", "direction"};
  static constexpr bool moves_weight = false;
  FP16LAB_HD static constexpr unsigned used(int) { return 7u; }

  struct Scalars {
    Moments moments;
    float epsilon, first_correction, root_correction, weight_decay, rate;
  };
  FP16LAB_HD static Scalars scalars(const UpdateOptions& options, const StepView& step) {
    return {of(options),
            options.epsilon,
            static_cast<float>(step.first_correction()),
            static_cast<float>(square_root_f64(step.second_correction())),
            options.weight_decay,
            step.rate()};
  }
  static constexpr int variants = 1;
  FP16LAB_HD static int variant(const UpdateOptions&, const StepView&) { return 0; }

  FP16LAB_HD static float direction(const Scalars& c, float weight, float gradient,
                                    float (&state)[most_update_states]) {
    float m = 0.0f, v = 0.0f;
    c.moments.move(gradient, state, m, v);
    const float along = (m / c.first_correction) / (square_root_f32(v) / c.root_correction + c.epsilon);
    return c.weight_decay == 0.0f ? along : along + c.weight_decay * weight;
  }
  template <int Variant>
  FP16LAB_HD static void element(const Scalars& c, Gives, float& weight, float gradient,
                                 float (&state)[most_update_states]) {
    state[2] = canonicalize(direction(c, weight, gradient, state));
  }
};

/// MindSpore's AdamWeightDecay: LAMB's direction without corrections (dividing by 1 changes nothing),
/// followed at once: w = w - lr * u.
struct AdamWeightDecay : LambDirection {
  static constexpr std::string_view name = "adam_weight_decay_step";
  static constexpr std::string_view states[] = {"first_moment", "second_moment"};
  static constexpr bool moves_weight = true;
  FP16LAB_HD static constexpr unsigned used(int) { return 3u; }
  FP16LAB_HD static Scalars scalars(const UpdateOptions& options, const StepView& step) {
    return {of(options), options.epsilon, 1.0f, 1.0f, options.weight_decay, step.rate()};
  }
  template <int Variant>
  FP16LAB_HD static void element(const Scalars& c, Gives gives, float& weight, float gradient,
                                 float (&state)[most_update_states]) {
    weight = given(gives, weight, c.rate * direction(c, weight, gradient, state));
  }
};

/// What rules without variants and states share.
struct Plain {
  static constexpr std::span<const std::string_view> states{};
  static constexpr bool moves_weight = true;
  static bool uses(const UpdateOptions&, int) { return false; }
  FP16LAB_HD static constexpr unsigned used(int) { return 0u; }
  static constexpr int variants = 1;
  FP16LAB_HD static int variant(const UpdateOptions&, const StepView&) { return 0; }
};

/// A step along a direction that replaces the gradient: w = w - (lr * |w| / |direction|) * direction. The
/// norms are those of two tensors as Backend::global_norm takes them; where one of them is 0, the quotient is
/// 1. Its product with the rate is FP64, rounded once.
struct Follow : Plain {
  static constexpr std::string_view name = "follow_step";
  struct Scalars {
    float rate;
  };
  FP16LAB_HD static Scalars scalars(const UpdateOptions&, const StepView& step) {
    const bool none = step.weight_norm == 0.0 || step.gradient_norm == 0.0;
    const double ratio = none ? 1.0 : step.weight_norm / step.gradient_norm;
    return {static_cast<float>(static_cast<double>(step.rate()) * ratio)};
  }
  template <int Variant>
  FP16LAB_HD static void element(const Scalars& c, Gives gives, float& weight, float direction,
                                 float (&)[most_update_states]) {
    weight = given(gives, weight, c.rate * direction);
  }
};

/// RMSprop as PyTorch has it (Tieleman & Hinton 2012; centered: Graves, arXiv 1308.0850):
///   g = g + wd * w                                (wd != 0)
///   s = alpha * s + ((1 - alpha) * g) * g
///   a = alpha * a + (1 - alpha) * g               (centered)
///   d = g / (sqrt(s) + eps), or g / (sqrt(max(s - a * a, 0)) + eps) if centered
///   b = momentum * b + d,  d = b                  (momentum != 0)
///   w = w - lr * d
/// PyTorch takes the root of a difference s - a * a below 0, which only rounding makes, and has a NaN.
struct Rmsprop {
  static constexpr std::string_view name = "rmsprop_step";
  static constexpr std::string_view states[] = {"square_average", "gradient_average", "velocity"};
  static constexpr bool moves_weight = true;
  static bool uses(const UpdateOptions& options, int state) {
    return state == 0 || (state == 1 ? options.centered : options.momentum != 0.0f);
  }

  struct Scalars {
    float rate, alpha, one_minus_alpha, epsilon, momentum, weight_decay;
  };
  FP16LAB_HD static Scalars scalars(const UpdateOptions& options, const StepView& step) {
    return {step.rate(),     options.alpha,    1.0f - options.alpha,
            options.epsilon, options.momentum, options.weight_decay};
  }

  static constexpr int centered = 1, moving = 2, variants = 4;
  FP16LAB_HD static int variant(const UpdateOptions& options, const StepView&) {
    return (options.centered ? centered : 0) | (options.momentum != 0.0f ? moving : 0);
  }
  FP16LAB_HD static constexpr unsigned used(int variant) { return 1u | static_cast<unsigned>(variant) << 1; }

  template <int Variant>
  FP16LAB_HD static void element(const Scalars& c, Gives gives, float& weight, float gradient,
                                 float (&state)[most_update_states]) {
    const float g = c.weight_decay == 0.0f ? gradient : gradient + c.weight_decay * weight;
    const float s = c.alpha * state[0] + (c.one_minus_alpha * g) * g;
    float variance = s;
    if constexpr ((Variant & centered) != 0) {
      const float a = c.alpha * state[1] + c.one_minus_alpha * g;
      const float difference = s - a * a;
      variance = difference < 0.0f ? 0.0f : difference;  // a NaN stays
      state[1] = canonicalize(a);
    }
    float d = g / (square_root_f32(variance) + c.epsilon);
    if constexpr ((Variant & moving) != 0) {
      d = c.momentum * state[2] + d;
      state[2] = canonicalize(d);
    }
    state[0] = canonicalize(s);
    weight = given(gives, weight, c.rate * d);
  }
};

/// Muon's momentum (Jordan et al. 2024, as torch.optim.Muon has it). The weight stays; the second state is
/// the matrix to be made orthogonal:
///   b = b + (1 - momentum) * (g - b)
///   u = nesterov ? b - (1 - momentum) * (b - g) : b
struct MuonMomentum {
  static constexpr std::string_view name = "muon_step";
  static constexpr std::string_view states[] = {"momentum_buffer", "direction"};
  static constexpr bool moves_weight = false;
  static bool uses(const UpdateOptions&, int) { return true; }
  FP16LAB_HD static constexpr unsigned used(int) { return 3u; }

  struct Scalars {
    float rest;
  };
  FP16LAB_HD static Scalars scalars(const UpdateOptions& options, const StepView&) {
    return {static_cast<float>(1.0 - static_cast<double>(options.momentum))};
  }
  static constexpr int variants = 2;
  FP16LAB_HD static int variant(const UpdateOptions& options, const StepView&) {
    return options.nesterov ? 1 : 0;
  }
  template <int Variant>
  FP16LAB_HD static void element(const Scalars& c, Gives, float&, float g,
                                 float (&state)[most_update_states]) {
    const float b = state[0] + c.rest * (g - state[0]);
    state[0] = canonicalize(b);
    state[1] = canonicalize(Variant == 1 ? b - c.rest * (b - g) : b);
  }
};

/// w = g / max(|g|, epsilon): the gradient's direction, rounded once to the weight's dtype.
struct Normalise : Plain {
  static constexpr std::string_view name = "normalise_step";
  struct Scalars {
    float norm;
  };
  FP16LAB_HD static Scalars scalars(const UpdateOptions& options, const StepView& step) {
    const auto norm = static_cast<float>(step.gradient_norm);
    return {norm < options.epsilon ? options.epsilon : norm};
  }
  template <int Variant>
  FP16LAB_HD static void element(const Scalars& c, Gives, float& weight, float g,
                                 float (&)[most_update_states]) {
    weight = canonicalize(g / c.norm);
  }
};

/// w = beta1 * w + beta2 * g.
struct Combine : Plain {
  static constexpr std::string_view name = "combine_step";
  struct Scalars {
    float own, other;
  };
  FP16LAB_HD static Scalars scalars(const UpdateOptions& options, const StepView&) {
    return {options.beta1, options.beta2};
  }
  template <int Variant>
  FP16LAB_HD static void element(const Scalars& c, Gives, float& weight, float g,
                                 float (&)[most_update_states]) {
    weight = canonicalize(c.own * weight + c.other * g);
  }
};

/// Muon's last step, along a direction that replaces the gradient: w = w * (1 - lr * wd), a factor of FP64,
/// rounded once, then w = w - (lr * alpha) * direction, likewise; alpha is the factor of the rate.
struct Muon : Plain {
  static constexpr std::string_view name = "muon_follow_step";
  struct Scalars {
    float rate, kept, taken;
  };
  FP16LAB_HD static Scalars scalars(const UpdateOptions& options, const StepView& step) {
    const double rate = static_cast<double>(step.rate()), decay = static_cast<double>(options.weight_decay);
    return {static_cast<float>(rate * static_cast<double>(options.alpha)),
            static_cast<float>(1.0 - rate * decay), static_cast<float>(rate * decay)};
  }
  template <int Variant>
  FP16LAB_HD static void element(const Scalars& c, Gives gives, float& weight, float direction,
                                 float (&)[most_update_states]) {
    float change = c.rate * direction;
    if (gives == Gives::change) change = change + c.taken * weight;
    weight = given(gives, weight * c.kept, change);
  }
};

}  // namespace updates
}  // namespace fp16lab::engine::functions
