// Operations that users define: values, first and second derivatives, autocast, and errors that name the op.
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "engine/amp/levels/autocast.hpp"
#include "engine/autograd/custom_op.hpp"
#include "tests/engine/autograd/gradient_checks.hpp"

namespace fp16lab::engine::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// x * sigmoid(x), by composition.
Variable swish(const Variable& x) { return ops::multiply(x, ops::sigmoid(x)); }

/// The same as an op of its own. Its backward is written in operations, so it can be differentiated again:
/// g s + (g x) (s (1 - s)), in the composition's order of operations.
CustomOp swish_op(int* backward_calls = nullptr) {
  return {.name = "swish",
          .forward =
              [](Backend& backend, std::span<const Tensor> inputs) {
                Tensor out = backend.empty(inputs[0].shape(), inputs[0].dtype());
                backend.unary(UnaryOp::sigmoid, inputs[0], out);
                backend.binary(BinaryOp::multiply, inputs[0], out, out);
                return out;
              },
          .backward =
              [backward_calls](const Variable& g, std::span<const Variable> inputs, const Variable&) {
                if (backward_calls != nullptr) ++*backward_calls;
                // One statement an operation: their order is the order of additions in the next derivative.
                const Variable x = inputs[0], s = ops::sigmoid(x);
                const Variable direct = ops::multiply(g, s);
                const Variable through_s = ops::multiply(g, x);
                const Variable one = x.tape().constant(tensor_of(x.tape().backend(), {}, {1.0f}));
                const Variable rest = ops::subtract(one, s);
                const Variable slope = ops::multiply(s, rest);
                const Variable indirect = ops::multiply(through_s, slope);
                return std::vector{ops::add(direct, indirect)};
              },
          .autocast_dtype = {}};
}

/// a * b with a gradient for a only.
CustomOp scaled_by_data() {
  return {.name = "scaled_by_data",
          .forward =
              [](Backend& backend, std::span<const Tensor> inputs) {
                Tensor out = backend.empty(inputs[0].shape(), inputs[0].dtype());
                backend.binary(BinaryOp::multiply, inputs[0], inputs[1], out);
                return out;
              },
          .backward =
              [](const Variable& g, std::span<const Variable> inputs, const Variable&) {
                return std::vector{ops::multiply(g, inputs[1]), Variable()};
              },
          .autocast_dtype = {}};
}

class CustomOpTest : public testing::Test {
 protected:
  Tensor inputs() {
    std::vector<float> values(64);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = (static_cast<float>(i * 37 % 64) - 31.5f) / 8.0f;
    return tensor_of(*backend, {64}, values);
  }
  template <class Error = std::logic_error>
  std::string message(const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing was thrown";
  }

  std::unique_ptr<Backend> backend = hopper_backend();
  Tape tape{*backend};
};

TEST_F(CustomOpTest, EqualsTheCompositionBitForBitUpToTheSecondDerivative) {
  const auto derivatives = [&](const std::function<Variable(const Variable&)>& function) {
    const Variable x = tape.input(inputs());
    const Variable y = function(x);
    const Variable first =
        tape.gradients(std::vector{ops::sum(y)}, {}, std::vector{x}, {.create_graph = true}).front();
    const Variable second =
        tape.gradients(std::vector{ops::sum(first)}, {}, std::vector{x}, {.retain_graph = true}).front();
    return std::vector{bytes_of(*backend, y.tensor()), bytes_of(*backend, first.tensor()),
                       bytes_of(*backend, second.tensor())};
  };
  const auto composed = derivatives(swish);
  const auto own = derivatives([](const Variable& x) { return ops::custom(swish_op(), std::vector{x}); });
  EXPECT_EQ(own[0], composed[0]);
  EXPECT_EQ(own[1], composed[1]);
  EXPECT_EQ(own[2], composed[2]);
}

TEST_F(CustomOpTest, ItsFirstAndSecondDerivativesEqualFiniteDifferences) {
  const Function function = [](Tape&, const std::vector<Variable>& x) {
    return ops::custom(swish_op(), std::vector{x[0]});
  };
  const std::vector<HostTensor> at = {{{2, 3}, {0.5f, -1.0f, 1.25f, -0.75f, 1.5f, -1.5f}}};
  // |x sigmoid|^(n) <= |x| |s^(n)| + n |s^(n-1)| with |s^(n)| <= n! 1.1 / 2^n (Cauchy on a circle of radius
  // 2, |1 + e^-z| >= sin 2 there), |x| < 1.6: n = 5: 1.6 * 4.2 + 5 * 1.7 = 16; n = 6: 1.6 * 12.4 + 6 * 4.2 =
  // 45.
  expect_gradients(*backend, function, at, {.magnitude = 48, .roundings = 32, .fifth = 16});
  expect_gradients(*backend, gradient_function(function), at,
                   {.magnitude = 96, .roundings = 96, .fifth = 45});
  GradientChecks checks;
  checks.add(
      [](Tape&, const std::vector<Variable>& x) {
        CustomOp in_f32 = swish_op();
        in_f32.autocast_dtype = DType::f32;
        return ops::custom(in_f32, x);
      },
      at);
  checks.expect_all_of(CheckedIn::custom_op);
}

TEST_F(CustomOpTest, UnderAutocastWithoutADtypeItIsRefusedByName) {
  amp::Autocast o1{tape, {.level = amp::Level::O1}};
  const Variable x = tape.input(inputs());
  const amp::AutocastGuard guard(tape, o1);
  try {
    ops::custom(swish_op(), std::vector{x});
    ADD_FAILURE() << "nothing was thrown";
  } catch (const AutogradError& error) {
    EXPECT_EQ(error.kind(), AutogradError::Kind::custom_op_under_autocast);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("\"swish\""), HasSubstr("autocast_dtype")));
  }
  const CastPolicyGuard off(tape, nullptr);
  EXPECT_EQ(ops::custom(swish_op(), std::vector{x}).dtype(), DType::f32);
}

TEST_F(CustomOpTest, UnderAutocastWithADtypeItsInputsAreCast) {
  amp::Autocast o1{tape, {.level = amp::Level::O1}};
  Parameter weight{"w", inputs()};
  CustomOp op = scaled_by_data();
  for (const DType dtype : {DType::f16, DType::f32}) {
    op.autocast_dtype = dtype;
    const amp::AutocastGuard guard(tape, o1);
    const Variable half = tape.constant(halves_of(*backend, {64}, std::vector<float>(64, 0.5f)));
    const Variable y = ops::custom(op, std::vector{tape.parameter(weight), half});
    EXPECT_EQ(y.dtype(), dtype);
    tape.backward(ops::sum(y));  // runs without autocast, in the recorded dtypes
    EXPECT_EQ(values_of(*backend, weight.gradient), std::vector<float>(64, 0.5f));
    weight.clear_gradient();
  }
  EXPECT_EQ(o1.cache_size(), 0u);
  op.autocast_dtype = DType::i32;
  const amp::AutocastGuard guard(tape, o1);
  EXPECT_THAT(message<std::invalid_argument>([&] { ops::custom(op, std::vector{tape.parameter(weight)}); }),
              HasSubstr("f32, f16 or bf16"));
}

TEST_F(CustomOpTest, AnInputWithoutAGradientIsLeftOut) {
  const Variable a = tape.input(inputs()), b = tape.input(inputs());
  const auto gradients =
      tape.gradients(std::vector{ops::sum(ops::custom(scaled_by_data(), std::vector{a, b}))}, {},
                     std::vector{a, b}, {.allow_unused = true});
  EXPECT_EQ(bytes_of(*backend, gradients[0].tensor()), bytes_of(*backend, inputs()));
  EXPECT_EQ(values_of(*backend, gradients[1].tensor()), std::vector<float>(64, 0.0f));
  // An index is data as well.
  const CustomOp rows{
      .name = "rows",
      .forward =
          [](Backend& on, std::span<const Tensor> in) {
            Tensor out = on.empty({in[1].element_count(), in[0].shape()[1]}, in[0].dtype());
            on.gather_rows(in[0], in[1], out);
            return out;
          },
      .backward =
          [](const Variable& g, std::span<const Variable> in, const Variable&) {
            return std::vector{ops::scatter_rows(g, in[1].tensor(), in[0].shape()[0]), Variable()};
          },
      .autocast_dtype = DType::f16};
  amp::Autocast o1{tape, {.level = amp::Level::O1}};
  const amp::AutocastGuard guard(tape, o1);
  const Variable table = tape.input(tensor_of(*backend, {3, 1}, {1, 2, 3}));
  const Variable index = tape.constant(index_of(*backend, {2, 2, 0}));
  const Variable y = ops::custom(rows, std::vector{table, index});
  EXPECT_EQ(y.dtype(), DType::f16);
  EXPECT_EQ(values_of(*backend, y.tensor()), (std::vector<float>{3, 3, 1}));
  const Variable gradient = tape.gradients(std::vector{ops::sum(y)}, {}, std::vector{table}).front();
  EXPECT_EQ(values_of(*backend, gradient.tensor()), (std::vector<float>{1, 0, 2}));
}

TEST_F(CustomOpTest, BackwardIsCalledOnceForAllInputs) {
  int calls = 0;
  CustomOp op = scaled_by_data();
  op.backward = [&calls](const Variable& g, std::span<const Variable> in, const Variable&) {
    ++calls;
    return std::vector{ops::multiply(g, in[1]), ops::multiply(g, in[0])};
  };
  const Variable a = tape.input(inputs()), b = tape.input(inputs());
  const Variable y = ops::sum(ops::custom(op, std::vector{a, b}));
  for (int pass = 1; pass <= 3; ++pass) {
    const auto gradients = tape.gradients(std::vector{y}, {}, std::vector{a, b}, {.retain_graph = true});
    EXPECT_EQ(calls, pass) << "and again in the next pass";
    EXPECT_EQ(bytes_of(*backend, gradients[1].tensor()), bytes_of(*backend, inputs()));
  }
}

TEST_F(CustomOpTest, AWrongBackwardIsNamed) {
  const Variable x = tape.input(inputs());
  const auto failure = [&](const std::function<std::vector<Variable>(const Variable&)>& backward) {
    CustomOp op = swish_op();
    op.backward = [backward](const Variable& g, std::span<const Variable>, const Variable&) {
      return backward(g);
    };
    const Variable y = ops::sum(ops::custom(op, std::vector{x}));
    return message([&] { tape.gradients(std::vector{y}, {}, std::vector{x}); });
  };
  EXPECT_THAT(failure([](const Variable& g) {
                return std::vector{g, g};
              }),
              AllOf(HasSubstr("\"swish\""), HasSubstr("2 gradients for 1 inputs")));
  EXPECT_THAT(failure([](const Variable&) { return std::vector<Variable>(); }),
              HasSubstr("0 gradients for 1 inputs"));
  EXPECT_THAT(
      failure([](const Variable& g) {
        return std::vector{ops::reshape(g, {8, 8})};
      }),
      AllOf(HasSubstr("\"swish\""), HasSubstr("f32 (8, 8)"), HasSubstr("input 0"), HasSubstr("f32 (64)")));
  EXPECT_THAT(failure([](const Variable& g) { return std::vector{ops::cast(g, DType::f16)}; }),
              AllOf(HasSubstr("f16 (64)"), HasSubstr("f32 (64)")));
}

TEST_F(CustomOpTest, AWrongForwardOrCallIsNamed) {
  const Variable x = tape.input(inputs());
  CustomOp op = swish_op();
  EXPECT_THAT(message<std::invalid_argument>([&] { ops::custom(op, {}); }), HasSubstr("at least one input"));
  EXPECT_THAT(message<AutogradError>([&] { ops::custom(op, std::vector{Variable()}); }),
              AllOf(HasSubstr("\"swish\""), HasSubstr("undefined")));
  Tape other(*backend);
  EXPECT_THAT(message<AutogradError>([&] {
                ops::custom(op, std::vector{x, other.constant(inputs())});
              }),
              AllOf(HasSubstr("\"swish\""), HasSubstr("different tapes")));
  op.forward = [](Backend&, std::span<const Tensor>) { return Tensor(); };
  EXPECT_THAT(message([&] { ops::custom(op, std::vector{x}); }),
              HasSubstr("forward gave an undefined tensor"));
  op.forward = nullptr;
  EXPECT_THAT(message<std::invalid_argument>([&] { ops::custom(op, std::vector{x}); }),
              HasSubstr("needs a forward"));
}

}  // namespace
}  // namespace fp16lab::engine::test
