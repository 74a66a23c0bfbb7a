// What the optimizer verbs of a back end are told (engine/backend/backend.hpp): plain data, FP32 numbers.
#pragma once

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

}  // namespace fp16lab::engine
