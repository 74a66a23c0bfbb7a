#include "engine/autograd/dispatch.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace fp16lab::engine {

void reject(Op op, const std::string& what) {
  throw std::invalid_argument(std::string(name_of(op)) + ": " + what);
}

std::string describe(const Variable& x) {
  return std::string(name_of(x.dtype())) + " " + x.shape().to_string();
}

Tape& tape_of(Op op, const Variable& x) {
  if (!x.defined()) {
    throw AutogradError(AutogradError::Kind::undefined_variable,
                        std::string(name_of(op)) + ": an input is an undefined Variable");
  }
  x.tape().check(x, name_of(op));
  return x.tape();
}

namespace {

/// The dtypes that occur among the inputs, each once, in order of appearance.
class DTypes {
 public:
  DTypes(Op op, const Tape& tape, std::span<const Variable> inputs) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      tape.check(inputs[i], name_of(op));
      const DType dtype = inputs[i].dtype();
      if (contains(list(), dtype)) continue;
      if (!is_tensor_float(dtype)) {
        reject(op,
               "input " + std::to_string(i) + " is " + describe(inputs[i]) + "; f32, f16 or bf16 is needed");
      }
      list_[count_++] = dtype;
    }
  }
  std::span<const DType> list() const { return std::span(list_).first(count_); }

 private:
  static bool contains(std::span<const DType> list, DType dtype) {
    return std::find(list.begin(), list.end(), dtype) != list.end();
  }

  std::array<DType, 3> list_{};  // as many as there are floating dtypes
  std::size_t count_ = 0;
};

}  // namespace

DType dispatched_dtype(Op op, std::span<const Variable> inputs) {
  Tape& tape = tape_of(op, inputs.front());
  tape.note_asked(op);
  const DTypes occurring(op, tape, inputs);
  const std::span<const DType> dtypes = occurring.list();
  if (CastPolicy* const policy = tape.cast_policy()) return policy->compute_dtype({op, tape.scope()}, dtypes);
  if (dtypes.size() == 1) return dtypes.front();
  if (is_product(op)) {
    reject(op, "inputs " + describe(inputs[0]) + " and " + describe(inputs[1]) +
                   " differ in dtype; cast one of them, or switch autocast on");
  }
  return DType::f32;  // the widest, of f16 and bf16 too
}

Variable dispatched_to(DType dtype, const Variable& input) {
  if (input.dtype() == dtype) return input;
  CastPolicy* const policy = input.tape().cast_policy();
  return policy != nullptr ? policy->cast(input, dtype) : ops::cast(input, dtype);
}

void dispatch(Op op, std::span<Variable> inputs) {
  const DType dtype = dispatched_dtype(op, inputs);
  for (Variable& input : inputs) input = dispatched_to(dtype, input);
}

Variable dispatched_move(Op op, const Variable& x) {
  const Tape& tape = tape_of(op, x);
  if (tape.cast_policy() == nullptr || !is_tensor_float(x.dtype())) return x;
  return dispatched<1>(op, {x})[0];
}

Variable handed_on(Op op, const Variable& result) {
  return handed_on(op, result, result.tape().cast_policy());
}

Variable handed_on(Op op, const Variable& result, CastPolicy* policy) {
  if (policy == nullptr) return result;
  return ops::cast(result, policy->result_dtype({op, result.tape().scope()}, result.dtype()));
}

Variable recorded(Op op, Tensor value, std::initializer_list<Slot> slots) {
  return handed_on(op, slots.begin()->input.tape().record(op, std::move(value), slots));
}

Shape broadcast_shape(Op op, const Shape& a, const Shape& b) {
  const int rank = std::max(a.rank(), b.rank());
  ShapeBuilder extents;
  for (int axis = 0; axis < rank; ++axis) {
    const int axis_a = axis - (rank - a.rank());
    const int axis_b = axis - (rank - b.rank());
    const std::int64_t extent_a = axis_a < 0 ? 1 : a[axis_a];
    const std::int64_t extent_b = axis_b < 0 ? 1 : b[axis_b];
    if (extent_a != extent_b && extent_a != 1 && extent_b != 1) {
      reject(op, "shapes " + a.to_string() + " and " + b.to_string() + " do not broadcast");
    }
    extents.push(extent_a == 1 ? extent_b : extent_a);
  }
  return extents.shape();
}

int normalized_axis(Op op, const Variable& x, int axis) {
  const int rank = x.shape().rank();
  const int index = axis < 0 ? axis + rank : axis;
  if (index < 0 || index >= rank) reject(op, "no axis " + std::to_string(axis) + " in " + describe(x));
  return index;
}

Shape reduced_shape(const Shape& shape, int axis, bool keep_axis) {
  ShapeBuilder extents;
  for (int i = 0; i < shape.rank(); ++i) {
    if (i != axis) {
      extents.push(shape[i]);
    } else if (keep_axis) {
      extents.push(1);
    }
  }
  return extents.shape();
}

Shape with_extent(const Shape& shape, int axis, std::int64_t extent) {
  ShapeBuilder extents;
  for (int i = 0; i < shape.rank(); ++i) extents.push(i == axis ? extent : shape[i]);
  return extents.shape();
}

Tensor unary_value(UnaryOp verb, const Variable& x) {
  return computed(
      x.tape(), x.shape(), x.dtype(),
      [verb](Backend& backend, Tensor& out, const Tensor& value) { backend.unary(verb, value, out); },
      x.tensor());
}

Tensor wide_copy(Backend& backend, const Tensor& x) {
  Tensor wide = backend.empty(x.shape(), DType::f32);
  backend.cast(x, wide);
  return wide;
}

Variable wide(const Variable& x) { return ops::cast(x, DType::f32); }

Variable countable(const Variable& g) {
  const Tape& tape = g.tape();
  return tape.probe() != nullptr || tape.rounds_stochastically() ? wide(g) : g;
}

Variable scalar_like(const Variable& like, float value) {
  Backend& backend = like.tape().backend();
  Tensor out = backend.empty(Shape{}, like.dtype());
  backend.fill(out, static_cast<double>(value));
  return like.tape().constant(out);
}

}  // namespace fp16lab::engine
