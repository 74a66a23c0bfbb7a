// LayerScaler: loss scales of layers, inside the one loss scale S of the scaler around it.
//
// The gradient of a layer's output carries S * 2^exponent(layer): the tape queries every product of a
// backward pass (engine/autograd/gradient_scales.hpp), and parameters' gradients come out with S alone, so
// unscaling, checks, clipping and the optimizers are unchanged. A layer is known by its weight: the parameter
// that is an operand of its product. A product of two activations (attention), or by a frozen weight, is no
// layer's. Policies ada-loss, layerwise and groups (engine/amp/policies/); S stays at scaler.initial_scale.
// They decide on the host, from numbers that they wait for: an iteration cannot be recorded (train.graph).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/amp/levels/level.hpp"
#include "engine/amp/policies/layer_rule.hpp"
#include "engine/amp/policy.hpp"
#include "engine/amp/scalers/grad_scaler.hpp"
#include "engine/autograd/gradient_scales.hpp"
#include "engine/autograd/parameter.hpp"

namespace fp16lab::engine::amp {

/// Layers by a pattern of their weights' names, and the scale that they begin with: for policies layerwise
/// and groups.
struct ScaleGroup {
  std::string pattern;  ///< as amp::matches has it: "fc1", "fc1.*", "lstm.weight_hh*"
  double scale = 1.0;
  bool operator==(const ScaleGroup&) const = default;
};
/// "PATTERN=SCALE", as in scaler.groups: "fc1.*=2^8", "head=4096". std::invalid_argument saying what is
/// expected.
ScaleGroup scale_group(std::string_view text);

/// Does the policy have scales of layers? Checks scaler.groups: std::invalid_argument where they are missing,
/// or given to a policy that has none. False for a disabled scaler.
bool scales_layers(const ScalerOptions& options);
/// The same, and std::invalid_argument where the plan's gradients add up in 16 bits: dividing them by a
/// layer's scale would round.
bool scales_layers(const ScalerOptions& options, const AmpPlan& plan);

class LayerScaler : public GradientScales {
 public:
  /// Before the first backward pass of an iteration.
  virtual void begin_iteration();
  /// After unscaling and before anything hides an infinity: whose gradients of this optimizer overflowed.
  virtual void note_gradients(const ScaledOptimizer& optimizer, const Tensor& step);
  /// The decision, after the last step of the iteration.
  virtual void update() = 0;

  /// The state, by name, for checkpoints and state_hash: an FP32 scale and a count for each layer that can
  /// have one. What was loaded into them holds after reload().
  std::span<const NamedTensor> states() const { return states_; }
  void reload();

  /// One for each unit (a layer or a group).
  std::span<const LayerScale> scales() const { return scales_; }
  std::span<const std::string> names() const { return names_; }

 protected:
  LayerScaler(Backend& backend, std::vector<std::string> names, std::vector<LayerScale> scales);
  /// Writes the state to the back end: after every change.
  void store();

  Backend* backend_;
  std::vector<std::string> names_;
  std::vector<LayerScale> scales_;

 private:
  std::vector<NamedTensor> states_;
};

/// For the parameters of a model, which must outlive it. std::invalid_argument for a pattern of scaler.groups
/// that matches no weight, and for parameters whose gradients are kept in 16 bits (dividing them would
/// round). scales_layers(options) must be true.
std::unique_ptr<LayerScaler> make_layer_scaler(Backend& backend, const ScalerOptions& options,
                                               std::span<Parameter* const> parameters);

}  // namespace fp16lab::engine::amp
