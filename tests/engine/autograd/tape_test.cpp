// Lifetimes, errors, modes and observation of the tape.
#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "engine/autograd/counting.hpp"
#include "tests/engine/autograd/support.hpp"
#include "tests/engine/train/seen_gradients.hpp"

namespace fp16lab::engine::test {
namespace {

using testing::HasSubstr;

class TapeTest : public testing::Test {
 protected:
  Tensor tensor(const Shape& shape, const std::vector<float>& values) {
    return tensor_of(*backend, shape, values);
  }
  template <class Call>
  void expect_error(AutogradError::Kind kind, const std::string& part, const Call& call) {
    try {
      call();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const AutogradError& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      EXPECT_THAT(error.what(), HasSubstr(part));
    }
  }

  std::unique_ptr<Backend> backend = hopper_backend();
  Tape tape{*backend};
  Parameter weight{"fc.weight", tensor({2}, {2, -3})};
};

TEST_F(TapeTest, BackwardAddsToParameterGradients) {
  for (int pass = 1; pass <= 2; ++pass) {
    const Variable w = tape.parameter(weight);
    tape.backward(ops::sum(ops::multiply(w, w)));
    ASSERT_TRUE(weight.has_gradient);
    const auto times = static_cast<float>(pass);
    EXPECT_EQ(values_of(*backend, weight.gradient), (std::vector<float>{4 * times, -6 * times}));
    tape.reset();
  }
  weight.clear_gradient();
  tape.backward(ops::sum(tape.parameter(weight)));
  EXPECT_EQ(values_of(*backend, weight.gradient), (std::vector<float>{1, 1}));
}

TEST_F(TapeTest, ParametersThatShareACotangentOwnTheirGradients) {
  Parameter other{"fc.other", tensor({2}, {1, 1})};
  tape.backward(ops::sum(ops::add(tape.parameter(weight), tape.parameter(other))));
  backend->fill(weight.gradient, 7.0);
  EXPECT_EQ(values_of(*backend, other.gradient), (std::vector<float>{1, 1}));
}

TEST_F(TapeTest, SeedScalesTheGradient) {
  tape.backward(ops::sum(tape.parameter(weight)), tensor({}, {8}));
  EXPECT_EQ(values_of(*backend, weight.gradient), (std::vector<float>{8, 8}));
}

TEST_F(TapeTest, ANonScalarNeedsASeedOfItsShapeAndDtype) {
  const Variable y = ops::scale(tape.parameter(weight), 2.0f);
  expect_error(AutogradError::Kind::missing_seed, "shape (2)", [&] { tape.backward(y); });
  expect_error(AutogradError::Kind::bad_seed, "f32 (3)", [&] { tape.backward(y, tensor({3}, {1, 1, 1})); });
  expect_error(AutogradError::Kind::bad_seed, "f16 (2)", [&] {
    tape.backward(y, halves_of(*backend, {2}, {1, 1}));
  });
  EXPECT_FALSE(weight.has_gradient);
  tape.backward(y, tensor({2}, {1, 10}));
  EXPECT_EQ(values_of(*backend, weight.gradient), (std::vector<float>{2, 20}));
}

TEST_F(TapeTest, ASecondBackwardNeedsRetainGraph) {
  const Variable w = tape.parameter(weight);
  const Variable y = ops::sum(ops::exp(w));
  tape.backward(y, {.retain_graph = true});
  tape.backward(y);
  const auto twice = values_of(*backend, weight.gradient);
  expect_error(AutogradError::Kind::graph_released, "retain_graph", [&] { tape.backward(y); });
  EXPECT_EQ(values_of(*backend, weight.gradient), twice) << "a refused backward must not change gradients";
  EXPECT_EQ(values_of(*backend, y.tensor()).size(), 1u) << "the output's own value stays";
}

TEST_F(TapeTest, BackwardReleasesValuesOnTheWay) {
  const Variable hidden = ops::exp(tape.parameter(weight));
  tape.backward(ops::sum(hidden));
  expect_error(AutogradError::Kind::graph_released, "exp", [&] { (void)hidden.tensor(); });
}

TEST_F(TapeTest, StaleAndForeignVariablesAreRefusedByName) {
  const Variable w = tape.parameter(weight);
  Tape other(*backend);
  const Variable foreign = other.constant(tensor({2}, {1, 1}));
  expect_error(AutogradError::Kind::foreign_variable, "multiply", [&] { ops::multiply(w, foreign); });
  expect_error(AutogradError::Kind::undefined_variable, "add", [&] { ops::add(w, Variable()); });
  tape.reset();
  expect_error(AutogradError::Kind::stale_variable, "exp", [&] { ops::exp(w); });
  expect_error(AutogradError::Kind::stale_variable, "Tape::backward", [&] { tape.backward(w); });
  tape.parameter(weight);  // the same id again, under a new generation
  expect_error(AutogradError::Kind::stale_variable, "relu", [&] { ops::relu(w); });
}

TEST_F(TapeTest, OutputsThatDependOnNothingAreRefused) {
  const Variable x = tape.input(tensor({2}, {1, 2}));
  const Variable c = tape.constant(tensor({2}, {1, 2}));
  expect_error(AutogradError::Kind::no_gradient_path, "parameter", [&] { tape.backward(ops::sum(c)); });
  const Variable y = ops::sum(ops::multiply(x, x));
  const Variable unused = tape.input(tensor({2}, {5, 6}));
  expect_error(AutogradError::Kind::unused_input, "input 1", [&] {
    tape.gradients(std::vector{y}, {}, std::vector{x, unused}, {.retain_graph = true});
  });
  const auto gradients = tape.gradients(std::vector{y}, {}, std::vector{x, unused}, {.allow_unused = true});
  EXPECT_EQ(values_of(*backend, gradients[0].tensor()), (std::vector<float>{2, 4}));
  EXPECT_EQ(values_of(*backend, gradients[1].tensor()), (std::vector<float>{0, 0}));
}

TEST_F(TapeTest, GradientsWithRespectToAnIntermediateAndALeafTogether) {
  const Variable x = tape.input(tensor({2}, {3, 4}));
  const Variable square = ops::multiply(x, x);
  const Variable y = ops::sum(ops::multiply(square, x));
  const auto gradients = tape.gradients(std::vector{y}, {}, std::vector{square, x});
  EXPECT_EQ(values_of(*backend, gradients[0].tensor()), (std::vector<float>{3, 4}));
  EXPECT_EQ(values_of(*backend, gradients[1].tensor()), (std::vector<float>{27, 48}));
}

TEST_F(TapeTest, TemporariesOfABackwardDoNotGrowTheTape) {
  const Variable y = ops::sum(ops::exp(tape.parameter(weight)));
  const std::size_t before = tape.node_count();
  tape.backward(y, {.retain_graph = true});
  EXPECT_EQ(tape.node_count(), before);
}

TEST_F(TapeTest, NoGradModeRecordsConstants) {
  const GradModeGuard off(tape, false);
  EXPECT_FALSE(ops::exp(tape.parameter(weight)).requires_gradient());
}

TEST_F(TapeTest, ShapesThatDoNotFitAreNamed) {
  const Variable a = tape.constant(tensor({2, 3}, std::vector<float>(6, 1.0f)));
  const Variable b = tape.constant(tensor({2, 2}, std::vector<float>(4, 1.0f)));
  const auto message = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  EXPECT_THAT(message([&] { ops::matmul(a, b); }),
              testing::AllOf(HasSubstr("matmul"), HasSubstr("(2, 3)"), HasSubstr("(2, 2)")));
  EXPECT_THAT(message([&] { ops::add(a, b); }), testing::AllOf(HasSubstr("add"), HasSubstr("(2, 3)")));
  EXPECT_THAT(message([&] { ops::linear(a, b, {}); }), HasSubstr("linear"));
  EXPECT_THAT(message([&] { ops::sum(a, 2); }), HasSubstr("no axis 2"));
  EXPECT_THAT(message([&] { ops::reshape(a, {5}); }), HasSubstr("reshape"));
  EXPECT_THAT(message([&] { ops::mse_loss(a, b); }), HasSubstr("mse_loss"));
  const Variable half = ops::cast(b, DType::f16);
  EXPECT_THAT(message([&] { ops::matmul(half, b); }), HasSubstr("differ in dtype"));
}

TEST_F(TapeTest, ACastsBackwardIsACastToTheInputsDtype) {
  const Variable w = tape.parameter(weight);
  const Variable half = ops::cast(w, DType::f16);
  const Variable y = ops::sum(half);
  EXPECT_EQ(y.dtype(), DType::f16);
  const auto gradients = tape.gradients(std::vector{y}, {}, std::vector{half, w});
  EXPECT_EQ(gradients[0].dtype(), DType::f16);
  EXPECT_EQ(gradients[1].dtype(), DType::f32);
}

TEST_F(TapeTest, SixteenBitSumsOverTwoAxesRoundOnce) {
  // 2^11 + 1 + ... : summed row by row in FP16 every row's +1 would be lost to rounding (ulp 2 at 2^11).
  const Variable x = tape.constant(halves_of(*backend, {2, 2, 1}, {2048, 1, 1, 0}));
  EXPECT_EQ(values_of(*backend, ops::sum_to(x, {1, 1}).tensor()), (std::vector<float>{2050}));
}

TEST_F(TapeTest, ASecondBackwardThroughTheReleasedPartOnlyIsRefused) {
  const Variable w = tape.parameter(weight);
  const Variable shared = ops::exp(w);
  const Variable first = ops::sum(shared), second = ops::sum(ops::multiply(shared, shared));
  tape.backward(first);
  expect_error(AutogradError::Kind::graph_released, "retain_graph", [&] { tape.backward(second); });
  tape.backward(ops::sum(ops::multiply(w, w)));  // beside it: leaves keep their values
  EXPECT_TRUE(weight.has_gradient);
}

TEST_F(TapeTest, GradientsReleaseAsBackwardDoes) {
  const Variable x = tape.input(tensor({2}, {1, 2}));
  const Variable y = ops::sum(ops::exp(x));
  tape.gradients(std::vector{y}, {}, std::vector{x}, {.retain_graph = true});
  tape.gradients(std::vector{y}, {}, std::vector{x}, {.create_graph = true});  // implies retain_graph
  tape.gradients(std::vector{y}, {}, std::vector{x});
  expect_error(AutogradError::Kind::graph_released, "Tape::gradients",
               [&] { tape.gradients(std::vector{y}, {}, std::vector{x}); });
}

TEST_F(TapeTest, SeveralOutputsWithSeedsAddUp) {
  const Variable x = tape.input(tensor({2}, {3, 5}));
  const Variable y = ops::multiply(x, x), z = ops::scale(x, 4.0f);
  const std::vector<Tensor> seeds = {tensor({2}, {1, 10}), tensor({2}, {100, 1000})};
  const auto gradients = tape.gradients(std::vector{y, z}, seeds, std::vector{x}, {.retain_graph = true});
  EXPECT_EQ(values_of(*backend, gradients[0].tensor()), (std::vector<float>{6 + 400, 100 + 4000}));
  expect_error(AutogradError::Kind::bad_seed, "1 seeds for 2 outputs", [&] {
    tape.gradients(std::vector{y, z}, std::vector{seeds[0]}, std::vector{x});
  });
  expect_error(AutogradError::Kind::bad_seed, "undefined",
               [&] { tape.gradients(std::vector{y}, std::vector{Tensor()}, std::vector{x}); });
}

TEST_F(TapeTest, TemporariesOfABackwardAreStaleAfterIt) {
  Variable temporary;
  const Variable w = tape.parameter(weight);
  const Variable y = tape.record(Op::custom, w.tensor(), {{w, [&](const Variable& g, const Variable&) {
                                                             temporary = ops::scale(g, 2.0f);
                                                             return temporary;
                                                           }}});
  tape.backward(ops::sum(y));
  ASSERT_TRUE(temporary.defined());
  expect_error(AutogradError::Kind::stale_variable, "temporary of a backward", [&] { ops::relu(temporary); });
  EXPECT_EQ(values_of(*backend, weight.gradient), (std::vector<float>{2, 2}));
}

TEST_F(TapeTest, ABackwardInsideAVjpIsAPassOfItsOwn) {
  const Variable x = tape.input(tensor({2}, {3, 5}));
  const Variable outer = tape.record(
      Op::custom, x.tensor(),
      {{x, [](const Variable& g, const Variable& y) {
          Tape& on = g.tape();
          const GradModeGuard grad(on, true);
          const Variable inner = on.input(y.tensor());
          const Variable square = ops::multiply(inner, inner);
          return ops::multiply(g, on.gradients(std::vector{ops::sum(square)}, {}, std::vector{inner})[0]);
        }}});
  const auto gradients =
      tape.gradients(std::vector{ops::sum(ops::multiply(outer, outer))}, {}, std::vector{x});
  // d/dx (x^2) = 2x, times the custom slope 2x.
  EXPECT_EQ(values_of(*backend, gradients[0].tensor()), (std::vector<float>{36, 100}));
}

TEST_F(TapeTest, AVjpOfTheWrongShapeIsNamed) {
  const Variable x = tape.input(tensor({2}, {3, 5}));
  const ScopeGuard scope(tape, "block");
  const Variable y = tape.record(Op::custom, x.tensor(),
                                 {{x, [](const Variable& g, const Variable&) { return ops::sum(g); }}});
  try {
    tape.gradients(std::vector{y}, std::vector{tensor({2}, {1, 1})}, std::vector{x});
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::logic_error& error) {
    EXPECT_THAT(error.what(),
                testing::AllOf(HasSubstr("custom in block"), HasSubstr("f32 ()"), HasSubstr("f32 (2)")));
  }
}

// ---- observation --------------------------------------------------------------------------------

/// Two linear layers and an MSE loss whose gradient 2 * 0.5 / 4 * S = S/4 is tiny in FP16 for small S.
Variable two_layers(Tape& tape, Parameter& w1, Parameter& b1, Parameter& w2, bool half) {
  Backend& backend = tape.backend();
  const auto as = [&](const Variable& x) { return half ? ops::cast(x, DType::f16) : x; };
  const Variable x = as(tape.constant(tensor_of(backend, {2, 2}, {1, 2, 3, 4})));
  Variable y;
  {
    const ScopeGuard scope(tape, "fc1");
    y = ops::linear(x, as(tape.parameter(w1)), as(tape.parameter(b1)));
  }
  {
    const ScopeGuard scope(tape, "fc2");
    y = ops::linear(ops::relu(y), as(tape.parameter(w2)), {});
  }
  const ScopeGuard scope(tape, "loss");
  return ops::mse_loss(as(y), tape.constant(tensor_of(backend, {2, 2}, {0, 0, 0, 0})));
}

class Observation : public TapeTest {
 protected:
  Parameter w1{"fc1.weight", tensor({3, 2}, {1, 0, 0, 1, 1, 1})};
  Parameter b1{"fc1.bias", tensor({3}, {0.5f, 0.5f, 0.5f})};
  Parameter w2{"fc2.weight", tensor({2, 3}, {1, -1, 1, 0.5f, 1, -0.5f})};
  SeenGradients seen;
};

TEST_F(Observation, NamesKindsAndCountsInFp32) {
  const Variable loss = two_layers(tape, w1, b1, w2, false);
  const CountingGuard counted(tape, seen);
  tape.backward(loss);
  std::map<std::string, std::uint64_t> totals;
  for (const auto& [name, row] : seen.rows) {
    totals[name] = row.probe.before.total();
    EXPECT_EQ(row.dtype, DType::f32) << name;
    EXPECT_EQ(row.probe.before, row.probe.after) << name << ": nothing is rounded in FP32";
    EXPECT_EQ(row.times, 1) << name;
    EXPECT_EQ(row.kind == GradientKind::weight, name.ends_with("weight") || name.ends_with("bias")) << name;
  }
  // fc1.input is the data: it needs no gradient, so none is computed and none is shown.
  EXPECT_EQ(
      totals,
      (std::map<std::string, std::uint64_t>{
          {"fc1.weight", 6}, {"fc1.bias", 3}, {"fc2.weight", 6}, {"fc2.input", 6}, {"loss.prediction", 4}}));
}

TEST_F(Observation, LossPredictionCountsWhatTheCastLoses) {
  Variable prediction;
  Tensor scale = tensor({}, {0x1p-24f});
  const Variable loss = [&] {
    const Variable x = ops::cast(tape.constant(tensor({2, 2}, {1, 1, 1, 1})), DType::f16);
    const Variable w =
        ops::cast(tape.parameter(w2), DType::f16);  // (2, 3): used transposed, so x is (2, 2) * (2, 3)
    const ScopeGuard scope(tape, "loss");
    // An explicit widening of the prediction inside the loss, as autocast does it at O1.
    struct Widen final : CastPolicy {
      DType compute_dtype(OpSite site, std::span<const DType> inputs) override {
        const Op op = site.op;
        return op == Op::mse_loss ? DType::f32 : inputs.front();
      }
      Variable cast(const Variable& input, DType dtype) override { return ops::cast(input, dtype); }
    } policy;
    const Variable y = ops::matmul(x, w);
    const CastPolicyGuard guard(tape, &policy);
    return ops::mse_loss(y, tape.constant(tensor({2, 3}, std::vector<float>(6, 0.0f))));
  }();
  const CountingGuard counted(tape, seen);
  tape.backward(loss, scale);
  // y = (1.5, 0, 0.5) in both rows; dL/dy = 2 y / 6 * 2^-24 = (0.5, 0, 0.167) * 2^-24: both non-zeros are at
  // or below 2^-25 and become zero.
  const SeenGradients::Row& row = seen.rows.at("loss.prediction");
  EXPECT_EQ(row.dtype, DType::f16);
  EXPECT_EQ(row.kind, GradientKind::activation);
  EXPECT_EQ(row.probe.before.zero, 2u);
  EXPECT_EQ(row.probe.before.finite_nonzero(), 4u);
  EXPECT_EQ(row.probe.after.zero, 6u);
}

TEST_F(Observation, ChangesNoBits) {
  two_layers(tape, w1, b1, w2, true);
  tape.backward(two_layers(tape, w1, b1, w2, true));
  const auto unseen = bytes_of(*backend, w1.gradient);
  w1.clear_gradient();
  b1.clear_gradient();
  w2.clear_gradient();
  tape.reset();
  const CountingGuard counted(tape, seen);
  tape.backward(two_layers(tape, w1, b1, w2, true));
  EXPECT_EQ(bytes_of(*backend, w1.gradient), unseen);
  EXPECT_EQ(seen.rows.at("fc2.weight").dtype, DType::f16);
  EXPECT_EQ(seen.rows.at("fc2.weight").probe.before.total(), 6u);
}

}  // namespace
}  // namespace fp16lab::engine::test
