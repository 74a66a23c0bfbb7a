#include "engine/autograd/dispatch.hpp"

#include <algorithm>
#include <stdexcept>
#include <vector>

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

/// dtypes[i] = the dtype of inputs[i], which must live on `tape`.
void read_dtypes(Op op, const Tape& tape, std::span<const Variable> inputs, std::span<DType> dtypes) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    tape.check(inputs[i], name_of(op));
    dtypes[i] = inputs[i].dtype();
    if (dtypes[i] != DType::f32 && dtypes[i] != DType::f16) {
      reject(op, "input " + std::to_string(i) + " is " + describe(inputs[i]) + "; f32 or f16 is needed");
    }
  }
}

bool is_product(Op op) {
  return op == Op::matmul || op == Op::linear || op == Op::conv2d || op == Op::conv2d_input_gradient ||
         op == Op::conv2d_weight_gradient;
}

/// The dtype in which `op` computes.
DType target_dtype(Op op, const Tape& tape, std::span<const Variable> inputs, std::span<const DType> dtypes) {
  if (const CastPolicy* const policy = tape.cast_policy()) return policy->compute_dtype(op, dtypes);
  const bool wide =
      std::any_of(dtypes.begin(), dtypes.end(), [](DType dtype) { return dtype == DType::f32; });
  const bool narrow =
      std::any_of(dtypes.begin(), dtypes.end(), [](DType dtype) { return dtype != DType::f32; });
  if (wide && narrow && is_product(op)) {
    reject(op, "inputs " + describe(inputs[0]) + " and " + describe(inputs[1]) +
                   " differ in dtype; cast one of them, or switch autocast on");
  }
  return wide ? DType::f32 : dtypes.front();
}

}  // namespace

void dispatch(Op op, std::span<Variable> inputs) {
  Tape& tape = tape_of(op, inputs.front());
  std::array<DType, 8> few{};
  std::vector<DType> many(inputs.size() > few.size() ? inputs.size() : 0);
  const std::span<DType> dtypes = many.empty() ? std::span(few).first(inputs.size()) : std::span(many);
  read_dtypes(op, tape, inputs, dtypes);
  const DType target = target_dtype(op, tape, inputs, dtypes);
  CastPolicy* const policy = tape.cast_policy();
  for (Variable& input : inputs) {
    if (input.dtype() == target) continue;
    input = policy != nullptr ? policy->cast(input, target) : ops::cast(input, target);
  }
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

Variable scalar_like(const Variable& like, float value) {
  Backend& backend = like.tape().backend();
  Tensor out = backend.empty(Shape{}, like.dtype());
  backend.fill(out, static_cast<double>(value));
  return like.tape().constant(out);
}

}  // namespace fp16lab::engine
