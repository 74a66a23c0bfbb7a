#include "experiments/app/config/framework_names.hpp"

#include <algorithm>

namespace fp16lab::experiments {
namespace {

constexpr FrameworkName names[] = {
    {"init_scale", "torch", "scaler.initial_scale", ""},
    {"init_loss_scaling", "paddle", "scaler.initial_scale", ""},
    {"init_loss_scale", "mindspore", "scaler.initial_scale", ""},
    {"scale_value", "mindspore", "scaler.initial_scale", ""},
    {"loss_scale_value", "mindspore", "scaler.initial_scale", ""},
    {"initial_loss_scale", "Megatron-LM", "scaler.initial_scale", ""},
    {"initial_scale_power", "DeepSpeed", "scaler.initial_scale", "a power there: 16 is 2^16 here"},
    {"fp16_init_scale", "fairseq", "scaler.initial_scale", ""},
    {"incr_ratio", "paddle", "scaler.growth_factor", ""},
    {"scale_factor", "mindspore, fairseq", "scaler.growth_factor",
     "it is a divisor there: scaler.backoff_factor, where the policy has one"},
    {"decr_ratio", "paddle", "scaler.backoff_factor", ""},
    {"incr_every_n_steps", "paddle", "scaler.growth_interval", ""},
    {"scale_window", "mindspore, apex", "scaler.growth_interval", ""},
    {"loss_scale_window", "DeepSpeed, Megatron-LM", "scaler.growth_interval", ""},
    {"fp16_scale_window", "fairseq", "scaler.growth_interval", ""},
    {"dynamic_growth_steps", "Keras", "scaler.growth_interval", ""},
    {"decr_every_n_nan_or_inf", "paddle", "scaler.bad_steps", ""},
    {"max_loss_scale", "apex", "scaler.max_scale", ""},
    {"use_dynamic_loss_scaling", "paddle", "scaler.policy", "false there is scaler.policy = \"fixed\""},
    {"opt_level", "apex", "amp.level", ""},
    {"amp_level", "mindspore", "amp.level", ""},
    {"use_pure_fp16", "paddle", "amp.level", "true there is amp.level = \"O2\""},
    {"custom_white_list", "paddle", "amp.white", ""},
    {"custom_black_list", "paddle", "amp.black", ""},
    {"use_fp16_guard", "paddle", "amp.use_guard", ""},
    {"master_weight", "paddle", "amp.master_weights", ""},
    {"master_grad", "paddle", "amp.master_gradients", ""},
    {"learning_rate", "paddle, mindspore, Keras", "optimizer.lr", ""},
};

}  // namespace

std::span<const FrameworkName> framework_names() { return names; }

const FrameworkName* framework_name(std::string_view name) {
  const std::string_view field = name.substr(name.rfind('.') + 1);
  const auto* found = std::ranges::find(names, field, &FrameworkName::name);
  return found == std::end(names) ? nullptr : found;
}

}  // namespace fp16lab::experiments
