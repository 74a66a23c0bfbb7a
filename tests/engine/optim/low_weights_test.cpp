// Weights of 16 bits without a master copy: Kahan's sum of their updates, and stochastic rounding.
#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "engine/optim/optimizer.hpp"
#include "engine/train/workload.hpp"
#include "numerics/convert/convert.hpp"
#include "tests/engine/autograd/support.hpp"
#include "tests/support/message_of.hpp"

namespace fp16lab::engine::test {
namespace {

using optim::OptimizerOptions;
using testing::AllOf;
using testing::HasSubstr;
using testing_support::message_of;

class LowWeights : public testing::Test {
 protected:
  using Values = std::vector<float>;

  std::unique_ptr<Parameter> parameter(const std::string& name, DType dtype, const Values& values) {
    const auto count = static_cast<std::int64_t>(values.size());
    Tensor low = backend->empty({count}, dtype);
    backend->cast(tensor_of(*backend, {count}, values), low);
    return std::make_unique<Parameter>(name, low);
  }
  void iterate(optim::Optimizer& optimizer, Parameter& weight, const Values& gradient) {
    optimizer.begin_iteration(step);
    weight.gradient = tensor_of(*backend, weight.value.shape(), gradient);
    weight.has_gradient = true;
    optimizer.apply(step);
  }
  /// What an iteration that skips does.
  void skip(optim::Optimizer& optimizer, Parameter& weight) {
    StepState state = backend->read_step_state(step);
    state.found_inf[0] = 1.0f;
    backend->write_step_state(state, step);
    iterate(optimizer, weight, Values(static_cast<std::size_t>(weight.value.element_count()), 1.0f));
    state = backend->read_step_state(step);
    state.found_inf[0] = 0.0f;
    backend->write_step_state(state, step);
  }

  std::unique_ptr<Backend> backend = hopper_backend();
  Tensor step = backend->make_step_state(StepState{});
};

// ---- Kahan's sum --------------------------------------------------------------------------------

TEST_F(LowWeights, KahanAddsUpWhatRoundingWouldLose) {
  // Below 1 the neighbours in bf16 are 2^-8 apart, in f16 2^-11: each step of 2^-13 is lost, 4096 of them are
  // 1/2. Compensations are multiples of 2^-13 up to 2^-9: exact.
  for (const DType dtype : {DType::f16, DType::bf16})
    for (const bool kahan : {false, true}) {
      const auto weight = parameter("w", dtype, {1.0f});
      const auto optimizer =
          optim::make_optimizer(*backend, {weight.get()}, {.learning_rate = 0x1p-13, .kahan = kahan}, 1);
      for (int i = 0; i < 4096; ++i) iterate(*optimizer, *weight, {1.0f});
      EXPECT_EQ(values_of(*backend, weight->value).front(), kahan ? 0.5f : 1.0f) << name_of(dtype);
    }
}

TEST_F(LowWeights, KahanStaysWithTheExactSumForEveryOptimizer) {
  // The FP32 weights of the same run are the reference: at most 300 roundings of 2^-24, and the gradients are
  // the same. In bf16 a weight in [1/2, 2] is off by 2^-8, its half ulp, at most; a compensation of at most
  // 2^-8 rounds by 2^-17 at most in each of 300 steps: together below 2^-8 + 300 * (2^-17 + 2^-24) < 2^-7.
  // Where decay or LAMB's norm look at the weights, they see others by 2^-8 of them; lr * (decay + 1) * 300
  // of that is another 2^-8 * 300 * 0.0005 * 1.01 < 2^-10. Uncompensated ones do not move or are off by more.
  for (const optim::Algorithm name : every<optim::Algorithm>) {
    const auto low = parameter("low", DType::bf16, {1.0f, -0.75f, 1.5f});
    const auto wide = parameter("wide", DType::f32, {1.0f, -0.75f, 1.5f});
    const auto bare = parameter("bare", DType::bf16, {1.0f, -0.75f, 1.5f});
    OptimizerOptions options{.name = name,
                             .learning_rate = name == optim::Algorithm::rmsprop ? 0.0001 : 0.0005,
                             .weight_decay = 0.01};
    const auto of_wide = optim::make_optimizer(*backend, {wide.get()}, options, 1, 1);
    const auto of_bare = optim::make_optimizer(*backend, {bare.get()}, options, 1, 2);
    options.kahan = true;
    const auto of_low = optim::make_optimizer(*backend, {low.get()}, options, 1, 0);
    backend->write_step_state(StepState{}, step);
    for (int i = 0; i < 300; ++i) {
      const float wave = static_cast<float>(i % 7) / 7.0f;
      const Values gradient{1.0f + wave, -0.5f - wave, 0.25f + 0.5f * wave};
      iterate(*of_low, *low, gradient);
      iterate(*of_wide, *wide, gradient);
      iterate(*of_bare, *bare, gradient);
    }
    const Values summed = values_of(*backend, low->value), exact = values_of(*backend, wide->value),
                 lost = values_of(*backend, bare->value);
    double off = 0, off_bare = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      off = std::max(off, static_cast<double>(std::fabs(summed[i] - exact[i])));
      off_bare = std::max(off_bare, static_cast<double>(std::fabs(lost[i] - exact[i])));
    }
    EXPECT_LE(off, 0x1p-7 + 0x1p-10) << name_of(name);
    EXPECT_GT(off_bare, 2 * off) << name_of(name);
  }
}

TEST_F(LowWeights, CompensationsAreStateAfterTheOthersInTheDtypeOfTheWeight) {
  const auto low = parameter("low", DType::bf16, {1, 2}), wide = parameter("wide", DType::f32, {1, 2});
  const auto optimizer = optim::make_optimizer(*backend, {low.get(), wide.get()},
                                               {.name = optim::Algorithm::adam, .kahan = true}, 1);
  std::vector<std::string> names;
  for (const optim::NamedTensor& state : optimizer->state()) names.push_back(state.name);
  EXPECT_EQ(names, (std::vector<std::string>{"low.first_moment", "low.second_moment", "wide.first_moment",
                                             "wide.second_moment", "low.compensation"}));
  EXPECT_EQ(optimizer->state().back().tensor.dtype(), DType::bf16);
  EXPECT_EQ(values_of(*backend, optimizer->state().back().tensor), (Values{0, 0}));
  iterate(*optimizer, *low, {1, 1});
  const auto before = bytes_of(*backend, optimizer->state().back().tensor);
  skip(*optimizer, *low);
  EXPECT_EQ(bytes_of(*backend, optimizer->state().back().tensor), before);
}

// ---- stochastic rounding ------------------------------------------------------------------------

TEST_F(LowWeights, StochasticRoundingFollowsTheStreamOfNameAndIteration) {
  const Values start{1.0f, -2.5f, 0.375f, 100.0f, 3e-6f, -7.0f, 0.1f, 0.2f, 0.3f};
  for (const char* const name : {"fc1.weight", "fc2.weight"}) {
    backend->write_step_state(StepState{}, step);
    const auto weight = parameter(name, DType::f16, start);
    Values w = values_of(*backend, weight->value);
    const auto optimizer = optim::make_optimizer(
        *backend, {weight.get()}, {.learning_rate = 0.001, .stochastic_rounding = true, .seed = 5}, 1);
    EXPECT_TRUE(optimizer->state().empty()) << "nothing is kept";
    for (std::uint32_t iteration = 1; iteration <= 20; ++iteration) {
      if (iteration % 4 == 0) {
        skip(*optimizer, *weight);
        EXPECT_EQ(values_of(*backend, weight->value), w);
        continue;
      }
      const Values gradient(start.size(), 0.1f * static_cast<float>(iteration));
      Values next;
      for (std::size_t i = 0; i < w.size(); ++i) next.push_back(w[i] - 0.001f * gradient[i]);
      std::vector<Float16> rounded(w.size());
      narrow_stochastic<Binary16>(
          next, rounded,
          PhiloxStream{
              .seed = 5, .stream = stream_id(std::string(name) + "/rounding"), .iteration = iteration});
      for (std::size_t i = 0; i < w.size(); ++i) w[i] = widen(rounded[i]);
      iterate(*optimizer, *weight, gradient);
      EXPECT_EQ(values_of(*backend, weight->value), w) << name << ' ' << iteration;
    }
  }
}

TEST_F(LowWeights, StochasticRoundingIsRightOnAverage) {
  // Each of n weights goes from 1 to 1 - 2^-8 (bf16; f16: 2^-11) with probability p = u / ulp, else it stays:
  // the mean is off by at most 5 deviations, ulp * sqrt(p (1 - p) / n), but once in a million seeds; the 16
  // random bits cut p by less than 2^-16.
  constexpr std::size_t n = 100003;
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const double ulp = dtype == DType::bf16 ? 0x1p-8 : 0x1p-11;
    for (const double p : {0.01, 0.3, 0.5, 0.875}) {
      const auto weight = parameter("w", dtype, Values(n, 1.0f));
      const auto optimizer = optim::make_optimizer(*backend, {weight.get()},
                                                   {.learning_rate = 1, .stochastic_rounding = true}, 1);
      iterate(*optimizer, *weight, Values(n, static_cast<float>(p * ulp)));
      double sum = 0;
      for (const float w : values_of(*backend, weight->value)) {
        const auto moved = 1.0 - static_cast<double>(w);
        EXPECT_TRUE(moved == 0.0 || moved == ulp) << moved;
        sum += moved / ulp;
      }
      EXPECT_NEAR(sum / n, p, 5 * std::sqrt(p * (1 - p) / n) + 0x1p-16) << name_of(dtype) << ' ' << p;
    }
  }
}

// ---- where there is nothing of 16 bits ----------------------------------------------------------

TEST_F(LowWeights, Fp32WeightsAreRefusedInOneSentence) {
  const auto wide = parameter("w", DType::f32, {1.0f});
  EXPECT_EQ(message_of([&] { optim::make_optimizer(*backend, {wide.get()}, {.kahan = true}, 1); }),
            "optimizer.kahan = true: every weight is FP32; it is for 16-bit weights without a master copy");
  EXPECT_EQ(
      message_of([&] { optim::make_optimizer(*backend, {wide.get()}, {.stochastic_rounding = true}, 1); }),
      "amp.rounding = \"stochastic\": every weight is FP32; it is for 16-bit weights without a master copy");
  EXPECT_THAT(message_of([&] {
                optim::make_optimizer(*backend, {}, {.kahan = true, .stochastic_rounding = true}, 1);
              }),
              HasSubstr("optimizer.kahan = true with stochastic rounding"));
}

TEST_F(LowWeights, LevelsWithFp32WeightsAreRefusedBeforeARunBegins) {
  const auto refusal = [](const amp::AmpOptions& amp, bool kahan) {
    return message_of([&] { plan_training({.steps = 1}, amp, {.policy = "none"}, {.kahan = kahan}); });
  };
  using amp::Dialect;
  using amp::Level;
  using amp::LowRounding;
  for (const Level level : {Level::O0, Level::O1, Level::O2}) {
    EXPECT_THAT(refusal({.level = level, .dialect = Dialect::paddle}, true),
                AllOf(HasSubstr("optimizer.kahan = true: it sums updates of 16-bit weights"),
                      HasSubstr("of paddle the weights that are updated are FP32")));
    EXPECT_THAT(
        refusal({.level = level, .dialect = Dialect::paddle, .rounding = LowRounding::stochastic_weights},
                false),
        AllOf(HasSubstr("amp.rounding = \"stochastic_weights\": it rounds updates of 16-bit weights"),
              HasSubstr("amp.master_weights = false")));
  }
  const amp::AmpOptions low{.level = Level::O2, .dialect = Dialect::paddle, .master_weights = false};
  amp::AmpOptions stochastic = low;
  stochastic.rounding = LowRounding::stochastic;
  EXPECT_THAT(refusal(stochastic, true),
              HasSubstr("optimizer.kahan = true with amp.rounding = \"stochastic\": both recover what"));
  amp::AmpOptions gradients = low;
  gradients.rounding = LowRounding::stochastic_gradients;
  const TrainingPlan both = plan_training({.steps = 1}, gradients, {.policy = "none"}, {.kahan = true});
  EXPECT_TRUE(both.optimizer.kahan);
  EXPECT_FALSE(both.optimizer.stochastic_rounding);
  const TrainingPlan plan = plan_training({.steps = 1, .seed = 9}, stochastic, {.policy = "none"}, {});
  EXPECT_TRUE(plan.optimizer.stochastic_rounding);
  EXPECT_EQ(plan.optimizer.seed, 9u);
  EXPECT_TRUE(plan_training({.steps = 1}, low, {.policy = "none"}, {.kahan = true}).optimizer.kahan);
}

}  // namespace
}  // namespace fp16lab::engine::test
