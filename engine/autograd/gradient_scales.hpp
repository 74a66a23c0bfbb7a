// Gradient scales: a power of two of its own for every cotangent of a backward pass.
//
// A backward pass starts at its seed, which carries the loss scale S. With a GradientScales on the tape every
// cotangent carries a further factor 2^exponent, 0 to begin with:
//   * at a product (linear, matmul, conv2d, conv_transpose2d, lstm), before its vjps, GradientScales says
//     which exponent the gradient of the product's result should have; the driver multiplies by the
//     difference's power of two. That is exact, but for what 16 bits cannot hold: scaling down may round
//     subnormals, and scaling up beyond the largest number gives infinity, which found_inf sees as any other
//     overflow;
//   * every vjp is linear, so the exponent travels with what it gives;
//   * where two contributions to one gradient differ in it, both are brought to the largest exponent of the
//     two with which their sum cannot overflow, or to a smaller one if there is none (joined_exponent);
//   * at a parameter the gradient is divided by 2^exponent, in FP32 and exactly, before it is added to
//     Parameter::gradient, which carries S alone as ever. A gradient of 16 bits would round there: an error.
// Exponents belong to one pass: retained graphs and several losses need nothing more. Tape::gradients hands
// its results on to the caller's computations, so it does not query; a backward pass over what it recorded
// does.
#pragma once

#include <string_view>

#include "engine/autograd/op.hpp"
#include "engine/backend/backend.hpp"

namespace fp16lab::engine {

struct Parameter;

/// A product whose vjps are about to run.
struct GradientSite {
  std::string_view scope;  ///< "fc1", "h0.attn"; empty: the root
  Op op = Op::matmul;      ///< matmul, linear, conv2d, conv_transpose2d or lstm
  const Parameter* weight =
      nullptr;              ///< the operand that is a parameter, or the cast of one; null: neither is
  const Tensor& cotangent;  ///< the gradient of the result, with `exponent`
  Tensor operand;           ///< the second one's value: for layers, the weight's
  int exponent = 0;
};

/// Set on a Tape (Tape::set_gradient_scales); without one, backward passes do what they always did.
class GradientScales {
 public:
  virtual ~GradientScales() = default;
  /// Called once for each product and pass, in the order of the pass.
  virtual int exponent_at(const GradientSite& site) = 0;
};

/// max |x| (exact; NaN if there is one, 0 for an empty tensor). Waits for the device.
double largest_magnitude(Backend& backend, const Tensor& x);

/// The largest exponent, from max(exponent_a, exponent_b) downwards, with which |a| + |b| is below the
/// numbers that `dtype` rounds to infinity; the magnitudes are those of the values as they are. With one that
/// is not finite there is nothing to save: the larger exponent.
int joined_exponent(double magnitude_a, int exponent_a, double magnitude_b, int exponent_b, DType dtype);

/// x * 2^exponent in new memory, in x's dtype.
Tensor times_power_of_two(Backend& backend, const Tensor& x, int exponent);

}  // namespace fp16lab::engine
