// The hook through which a tape shows what its forward passes compute with and give.
#pragma once

#include <string_view>

#include "engine/backend/backend.hpp"
#include "numerics/files/run/observed.hpp"
#include "numerics/formats/dtype.hpp"

namespace fp16lab::engine {

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

}  // namespace fp16lab::engine
