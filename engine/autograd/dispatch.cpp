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

void dispatch(Op op, std::span<Variable> inputs) {
  if (!inputs.front().defined()) {
    throw AutogradError(AutogradError::Kind::undefined_variable,
                        std::string(name_of(op)) + ": an input is an undefined Variable");
  }
  Tape& tape = inputs.front().tape();
  std::array<DType, Tape::max_inputs> dtypes{};
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    tape.check(inputs[i], name_of(op));
    dtypes[i] = inputs[i].dtype();
    if (dtypes[i] != DType::f32 && dtypes[i] != DType::f16) {
      reject(op, "input " + std::to_string(i) + " is " + describe(inputs[i]) + "; f32 or f16 is needed");
    }
  }
  const std::span<const DType> used(dtypes.data(), inputs.size());
  CastPolicy* policy = tape.cast_policy();
  DType target = used.front();
  if (policy != nullptr) {
    target = policy->compute_dtype(op, used);
  } else {
    for (const DType dtype : used) {
      if (dtype == DType::f32) target = DType::f32;
    }
    const bool mixed = std::any_of(used.begin(), used.end(), [&](DType dtype) { return dtype != target; });
    if (mixed && (op == Op::matmul || op == Op::linear)) {
      reject(op, "inputs " + describe(inputs[0]) + " and " + describe(inputs[1]) +
                     " differ in dtype; cast one of them, or switch autocast on");
    }
  }
  for (Variable& input : inputs) {
    if (input.dtype() == target) continue;
    input = policy != nullptr ? policy->cast(input, target) : ops::cast(input, target);
  }
}

Shape broadcast_shape(Op op, const Shape& a, const Shape& b) {
  const int rank = std::max(a.rank(), b.rank());
  std::vector<std::int64_t> extents(static_cast<std::size_t>(rank));
  for (int axis = 0; axis < rank; ++axis) {
    const int axis_a = axis - (rank - a.rank());
    const int axis_b = axis - (rank - b.rank());
    const std::int64_t extent_a = axis_a < 0 ? 1 : a[axis_a];
    const std::int64_t extent_b = axis_b < 0 ? 1 : b[axis_b];
    if (extent_a != extent_b && extent_a != 1 && extent_b != 1) {
      reject(op, "shapes " + a.to_string() + " and " + b.to_string() + " do not broadcast");
    }
    extents[static_cast<std::size_t>(axis)] = extent_a == 1 ? extent_b : extent_a;
  }
  return Shape(std::span<const std::int64_t>(extents));
}

int normalized_axis(Op op, const Variable& x, int axis) {
  const int rank = x.shape().rank();
  const int index = axis < 0 ? axis + rank : axis;
  if (index < 0 || index >= rank) reject(op, "no axis " + std::to_string(axis) + " in " + describe(x));
  return index;
}

Shape reduced_shape(const Shape& shape, int axis, bool keep_axis) {
  std::vector<std::int64_t> extents;
  for (int i = 0; i < shape.rank(); ++i) {
    if (i != axis) {
      extents.push_back(shape[i]);
    } else if (keep_axis) {
      extents.push_back(1);
    }
  }
  return Shape(std::span<const std::int64_t>(extents));
}

}  // namespace fp16lab::engine
