// What every operation does first: check its inputs and bring them to one dtype. Internal to engine/autograd.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "engine/autograd/ops.hpp"
#include "engine/autograd/tape.hpp"

namespace fp16lab::engine {

/// The tape of `x`, after checking that x can be used; AutogradError naming `op` otherwise. For operations
/// that take any dtype.
Tape& tape_of(Op op, const Variable& x);

/// The one dtype in which `op` computes on these inputs (at least one), after checking that they live on one
/// tape and are floating. The tape's cast policy decides, and may refuse (cast_policy.hpp); without one they
/// promote to the widest.
DType dispatched_dtype(Op op, std::span<const Variable> inputs);

/// `input` in that dtype.
Variable dispatched_to(DType dtype, const Variable& input);

/// Both steps: the inputs of `op` as it computes them. `inputs` is overwritten.
void dispatch(Op op, std::span<Variable> inputs);

template <std::size_t count>
std::array<Variable, count> dispatched(Op op, std::array<Variable, count> inputs) {
  dispatch(op, inputs);
  return inputs;
}

/// The input of an operation that moves elements, which take any dtype: dispatched if it is floating and
/// there is a cast policy, else as it is.
Variable dispatched_move(Op op, const Variable& x);

/// `result`, which `op` has computed, as the cast policy hands it on.
Variable handed_on(Op op, const Variable& result);
Variable handed_on(Op op, const Variable& result, CastPolicy* policy);  ///< where the tape's is off already

/// Records the value that `op` has computed from the slots' inputs (at least one), and returns the result.
Variable recorded(Op op, Tensor value, std::initializer_list<Slot> slots);

/// The shape that NumPy broadcasting gives; std::invalid_argument naming `op` and both shapes if there is
/// none.
Shape broadcast_shape(Op op, const Shape& a, const Shape& b);

/// `axis` counted from the front; std::invalid_argument naming `op` if x has no such axis.
int normalized_axis(Op op, const Variable& x, int axis);

/// `shape` without `axis`, or with extent 1 there.
Shape reduced_shape(const Shape& shape, int axis, bool keep_axis);

/// x in FP32, exact, in new memory.
Tensor wide_copy(Backend& backend, const Tensor& x);

/// Extents one by one, without heap memory. At most Shape::max_rank + 1 of them, so that Shape can refuse.
class ShapeBuilder {
 public:
  void push(std::int64_t extent) { extents_[count_++] = extent; }
  std::int64_t& operator[](int axis) { return extents_[static_cast<std::size_t>(axis)]; }
  Shape shape() const { return Shape(std::span<const std::int64_t>(extents_.data(), count_)); }

 private:
  std::array<std::int64_t, Shape::max_rank + 1> extents_{};
  std::size_t count_ = 0;
};

/// `shape` with another extent along `axis` (counted from the front).
Shape with_extent(const Shape& shape, int axis, std::int64_t extent);

/// If values are watched: `out` was rounded from verb(backend, result, operands...) on the operands in FP32.
template <class Verb, class... Operands>
void offer_wide_of(Tape& tape, const Tensor& out, const Verb& verb, const Operands&... operands) {
  if (!tape.follows_values()) return;
  tape.offer_wide(out, [&backend = tape.backend(), shape = out.shape(), verb, ... kept = operands] {
    Tensor wide = backend.empty(shape, DType::f32);
    verb(backend, wide, wide_copy(backend, kept)...);
    return wide;
  });
}

/// verb(backend, result, operands...), in a new tensor.
template <class Verb, class... Operands>
Tensor computed(Tape& tape, const Shape& shape, DType dtype, const Verb& verb, const Operands&... operands) {
  Tensor out = tape.backend().empty(shape, dtype);
  verb(tape.backend(), out, operands...);
  offer_wide_of(tape, out, verb, operands...);
  return out;
}

/// The verb's result for x, in a new tensor of its shape and dtype.
Tensor unary_value(UnaryOp verb, const Variable& x);

/// What a verb rounds on its way into a new tensor of `dtype`: verb(out, probe). If gradients are rounded
/// stochastically the verb stores FP32, and a cast rounds.
template <class Verb>
Tensor rounded_result(Tape& tape, const Shape& shape, DType dtype, const Verb& verb) {
  Tensor out = tape.backend().empty(shape, dtype);
  if (dtype == DType::f32 || !tape.rounds_stochastically()) {
    verb(out, tape.probe());
    return out;
  }
  Tensor wide = tape.backend().empty(shape, DType::f32);
  verb(wide, nullptr);
  tape.round_stochastically(wide, out, tape.probe());
  return out;
}

/// If values are watched: the FP32 source of `out`, a product as above with the operands that `verb` holds.
template <class Verb>
void offer_unrounded(Tape& tape, const Tensor& out, const Verb& verb) {
  offer_wide_of(tape, out, [verb](Backend&, Tensor& wide) { verb(wide, nullptr); });
}

/// x in FP32: exact.
Variable wide(const Variable& x);

/// g, widened if a probe counts what is rounded, or it is rounded stochastically: casts feed the tape's probe
/// and its stream, elementwise verbs do not. Widening, the verb in FP32 and the cast to nearest give the bits
/// of the 16-bit verb.
Variable countable(const Variable& g);

/// A scalar constant on the tape of `like`, in its dtype: value is rounded once.
Variable scalar_like(const Variable& like, float value);

/// Throws std::invalid_argument "<op>: <what>".
[[noreturn]] void reject(Op op, const std::string& what);

/// "f16 (64, 784)"
std::string describe(const Variable& x);

}  // namespace fp16lab::engine
