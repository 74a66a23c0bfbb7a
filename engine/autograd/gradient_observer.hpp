// The hook through which a tape shows gradients at the place where they are rounded.
#pragma once

#include <string_view>

#include "engine/backend/backend.hpp"
#include "numerics/formats/dtype.hpp"

namespace fp16lab::engine {

enum class GradientKind { weight, activation };

/// Set on a Tape for the steps that someone wants to see; without one, observation costs one branch per node.
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

}  // namespace fp16lab::engine
