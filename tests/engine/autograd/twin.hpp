// An operation against its naive twin in double precision: the value, the gradient and the second derivative.
//
// The twin is the formula, written in the test with std:: functions. Its derivatives are central differences,
// extrapolated once (Richardson), in double precision: D(h) = (f(x+h) - f(x-h)) / 2h, R = (4 D(h/2) - D(h)) /
// 3 = f' - h^4/480 f^(5) + ... With h = 2^-8, h^4/480 = 5e-13: 1e-8 for fifth derivatives up to 2e4. Rounding
// adds 2^-53 |f| 3/h = 1e-13 |f| to R and 3/h times that to the second derivative: 1e-10 |f|. Both are below
// u = 2^-24 = 6e-8, so what is left between engine and twin are the FP32 roundings of the engine, and the
// tolerances of a case are multiples of u counted along its chain of operations.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <functional>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "tests/engine/autograd/support.hpp"
#include "tests/engine/train/seen_gradients.hpp"

namespace fp16lab::engine::test {

/// `count` multiples of `step` from `low` on, all different for count <= 64, not monotone.
inline std::vector<float> shuffled(std::size_t count, float low, float step, std::size_t seed) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = low + static_cast<float>((i * 37 + seed * 11 + 5) % 64) * step;
  return values;
}

inline std::size_t count_of(const Shape& shape) { return static_cast<std::size_t>(shape.element_count()); }

/// Magnitudes are multiples of 1/64 in [low, low + 1), with signs + - - + - - ...
inline HostTensor with_signs(const Shape& shape, std::size_t seed, float low = 0.5f) {
  HostTensor tensor{shape, shuffled(count_of(shape), low, 0x1p-6f, seed)};
  for (std::size_t i = 0; i < tensor.values.size(); ++i) {
    if (i % 3 != 0) tensor.values[i] = -tensor.values[i];
  }
  return tensor;
}

/// Magnitudes are multiples of 1/4 in [1/2, 5/4], with signs + - - + - - ...: few bits, so that products and
/// sums of some thousand terms are exact in FP32.
inline HostTensor short_numbers(const Shape& shape, std::size_t seed) {
  HostTensor tensor{shape, std::vector<float>(count_of(shape))};
  for (std::size_t i = 0; i < tensor.values.size(); ++i) {
    const float magnitude = 0.5f + static_cast<float>((i * 37 + seed * 11 + i / 5) % 4) * 0.25f;
    tensor.values[i] = i % 3 == 0 ? magnitude : -magnitude;
  }
  return tensor;
}

using Doubles = std::vector<double>;
using Twin = std::function<Doubles(const std::vector<Doubles>&)>;

/// Multiples of u = 2^-24, absolute.
struct TwinTolerance {
  double value = 0;
  double first = 0;
  double second = 0;
};

struct TwinCase {
  std::string name;
  Function function;
  Twin twin;
  std::vector<HostTensor> inputs;
  TwinTolerance tolerance;
};

inline void PrintTo(const TwinCase& test_case, std::ostream* out) { *out << test_case.name; }

namespace twin {

/// The weights of weighted_sum.
inline double weight(std::size_t i) {
  return (i % 2 == 0 ? 1.0 : -1.0) * static_cast<double>(8 + (5 * i + 3) % 9) / 16.0;
}

inline double weighted(const Doubles& y) {
  double sum = 0;
  for (std::size_t i = 0; i < y.size(); ++i) sum += weight(i) * y[i];
  return sum;
}

/// df/dx[which][i]
inline double slope(const std::function<double(const std::vector<Doubles>&)>& f, std::vector<Doubles> x,
                    std::size_t which, std::size_t i) {
  constexpr double h = 0x1p-8;
  const double at = x[which][i];
  const auto difference = [&](double step) {
    x[which][i] = at + step;
    const double above = f(x);
    x[which][i] = at - step;
    return (above - f(x)) / (2 * step);
  };
  return (4 * difference(h / 2) - difference(h)) / 3;
}

inline std::vector<Doubles> gradient(const std::function<double(const std::vector<Doubles>&)>& f,
                                     const std::vector<Doubles>& x) {
  std::vector<Doubles> result(x.size());
  for (std::size_t which = 0; which < x.size(); ++which) {
    for (std::size_t i = 0; i < x[which].size(); ++i) result[which].push_back(slope(f, x, which, i));
  }
  return result;
}

}  // namespace twin

inline std::vector<Variable> inputs_on(Tape& tape, const std::vector<HostTensor>& inputs) {
  std::vector<Variable> variables;
  variables.reserve(inputs.size());
  for (const HostTensor& input : inputs)
    variables.push_back(tape.input(tensor_of(tape.backend(), input.shape, input.values)));
  return variables;
}

inline void expect_gradient_is(Backend& backend, const Function& function,
                               const std::vector<HostTensor>& inputs, const std::vector<Doubles>& expected,
                               double tolerance) {
  Tape tape(backend);
  const std::vector<Variable> variables = inputs_on(tape, inputs);
  const std::vector<Variable> gradients = tape.gradients(
      std::vector{weighted_sum(tape, function(tape, variables))}, {}, variables, {.allow_unused = true});
  for (std::size_t which = 0; which < inputs.size(); ++which) {
    const std::vector<float> gradient = values_of(backend, gradients[which].tensor());
    ASSERT_EQ(gradient.size(), expected[which].size());
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      EXPECT_NEAR(static_cast<double>(gradient[i]), expected[which][i], tolerance)
          << "input " << which << ", element " << i;
    }
  }
}

/// Value, gradient of weighted_sum(function), and gradient of the weighted sum of that gradient.
inline void expect_like_twin(const TwinCase& test_case) {
  constexpr double u = 0x1p-24;
  const auto backend = hopper_backend();
  std::vector<Doubles> x;
  for (const HostTensor& input : test_case.inputs) x.emplace_back(input.values.begin(), input.values.end());
  {
    Tape tape(*backend);
    const Variable y = test_case.function(tape, inputs_on(tape, test_case.inputs));
    const std::vector<float> values = values_of(*backend, y.tensor());
    const Doubles expected = test_case.twin(x);
    ASSERT_EQ(values.size(), expected.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_NEAR(static_cast<double>(values[i]), expected[i], test_case.tolerance.value * u)
          << "element " << i;
    }
  }
  const auto weighted_value = [&](const std::vector<Doubles>& at) {
    return twin::weighted(test_case.twin(at));
  };
  {
    SCOPED_TRACE("first derivative");
    expect_gradient_is(*backend, test_case.function, test_case.inputs, twin::gradient(weighted_value, x),
                       test_case.tolerance.first * u);
  }
  const auto weighted_gradient = [&](const std::vector<Doubles>& at) {
    double total = 0;
    for (const Doubles& part : twin::gradient(weighted_value, at)) total += twin::weighted(part);
    return total;
  };
  SCOPED_TRACE("second derivative");
  // gradient_function adds the weighted sums of all inputs' gradients, and weighted_sum of that scalar is
  // 11/16 of it.
  const Function once = [&](Tape& tape, const std::vector<Variable>& variables) {
    return ops::divide_constant(gradient_function(test_case.function)(tape, variables),
                                static_cast<float>(twin::weight(0)));
  };
  expect_gradient_is(*backend, once, test_case.inputs, twin::gradient(weighted_gradient, x),
                     test_case.tolerance.second * u);
}

/// Expects std::invalid_argument whose message has every one of `parts`.
template <class Call>
void expect_rejected(const Call& call, const std::vector<std::string>& parts) {
  try {
    call();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::invalid_argument& error) {
    for (const std::string& part : parts) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
          << error.what() << "\nlacks " << part;
    }
  }
}

}  // namespace fp16lab::engine::test
