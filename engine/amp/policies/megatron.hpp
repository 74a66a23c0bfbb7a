// Megatron-LM's DynamicGradScaler, and two of the same rule: ColossalAI's and Fast-LLM's.
//
// Forgiven overflows come back only with growth: after the first back-off every overflow backs off at once
// until the scale has grown again, however many good steps lie between. The products are FP32 tensors;
// Fast-LLM's are Python floats.
#pragma once

#include "engine/amp/policies/counters.hpp"

namespace fp16lab::engine::amp {

struct MegatronScaling : HysteresisScaling<TwoFactors<float>, Refill::on_growth> {
  static constexpr std::string_view name = "megatron";
  static constexpr std::string_view rule =
      "S *= backoff_factor on an overflow after hysteresis - 1 others since the last growth, not below "
      "min_scale; S *= growth_factor after growth_interval good steps in a row";
  static constexpr std::string_view source =
      "NVIDIA/Megatron-LM megatron/core/optimizer/grad_scaler.py, DynamicGradScaler";
  static constexpr std::array parameters = {
      initial_scale_parameter(4294967296), growth_factor_parameter(2), backoff_factor_parameter(0.5),
      growth_interval_parameter(1000),     hysteresis_parameter(2),    min_scale_parameter(1),
      finite_guard_parameter(false)};
};

struct ColossalAiScaling : MegatronScaling {
  static constexpr std::string_view name = "colossalai";
  static constexpr std::string_view source =
      "hpcaitech/ColossalAI colossalai/amp/naive_amp/grad_scaler/dynamic_grad_scaler.py";
  static constexpr std::array parameters = {initial_scale_parameter(65536), growth_factor_parameter(2),
                                            backoff_factor_parameter(0.5),  growth_interval_parameter(1000),
                                            hysteresis_parameter(2),        finite_guard_parameter(false)};
};

struct FastLlmScaling : HysteresisScaling<TwoFactors<double>, Refill::on_growth> {
  static constexpr std::string_view name = "fastllm";
  static constexpr std::string_view rule = "as megatron, in FP64";
  static constexpr std::string_view source =
      "ServiceNow/Fast-LLM fast_llm/engine/optimizer/optimizer.py, DynamicGradScaler";
  static constexpr std::array parameters = {initial_scale_parameter(65536), growth_factor_parameter(2),
                                            backoff_factor_parameter(0.5),  growth_interval_parameter(1000),
                                            hysteresis_parameter(2),        min_scale_parameter(1),
                                            finite_guard_parameter(false)};
};

}  // namespace fp16lab::engine::amp
