// What the optimizer verbs of a back end are told (engine/backend/backend.hpp).
#pragma once

#include "engine/tensor/tensor.hpp"
#include "numerics/random/philox.hpp"

namespace fp16lab::engine {

struct SgdOptions {
  float momentum = 0.0f;  ///< 0: plain SGD, `velocity` is ignored and may be undefined
  float dampening = 0.0f;
  float weight_decay = 0.0f;  ///< L2, added to the gradient, in FP32 on the master weight
  bool nesterov = false;
  /// The gradient is first multiplied by this, one FP32 rounding: 1 / loss_scale where the division by the
  /// loss scale is left to the optimizer (MindSpore with drop_overflow_update = false). 1: no multiplication.
  float gradient_factor = 1.0f;
};

struct AdamOptions {
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float epsilon = 1e-8f;
  float weight_decay = 0.0f;
  bool decoupled_decay = false;  ///< AdamW
  /// MindSpore's AdamWeightDecay: no bias corrections, and the decay is a part of the update; then
  /// decoupled_decay is not looked at.
  bool uncorrected = false;
  float gradient_factor = 1.0f;  ///< as in SgdOptions
};

struct RmspropOptions {
  float alpha = 0.99f;
  float epsilon = 1e-8f;
  float momentum = 0.0f;         ///< 0: `velocity` is ignored and may be undefined
  bool centered = false;         ///< false: `gradient_average` is ignored and may be undefined
  float weight_decay = 0.0f;     ///< L2, added to the gradient
  float gradient_factor = 1.0f;  ///< as in SgdOptions
};

struct LambOptions {
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float epsilon = 1e-6f;
  float weight_decay = 0.0f;     ///< times the weight, added to the direction of the step
  float gradient_factor = 1.0f;  ///< as in SgdOptions
};

/// How a weight of 16 bits that has no master copy takes its update; by itself, its new value is rounded to
/// nearest even once. Either of the two, not both; of FP32 weights neither (std::invalid_argument).
struct WeightStore {
  /// Kahan summation (Zamirai et al., "Revisiting BFloat16 Training", arXiv 2010.06192, algorithm 1 with the
  /// sign of c turned): what rounding has kept from the weight so far, a tensor of the weight's shape and
  /// dtype, zeros at first. With u what the update takes from w, in FP32 with one rounding per operation:
  ///   y = c - u
  ///   w' = w + y, rounded to 16 bits once more
  ///   c = y - (w' - w), rounded to 16 bits once more; +0 where w' is not finite
  /// Where AdamW multiplies w by 1 - lr * wd, u has lr * wd * w for that (lr * wd in FP64, rounded once).
  /// What c can hold ends at the smallest subnormal: in FP16 2^-24, so that steps of 2^-25 and less are lost.
  Tensor* compensation = nullptr;
  /// Stochastic rounding of the new value with 16 random bits of this stream, as narrow_stochastic
  /// (numerics/convert/convert.hpp) has it, element i's by its logical index; the stream's iteration is
  /// replaced by the low 32 bits of StepState::iteration.
  bool stochastic = false;
  PhiloxStream random = {};
};

}  // namespace fp16lab::engine
