// The hooks through which a tape shows gradients and forward values.
#pragma once

#include <string_view>

#include "engine/backend/backend.hpp"
#include "numerics/files/run/observed.hpp"
#include "numerics/formats/dtype.hpp"

namespace fp16lab::engine {

enum class GradientKind { weight, activation };

/// Set on a Tape for the steps that someone wants to see; without one, observation costs one branch per node.
/// Is shown gradients at the place where they are rounded.
class GradientObserver {
 public:
  virtual ~GradientObserver() = default;
  /// Called once per observed input slot and backward pass. `name` is module scope + slot: "fc2.weight",
  /// "fc2.input", "loss.prediction". `probe` counts the values before and after the rounding to `dtype`; they
  /// still carry the loss scale, and may be complete only after Backend::settle. Where nothing is narrowed
  /// (level O0) both histograms count the FP32 values.
  virtual void on_gradient(std::string_view name, GradientKind kind, DType dtype, const CastProbe& probe) = 0;
  /// What tapes call: the values carry 2^exponent besides (engine/autograd/gradient_scales.hpp; 0 without
  /// those). Whoever only counts may leave it as it is.
  virtual void on_scaled_gradient(std::string_view name, GradientKind kind, DType dtype,
                                  const CastProbe& probe, int /*exponent*/) {
    on_gradient(name, kind, dtype, probe);
  }
  /// Called for every other rounding of a gradient to a narrower dtype, so that no loss goes unseen; whoever
  /// follows the gradients of layers only may leave it as it is. Those are - roundings to 16 bits on the way
  /// between observed slots. `name` says whose gradient it is: module scope + the op
  ///    that gave the value, such as "fc1.matmul", with casts and watches left out; "fc1.weight.gradient" of
  ///    a parameter.
  /// - once for every product whose vjps round the gradient of its result to FP8 (amp.fp8_gradients): that
  /// gradient,
  ///    with the dtype e4m3 or e5m2. `name` is then "fc2.output" of a layer with a weight, and
  ///    "attention.matmul" of products of two activations.
  virtual void on_rounding(std::string_view /*name*/, GradientKind /*kind*/, DType /*dtype*/,
                           const CastProbe& /*probe*/, int /*exponent*/) {}
};

/// Is shown what forward passes compute with and give.
struct Parameter;

/// Set on a Tape for the forward passes that someone wants to see; without one, that costs a branch an op.
/// Backward passes, and what they record, are never shown. It never changes a bit.
class ForwardObserver {
 public:
  virtual ~ForwardObserver() = default;
  /// Should an activation of this name be counted? Asked before each time.
  virtual bool wants_activation(std::string_view name) = 0;
  /// "fc2.input": what a layer works on, by the names under which its gradient is observed
  /// (GradientObserver); `probe` counts it before and after the policy's cast to `dtype`, where there was
  /// one. "fc2.output": the result of a layer with a weight, before and after the rounding of its
  /// accumulators. Elsewhere both histograms count the values. They may be complete only after
  /// Backend::settle.
  virtual void on_activation(std::string_view name, DType dtype, const CastProbe& probe) = 0;
  /// A parameter was cast to `dtype`, once for all its uses or, where several autocast guards follow each
  /// other, once in each.
  virtual void on_weight_cast(const Parameter& parameter, DType dtype, const CastProbe& probe) = 0;
};

struct Parameter;

/// In StepContext::final_gradients; asked in passes with BackwardOptions::last.
/// Is told, while a backward pass still runs, which gradients of parameters are there for good.
class FinalGradients {
 public:
  virtual ~FinalGradients() = default;
  /// Nothing adds to parameter.gradient before it is cleared: it may be taken, and another one put there.
  /// Called in the order of the pass, which is the same on all ranks; not for parameters that the pass does
  /// not reach.
  virtual void on_final(Parameter& parameter) = 0;
  /// Between two nodes of the pass.
  virtual void on_node() = 0;
};

}  // namespace fp16lab::engine
