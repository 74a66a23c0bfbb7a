// Dropout, and the bits of 16-bit derivatives.
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "numerics/random/philox.hpp"
#include "tests/engine/autograd/support.hpp"

namespace fp16lab::engine::test {
namespace {

std::vector<float> values_between_one_and_two(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = 1.0f + static_cast<float>(i * 37 % 64) / 64.0f;
  return values;
}

// ---- dropout ------------------------------------------------------------------------------------

class Dropout : public testing::Test {
 protected:
  std::vector<float> mask(std::uint64_t seed, std::uint32_t micro_batch, std::string_view path) {
    tape.set_context({.training = true, .seed = seed, .micro_batch = micro_batch, .step = step});
    const Variable ones = tape.constant(tensor_of(*backend, {4096}, std::vector<float>(4096, 1.0f)));
    return values_of(*backend, ops::dropout(ones, 0.25f, path).tensor());
  }
  std::unique_ptr<Backend> backend = hopper_backend();
  Tape tape{*backend};
  Tensor step = backend->make_step_state(StepState{.iteration = 7});
};

TEST_F(Dropout, KeepsByThePhiloxStreamOfItsPath) {
  const PhiloxStream stream{.seed = 5, .stream = stream_id("block.drop"), .iteration = 7, .micro_batch = 2};
  std::vector<float> expected(4096);
  for (std::size_t i = 0; i < expected.size(); ++i)
    expected[i] = uniform01(stream.word(i)) < 0.75f ? 1.0f / 0.75f : 0.0f;
  EXPECT_EQ(mask(5, 2, "block.drop"), expected);
  EXPECT_EQ(mask(5, 2, "block.drop"), expected) << "call order does not matter";
  EXPECT_NE(mask(6, 2, "block.drop"), expected);
  EXPECT_NE(mask(5, 1, "block.drop"), expected);
  EXPECT_NE(mask(5, 2, "other.drop"), expected);
  StepState next = backend->read_step_state(step);
  ++next.iteration;
  backend->write_step_state(next, step);
  EXPECT_NE(mask(5, 2, "block.drop"), expected);
}

TEST_F(Dropout, BackwardUsesTheMaskOfTheForward) {
  tape.set_context({.training = true, .seed = 1, .step = step});
  const Variable x = tape.input(tensor_of(*backend, {512}, values_between_one_and_two(512)));
  const Variable y = ops::dropout(x, 0.5f, "drop");
  backend->write_step_state(StepState{.iteration = 99}, step);  // the state moves on before the backward pass
  const Variable gradient =
      tape.gradients(std::vector{y}, std::vector{tensor_of(*backend, {512}, std::vector<float>(512, 1.0f))},
                     std::vector{x})
          .front();
  const std::vector<float> values = values_of(*backend, y.tensor()), inputs = values_of(*backend, x.tensor()),
                           slopes = values_of(*backend, gradient.tensor());
  std::size_t kept = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(values[i], inputs[i] * slopes[i]) << i;
    EXPECT_TRUE(slopes[i] == 0.0f || slopes[i] == 2.0f) << i;
    kept += slopes[i] != 0.0f ? 1 : 0;
  }
  // Binomial(512, 1/2): six standard deviations are 6 * sqrt(128) = 68.
  EXPECT_NEAR(static_cast<double>(kept), 256, 68);
}

TEST_F(Dropout, IsTheIdentityOutsideTraining) {
  tape.set_context({.training = false, .step = step});
  const Variable x = tape.constant(tensor_of(*backend, {2}, {1, 2}));
  EXPECT_EQ(ops::dropout(x, 0.5f, "drop").id(), x.id());
}

TEST_F(Dropout, RefusesWhatItCannotDo) {
  const Variable x = tape.constant(tensor_of(*backend, {2}, {1, 2}));
  for (const float p : {1.0f, -0.5f, std::numeric_limits<float>::quiet_NaN()})
    EXPECT_THROW(ops::dropout(x, p, "drop"), std::invalid_argument) << p;
  tape.set_context({.training = true});
  EXPECT_THROW(ops::dropout(x, 0.5f, "drop"), std::logic_error);
}

// ---- 16 bits ------------------------------------------------------------------------------------

/// The derivative of a 16-bit op is computed in FP32 from the stored 16-bit values and rounded once: the same
/// bits as the twin below, which does that with scalar FP32 arithmetic.
struct HalfCase {
  std::string name;
  std::function<Variable(const Variable&)> function;
  std::function<float(float g, float x, float y, Backend& backend)> derivative;
};

/// One FP32 function of the back end on one number.
float unary_of(Backend& backend, UnaryOp op, float x) {
  Tensor value = tensor_of(backend, {1}, {x});
  backend.unary(op, value, value);
  return values_of(backend, value)[0];
}

std::vector<HalfCase> half_cases() {
  using B = Backend&;
  return {
      {"exp", [](const Variable& x) { return ops::exp(x); },
       [](float g, float, float y, B) { return g * y; }},
      {"log", [](const Variable& x) { return ops::log(x); },
       [](float g, float x, float, B) { return g / x; }},
      {"log1p", [](const Variable& x) { return ops::log1p(x); },
       [](float g, float x, float, B) { return g / (x + 1.0f); }},
      {"square_root", [](const Variable& x) { return ops::square_root(x); },
       [](float g, float, float y, B) { return g / (2.0f * y); }},
      {"reciprocal_square_root", [](const Variable& x) { return ops::reciprocal_square_root(x); },
       [](float g, float x, float y, B) { return -0.5f * (g * (y / x)); }},
      {"sigmoid", [](const Variable& x) { return ops::sigmoid(x); },
       [](float g, float, float y, B) { return g * (y * (1.0f - y)); }},
      {"tanh", [](const Variable& x) { return ops::tanh(x); },
       [](float g, float, float y, B) { return g * ((1.0f - y) * (1.0f + y)); }},
      {"erf", [](const Variable& x) { return ops::erf(x); },
       [](float g, float x, float, B on) {
         return g * (unary_of(on, UnaryOp::exp, -(x * x)) * 1.12837916709551257390f);
       }},
      {"gelu", [](const Variable& x) { return ops::gelu(x); },
       [](float g, float x, float, B on) {
         const float distribution = 0.5f * (1.0f + unary_of(on, UnaryOp::erf, x * 0.70710678118654752440f));
         const float density = unary_of(on, UnaryOp::exp, -0.5f * (x * x)) * 0.39894228040143267794f;
         return g * (distribution + x * density);
       }},
      {"absolute", [](const Variable& x) { return ops::absolute(x); },
       [](float g, float x, float, B) { return x > 0 ? g : -g; }},
      {"quotient_denominator",
       [](const Variable& x) {
         return ops::divide(x.tape().constant(halves_of(x.tape().backend(), {1}, {3.0f})), x);
       },
       [](float g, float x, float y, B) { return -((g * y) / x); }},
  };
}

class HalfGradient : public testing::TestWithParam<HalfCase> {};

TEST_P(HalfGradient, IsComputedInFp32AndRoundedOnce) {
  const auto backend = hopper_backend();
  Tape tape(*backend);
  constexpr std::size_t count = 512;
  std::vector<float> inputs(count), seeds(count);
  for (std::size_t i = 0; i < count; ++i) {  // 8 binades of inputs, 16 of seeds, down to FP16's subnormals
    inputs[i] =
        (1.0f + static_cast<float>(i * 37 % 1024) / 1024.0f) * std::ldexp(1.0f, static_cast<int>(i % 8) - 6);
    seeds[i] = (i % 2 == 0 ? 1.0f : -1.0f) * (1.0f + static_cast<float>(i * 101 % 1024) / 1024.0f) *
               std::ldexp(1.0f, static_cast<int>(i % 16) - 14);
  }
  const Shape shape{static_cast<std::int64_t>(count)};
  const Variable x = tape.input(halves_of(*backend, shape, inputs));
  const Variable y = GetParam().function(x);
  ASSERT_EQ(y.dtype(), DType::f16);
  const std::vector<float> ys = values_of(*backend, y.tensor());
  const Variable gradient =
      tape.gradients(std::vector{y}, std::vector{halves_of(*backend, shape, seeds)}, std::vector{x}).front();
  ASSERT_EQ(gradient.dtype(), DType::f16);
  std::vector<float> expected(count);
  for (std::size_t i = 0; i < count; ++i)
    expected[i] = GetParam().derivative(seeds[i], inputs[i], ys[i], *backend);
  EXPECT_EQ(bytes_of(*backend, gradient.tensor()), bytes_of(*backend, halves_of(*backend, shape, expected)));
}

INSTANTIATE_TEST_SUITE_P(Ops, HalfGradient, testing::ValuesIn(half_cases()),
                         [](const testing::TestParamInfo<HalfCase>& half) { return half.param.name; });

TEST(HalfGradientOfABroadcastProduct, RoundsTheSumNotTheTerms) {
  // d/ds sum(s x) with x = (1, 2^-11, 2^-11): the terms summed in FP32 and rounded once.
  const auto backend = hopper_backend();
  Tape tape(*backend);
  const Variable s = tape.input(halves_of(*backend, {}, {1}));
  const Variable x = tape.constant(halves_of(*backend, {3}, {1, 0x1.004p-1f, 0x1.004p-1f}));
  // g x with g = 1 + 2^-10: products with 22 bits, of which FP16 would keep 11.
  const Tensor seed = halves_of(*backend, {3}, {0x1.004p0f, 0x1.004p0f, 0x1.004p0f});
  const Variable gradient =
      tape.gradients(std::vector{ops::multiply(s, x)}, std::vector{seed}, std::vector{s}).front();
  const float exact = 0x1.004p0f * (1.0f + 0x1.004p-1f + 0x1.004p-1f);
  EXPECT_EQ(bytes_of(*backend, gradient.tensor()), bytes_of(*backend, halves_of(*backend, {}, {exact})));
}

TEST(HalfMaxGradient, CountsTiesInFp32) {
  // 4097 equal maxima: FP16 counts to 2048 only.
  const auto backend = hopper_backend();
  Tape tape(*backend);
  const Variable x = tape.input(halves_of(*backend, {4097}, std::vector<float>(4097, 1.0f)));
  const Variable gradient = tape.gradients(std::vector{ops::max(x)}, {}, std::vector{x}).front();
  EXPECT_EQ(bytes_of(*backend, gradient.tensor()),
            bytes_of(*backend, halves_of(*backend, {4097}, std::vector<float>(4097, 1.0f / 4097.0f))));
}

}  // namespace
}  // namespace fp16lab::engine::test
