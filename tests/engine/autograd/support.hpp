// Helpers that the engine's tests share: a back end, tensors from literals, and finite differences.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include "engine/autograd/ops.hpp"
#include "engine/autograd/tape.hpp"
#include "engine/backend/backend.hpp"
#include "engine/backend/emulated/emulated_backend.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"

namespace fp16lab::engine::test {

inline std::unique_ptr<Backend> hopper_backend(int threads = 1) {
  return make_emulated_backend(tensor_core_model("hopper"), threads);
}

inline Tensor tensor_of(Backend& backend, const Shape& shape, const std::vector<float>& values) {
  Tensor tensor = backend.empty(shape, DType::f32);
  backend.upload(std::as_bytes(std::span(values)), tensor);
  return tensor;
}

inline Tensor index_of(Backend& backend, const std::vector<std::int32_t>& values) {
  Tensor tensor = backend.empty({static_cast<std::int64_t>(values.size())}, DType::i32);
  backend.upload(std::as_bytes(std::span(values)), tensor);
  return tensor;
}

inline Tensor halves_of(Backend& backend, const Shape& shape, const std::vector<float>& values) {
  Tensor tensor = backend.empty(shape, DType::f16);
  backend.cast(tensor_of(backend, shape, values), tensor);
  return tensor;
}

/// The elements as FP32 (exact for f16).
inline std::vector<float> values_of(Backend& backend, const Tensor& tensor) {
  Tensor wide = tensor;
  if (tensor.dtype() != DType::f32) {
    wide = backend.empty(tensor.shape(), DType::f32);
    backend.cast(tensor, wide);
  }
  std::vector<float> values(static_cast<std::size_t>(tensor.element_count()));
  backend.download(wide, std::as_writable_bytes(std::span(values)));
  return values;
}

inline std::vector<std::byte> bytes_of(Backend& backend, const Tensor& tensor) {
  std::vector<std::byte> bytes(tensor.byte_count());
  backend.download(tensor, bytes);
  return bytes;
}

/// A differentiable function of several tensors; its result may have any shape.
using Function = std::function<Variable(Tape&, const std::vector<Variable>&)>;

struct HostTensor {
  Shape shape;
  std::vector<float> values;
};

/// sum of y * w with fixed weights w of both signs, 0.5 <= |w| <= 1: a direction in which no derivative
/// cancels by symmetry. Weights are multiples of 1/16, so w * y rounds once.
inline Variable weighted_sum(Tape& tape, const Variable& y) {
  const auto count = static_cast<std::size_t>(y.shape().element_count());
  std::vector<float> weights(count);
  for (std::size_t i = 0; i < count; ++i) {
    weights[i] = (i % 2 == 0 ? 1.0f : -1.0f) * static_cast<float>(8 + (5 * i + 3) % 9) / 16.0f;
  }
  return ops::sum(ops::multiply(y, tape.constant(tensor_of(tape.backend(), y.shape(), weights))));
}

/// Compares the gradient of weighted_sum(function) with central differences, extrapolated once (Richardson):
///   D(h) = (f(x+h) - f(x-h)) / 2h = f' + h^2/6 f''' + h^4/120 f^(5) + ...
///   R = (4 D(h/2) - D(h)) / 3    = f' - h^4/480 f^(5) + ...
/// h = 2^-4 and inputs that are multiples of 2^-10 below 2^4 in magnitude: x +- h and x +- h/2 are exact.
/// Let every evaluation of f be off by at most e = roundings * u * magnitude (u = 2^-24; `magnitude` bounds
/// the sum of absolute values of the terms that reach the output; `roundings` is the longest chain of
/// roundings, first order). Then |R - f'| <= (4 * e/(h/2) + e/h) / 3 + h^4/480 * fifth = 3 e/h + h^4/480 *
/// fifth, `fifth` a bound on |f^(5)| along every axis. The gradient itself is off by at most another e. A
/// missing factor or term is of order 1/2 or more.
struct DifferenceBounds {
  double magnitude = 8;
  double roundings = 16;
  double fifth = 0;
  double tolerance() const {
    constexpr double h = 0x1p-4, u = 0x1p-24;
    const double e = roundings * u * magnitude;
    return 3 * e / h + h * h * h * h / 480 * fifth + e;
  }
};

inline void expect_gradients(Backend& backend, const Function& function,
                             const std::vector<HostTensor>& inputs, const DifferenceBounds& bounds) {
  const auto value_at = [&](const std::vector<HostTensor>& at) {
    Tape tape(backend);
    const GradModeGuard off(tape, false);
    std::vector<Variable> variables;
    variables.reserve(at.size());
    for (const HostTensor& input : at)
      variables.push_back(tape.constant(tensor_of(backend, input.shape, input.values)));
    return static_cast<double>(
        values_of(backend, weighted_sum(tape, function(tape, variables)).tensor()).at(0));
  };
  Tape tape(backend);
  std::vector<Variable> variables;
  variables.reserve(inputs.size());
  for (const HostTensor& input : inputs)
    variables.push_back(tape.input(tensor_of(backend, input.shape, input.values)));
  const Variable output = weighted_sum(tape, function(tape, variables));
  const std::vector<Variable> gradients =
      tape.gradients(std::vector{output}, {}, variables, {.allow_unused = true});
  for (std::size_t which = 0; which < inputs.size(); ++which) {
    const std::vector<float> gradient = values_of(backend, gradients[which].tensor());
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      const auto difference = [&](float h) {
        auto moved = inputs;
        moved[which].values[i] = inputs[which].values[i] + h;
        const double above = value_at(moved);
        moved[which].values[i] = inputs[which].values[i] - h;
        return (above - value_at(moved)) / (2.0 * static_cast<double>(h));
      };
      const double expected = (4.0 * difference(0x1p-5f) - difference(0x1p-4f)) / 3.0;
      EXPECT_NEAR(static_cast<double>(gradient[i]), expected, bounds.tolerance())
          << "input " << which << ", element " << i;
    }
  }
}

/// The weighted sums of the gradients of weighted_sum(function), as a function: its gradients are second
/// derivatives.
inline Function gradient_function(const Function& function) {
  return [function](Tape& tape, const std::vector<Variable>& inputs) {
    const GradModeGuard on(tape, true);
    std::vector<Variable> leaves = inputs;
    // When differences are taken the inputs are constants, but the first derivative is needed all the same.
    for (Variable& leaf : leaves) {
      if (!leaf.requires_gradient()) leaf = tape.input(leaf.tensor());
    }
    const Variable output = weighted_sum(tape, function(tape, leaves));
    const auto gradients =
        tape.gradients(std::vector{output}, {}, leaves, {.create_graph = true, .allow_unused = true});
    Variable total = weighted_sum(tape, gradients.front());
    for (std::size_t i = 1; i < gradients.size(); ++i)
      total = ops::add(total, weighted_sum(tape, gradients[i]));
    return total;
  };
}

}  // namespace fp16lab::engine::test
