// SGD, Adam, RMSprop, LAMB and AdamWeightDecay: their published formulas in FP64 with a bound, and what they
// do at the edges. The bits of every rule are asked in tests/engine/backend/cases/optimizer_cases.cpp.
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "engine/amp/scalers/grad_scaler.hpp"
#include "engine/backend/emulated/emulated_backend.hpp"
#include "engine/optim/optimizer.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"
#include "tests/engine/autograd/support.hpp"

namespace fp16lab::engine::test {
namespace {

using optim::Algorithm;
using optim::OptimizerOptions;
using testing::HasSubstr;

class UpdateRules : public testing::Test {
 protected:
  using Values = std::vector<float>;

  /// Gradients through the whole path (S = 1), one iteration each; the weights after each. An infinite
  /// gradient skips its iteration.
  std::vector<Values> run(const OptimizerOptions& options, const Values& first,
                          const std::vector<Values>& steps, Shape shape = {}) {
    Tensor step = backend->make_step_state(StepState{});
    amp::GradScaler scaler(*backend, {.policy = "none"}, step);
    if (shape.rank() == 0) shape = {static_cast<std::int64_t>(first.size())};
    Parameter weight{"w", tensor_of(*backend, shape, first)};
    const auto optimizer = optim::make_optimizer(*backend, {&weight}, options, steps.size());
    std::vector<Values> weights;
    for (const Values& gradient : steps) {
      optimizer->begin_iteration(step);
      weight.gradient = tensor_of(*backend, shape, gradient);
      weight.has_gradient = true;
      scaler.step(*optimizer);
      scaler.update();
      weights.push_back(values_of(*backend, weight.value));
    }
    return weights;
  }

  std::unique_ptr<Backend> backend = hopper_backend();
  const Values start{1.0f, -0.5f, 2.0f};
  const std::vector<Values> gradients{
      {0.3f, 0.1f, -0.02f}, {-1.25f, 0.4f, 0.03f}, {0.7f, -0.2f, 0.5f}, {0.011f, 0.3f, -0.7f}};
};

// ---- SGD and Adam -------------------------------------------------------------------------------

TEST_F(UpdateRules, SgdIsBitExact) {
  for (const bool nesterov : {false, true})
    for (const float momentum : {0.0f, 0.9f})
      for (const float decay : {0.0f, 0.01f}) {
        if (nesterov && momentum == 0.0f) continue;
        std::vector<Values> expected(gradients.size(), start);
        for (std::size_t i = 0; i < start.size(); ++i) {
          float w = start[i], v = 0.0f;
          for (std::size_t t = 0; t < gradients.size(); ++t) {
            float d = decay == 0.0f ? gradients[t][i] : gradients[t][i] + decay * w;
            if (momentum != 0.0f) {
              v = t == 0 ? d : momentum * v + d;
              d = nesterov ? d + momentum * v : v;
            }
            w = w - 0.1f * d;
            expected[t][i] = w;
          }
        }
        EXPECT_EQ(run({.name = Algorithm::sgd,
                       .learning_rate = 0.1,
                       .momentum = momentum,
                       .nesterov = nesterov,
                       .weight_decay = decay},
                      start, gradients),
                  expected)
            << "momentum " << momentum << " nesterov " << nesterov << " decay " << decay;
      }
}

TEST_F(UpdateRules, AdamFollowsThePaper) {
  // In FP64 from Kingma & Ba, algorithm 1, for the first weight, 1. Each of 4 steps rounds about 12 FP32
  // operations on values whose share of the update is at most lr = 0.1: 4 * 12 * u * 0.1 plus one rounding of
  // w per step (u * 1): below 10 u; u = 2^-24. AdamW adds one product per step.
  for (const bool decoupled : {false, true}) {
    const double decay = 0.05, lr = 0.1, b1 = 0.9f, b2 = 0.999f, epsilon = 1e-8f;
    double w = 1.0, m = 0.0, v = 0.0;
    const auto weights = run(
        {.name = decoupled ? Algorithm::adamw : Algorithm::adam, .learning_rate = lr, .weight_decay = decay},
        start, gradients);
    for (std::size_t t = 0; t < gradients.size(); ++t) {
      const double given = static_cast<double>(gradients[t][0]), g = decoupled ? given : given + decay * w;
      if (decoupled) w -= lr * decay * w;
      m = b1 * m + (1 - b1) * g;
      v = b2 * v + (1 - b2) * g * g;
      const double m_hat = m / (1 - std::pow(b1, static_cast<double>(t + 1)));
      const double v_hat = v / (1 - std::pow(b2, static_cast<double>(t + 1)));
      w -= lr * m_hat / (std::sqrt(v_hat) + epsilon);
      EXPECT_NEAR(static_cast<double>(weights[t][0]), w, 10 * 0x1p-24)
          << "step " << t << (decoupled ? " adamw" : " adam");
    }
  }
}

// ---- RMSprop ------------------------------------------------------------------------------------

TEST_F(UpdateRules, RmspropFollowsItsFormula) {
  // |d| is at most about 1 / sqrt(1 - alpha) = 10, so that a change is at most lr * 10 = 0.1, and with
  // momentum 0.9 at most 0.1 * (1 + 0.9 + 0.81 + 0.73) < 0.35. A d is off by less than 16 u of itself, twice
  // that where s - a * a cancels a little; a step adds 18 * 0.35 u and the rounding of the weight, 2 u at
  // most: four of them less than 40 u. u = 2^-24.
  for (const bool centered : {false, true})
    for (const double momentum : {0.0, 0.9})
      for (const double decay : {0.0, 0.05}) {
        const double lr = 0.01, alpha = static_cast<double>(0.99f), epsilon = 1e-8;
        const double beta = static_cast<double>(static_cast<float>(momentum));
        const auto weights = run({.name = Algorithm::rmsprop,
                                  .learning_rate = lr,
                                  .momentum = momentum,
                                  .weight_decay = decay,
                                  .centered = centered},
                                 start, gradients);
        for (std::size_t i = 0; i < start.size(); ++i) {
          double w = static_cast<double>(start[i]), s = 0, a = 0, b = 0;
          for (std::size_t t = 0; t < gradients.size(); ++t) {
            const double g = static_cast<double>(gradients[t][i]) + decay * w;
            s = alpha * s + (1 - alpha) * g * g;
            a = alpha * a + (1 - alpha) * g;
            const double d = g / (std::sqrt(centered ? s - a * a : s) + epsilon);
            b = beta * b + d;
            w -= lr * (momentum > 0 ? b : d);
            EXPECT_NEAR(static_cast<double>(weights[t][i]), w, 40 * 0x1p-24)
                << "element " << i << " step " << t << (centered ? " centered" : "") << ' ' << momentum;
          }
        }
      }
}

TEST_F(UpdateRules, CenteredRmspropHasNoNaNWhereRoundingMakesTheVarianceNegative) {
  // Equal gradients forever: s -> g^2 and a -> g, and s - a^2 is then rounding alone.
  const std::vector<Values> same(200, Values(3, 0.3f));
  for (const Values& weights :
       run({.name = Algorithm::rmsprop, .learning_rate = 1e-12, .alpha = 0.5, .centered = true}, start, same))
    for (const float w : weights) EXPECT_TRUE(std::isfinite(w));
}

// ---- LAMB ---------------------------------------------------------------------------------------

TEST_F(UpdateRules, LambFollowsThePaper) {
  // You et al., algorithm 2. The change of an element is at most lr |w| < 0.05 * 2.5, off by less than 24 u
  // of itself, and the weight rounds by 2 u: four steps less than 4 * (3 + 2) u = 20 u. u = 2^-24.
  for (const auto& [decay, scale] :
       {std::pair{0.0, 1.0f}, std::pair{0.1, 1.0f}, std::pair{0.0, 1000.0f}, std::pair{0.0, 1e-3f}}) {
    std::vector<Values> scaled = gradients;  // whatever the gradients, the norm of a change is lr |w|
    for (Values& gradient : scaled)
      for (float& g : gradient) g *= scale;
    const double lr = 0.05, b1 = static_cast<double>(0.9f), b2 = static_cast<double>(0.999f), epsilon = 1e-6;
    std::vector<double> w(start.begin(), start.end()), m(start.size()), v(start.size()), r(start.size());
    const auto weights =
        run({.name = Algorithm::lamb, .learning_rate = lr, .weight_decay = decay, .epsilon = epsilon}, start,
            scaled);
    for (std::size_t t = 0; t < gradients.size(); ++t) {
      double of_weights = 0, of_directions = 0;
      for (std::size_t i = 0; i < start.size(); ++i) {
        const auto g = static_cast<double>(scaled[t][i]);
        m[i] = b1 * m[i] + (1 - b1) * g;
        v[i] = b2 * v[i] + (1 - b2) * g * g;
        const double steps = static_cast<double>(t + 1);
        r[i] = m[i] / (1 - std::pow(b1, steps)) / (std::sqrt(v[i] / (1 - std::pow(b2, steps))) + epsilon) +
               decay * w[i];
        of_weights += w[i] * w[i];
        of_directions += r[i] * r[i];
      }
      for (std::size_t i = 0; i < start.size(); ++i) {
        w[i] -= lr * std::sqrt(of_weights / of_directions) * r[i];
        EXPECT_NEAR(static_cast<double>(weights[t][i]), w[i], 20 * 0x1p-24)
            << "element " << i << " step " << t;
      }
    }
  }
}

TEST_F(UpdateRules, LambStepsByTheLearningRateWhereANormIsZero) {
  // From zeros: |w| = 0, the ratio is 1 and the first direction is sign(g) but for epsilon.
  const auto weights =
      run({.name = Algorithm::lamb, .learning_rate = 0.125, .epsilon = 0}, Values(3, 0.0f), {{1, -2, 4}});
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_NEAR(static_cast<double>(weights[0][i]), i == 1 ? 0.125 : -0.125, 0.125 * 8 * 0x1p-24);
  // No gradient and no decay: |u| = 0, and the weights stay.
  EXPECT_EQ(
      run({.name = Algorithm::lamb, .learning_rate = 0.125, .epsilon = 1e-6}, start, {{0, 0, 0}}).back(),
      start);
}

// ---- AdamWeightDecay ----------------------------------------------------------------------------

TEST_F(UpdateRules, AdamWeightDecayFollowsItsFormula) {
  // |m| / sqrt(v) is at most 0.1 / sqrt(0.001) * (a few), so a change is below lr * 8 = 0.08, off by 14 u of
  // itself; with the rounding of the weight, 2 u, four steps less than 4 * (1.2 + 2) u < 14 u.
  for (const double decay : {0.0, 0.1}) {
    const double lr = 0.01, b1 = static_cast<double>(0.9f), b2 = static_cast<double>(0.999f), epsilon = 1e-6;
    const auto weights = run({.name = Algorithm::adam_weight_decay,
                              .learning_rate = lr,
                              .weight_decay = decay,
                              .epsilon = epsilon},
                             start, gradients);
    for (std::size_t i = 0; i < start.size(); ++i) {
      double w = static_cast<double>(start[i]), m = 0, v = 0;
      for (std::size_t t = 0; t < gradients.size(); ++t) {
        const auto g = static_cast<double>(gradients[t][i]);
        m = b1 * m + (1 - b1) * g;
        v = b2 * v + (1 - b2) * g * g;
        w -= lr * (m / (std::sqrt(v) + epsilon) + decay * w);
        EXPECT_NEAR(static_cast<double>(weights[t][i]), w, 14 * 0x1p-24) << "element " << i << " step " << t;
      }
    }
  }
}

// ---- Muon ---------------------------------------------------------------------------------------

/// torch.optim.Muon of PyTorch 2.15 on a CPU (lr = 0.25, weight_decay = 0.125, momentum = 0.875) after three
/// steps, of a wide matrix and a tall one. Both round to BF16 in other places (the optimizer's comment), so
/// each step may differ by a few units of BF16's last place in directions whose elements are below 1: 2^-6 of
/// the step; torch itself is as far from FP64.
TEST_F(UpdateRules, MuonStepsAsTorchsDoes) {
  const struct {
    Shape shape;
    Values expected;
  } both[] = {{{3, 5},
               {0.112301826f, -0.112427473f, -0.342720509f, -0.0425233841f, -0.0924346447f, 0.274356604f,
                -0.0777292252f, 0.267326355f, 0.257266045f, 0.0697004795f, -0.179162264f, 0.154341698f,
                -0.169103146f, -0.24277997f, -0.0454969406f}},
              {{5, 3},
               {0.172218502f, -0.28284204f, -0.533924222f, -0.156580001f, -0.445376247f, 0.124792695f,
                0.0671883747f, 0.341147572f, 0.326762289f, 0.0819631815f, 0.0791913196f, 0.38599959f,
                -0.274178475f, -0.299963057f, 0.0456820764f}}};
  Values first;
  std::vector<Values> steps(3);
  for (int i = 0; i < 15; ++i) {
    first.push_back(static_cast<float>(i * 5 % 9 - 4) / 16);
    for (int t = 0; t < 3; ++t)
      steps[static_cast<std::size_t>(t)].push_back(static_cast<float>((i * 7 + t * 3) % 11 - 5) / 8);
  }
  const OptimizerOptions options{.name = Algorithm::muon,
                                 .learning_rate = 0.25,
                                 .momentum = 0.875,
                                 .nesterov = true,
                                 .weight_decay = 0.125};
  for (const auto& [shape, expected] : both) {
    const Values weights = run(options, first, steps, shape).back();
    for (std::size_t i = 0; i < weights.size(); ++i)
      EXPECT_NEAR(weights[i], expected[i], 3 * 0.25 * 1.3 * 0x1p-6) << shape.to_string() << " element " << i;
  }
  // Rows without BF16 refuse it before the first step.
  const auto volta = make_emulated_backend(tensor_core_model("volta"), 1);
  EXPECT_THAT([&] { optim::make_optimizer(*volta, {}, options, 1); },
              testing::ThrowsMessage<std::invalid_argument>(HasSubstr("optimizer.name = \"muon\": ")));
  // What is no matrix steps as AdamW does.
  OptimizerOptions adamw = options;
  adamw.name = Algorithm::adamw;
  EXPECT_EQ(run(options, start, gradients), run(adamw, start, gradients));
}

/// mindspore/nn/optim/adam.py: eps=1e-6 of AdamWeightDecay, 1e-8 of Adam; torch: Adam, AdamW, RMSprop 1e-8.
TEST_F(UpdateRules, EpsilonIsTheRulesWhereNoneIsGiven) {
  using enum optim::Algorithm;
  EXPECT_EQ(optim::row_of(adam_weight_decay).epsilon, 1e-6);
  for (const Algorithm name : {adam, adamw, rmsprop})
    EXPECT_EQ(optim::row_of(name).epsilon, 1e-8) << name_of(name);
  for (const Algorithm name : every<Algorithm>) {
    const OptimizerOptions open{.name = name, .learning_rate = 0.01};
    OptimizerOptions given = open;
    given.epsilon = optim::row_of(name).epsilon;
    // Gradients so small that epsilon counts.
    const std::vector<Values> tiny{{0x1p-20f, -0x1p-22f, 0x1p-24f}};
    EXPECT_EQ(run(open, start, tiny), run(given, start, tiny)) << name_of(name);
    given.epsilon = 1e-3;
    if ((optim::row_of(name).reads & optim::reads::epsilon) != 0) {
      EXPECT_NE(run(open, start, tiny), run(given, start, tiny)) << name_of(name);
    }
  }
}

// ---- all of them --------------------------------------------------------------------------------

TEST_F(UpdateRules, ASkippedIterationMovesNothing) {
  const std::vector<Values> with_skip{gradients[0], {INFINITY, 0, 0}, gradients[1]};
  for (const Algorithm name : {Algorithm::rmsprop, Algorithm::lamb, Algorithm::adam_weight_decay}) {
    const OptimizerOptions options{
        .name = name, .learning_rate = 0.01, .momentum = 0.9, .weight_decay = 0.01, .centered = true};
    const auto skipping = run(options, start, with_skip);
    const auto plain = run(options, start, {gradients[0], gradients[1]});
    EXPECT_EQ(skipping[1], skipping[0]) << name_of(name);
    EXPECT_EQ(skipping[2], plain[1]) << name_of(name);
  }
}

TEST_F(UpdateRules, EveryNameMakesAnOptimizerAndNamesItsState) {
  Parameter weight{"fc1.weight", tensor_of(*backend, {2}, {1, 1})};
  const auto names = [&](const OptimizerOptions& options) {
    const auto optimizer = optim::make_optimizer(*backend, {&weight}, options, 1);
    EXPECT_EQ(optimizer->name(), name_of(options.name));
    std::vector<std::string> result;
    for (const optim::NamedTensor& state : optimizer->state()) result.push_back(state.name);
    return result;
  };
  for (const Algorithm name : every<Algorithm>)
    EXPECT_EQ(names({.name = name}).empty(), name == Algorithm::sgd) << name_of(name);
  EXPECT_EQ(names({.name = Algorithm::rmsprop}), std::vector<std::string>{"fc1.weight.square_average"});
  EXPECT_EQ(names({.name = Algorithm::rmsprop, .momentum = 0.5}),
            (std::vector<std::string>{"fc1.weight.square_average", "fc1.weight.velocity"}));
  EXPECT_EQ(names({.name = Algorithm::rmsprop, .momentum = 0.5, .centered = true}),
            (std::vector<std::string>{"fc1.weight.square_average", "fc1.weight.gradient_average",
                                      "fc1.weight.velocity"}));
  const std::vector<std::string> moments{"fc1.weight.first_moment", "fc1.weight.second_moment"};
  EXPECT_EQ(names({.name = Algorithm::lamb}), moments);
  EXPECT_EQ(names({.name = Algorithm::adam_weight_decay}), moments);
}

TEST_F(UpdateRules, AlphaIsChecked) {
  for (const double bad : {-0.1, 1.0, std::nan("")}) {
    try {
      optim::make_optimizer(*backend, {}, {.name = Algorithm::rmsprop, .alpha = bad}, 1);
      ADD_FAILURE() << bad;
    } catch (const std::invalid_argument& error) {
      EXPECT_THAT(error.what(), HasSubstr("optimizer.alpha = "));
    }
  }
}

}  // namespace
}  // namespace fp16lab::engine::test
