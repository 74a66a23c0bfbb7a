// Operations that users define: their own forward, their own backward.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/autograd/tape.hpp"
#include "engine/autograd/variable.hpp"
#include "numerics/formats/dtype.hpp"

namespace fp16lab::engine {

/// A forward on tensors and a backward on Variables (written in operations, so that it can be differentiated
/// again; see ops.hpp).
struct CustomOp {
  std::string name;  ///< for messages: "swish"
  /// The value from the inputs' values. Must return a new tensor, or an input's memory unchanged.
  std::function<Tensor(Backend& backend, std::span<const Tensor> inputs)> forward;
  /// One gradient an input, in its shape and dtype; an undefined Variable where none flows.
  std::function<std::vector<Variable>(const Variable& cotangent, std::span<const Variable> inputs,
                                      const Variable& output)>
      backward;
  /// Under autocast every floating input is cast to this dtype first (as torch's custom_fwd(cast_inputs)).
  /// Absent: the op is not made for autocast, and applying it there is refused.
  std::optional<DType> autocast_dtype;
};

namespace ops {

/// Applies `op` to at least one input. AutogradError::Kind::custom_op_under_autocast, naming the op and the
/// remedy, if a cast policy is active and the op has no autocast_dtype. The backward is called once for each
/// gradient that reaches the op; one of the wrong number, shape or dtype throws std::logic_error naming the
/// op, the input and both. Inputs that require no gradient (and integer ones) may get an undefined Variable.
/// `op` is copied into the tape. (Not called `apply`: argument-dependent lookup of a call with a std::vector
/// would find std::apply.)
Variable custom(const CustomOp& op, std::span<const Variable> inputs);

}  // namespace ops

}  // namespace fp16lab::engine
