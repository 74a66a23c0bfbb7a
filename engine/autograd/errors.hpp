// The one error type of autograd: wrong use of tapes and variables, never a numerical event.
#pragma once

#include <stdexcept>
#include <string>

namespace fp16lab::engine {

class AutogradError : public std::logic_error {
 public:
  enum class Kind {
    undefined_variable,     ///< a default-constructed Variable was used
    stale_variable,         ///< the tape was reset, or the temporary was dropped, since the Variable was made
    foreign_variable,       ///< Variables of two tapes in one operation
    graph_released,         ///< a second backward through values that the first one released
    missing_seed,           ///< backward from a non-scalar without a seed
    bad_seed,               ///< seed and output differ in shape or dtype, or their numbers differ
    no_gradient_path,       ///< the output does not depend on anything that requires a gradient
    unused_input,           ///< gradients() with an input that the outputs do not depend on
    unsafe_under_autocast,  ///< an op that gives wrong results in 16 bits; the message says which to use
    custom_op_under_autocast,  ///< a user-defined op that does not say in which dtype it computes
  };

  AutogradError(Kind kind, const std::string& message) : std::logic_error(message), kind_(kind) {}
  Kind kind() const { return kind_; }

 private:
  Kind kind_;
};

}  // namespace fp16lab::engine
