// Parameter: a value, its gradient, and the dtypes in which both are kept.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "engine/tensor/tensor.hpp"

namespace fp16lab::engine {

/// A parameter's settings from an AMP level (engine/amp/levels/decorate.hpp sets it; the defaults are those
/// of FP32 and of autocast). `low` below is the level's 16-bit dtype, f16 or bf16.
///
///                                    value  model  gradient  unscaled
///   O0, O1 of all dialects           f32    f32    f32       f32
///   O2 with master weights, paddle   f32    low    low       low      (f32 and f32 with master_gradients)
///   O2, apex                         f32    low    low       f32
///   O2, O3, mindspore                f32    low    f32       f32
///   O2 without master weights; O3 of apex: all low
struct ParameterDTypes {
  DType model = DType::f32;     ///< as the network sees it: narrower than a master copy
  DType gradient = DType::f32;  ///< in which backward passes of several micro-batches add up
  DType unscaled = DType::f32;  ///< what GradScaler::unscale leaves for clipping and the optimizer
};

/// Levels treat the parameters of norms apart.
enum class ParameterRole : std::uint8_t { weight, batch_norm, layer_norm };

/// Owned by a module; tapes, scalers and optimizers refer to it by address, so it is neither copied nor
/// moved.
struct Parameter {
  Parameter(std::string parameter_name, Tensor initial)
      : name(std::move(parameter_name)), value(std::move(initial)) {}
  Parameter(const Parameter&) = delete;
  Parameter& operator=(const Parameter&) = delete;

  /// "fc1.weight": also the key of its random stream, optimizer state and checkpoint entry.
  std::string name;
  /// What optimizers update and checkpoints keep: f32, the master copy; 16 bits where there is none.
  Tensor value;
  /// Shape of value, dtype as `dtypes` says; meaningful only if has_gradient.
  Tensor gradient;
  /// True: not summed over the batch's shards yet. `gradient` is that of the local shard, or (local shards,
  /// shape of value) where there are several (engine/autograd/by_shard.hpp); one that is final may still have
  /// the 16 bits that it was computed in, though f32 is wanted.
  bool gradient_by_shard = false;
  bool has_gradient = false;  ///< a backward has reached this parameter since clear_gradient()
  std::uint64_t version = 0;  ///< grows whenever `value` may have changed
  ParameterRole role = ParameterRole::weight;
  ParameterDTypes dtypes;
  /// True: no gradient flows here (torch's requires_grad = False). Tape::parameter then makes leaves without
  /// one; what a tape has recorded already stays.
  bool frozen = false;

  /// The value in dtypes.model, where that is not value's own: cast by Tape::parameter once per version.
  Tensor model_value;
  std::uint64_t model_version = 0;

  /// Returns its memory to the pool: the forward pass needs it for activations.
  void clear_gradient() {
    gradient = {};
    has_gradient = gradient_by_shard = false;
  }
};

}  // namespace fp16lab::engine
