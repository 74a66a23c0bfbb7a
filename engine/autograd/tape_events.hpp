// The events that a tape sends its taps (engine/autograd/tap.hpp): each value that it records, each step of a
// backward pass, and, by the tap that counts (engine/autograd/counting.hpp), the counts of values where they
// are rounded.
//
// A backward pass sends PassBegins, Seeded, then, from node to node,
//
//   CotangentNamed, (GradientScaled), for each input slot (VjpBegins, Recorded ..., VjpGave) or
//   GradientHandedOn, then GradientAdded; at a parameter (GradientNarrowed), ParameterGradient
//
// and PassEnds. Events give nodes by their numbers (Tape::handle gives a Variable). All references end with
// the call.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "engine/autograd/cast_policy.hpp"
#include "engine/autograd/op.hpp"
#include "engine/autograd/variable.hpp"
#include "engine/backend/backend.hpp"
#include "numerics/files/run/observed.hpp"

namespace fp16lab::engine {

struct Parameter;
struct Slot;
enum class SlotLabel : std::uint8_t;

enum class GradientKind { weight, activation };

/// A value was recorded: in a forward pass, or (Tape::backward_site) inside the vjp of a node.
struct Recorded {
  Tape& tape;
  Op op;
  const Variable& result;
  std::span<const Slot> operands;
  /// The FP32 source of the result (16 bits), computed again; undefined where no op offered it.
  Tensor unrounded() const;
};

/// `value`, which is about to become a constant, was rounded by the verb that has just counted in
/// Tape::probe.
struct RoundedConstant {
  Tape& tape;
  const Tensor& value;
};

/// The memory of `value` may serve another one from now on.
struct ValueDropped {
  const Tensor& value;
};
/// So may that of all values.
struct TapeReset {};

/// The gradient that a backward pass is computing: that of the input `label` of a node.
struct BackwardSite {
  Op op = Op::leaf;         ///< the node's
  std::uint32_t scope = 0;  ///< the node's
  SlotLabel label{};
  std::uint32_t node = 0;
  std::uint32_t input = 0;         ///< node of the input
  std::uint32_t cotangent = 0;     ///< node of the gradient of the node's output
  int exponent = 0;                ///< that gradient carries 2^exponent (engine/autograd/gradient_scales.hpp)
  std::optional<DType> operand{};  ///< to what the vjp rounds that gradient on its way into a product
};

struct PassBegins {
  Tape& tape;
  bool counted;  ///< GradientsOptions::counted
};
struct PassEnds {
  Tape& tape;
};
/// The gradient of `output` begins, or goes on, with `seed`.
struct Seeded {
  Tape& tape;
  const Variable& output;
  const Tensor& seed;
};
/// `cotangent` is the gradient of the result of `node`.
struct CotangentNamed {
  const Variable& cotangent;
  std::uint32_t node;
};
/// The gradient of the result of `node` is now the value of `gradient`.
struct GradientReplaced {
  Tape& tape;
  const Variable& gradient;
  std::uint32_t node;
};
struct VjpBegins {
  Tape& tape;
  const BackwardSite& site;
  const Variable& cotangent;
};
/// The vjp of `site` has given `result` from `cotangent`; undefined: it gave nothing.
struct VjpGave {
  Tape& tape;
  const BackwardSite& site;
  const Variable& cotangent;
  const Variable& output;
  const Variable& result;
  bool first;  ///< nothing has reached the input before
};
/// A gradient of a place that is not the result of the vjp which computed it: that of the activation `label`
/// of the module scope `scope`, with what `probe` counted in it.
struct InnerGradient {
  Tape& tape;
  std::uint32_t scope;
  SlotLabel label;
  DType dtype;
  const CastProbe& probe;
};
/// The gradient of the result of `node` is, unchanged, that of `input`.
struct GradientHandedOn {
  std::uint32_t node, input;
};
/// The value given last has reached the gradient of `node`: as its first contribution, or as sum = before +
/// added. Sent to taps that follow values.
struct GradientAdded {
  Tape& tape;
  std::uint32_t node;
  const Tensor& before;  ///< undefined: it is the first
  const Tensor& added;
  const Tensor& sum;
};
/// A gradient of the result of `node` was multiplied by 2^change in its dtype, and carries 2^exponent now.
struct GradientScaled {
  Tape& tape;
  std::uint32_t node;
  const Tensor& before;
  int change, exponent;
};
/// The gradient of a parameter, the leaf `node`, was rounded from FP32 to `dtype`, and counted by `probe`.
struct GradientNarrowed {
  Tape& tape;
  std::uint32_t node;
  DType dtype;
  const CastProbe& probe;
  int exponent;
};
/// `contribution` is complete, and Parameter::gradient what the parameter has now: the contribution rounded
/// to the gradient's dtype, or `before` (undefined: nothing) plus that. Sent to taps that follow values.
struct ParameterGradient {
  Tape& tape;
  std::uint32_t node;
  const Parameter& parameter;
  const Tensor& contribution;
  const Tensor& before;
};

/// To StepContext::final_gradients, in passes with BackwardOptions::last: nothing adds to parameter.gradient
/// before it is cleared, so it may be taken, and another one put there. In the order of the pass, which is
/// the same on all ranks; not for parameters that the pass does not reach.
struct GradientFinal {
  Parameter& parameter;
};
/// Likewise, between two nodes of the pass.
struct NodeDone {};

/// Values of a tensor were counted by `probe`, before and after their rounding to `dtype`, in one use:
/// - a gradient, once for each labelled input slot and backward pass. `name` is module scope + slot:
///   "fc2.weight", "fc2.input", "loss.prediction". Values carry the loss scale, and also 2^exponent. If
///   nothing is narrowed (level O0) both histograms count the FP32 values.
/// - with `intermediate`, every other rounding of a gradient to a narrower dtype, so that no loss goes unseen:
///   between labelled slots by the op that gave the value, without casts and watches ("fc1.matmul"); for a
///   parameter "fc1.weight.gradient"; and once for each product whose vjps round the gradient of its result to
///   FP8 (amp.fp8_gradients), "fc2.output" for a layer with a weight, else "attention.matmul".
/// - an activation: "fc2.input", what a layer works on, before and after the policy's cast if there was one;
///   "fc2.output", the result of a layer with a weight, before and after the rounding of its accumulators.
///   Elsewhere both histograms count the values.
/// - a weight: a parameter was cast to `dtype`, once for all its uses or once in each autocast guard.
/// Counts may be complete only after Backend::settle.
struct CountedTensor {
  Observed observed;
  std::string_view name;
  GradientKind kind;
  DType dtype;
  const CastProbe& probe;
  int exponent = 0;
  bool intermediate = false;
};

}  // namespace fp16lab::engine
