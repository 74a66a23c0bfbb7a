// What the tests of scalers share: two optimizers with a parameter each, and gradients by hand.
#pragma once

#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>

#include "engine/amp/scalers/grad_scaler.hpp"
#include "engine/optim/optimizer.hpp"
#include "tests/engine/autograd/support.hpp"

namespace fp16lab::engine::test {

// log2(S) after each step under torch's rule, window 4, init 2^16; F finite, O overflow. Worked out by hand
// from the rule of torch/amp/grad_scaler.py and AmpKernels.cu (amp_update_scale): an overflow halves S and
// restarts the count of good steps; the fourth good step in a row doubles S and restarts the count.
inline constexpr std::string_view sequence_a = "FFFFFOFFFFOOFFFFFFFFOOOFFFFFFF";
inline constexpr std::array torch_a = {16, 16, 16, 17, 17, 16, 16, 16, 16, 17, 16, 15, 15, 15, 15,
                                       16, 16, 16, 16, 17, 16, 15, 14, 14, 14, 14, 15, 15, 15, 15};
/// Isolated overflows, never a full window.
inline constexpr std::string_view sequence_b = "FFOFFOFFOFFOFFOFFOFF";
inline constexpr std::array torch_b = {16, 16, 15, 15, 15, 14, 14, 14, 13, 13,
                                       13, 12, 12, 12, 11, 11, 11, 10, 10, 10};

template <std::size_t count>
std::vector<double> powers_of_two(const std::array<int, count>& exponents) {
  std::vector<double> values;
  values.reserve(count);
  for (const int exponent : exponents) values.push_back(std::ldexp(1.0, exponent));
  return values;
}

/// `call` throws a ScalerError of this kind that names, in its fields and its message, the call, the
/// optimizer and the parameter (empty: none).
template <class Call>
void expect_scaler_error(amp::ScalerError::Kind kind, const std::string& name, const std::string& optimizer,
                         const std::string& parameter, const Call& call) {
  try {
    call();
    ADD_FAILURE() << "nothing was thrown; expected an error of " << name;
  } catch (const amp::ScalerError& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    EXPECT_EQ(error.call(), name);
    EXPECT_EQ(error.optimizer(), optimizer);
    EXPECT_EQ(error.parameter(), parameter);
    EXPECT_THAT(error.what(), testing::StartsWith(name));
    EXPECT_THAT(error.what(), testing::HasSubstr(optimizer));
    EXPECT_THAT(error.what(), testing::HasSubstr(parameter));
  }
}

/// As a backward pass would: a gradient that carries S. The second element is finite.
inline void give_gradient(Backend& backend, Parameter& parameter, float value, DType dtype = DType::f32) {
  parameter.gradient = tensor_of(backend, {2}, {value, 1.0f});
  if (dtype != DType::f32) {
    Tensor low = backend.empty({2}, dtype);
    backend.cast(parameter.gradient, low);
    parameter.gradient = low;
  }
  parameter.has_gradient = true;
}

class ScalerTest : public testing::Test {
 protected:
  explicit ScalerTest(const amp::ScalerOptions& options = {.policy = "dynamic",
                                                           .initial_scale = 65536,
                                                           .growth_interval = 4})
      : scaler(*backend, options, step) {
    first = optim::make_optimizer(*backend, {&a}, {.learning_rate = 0.5, .momentum = 0.9}, 100, 0);
    second = optim::make_optimizer(*backend, {&b}, {.learning_rate = 0.5}, 100, 1);
  }
  void give(Parameter& parameter, float value, DType dtype = DType::f32) {
    give_gradient(*backend, parameter, value, dtype);
  }
  void begin() {
    first->begin_iteration(step);
    second->begin_iteration(step);
  }
  /// One whole iteration of the first optimizer.
  void iterate(float gradient) {
    begin();
    give(a, gradient);
    scaler.unscale(*first);
    scaler.step(*first);
    scaler.update();
  }
  StepState state() { return backend->read_step_state(step); }
  double scale() { return state().scale; }

  static constexpr float infinity = std::numeric_limits<float>::infinity();
  static constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  std::unique_ptr<Backend> backend = hopper_backend();
  Tensor step = backend->make_step_state(StepState{});
  Parameter a{"a.weight", tensor_of(*backend, {2}, {1, 2})};
  Parameter b{"b.weight", tensor_of(*backend, {2}, {3, 4})};
  amp::GradScaler scaler;
  std::unique_ptr<optim::Optimizer> first, second;
};

/// Gradients of S by micro-batches in f16.
class AccumulationTest : public ScalerTest {
 protected:
  AccumulationTest() : ScalerTest({.policy = "dynamic", .initial_scale = 8192, .growth_interval = 4}) {}
  /// sum of w * x in f16: the gradient of w is S * x, infinite where that is 65520 or more.
  void add_micro_batch(float x) {
    Tape tape(*backend);
    const Variable low = ops::cast(tape.parameter(a), DType::f16);
    const Variable product = ops::multiply(low, tape.constant(halves_of(*backend, {2}, {x, 0})));
    tape.backward(ops::sum(ops::cast(product, DType::f32)), scaler.seed());
  }
};

}  // namespace fp16lab::engine::test
