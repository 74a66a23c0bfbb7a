// What frameworks call the keys of configurations: the one table for hints, `fp16lab list` and the manual.
#pragma once

#include <span>
#include <string_view>

namespace fp16lab::experiments {

/// Names as the frameworks' own documentation has them: torch 2.x (torch.amp.GradScaler), paddle 3.x
/// (paddle.amp.GradScaler, auto_cast, static.amp.decorate), mindspore 2.x (mindspore.amp,
/// train.DynamicLossScaleManager), apex (amp.initialize), Keras 3 (LossScaleOptimizer), DeepSpeed (fp16
/// section of its configuration), Megatron-LM and fairseq (options of their command lines).
struct FrameworkName {
  std::string_view name;        ///< "init_loss_scaling"; no field of a key of ours is called so
  std::string_view frameworks;  ///< "paddle"
  std::string_view key;         ///< "scaler.initial_scale"
  std::string_view note;        ///< where the value is another one; may be empty
};
std::span<const FrameworkName> framework_names();

/// The row of a name, with or without a section before it; null: no framework is known to have it.
const FrameworkName* framework_name(std::string_view name);

}  // namespace fp16lab::experiments
