// OpenSeq2Seq's Backoff: starts at its ceiling, 2^14, and never leaves [1, 2^14]. FP32.
//
// The peer counts a step beside its update, in no order that TensorFlow would keep: now and then a growth
// comes a step early or late. Here a step is counted before the rule looks at it.
#pragma once

#include "engine/amp/policies/counters.hpp"

namespace fp16lab::engine::amp {

struct OpenSeq2SeqBackoffScaling : GoodStepScaling<OneFactor<float>> {
  static constexpr std::string_view name = "openseq2seq-backoff";
  static constexpr std::string_view rule =
      "S /= growth_factor on an overflow; S *= growth_factor whenever growth_interval divides the number of "
      "steps since the last overflow; within [min_scale, max_scale]";
  static constexpr std::string_view source =
      "NVIDIA/OpenSeq2Seq open_seq2seq/optimizers/automatic_loss_scaler.py, BackoffScaler";
  static constexpr std::array parameters = {initial_scale_parameter(16384), one_factor_parameter(2),
                                            growth_interval_parameter(2000), min_scale_parameter(1),
                                            max_scale_parameter(16384)};
};

}  // namespace fp16lab::engine::amp
