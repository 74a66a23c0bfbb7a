// What autograd asks of autocast. The dependency is inverted: engine/amp implements this.
#pragma once

#include <span>

#include "engine/autograd/op.hpp"
#include "engine/autograd/variable.hpp"
#include "numerics/dtype.hpp"

namespace fp16lab::engine {

/// Set on a Tape for the forward pass; backward passes always run without one.
class CastPolicy {
 public:
  virtual ~CastPolicy() = default;
  /// The dtype in which `op` computes, given the dtypes that occur among its floating inputs (f32, f16): each once,
  /// in the order of the first input that has it. May refuse: AutogradError::Kind::unsafe_under_autocast.
  virtual DType compute_dtype(Op op, std::span<const DType> inputs) const = 0;
  /// `input` in `dtype`, as a differentiable Variable of the same tape. May reuse an earlier cast of a
  /// parameter.
  virtual Variable cast(const Variable& input, DType dtype) = 0;
};

}  // namespace fp16lab::engine
