// Every operation against finite differences, first and second order, in FP32 (level O0).
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/engine/autograd/gradient_checks.hpp"

namespace fp16lab::engine::test::gradients_test {
namespace {

HostTensor positive(const Shape& shape, std::size_t seed) {
  return {shape, shuffled(count_of(shape), 1.0f, 0x1p-6f, seed)};
}
/// Magnitudes in [1/2, 3/2): no kink of relu or select within a step h = 1/16.
HostTensor both_signs(const Shape& shape, std::size_t seed) { return with_signs(shape, seed); }

/// Magnitudes at most 1/8: on the same side of every both_signs() value, more than two steps away.
HostTensor small(const Shape& shape, std::size_t seed) {
  HostTensor tensor = positive(shape, seed);
  for (float& value : tensor.values) value = value / 8.0f - 0.1875f;
  return tensor;
}

struct OpCase {
  std::string name;
  Function function;
  std::vector<HostTensor> inputs;
  DifferenceBounds first;   ///< for the op itself
  DifferenceBounds second;  ///< for its gradient
};

Tensor fixed_index(Tape& tape) { return index_of(tape.backend(), {2, 0, 3}); }

/// Bounds. Unless a test differs, at most 12 outputs of magnitude <= 4 are summed: magnitude 48. Longest
/// chain of roundings: op, weight, and five folds of TREE (at most 32 elements), 16 with room for an op of
/// two or three steps; the gradient adds a backward pass of the same length: 48. Fifth derivatives:
/// polynomials of degree <= 4 have none; 1/x on [1 - 1/16, 2): 120/x^6 <= 177; log: 24/x^5 <= 34; sqrt:
/// 105/32 x^-4.5 <= 5; exp on |x| <= 25/16: <= 5; each times the weight (<= 1) and the other factor (<= 2).
/// Second order: one derivative more, 720/x^7 <= 1131 for 1/x.
std::vector<OpCase> cases() {
  const DifferenceBounds plain{.magnitude = 48, .roundings = 16, .fifth = 0};
  const DifferenceBounds plain2{.magnitude = 96, .roundings = 48, .fifth = 0};
  const auto with_fifth = [](DifferenceBounds bounds, double fifth) {
    bounds.fifth = fifth;
    return bounds;
  };
  using V = std::vector<Variable>;
  std::vector<OpCase> list;
  const auto add_case = [&](std::string name, Function function, std::vector<HostTensor> inputs,
                            double fifth = 0, double sixth = 0) {
    list.push_back({std::move(name), std::move(function), std::move(inputs), with_fifth(plain, fifth),
                    with_fifth(plain2, sixth)});
  };
  struct Broadcast {
    std::string name;
    Shape a, b;
  };
  const std::vector<Broadcast> broadcasts = {{"equal", {3, 4}, {3, 4}},    {"row", {3, 4}, {4}},
                                             {"column", {3, 4}, {3, 1}},   {"outer", {3, 1}, {1, 4}},
                                             {"scalar", {3, 4}, {}},       {"scalar_first", {}, {3, 4}},
                                             {"rank3", {2, 3, 2}, {3, 1}}, {"middle", {2, 1, 2}, {3, 2}}};
  for (const Broadcast& shape : broadcasts) {
    const auto tag = "_" + shape.name;
    add_case("add" + tag, [](Tape&, const V& x) { return ops::add(x[0], x[1]); },
             {both_signs(shape.a, 1), both_signs(shape.b, 2)});
    add_case("subtract" + tag, [](Tape&, const V& x) { return ops::subtract(x[0], x[1]); },
             {both_signs(shape.a, 1), both_signs(shape.b, 2)});
    add_case("multiply" + tag, [](Tape&, const V& x) { return ops::multiply(x[0], x[1]); },
             {both_signs(shape.a, 1), both_signs(shape.b, 2)});
    // b may be shared by up to 12 outputs, each with |a| < 1.5: 12 * 1.5 * 177; second order twice 12 * 1.5 *
    // 1131.
    add_case(
        "divide" + tag, [](Tape&, const V& x) { return ops::divide(x[0], x[1]); },
        {both_signs(shape.a, 1), positive(shape.b, 2)}, 3200, 41000);
    add_case("select_positive" + tag, [](Tape&, const V& x) { return ops::select_positive(x[0], x[1]); },
             {both_signs(shape.a, 1), both_signs(shape.b, 2)});
  }
  for (const Broadcast& shape : broadcasts) {
    add_case("maximum_" + shape.name, [](Tape&, const V& x) { return ops::maximum(x[0], x[1]); },
             {both_signs(shape.a, 1), small(shape.b, 2)});
    add_case("minimum_" + shape.name, [](Tape&, const V& x) { return ops::minimum(x[0], x[1]); },
             {small(shape.a, 1), both_signs(shape.b, 2)});
  }
  add_case("scale", [](Tape&, const V& x) { return ops::scale(x[0], -1.75f); }, {both_signs({3, 4}, 1)});
  add_case("divide_constant", [](Tape&, const V& x) { return ops::divide_constant(x[0], 3.0f); },
           {both_signs({3, 4}, 1)});
  add_case("negate", [](Tape&, const V& x) { return ops::negate(x[0]); }, {both_signs({3, 4}, 1)});
  add_case("relu", [](Tape&, const V& x) { return ops::relu(x[0]); }, {both_signs({3, 4}, 1)});
  add_case(
      "exp", [](Tape&, const V& x) { return ops::exp(x[0]); }, {both_signs({3, 4}, 1)}, 5, 5);
  add_case(
      "log", [](Tape&, const V& x) { return ops::log(x[0]); }, {positive({3, 4}, 1)}, 34, 180);
  add_case(
      "square_root", [](Tape&, const V& x) { return ops::square_root(x[0]); }, {positive({3, 4}, 1)}, 5, 22);
  // |d^5 log(1+x)| = 24 / (1+x)^5, 120 / (1+x)^6 at 1 + x >= 31/16.
  add_case(
      "log1p", [](Tape&, const V& x) { return ops::log1p(x[0]); }, {positive({3, 4}, 1)}, 1, 3);
  // 945/32 x^-5.5 and 10395/64 x^-6.5 at x >= 15/16.
  add_case(
      "reciprocal_square_root", [](Tape&, const V& x) { return ops::reciprocal_square_root(x[0]); },
      {positive({3, 4}, 1)}, 43, 250);
  add_case("absolute", [](Tape&, const V& x) { return ops::absolute(x[0]); }, {both_signs({3, 4}, 1)});
  add_case("sign", [](Tape&, const V& x) { return ops::multiply(ops::sign(x[0]), x[0]); },
           {both_signs({3, 4}, 1)});
  // Cauchy's estimate |f^(n)| <= n! M / r^n with M a bound of |f| on a circle of radius r around the real
  // point: sigmoid, r = 2: |1 + e^-z| >= sin 2 there, M = 1.1; tanh, r = 1: M = tan 1 = 1.56; gelu_tanh, r =
  // 3/4, |x| < 1.57: |Im u| <= 1.03, |tanh u| <= tan 1.03 = 1.67, M = 2.32 * 2.67 / 2 = 3.1.
  add_case(
      "sigmoid", [](Tape&, const V& x) { return ops::sigmoid(x[0]); }, {both_signs({3, 4}, 1)}, 5, 13);
  add_case(
      "tanh", [](Tape&, const V& x) { return ops::tanh(x[0]); }, {both_signs({3, 4}, 1)}, 188, 1124);
  // Cramer's bound of Hermite polynomials, |H_n(x)| e^(-x^2 / 2) <= 1.0865 sqrt(2^n n!), times 2 / sqrt(pi).
  add_case(
      "erf", [](Tape&, const V& x) { return ops::erf(x[0]); }, {both_signs({3, 4}, 1)}, 24, 76);
  // (x Phi)^(n) = x phi^(n-1) + n phi^(n-2), |phi^(m)| <= 1.0865 sqrt(m! / 2 pi), |x| < 1.57.
  add_case(
      "gelu", [](Tape&, const V& x) { return ops::gelu(x[0]); }, {both_signs({3, 4}, 1)}, 9, 21);
  add_case(
      "gelu_tanh", [](Tape&, const V& x) { return ops::gelu(x[0], ops::GeluKind::tanh); },
      {both_signs({3, 4}, 1)}, 1600, 12600);
  // Their first derivatives are chains of about 12 operations, which differentiation doubles twice.
  for (auto op_case = list.end() - 2; op_case != list.end(); ++op_case) {
    op_case->first.roundings = 48;
    op_case->second.roundings = 192;
  }
  add_case(
      "dropout",
      [](Tape& tape, const V& x) {
        tape.set_context({.training = true, .seed = 3, .step = tape.backend().make_step_state(StepState{})});
        return ops::multiply(ops::dropout(x[0], 0.25f, "drop"), x[0]);
      },
      {both_signs({3, 4}, 1)});
  add_case("watch", [](Tape&, const V& x) { return ops::watch(ops::multiply(x[0], x[0]), SlotLabel::input); },
           {both_signs({3, 4}, 1)});
  // Values, weights and their products have at most 11 bits: FP16 rounds none of them.
  add_case("cast",
           [](Tape&, const V& x) {
             return ops::multiply(ops::cast(ops::cast(x[0], DType::f16), DType::f32), x[0]);
           },
           {both_signs({3, 4}, 1)});
  // Linear maps of a square, so that second derivatives are not zero.
  using Map = std::function<Variable(const Variable&)>;
  const auto add_linear = [&](const std::string& name, const Map& map, const Shape& shape) {
    add_case(name, [map](Tape&, const V& x) { return map(ops::multiply(x[0], x[0])); },
             {both_signs(shape, 1)});
  };
  add_linear("permute", [](const Variable& x) { return ops::permute(x, std::array{2, 0, 1}); }, {2, 3, 2});
  add_linear("transpose", [](const Variable& x) { return ops::transpose(x, 0, -1); }, {2, 3, 2});
  add_linear("slice", [](const Variable& x) { return ops::slice(x, 1, 1, 2); }, {2, 3, 2});
  add_linear("place_slice", [](const Variable& x) { return ops::place_slice(x, 0, 1, 4); }, {2, 3});
  add_linear("sum_axes_apart", [](const Variable& x) { return ops::sum(x, std::array{0, 2}); }, {2, 3, 2});
  add_linear("sum_axes_together_kept",
             [](const Variable& x) {
               return ops::sum(x, std::array{1, 2}, true);
             },
             {2, 3, 2});
  add_linear("mean_axes_apart_kept",
             [](const Variable& x) {
               return ops::mean(x, std::array{-1, 0}, true);
             },
             {2, 3, 2});
  add_linear("mean_axes", [](const Variable& x) { return ops::mean(x, std::array{0, 1}); }, {2, 3, 2});
  add_linear("sum_to_apart", [](const Variable& x) { return ops::sum_to(x, {3, 1}); }, {2, 3, 2});
  add_linear("split",
             [](const Variable& x) {
               const auto [a, b, c] = ops::split<3>(x, 1);
               return ops::add(ops::multiply(a, ops::scale(c, 0.5f)), b);
             },
             {2, 6});
  add_case(
      "concat",
      [](Tape&, const V& x) {
        return ops::concat(std::vector{ops::multiply(x[0], x[0]), ops::multiply(x[1], x[1]), x[0], x[1]}, 1);
      },
      {both_signs({2, 1}, 1), both_signs({2, 2}, 2)});
  add_case("embedding",
           [](Tape& tape, const V& x) {
             return ops::embedding(ops::multiply(x[0], x[0]), index_of(tape.backend(), {2, 0, 2, 3}));
           },
           {both_signs({4, 3}, 1)});
  add_case("scatter_rows",
           [](Tape& tape, const V& x) {
             return ops::scatter_rows(ops::multiply(x[0], x[0]), index_of(tape.backend(), {2, 0, 2}), 4);
           },
           {both_signs({3, 3}, 1)});
  add_case("sum_all", [](Tape&, const V& x) { return ops::sum(x[0]); }, {both_signs({3, 4}, 1)});
  add_case("mean_all", [](Tape&, const V& x) { return ops::mean(x[0]); }, {both_signs({3, 4}, 1)});
  // Elements differ by at least 1/64 after 5 * 37 mod 64 steps; the row maxima lead by more than h (checked
  // below).
  add_case("max_all", [](Tape&, const V& x) { return ops::max(x[0]); },
           {{{2, 3}, {0.5f, -1.0f, 2.0f, 1.0f, 0.25f, -2.0f}}});
  add_case("max_rows", [](Tape&, const V& x) { return ops::max(x[0], 1); },
           {{{2, 3}, {0.5f, -1.0f, 2.0f, 1.0f, 0.25f, -2.0f}}});
  add_case("max_columns_kept", [](Tape&, const V& x) { return ops::max(x[0], 0, true); },
           {{{2, 3}, {0.5f, -1.0f, 2.0f, 1.0f, 0.25f, -2.0f}}});
  for (const int axis : {0, 1, 2, -1}) {
    for (const bool keep : {false, true}) {
      const std::string tag =
          "_axis" + std::string(axis < 0 ? "_last" : std::to_string(axis)) + (keep ? "_kept" : "");
      add_case("sum" + tag, [=](Tape&, const V& x) { return ops::sum(x[0], axis, keep); },
               {both_signs({2, 3, 2}, 1)});
      add_case("mean" + tag, [=](Tape&, const V& x) { return ops::mean(x[0], axis, keep); },
               {both_signs({2, 3, 2}, 1)});
    }
  }
  add_case("reshape",
           [](Tape&, const V& x) {
             return ops::multiply(ops::reshape(x[0], {2, 6}), ops::reshape(x[0], {2, 6}));
           },
           {both_signs({3, 4}, 1)});
  add_case("broadcast_to",
           [](Tape&, const V& x) {
             return ops::broadcast_to(x[0], {2, 3, 2});
           },
           {both_signs({3, 1}, 1)});
  add_case("sum_to", [](Tape&, const V& x) { return ops::sum_to(x[0], {3, 1}); }, {both_signs({2, 3, 2}, 1)});
  add_case("pick",
           [](Tape& tape, const V& x) { return ops::pick(ops::multiply(x[0], x[0]), fixed_index(tape)); },
           {both_signs({3, 4}, 1)});
  add_case("place",
           [](Tape& tape, const V& x) { return ops::place(ops::multiply(x[0], x[0]), fixed_index(tape), 4); },
           {both_signs({3}, 1)});
  for (const bool a : {false, true}) {
    for (const bool b : {false, true}) {
      add_case(std::string("matmul_") + (a ? "T" : "N") + (b ? "T" : "N"),
               [=](Tape&, const V& x) { return ops::matmul(x[0], x[1], {.a = a, .b = b}); },
               {both_signs(a ? Shape{4, 3} : Shape{3, 4}, 1), both_signs(b ? Shape{2, 4} : Shape{4, 2}, 2)});
    }
  }
  add_case("linear", [](Tape&, const V& x) { return ops::linear(x[0], x[1], x[2]); },
           {both_signs({3, 4}, 1), both_signs({2, 4}, 2), both_signs({2}, 3)});
  add_case("linear_without_bias", [](Tape&, const V& x) { return ops::linear(x[0], x[1], {}); },
           {both_signs({3, 4}, 1), both_signs({2, 4}, 2)});
  // Three steps, H = 1, a batch of two. Each of the six h is a composition of sigmoids and tanhs of at most
  // two others, all bounded by 1; by Cauchy's estimate on a circle of radius 1/2 around real arguments, where
  // they are bounded by 1.2, derivatives of order five and six of one are below 5! 2^5 1.2 and 6! 2^6 1.2.
  add_case(
      "lstm",
      [](Tape&, const V& x) {
        return ops::lstm(x[0], x[1], x[2], 3, {.hidden = "hh", .gates = "gates", .cell = "cell"});
      },
      {both_signs({6, 4}, 1), small({4, 1}, 2), both_signs({4}, 3)}, 4608, 55296);
  list.back().first.roundings = 48;
  list.back().second.roundings = 192;
  // Softmax derivatives of any order up to six stay below 20 in magnitude for three or four classes.
  add_case(
      "softmax_cross_entropy",
      [](Tape& tape, const V& x) { return ops::softmax_cross_entropy(x[0], fixed_index(tape)); },
      {both_signs({3, 4}, 1)}, 20, 100);
  add_case("mse_loss", [](Tape&, const V& x) { return ops::mse_loss(x[0], x[1]); },
           {both_signs({3, 4}, 1), both_signs({3, 4}, 2)});
  // Two layers with fixed signs of the hidden units: |bias| = 8 exceeds every |w x| sum (< 3 * 1.5 * 1.5
  // = 6.75).
  const auto network = [](const V& x) {
    const Variable hidden = ops::relu(ops::linear(x[0], x[1], x[2]));
    return ops::linear(ops::scale(hidden, 0.125f), x[3], {});
  };
  const std::vector<HostTensor> network_inputs = {
      both_signs({2, 3}, 1), both_signs({4, 3}, 2), {{4}, {8, -8, 8, 8}}, both_signs({3, 4}, 4)};
  add_case(
      "relu_mlp_cross_entropy",
      [=](Tape& tape, const V& x) {
        return ops::softmax_cross_entropy(network(x), index_of(tape.backend(), {2, 0}));
      },
      network_inputs, 20 * 32, 100 * 32);
  add_case(
      "relu_mlp_mse",
      [=](Tape& tape, const V& x) {
        return ops::mse_loss(network(x),
                             tape.constant(tensor_of(tape.backend(), {2, 3}, {1, 0, -1, 0, 2, 0})));
      },
      network_inputs);
  return list;
}

class GradientOf : public testing::TestWithParam<OpCase> {};

TEST_P(GradientOf, EqualsFiniteDifferences) {
  const auto backend = hopper_backend();
  expect_gradients(*backend, GetParam().function, GetParam().inputs, GetParam().first);
}

TEST_P(GradientOf, IsItselfDifferentiable) {
  const auto backend = hopper_backend();
  expect_gradients(*backend, gradient_function(GetParam().function), GetParam().inputs, GetParam().second);
}

INSTANTIATE_TEST_SUITE_P(Ops, GradientOf, testing::ValuesIn(cases()),
                         [](const testing::TestParamInfo<OpCase>& op_case) { return op_case.param.name; });

TEST(GradientChecks, CoverEveryOpThatNoOtherFileChecks) {
  GradientChecks checks;
  for (const OpCase& one : cases()) checks.add(one.function, one.inputs);
  checks.expect_all_of(CheckedIn::gradients);
}

/// The harness itself must be able to fail: a gradient that is wrong by the factor that a wrong transpose, a
/// forgotten mean or a detached path would give is caught.
TEST(FiniteDifferences, CatchADetachedFactor) {
  const auto backend = hopper_backend();
  const Function wrong = [](Tape&, const std::vector<Variable>& x) {
    return ops::multiply(x[0], ops::detach(x[0]));
  };
  testing::TestPartResultArray failures;
  {
    const testing::ScopedFakeTestPartResultReporter reporter(
        testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &failures);
    expect_gradients(*backend, wrong, {both_signs({3, 4}, 1)}, {.magnitude = 96, .roundings = 48});
  }
  EXPECT_EQ(failures.size(), 12);
}

TEST(MaxGradient, IsSharedAmongEqualMaxima) {
  const auto backend = hopper_backend();
  Tape tape(*backend);
  const Variable x = tape.input(tensor_of(*backend, {4}, {3, 1, 3, -2}));
  const Variable gradient = tape.gradients(std::vector{ops::max(x)}, {}, std::vector{x}).front();
  EXPECT_EQ(values_of(*backend, gradient.tensor()), (std::vector<float>{0.5f, 0, 0.5f, 0}));
}

TEST(MaximumGradient, IsSharedWhereBothAreEqual) {
  const auto backend = hopper_backend();
  const float infinity = std::numeric_limits<float>::infinity();
  Tape tape(*backend);
  const Variable a = tape.input(tensor_of(*backend, {5}, {1, 2, 0x1p-149f, infinity, -0.0f}));
  const Variable b = tape.input(tensor_of(*backend, {5}, {1, 3, 0, infinity, 0}));
  for (const bool maximum : {true, false}) {
    const Variable y = maximum ? ops::maximum(a, b) : ops::minimum(a, b);
    const auto gradients = tape.gradients(std::vector{ops::sum(y)}, {}, std::vector{a, b});
    const std::vector<float> of_greater_a{0.5f, 0, 1, 0.5f, 0.5f}, of_smaller_a{0.5f, 1, 0, 0.5f, 0.5f};
    EXPECT_EQ(values_of(*backend, gradients[0].tensor()), maximum ? of_greater_a : of_smaller_a);
    EXPECT_EQ(values_of(*backend, gradients[1].tensor()), maximum ? of_smaller_a : of_greater_a);
  }
}

TEST(SignGradient, DoesNotExist) {
  const auto backend = hopper_backend();
  Tape tape(*backend);
  const Variable x = tape.input(tensor_of(*backend, {2}, {3, -1}));
  EXPECT_FALSE(ops::sign(x).requires_gradient());
  EXPECT_EQ(values_of(*backend, ops::sign(x).tensor()), (std::vector<float>{1, -1}));
}

TEST(AbsoluteGradient, IsZeroAtZero) {
  const auto backend = hopper_backend();
  Tape tape(*backend);
  const Variable x = tape.input(tensor_of(*backend, {4}, {3, -1, 0, -0.0f}));
  const auto gradients = tape.gradients(std::vector{ops::sum(ops::absolute(x))}, {}, std::vector{x});
  EXPECT_EQ(values_of(*backend, gradients[0].tensor()), (std::vector<float>{1, -1, 0, 0}));
}

TEST(MeanGradient, DividesTheSeedOnce) {
  // div_rn(S, n), not S * (1/n): for S = 5 and n = 49 the two differ in the last bit.
  const auto backend = hopper_backend();
  Tape tape(*backend);
  const Variable x = tape.input(tensor_of(*backend, {49}, std::vector<float>(49, 1.0f)));
  const Tensor seed = tensor_of(*backend, {}, {5.0f});
  const Variable gradient =
      tape.gradients(std::vector{ops::mean(x)}, std::vector{seed}, std::vector{x}).front();
  ASSERT_NE(5.0f / 49.0f, 5.0f * (1.0f / 49.0f));
  EXPECT_EQ(values_of(*backend, gradient.tensor()), std::vector<float>(49, 5.0f / 49.0f));
}

TEST(BroadcastTo, KeepsNegativeZero) {
  const auto backend = hopper_backend();
  Tape tape(*backend);
  const Variable x = tape.constant(tensor_of(*backend, {1}, {-0.0f}));
  for (const float value : values_of(*backend, ops::broadcast_to(x, {3}).tensor()))
    EXPECT_TRUE(std::signbit(value));
}

}  // namespace
}  // namespace fp16lab::engine::test::gradients_test
