// Updates of weights: a rule's parameters, and how a weight takes what the rule computed.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "engine/tensor/tensor.hpp"
#include "numerics/random/philox.hpp"

namespace fp16lab::engine {

/// The rules: enumerator, and the functor of the table (engine/backend/update_rules.hpp) that says what it
/// computes of an element. Both back ends, the checks and the counting back end take a new row by themselves.
#define FP16LAB_UPDATE_RULES(RULE)         \
  RULE(sgd, Sgd)                           \
  RULE(adam, Adam)                         \
  RULE(adamw, AdamW)                       \
  RULE(adam_weight_decay, AdamWeightDecay) \
  RULE(rmsprop, Rmsprop)                   \
  RULE(lamb_direction, LambDirection)      \
  RULE(follow, Follow)                     \
  RULE(muon_momentum, MuonMomentum)        \
  RULE(normalise, Normalise)               \
  RULE(combine, Combine)                   \
  RULE(muon, Muon)

enum class UpdateRule : std::uint8_t {
#define FP16LAB_ENUMERATOR(name, functor) name,
  FP16LAB_UPDATE_RULES(FP16LAB_ENUMERATOR)
#undef FP16LAB_ENUMERATOR
};

/// The numbers of all rules; each says which it reads.
struct UpdateOptions {
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float alpha = 0.99f;
  float epsilon = 1e-8f;
  float momentum = 0.0f;
  float dampening = 0.0f;
  bool centered = false;
  float weight_decay = 0.0f;
  bool nesterov = false;
  /// The gradient is first multiplied by this, one FP32 rounding: 1 / loss_scale where the division by the
  /// loss scale is left to the optimizer (MindSpore with drop_overflow_update = false). 1: no multiplication.
  float gradient_factor = 1.0f;
};

/// How a weight of 16 bits that has no master copy takes its update; by itself, its new value is rounded to
/// nearest even once. Either of the two, not both; neither for FP32 weights (std::invalid_argument).
struct WeightStore {
  /// Kahan summation (Zamirai et al., "Revisiting BFloat16 Training", arXiv 2010.06192, algorithm 1 with the
  /// sign of c turned): what rounding has kept from the weight so far, a tensor of the weight's shape and
  /// dtype, zeros at first. With u what the update takes from w, in FP32 with one rounding per operation:
  ///   y = c - u
  ///   w' = w + y, rounded to 16 bits once more
  ///   c = y - (w' - w), rounded to 16 bits once more; +0 where w' is not finite
  /// Where AdamW multiplies w by 1 - lr * wd, u has lr * wd * w instead (lr * wd in FP64, rounded once). What
  /// c can hold ends at the smallest subnormal: in FP16 2^-24, so that steps of 2^-25 and less are lost.
  Tensor* compensation = nullptr;
  /// Stochastic rounding of the new value with 16 random bits of this stream, as narrow_stochastic
  /// (numerics/convert/convert.hpp) has it, element i's by its logical index; the stream's iteration is
  /// replaced by the low 32 bits of StepState::iteration.
  bool stochastic = false;
  PhiloxStream random = {};
};

/// Most states that a rule keeps beside a weight.
inline constexpr int most_update_states = 3;

/// One step of one weight, see Backend::update.
struct UpdateCall {
  UpdateRule rule;
  UpdateOptions options;
  Tensor& weight;          ///< f
  const Tensor& gradient;  ///< f, in the weight's shape; its dtype may be another one
  /// f32, in the weight's shape, in the order of the rule's names. One that the rule does not use with these
  /// options may be null or undefined.
  std::array<Tensor*, most_update_states> states{};
  int optimizer;       ///< its slot in StepState
  const Tensor& step;  ///< the StepState *after* this iteration's advance: taken_steps counts this step
  WeightStore store = {};
  /// StepStates, of which the rules follow and normalise read grad_norm: |weight|, and the norm of what
  /// replaces the gradient.
  std::array<const Tensor*, 2> norms{};
};

/// The facts about a rule that need no computation.
struct UpdateRuleInfo {
  std::string_view name;  ///< for messages and tests: "adam_step"
  std::span<const std::string_view> states;
  bool (*uses)(const UpdateOptions& options, int state);
  bool reads_norms;
};
const UpdateRuleInfo& info_of(UpdateRule rule);

}  // namespace fp16lab::engine
