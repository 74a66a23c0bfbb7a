// amp.rounding = "stochastic_gradients": backward passes round to 16 bits by chance, by Philox words of the
// rounding's place.
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "engine/amp/levels/level.hpp"
#include "tests/engine/autograd/support.hpp"
#include "tests/engine/train/training_run.hpp"
#include "tests/support/message_of.hpp"

namespace fp16lab::engine::test::stochastic_gradients_test {
namespace {

using amp::LowRounding;
using testing::HasSubstr;
using testing_support::message_of;
using Values = std::vector<float>;

constexpr std::uint64_t seed = 9;
constexpr std::uint32_t iteration = 5, micro_batch = 2;

/// The place called `name` rounds values that FP16 holds no closer than between two neighbours: away from
/// zero where the 16 random bits, as a number below 1, reach 1 - p; p is how far the value is from the
/// neighbour towards zero, in units of their distance, cut to 16 bits.
Values by_chance(const Values& values, const std::string& name) {
  const PhiloxStream stream{
      .seed = seed, .stream = stream_id(name), .iteration = iteration, .micro_batch = micro_batch};
  Values results;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint32_t word = stream.word(i / 2), random = i % 2 == 0 ? word & 0xffffu : word >> 16;
    const double magnitude = std::fabs(static_cast<double>(values[i]));
    const double unit = magnitude == 0 ? 1 : std::ldexp(1.0, std::max(std::ilogb(magnitude), -14) - 10);
    const double below = std::floor(magnitude / unit);
    const double share = std::floor((magnitude / unit - below) * 65536);
    const double rounded = (below + (random + share >= 65536 ? 1 : 0)) * unit;
    results.push_back(static_cast<float>(std::copysign(rounded, static_cast<double>(values[i]))));
  }
  return results;
}

class StochasticGradients : public testing::Test {
 protected:
  StochasticGradients() {
    StepState state;
    state.iteration = iteration;
    step = backend->make_step_state(state);
    on(tape);
  }
  void on(Tape& other, bool stochastic = true) {
    other.set_context({.training = true,
                       .seed = seed,
                       .micro_batch = micro_batch,
                       .step = step,
                       .stochastic_gradients = stochastic});
  }
  Values numbers(std::int64_t count, float unit) {
    Values values;
    for (std::int64_t i = 0; i < count; ++i)
      values.push_back(static_cast<float>((i * i * 7 + i * 3) % 201 - 100) * unit);
    return values;
  }
  /// d(y . g)/dx
  Values gradient(const Variable& y, const Values& g, const Variable& x) {
    Tensor given = backend->empty(y.shape(), y.dtype());
    backend->cast(tensor_of(*backend, y.shape(), g), given);
    const std::array outs{y}, wanted{x};
    const std::array seeds{given};
    return values_of(*backend, y.tape().gradients(outs, seeds, wanted, {.retain_graph = true})[0].tensor());
  }
  /// The product of two 16-bit tensors in FP32.
  Values wide_product(const Tensor& a, const Tensor& b, const Shape& shape, bool transpose_a) {
    Tensor out = backend->empty(shape, DType::f32);
    backend->gemm({.a = a, .b = b, .out = out, .transpose_a = transpose_a});
    return values_of(*backend, out);
  }

  std::unique_ptr<Backend> backend = hopper_backend();
  Tensor step;
  Tape tape{*backend};
};

TEST_F(StochasticGradients, ACastBackTakesTheWordsOfItsPlace) {
  const Values g = numbers(1003, 0x1.23p-12f);
  for (const std::string scope : {"", "fc1", "h0.attn"}) {
    SCOPED_TRACE(scope);
    tape.reset();
    const Variable x = tape.input(halves_of(*backend, {1003}, Values(1003, 1.0f)));
    Variable first, second;
    if (scope.empty()) {
      first = ops::cast(x, DType::f32), second = ops::cast(x, DType::f32);
    } else {
      const ScopeGuard inside(tape, scope);
      first = ops::cast(x, DType::f32), second = ops::cast(x, DType::f32);
    }
    const std::string place = scope + (scope.empty() ? "cast." : ".cast.");
    EXPECT_EQ(gradient(first, g, x), by_chance(g, place + "0.0.0/gradient"));
    EXPECT_EQ(gradient(second, g, x), by_chance(g, place + "1.0.0/gradient")) << "the second of its kind";
    EXPECT_NE(gradient(first, g, x), gradient(second, g, x));
  }
}

TEST_F(StochasticGradients, WhatHalfASubnormalWouldLoseSurvivesOnAverage) {
  constexpr std::size_t n = 100003;
  const Values small(n, 0x1p-26f);  // a quarter of FP16's smallest number
  const auto mean = [&](bool stochastic) {
    Tape own(*backend);
    on(own, stochastic);
    const Variable x = own.input(halves_of(*backend, {n}, Values(n, 1.0f)));
    double sum = 0;
    for (const float value : gradient(ops::cast(x, DType::f32), small, x)) {
      EXPECT_TRUE(value == 0.0f || value == 0x1p-24f) << value;
      sum += static_cast<double>(value);
    }
    return sum / n / 0x1p-26;
  };
  EXPECT_EQ(mean(false), 0.0);
  // Each becomes four times itself with probability 1/4: five deviations of the mean of n.
  EXPECT_NEAR(mean(true), 1.0, 5 * 4 * std::sqrt(0.25 * 0.75 / n));
}

TEST_F(StochasticGradients, ProductsSumInFp32AndRoundOnce) {
  constexpr std::int64_t rows = 6, inputs = 9, outputs = 5;
  const Variable x = tape.input(halves_of(*backend, {rows, inputs}, numbers(rows * inputs, 0x1.1p-10f))),
                 w = tape.input(halves_of(*backend, {outputs, inputs}, numbers(outputs * inputs, 0x1p-5f))),
                 b = tape.input(halves_of(*backend, {outputs}, numbers(outputs, 1.0f)));
  const Values forward_values = values_of(*backend, ops::linear(x, w, b).tensor());
  const Variable y = ops::linear(x, w, b);
  EXPECT_EQ(values_of(*backend, y.tensor()), forward_values) << "forward passes round to nearest";
  const Values g = numbers(rows * outputs, 0x1.7p-13f);
  const Tensor given = halves_of(*backend, {rows, outputs}, g);
  EXPECT_EQ(gradient(y, g, x),
            by_chance(wide_product(given, w.tensor(), {rows, inputs}, false), "linear.1.0.0/gradient"));
  EXPECT_EQ(gradient(y, g, w),
            by_chance(wide_product(given, x.tensor(), {outputs, inputs}, true), "linear.1.1.0/gradient"));
  Tensor sums = backend->empty({outputs}, DType::f32);
  backend->reduce(ReduceOp::sum, widened(*backend, given), 0, sums);
  EXPECT_EQ(gradient(y, g, b), by_chance(values_of(*backend, sums), "linear.1.2.0/gradient"));
}

TEST_F(StochasticGradients, ElementwiseVerbsAreComputedInFp32) {
  const Values g = numbers(300, 0x1.3p-14f);
  const Variable x = tape.input(halves_of(*backend, {300}, numbers(300, 0x1p-7f)));
  const Variable y = ops::scale(x, 0.3f);
  const Values given = values_of(*backend, halves_of(*backend, {300}, g));
  Values products;
  for (const float value : given) products.push_back(value * 0.3f);
  EXPECT_EQ(gradient(y, g, x), by_chance(products, "scale.0.0.0/gradient"));
}

/// Gates' gradients of less than half of FP16's smallest number, in two steps of which the first one's come
/// through the second's: on average they are those of FP32, in which this h and c differ by 2^-11 at most.
TEST_F(StochasticGradients, AnLstmLosesNothingOnAverage) {
  const Values products{0.5f, -0.25f, 1.0f, 0.75f, -0.5f, 1.5f, 0.25f, 1.0f},
      weight{0.5f, -1.0f, 0.75f, 0.25f};
  const auto gradients = [&](DType dtype, bool stochastic, std::uint32_t which) {
    Tape own(*backend);
    own.set_context({.training = true,
                     .seed = seed,
                     .micro_batch = which,
                     .step = step,
                     .stochastic_gradients = stochastic});
    const auto given = [&](const Shape& shape, const Values& values) {
      return own.input(dtype == DType::f16 ? halves_of(*backend, shape, values)
                                           : tensor_of(*backend, shape, values));
    };
    const Variable x = given({2, 4}, products);
    const Variable y = ops::lstm(x, given({4, 1}, weight), given({4}, Values(4, 0.0f)), 2,
                                 {.hidden = "hh", .gates = "gates", .cell = "cell"});
    return gradient(y, {0x1p-23f, 0x1p-22f}, x);
  };
  constexpr int passes = 4000;
  const Values expected = gradients(DType::f32, false, 0), nearest = gradients(DType::f16, false, 0);
  std::array<double, 8> sums{};
  for (std::uint32_t pass = 0; pass < passes; ++pass) {
    const Values one = gradients(DType::f16, true, pass);
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += static_cast<double>(one[i]);
  }
  bool lost = false;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    // A value between 0 and 2^-24, of h's gradient, c's and its own rounding: deviations of one at most.
    EXPECT_NEAR(sums[i] / passes, static_cast<double>(expected[i]), 5 * 0x1p-24 / std::sqrt(passes)) << i;
    lost |= std::fabs(static_cast<double>(nearest[i] - expected[i])) > 0.2 * 0x1p-24;
  }
  EXPECT_TRUE(lost) << "to nearest";
}

// ---- training ---------------------------------------------------------------------------------------

/// Looks at every gradient, or at none.
struct Looking final : Tap {
  explicit Looking(bool looks) : looks_(looks) {}
  bool wants(const Site& site) override { return looks_ && site.what == What::gradients; }
  void see(const Event& event) override {
    if (const auto* row = event.as<StepRow>()) hashes.push_back(row->state_hash);
  }
  std::vector<std::uint64_t> hashes;

 private:
  bool looks_;
};

std::vector<std::uint64_t> hashes_of(const AmpOptions& amp, int threads = 1, bool looks = false) {
  RunSetup setup;
  setup.amp = amp;
  TrainingRun parts(setup);  // its data
  const auto backend = hopper_backend(threads);
  Workload workload;
  workload.model = std::make_unique<StatefulNet>(*backend);
  workload.training = &parts.training;
  Looking tap(looks);
  setup.train.evaluate_every = 0;
  Trainer trainer(*backend, workload, setup.train, setup.amp, setup.scaler, setup.optimizer, tap);
  trainer.run();
  return tap.hashes;
}

TEST(StochasticGradientsInTraining, NeitherThreadsNorObserversChangeABit) {
  for (const AmpOptions& amp :
       {AmpOptions{.level = Level::O1, .rounding = LowRounding::stochastic},
        AmpOptions{.level = Level::O1, .dtype = DType::bf16, .rounding = LowRounding::stochastic_gradients},
        AmpOptions{.level = Level::O2, .dialect = amp::Dialect::paddle, .rounding = LowRounding::stochastic},
        AmpOptions{.level = Level::O2,
        .dialect = amp::Dialect::paddle,
        .master_weights = false,
        .rounding = LowRounding::stochastic}}) {
    const std::vector<std::uint64_t> expected = hashes_of(amp);
    ASSERT_EQ(expected.size(), 12u);
    EXPECT_EQ(hashes_of(amp, 2), expected);
    EXPECT_EQ(hashes_of(amp, 1, true), expected) << "looked at";
    AmpOptions nearest = amp;
    nearest.rounding = LowRounding::nearest;
    EXPECT_NE(hashes_of(nearest), expected);
  }
}

TEST(StochasticGradientsInTraining, WeightsAndGradientsAreAskedForApart) {
  const auto with = [](LowRounding rounding) {
    return hashes_of(
        {.level = Level::O2, .dialect = amp::Dialect::paddle, .master_weights = false, .rounding = rounding});
  };
  const std::array runs{with(LowRounding::nearest), with(LowRounding::stochastic),
                        with(LowRounding::stochastic_weights), with(LowRounding::stochastic_gradients)};
  for (std::size_t i = 0; i < runs.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) EXPECT_NE(runs[i], runs[j]) << i << ' ' << j;
}

TEST(StochasticGradientsInTraining, RefusedWhereNothingIsRounded) {
  const auto refusal = [](const AmpOptions& options) { return message_of([&] { amp::resolve(options); }); };
  EXPECT_EQ(
      refusal({.rounding = LowRounding::stochastic}),
      "amp.rounding = \"stochastic\": it is of what is rounded to 16 bits, but at torch's O0 all is FP32; "
      "expected \"nearest\", or another level or dtype");
  EXPECT_THAT(
      refusal({.level = Level::O1, .dtype = DType::tf32, .rounding = LowRounding::stochastic_gradients}),
      HasSubstr("with amp.dtype = \"tf32\" all tensors are FP32"));
  EXPECT_THAT(refusal({.level = Level::O1, .rounding = LowRounding::stochastic_weights}),
              HasSubstr("amp.rounding = \"stochastic_weights\": it rounds updates of 16-bit weights, but at "
                        "torch's O1"));
  EXPECT_NO_THROW(amp::resolve({.to_float = {"fc1=f16"}, .rounding = LowRounding::stochastic}));
}

}  // namespace
}  // namespace fp16lab::engine::test::stochastic_gradients_test
