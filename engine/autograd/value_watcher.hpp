// The hook through which a tape shows every value that it records, forward and backward: who looks for the
// operation that made the first Inf or NaN sets one (engine/train/culprit_finder.hpp). Without one it costs a
// branch an operation; with one it costs time, and never changes a bit.
#pragma once

#include <cstdint>
#include <span>

#include "engine/autograd/op.hpp"
#include "engine/autograd/variable.hpp"

namespace fp16lab::engine {

class Tape;
struct Parameter;
struct Slot;
enum class SlotLabel : std::uint8_t;

/// What a watcher knows of a value. It belongs to the watcher: the tape only carries it along with
/// cotangents, which are Tensors and have no name of their own.
struct ValueMark {
  bool known = false;
  bool nan = false;          ///< it holds a NaN
  std::uint16_t origin = 0;  ///< the watcher's number of what made it non-finite; 0: all finite, if known
  bool finite() const { return known && origin == 0; }
};

/// The gradient that a backward pass is computing: of the input `label` of a node.
struct BackwardSite {
  Op op = Op::leaf;         ///< of the node
  std::uint32_t scope = 0;  ///< of the node
  SlotLabel label{};
  std::uint32_t input = 0;      ///< node id of the input
  std::uint32_t cotangent = 0;  ///< node id of the gradient of the node's output
};

class ValueWatcher {
 public:
  virtual ~ValueWatcher() = default;
  /// `result` was just recorded: in a forward pass, or (Tape::backward_site) inside the vjp of a node.
  virtual void on_value(Tape& tape, Op op, const Variable& result, std::span<const Slot> operands) = 0;
  virtual ValueMark mark_of(Tape& tape, const Variable& variable) = 0;
  virtual void adopt(const Variable& variable, ValueMark mark) = 0;
  /// A backward pass begins at `output` with `seed`; gives the seed's mark.
  virtual ValueMark on_seed(Tape& tape, const Variable& output, const Tensor& seed) = 0;
  /// The vjp of tape.backward_site() has given `result` from `cotangent`; gives its mark.
  virtual ValueMark on_gradient(Tape& tape, const Variable& cotangent, const Variable& output,
                                const Variable& result) = 0;
  /// A second contribution to the gradient of tape.backward_site()'s input: sum = a + b.
  virtual ValueMark on_sum(Tape& tape, const Tensor& a, ValueMark mark_a, const Tensor& b, ValueMark mark_b,
                           const Tensor& sum) = 0;
  /// `contribution` is complete, with this mark, and `gradient` what the parameter has now: the contribution
  /// rounded to the gradient's dtype, or `before` (undefined: nothing) plus that.
  virtual void on_parameter(Tape& tape, const Parameter& parameter, ValueMark mark,
                            const Tensor& contribution, const Tensor& before, const Tensor& gradient) = 0;
};

}  // namespace fp16lab::engine
