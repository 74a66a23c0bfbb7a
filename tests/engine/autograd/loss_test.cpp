// Losses at their edges: reductions, masked and huge logits, tails, kinks; which dtype they compute in; what
// they show of their gradients; their errors.
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "engine/amp/levels/autocast.hpp"
#include "engine/autograd/counting.hpp"
#include "tests/engine/autograd/twin.hpp"

namespace fp16lab::engine::test::loss_test {
namespace {

using ops::Reduction;

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr double u = 0x1p-24;

class LossTest : public testing::Test {
 protected:
  Variable constant(const Shape& shape, const std::vector<float>& values) {
    return tape.constant(tensor_of(*backend, shape, values));
  }
  Variable input(const Shape& shape, const std::vector<float>& values) {
    return tape.input(tensor_of(*backend, shape, values));
  }
  std::vector<float> values(const Variable& x) { return values_of(*backend, x.tensor()); }
  std::vector<float> gradient(const Variable& y, const Variable& x) {
    return values(tape.gradients(std::vector{y}, {}, std::vector{x}, {.retain_graph = true})[0]);
  }

  std::unique_ptr<Backend> backend = hopper_backend();
  Tape tape{*backend};
};

// ---- targets that are no distribution -------------------------------------------------------------

TEST_F(LossTest, ARowOfZeroProbabilitiesHasNoLossAndNoGradient) {
  // MindSpore's tutorial takes a step on labels of zero. The formula's gradient is sum(p) softmax(x) - p; a
  // fused kernel returns softmax(x) - p, which is not 0 here.
  const Variable x = input({2, 4}, {0.5f, -1, 2, 0.25f, 0.5f, -1, 2, 0.25f});
  const Variable p = constant({2, 4}, {0, 0, 0, 0, 0, 0, 1, 0});
  const Variable losses = ops::softmax_cross_entropy(x, p, Reduction::none);
  EXPECT_EQ(values(losses)[0], 0.0f);
  EXPECT_GT(values(losses)[1], 0.0f);
  const std::vector<float> g = gradient(ops::sum(losses), x);
  const std::vector<float> softmax = values(ops::softmax(x, 1));
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(g[i], 0.0f);
    EXPECT_GT(softmax[i], 0.0f);
    EXPECT_NEAR(g[4 + i], softmax[4 + i] - (i == 2 ? 1.0f : 0.0f), 16 * u);
  }
}

TEST_F(LossTest, FusedKernelsTakeTheProbabilitiesOfARowToAddUpToOne) {
  // Paddle's cross_entropy_with_softmax_grad with soft_label, and MindSpore's SoftmaxCrossEntropyWithLogits:
  // softmax(x) - p, in FP64 here. One row adds up to 1, one to 2, one is of zeros.
  const std::vector<float> logits{0.5f, -1, 2, 0.25f, 1, 1, -3, 0, 0.5f, -1, 2, 0.25f};
  const std::vector<float> targets{0.25f, 0.25f, 0.5f, 0, 2, 0, 0, 0, 0, 0, 0, 0};
  const Variable x = input({3, 4}, logits), p = constant({3, 4}, targets);
  const Variable fused = ops::softmax_cross_entropy(x, p, Reduction::none, ops::SoftmaxGradient::fused),
                 formula = ops::softmax_cross_entropy(x, p, Reduction::none);
  EXPECT_EQ(values(fused), values(formula)) << "the loss is the same";
  const std::vector<float> g = gradient(ops::sum(fused), x), own = gradient(ops::sum(formula), x);
  for (std::size_t row = 0; row < 3; ++row) {
    double sum = 0, total = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      sum += std::exp(static_cast<double>(logits[4 * row + i]));
      total += static_cast<double>(targets[4 * row + i]);
    }
    for (std::size_t i = 4 * row; i < 4 * row + 4; ++i) {
      const double softmax = std::exp(static_cast<double>(logits[i])) / sum,
                   target = static_cast<double>(targets[i]);
      EXPECT_NEAR(g[i], softmax - target, 16 * u) << i;
      EXPECT_NEAR(own[i], total * softmax - target, 32 * u) << i;
    }
  }
  EXPECT_NE(g, own);
  tape.reset();
  // Under a mean the rows share its division, those of zeros too; and the gradient can be differentiated.
  const Variable y = input({3, 4}, logits);
  const Variable mean =
      ops::softmax_cross_entropy(y, constant({3, 4}, targets), Reduction::mean, ops::SoftmaxGradient::fused);
  const std::vector<float> of_mean = gradient(mean, y);
  for (std::size_t i = 0; i < of_mean.size(); ++i) EXPECT_NEAR(of_mean[i], g[i] / 3, 4 * u);
}

// ---- reductions -----------------------------------------------------------------------------------

TEST_F(LossTest, SixteenMillionSquaredErrorsAccumulateSafely) {
  // 2^24 + 2^20 errors of 1: a running FP32 sum stops at 2^24, where the ulp is 2 and 1 is a tie. The
  // partial sums of TREE are integers, of which none needs more than 24 bits here (17 * 2^20 at the end).
  constexpr std::int64_t count = (1 << 24) + (1 << 20);
  {
    float running = 0.0f;
    for (std::int64_t i = 0; i < count; ++i) running += 1.0f;
    ASSERT_EQ(running, 0x1p24f) << "the trap is real";
  }
  const auto loss_of = [&](std::int64_t elements, float error, Reduction reduction) {
    tape.reset();
    Tensor prediction = backend->empty({elements}, DType::f32),
           target = backend->empty({elements}, DType::f32);
    backend->fill(prediction, static_cast<double>(error));
    backend->fill(target, 0.0);
    return values(ops::mse_loss(tape.constant(prediction), tape.constant(target), reduction)).at(0);
  };
  EXPECT_EQ(loss_of(count, 1.0f, Reduction::mean), 1.0f);
  EXPECT_EQ(loss_of(count, 1.0f, Reduction::sum), static_cast<float>(count));
  // 2^24 errors of 0.1: the square is rounded once, and an element takes part in at most 3 * (31 + 5)
  // roundings of sums (three levels of chunks of 1024 = 32 lanes x 32 elements), the mean in one more: 110 u
  // relative.
  const double square = static_cast<double>(0.1f) * static_cast<double>(0.1f);
  EXPECT_NEAR(loss_of(1 << 24, 0.1f, Reduction::mean) / square, 1.0, 110 * u);
  EXPECT_NEAR(loss_of(1 << 24, 0.1f, Reduction::sum) / (square * 0x1p24), 1.0, 110 * u);
}

TEST_F(LossTest, ReductionNoneKeepsOneLossAnElementOrRow) {
  const Variable y = constant({2, 3}, {1, 2, 3, 4, 5, 6});
  for (const auto& loss : {ops::mse_loss(y, y, Reduction::none), ops::l1_loss(y, y, Reduction::none),
                           ops::huber_loss(y, y, 1.0f, Reduction::none),
                           ops::binary_cross_entropy_with_logits(y, y, Reduction::none)}) {
    EXPECT_EQ(loss.shape(), (Shape{2, 3}));
  }
  EXPECT_EQ(ops::softmax_cross_entropy(y, index_of(*backend, {0, 1}), Reduction::none).shape(), Shape{2});
  EXPECT_EQ(ops::softmax_cross_entropy(y, y, Reduction::none).shape(), Shape{2});
  for (const auto reduction : {Reduction::mean, Reduction::sum}) {
    EXPECT_EQ(ops::mse_loss(y, y, reduction).shape(), Shape{});
    EXPECT_EQ(ops::softmax_cross_entropy(y, y, reduction).shape(), Shape{});
  }
}

// ---- cross-entropy ----------------------------------------------------------------------------------

TEST_F(LossTest, CrossEntropyOfMaskedAndHugeLogits) {
  const std::vector<float> x = {1,         -infinity, 1,       // a masked class that is not the target
                                -3e38f,    3e38f,     -3e38f,  // the target is certain
                                3e38f,     -3e38f,    0,       // and certainly wrong: x - max overflows
                                -1000,     -1000,     -1000,   // negative: exp(x) alone is 0
                                -infinity, 0,         0};      // the target is masked
  const Variable logits = input({5, 3}, x);
  const std::vector<float> expected = {std::log(2.0f), 0, infinity, std::log(3.0f), infinity};
  const std::vector<std::int32_t> index = {0, 1, 1, 2, 0};
  std::vector<float> one_hot(15, 0.0f);
  for (std::size_t row = 0; row < 5; ++row) one_hot[row * 3 + static_cast<std::size_t>(index[row])] = 1;
  const Variable by_index = ops::softmax_cross_entropy(logits, index_of(*backend, index), Reduction::none);
  const Variable by_probability =
      ops::softmax_cross_entropy(logits, constant({5, 3}, one_hot), Reduction::none);
  for (const Variable& loss : {by_index, by_probability}) {
    const std::vector<float> got = values(loss);
    for (std::size_t i = 0; i < 5; ++i) {
      if (std::isinf(expected[i])) {
        EXPECT_EQ(got[i], expected[i]) << i;
      } else {
        EXPECT_NEAR(got[i], expected[i], 2 * u * 2) << i;  // log_f32 below 1 ulp of [1, 2), and libm's own
      }
    }
    // softmax - one_hot: masked classes get none; a wrong certainty gets +-1, however large the logits.
    const std::vector<float> slope = gradient(ops::sum(loss), logits);
    const std::vector<float> rows = {-0.5f, 0, 0.5f, 0, 0, 0, 1, -1, 0};
    for (std::size_t i = 0; i < rows.size(); ++i) EXPECT_NEAR(slope[i], rows[i], 4 * u) << i;
    EXPECT_NEAR(slope[11], -2.0 / 3.0, 4 * u);
    EXPECT_EQ(slope[12], -1.0f);
  }
}

TEST_F(LossTest, ATargetOutOfRangeIsAnErrorNamingRowAndValue) {
  const Variable x = constant({3, 4}, std::vector<float>(12, 0.0f));
  for (const std::int32_t wrong : {4, -1, 1 << 20}) {
    try {
      ops::softmax_cross_entropy(x, index_of(*backend, {0, wrong, 3}));
      ADD_FAILURE() << "nothing was thrown";
    } catch (const std::out_of_range& error) {
      const std::string message = error.what();
      EXPECT_NE(message.find(std::to_string(wrong)), std::string::npos) << message;
      EXPECT_NE(message.find("index[1]"), std::string::npos) << message;
      EXPECT_NE(message.find("softmax_cross_entropy"), std::string::npos) << message;
    }
  }
}

// ---- binary cross-entropy -----------------------------------------------------------------------------

TEST_F(LossTest, BceWithLogitsIsExactInTheTails) {
  // Against FP64 libm. The value has one rounding of x t, one of the difference, log1p and exp 2 u each: 4 u
  // relative, as no term cancels for t = 0 and 1. Where it is subnormal, one unit of 2^-149 replaces the
  // relative error.
  std::vector<float> x, t;
  for (const float magnitude : {100.0f, 87.0f, 50.0f, 30.0f, 17.0f, 16.0f, 5.0f, 1.0f, 0.0f}) {
    for (const float sign : {1.0f, -1.0f}) {
      for (const float target : {0.0f, 1.0f}) x.push_back(sign * magnitude), t.push_back(target);
    }
  }
  const auto count = static_cast<std::int64_t>(x.size());
  const Variable logits = input({count}, x), target = constant({count}, t);
  const Variable loss = ops::binary_cross_entropy_with_logits(logits, target, Reduction::none);
  const std::vector<float> got = values(loss), slope = gradient(ops::sum(loss), logits);
  for (std::size_t i = 0; i < x.size(); ++i) {
    SCOPED_TRACE("x " + std::to_string(x[i]) + ", t " + std::to_string(t[i]));
    const double toward = t[i] == 0.0f ? static_cast<double>(x[i]) : -static_cast<double>(x[i]);
    const double expected =
        toward > 0 ? toward + std::log1p(std::exp(-toward)) : std::log1p(std::exp(toward));
    EXPECT_NEAR(got[i], expected, 4 * u * expected + 0x1p-149);
    // The slope is sigmoid(toward), with the sign of the side: it fades as exp(-|x|) instead of stopping at
    // 2^-24 (1 - sigmoid(17) = 4e-8 < 2^-24). sigmoid_f32's 2 u and two products; below its range 2^-126 is
    // lost.
    const double sigmoid = 1 / (1 + std::exp(-toward));
    EXPECT_NEAR(slope[i], t[i] == 0.0f ? sigmoid : -sigmoid, 6 * u * sigmoid + 0x1p-126);
  }
}

TEST_F(LossTest, BceClampsItsLogarithmsAtMinusHundred) {
  const Variable p = input({4}, {0, 1, 0, 1}), t = constant({4}, {1, 0, 0, 1});
  const Variable loss = ops::binary_cross_entropy(p, t, Reduction::none);
  EXPECT_EQ(values(loss), (std::vector<float>{100, 100, 0, 0}));
  // (p - t) / max(p (1 - p), 1e-12): finite, and zero where the prediction is right.
  const std::vector<float> slope = gradient(ops::sum(loss), p);
  EXPECT_EQ(slope, (std::vector<float>{-1 / 1e-12f, 1 / 1e-12f, 0, 0}));
}

TEST_F(LossTest, BceOfSomethingThatIsNoProbabilityIsNaN) {
  const Variable loss =
      ops::binary_cross_entropy(constant({2}, {-0.5f, 1.5f}), constant({2}, {0.5f, 0.5f}), Reduction::none);
  for (const float value : values(loss)) EXPECT_TRUE(std::isnan(value));
}

TEST_F(LossTest, PlainBceIsRefusedUnderSixteenBitAutocast) {
  amp::Autocast autocast{tape, {.level = amp::Level::O1}};
  const CastPolicyGuard guard(tape, &autocast);
  const Variable p = tape.constant(halves_of(*backend, {2}, {0.5f, 0.25f})), t = constant({2}, {1, 0});
  try {
    ops::binary_cross_entropy(p, t);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const AutogradError& error) {
    EXPECT_EQ(error.kind(), AutogradError::Kind::unsafe_under_autocast);
    EXPECT_NE(std::string(error.what()).find("binary_cross_entropy_with_logits"), std::string::npos)
        << error.what();
  }
  EXPECT_EQ(ops::binary_cross_entropy_with_logits(p, t).dtype(), DType::f32);
}

// ---- l1, huber ----------------------------------------------------------------------------------------

TEST_F(LossTest, KinksAndInfinities) {
  const Variable y = input({6}, {0, 1, -1, 1.5f, infinity, std::numeric_limits<float>::quiet_NaN()});
  const Variable zero = constant({6}, std::vector<float>(6, 0.0f));
  const Variable l1 = ops::l1_loss(y, zero, Reduction::none);
  const Variable huber_of_one = ops::huber_loss(y, zero, 1.0f, Reduction::none);
  std::vector<float> got = values(l1);
  EXPECT_EQ((std::vector<float>(got.begin(), got.begin() + 5)),
            (std::vector<float>{0, 1, 1, 1.5f, infinity}));
  EXPECT_TRUE(std::isnan(got[5]));
  got = values(huber_of_one);
  EXPECT_EQ((std::vector<float>(got.begin(), got.begin() + 5)),
            (std::vector<float>{0, 0.5f, 0.5f, 1, infinity}));
  EXPECT_TRUE(std::isnan(got[5]));
  got = gradient(ops::sum(l1), y);
  EXPECT_EQ((std::vector<float>(got.begin(), got.begin() + 5)), (std::vector<float>{0, 1, -1, 1, 1}));
  got = gradient(ops::sum(huber_of_one), y);
  EXPECT_EQ((std::vector<float>(got.begin(), got.begin() + 5)), (std::vector<float>{0, 1, -1, 1, 1}));
}

// ---- dtypes and observation ---------------------------------------------------------------------------

struct NamedLoss {
  std::string name;
  std::function<Variable(const Variable&, const Variable&)> op;
};
std::vector<NamedLoss> named_losses() {
  return {{"mse", [](const auto& y, const auto& t) { return ops::mse_loss(y, t); }},
          {"l1", [](const auto& y, const auto& t) { return ops::l1_loss(y, t); }},
          {"huber", [](const auto& y, const auto& t) { return ops::huber_loss(y, t); }},
          {"bce_with_logits",
           [](const auto& y, const auto& t) { return ops::binary_cross_entropy_with_logits(y, t); }},
          {"cross_entropy_probabilities",
           [](const auto& y, const auto& t) { return ops::softmax_cross_entropy(y, t); }},
          {"cross_entropy_index", [](const auto& y, const auto&) {
             return ops::softmax_cross_entropy(y, index_of(y.tape().backend(), {0, 1}));
           }}};
}

TEST_F(LossTest, UnderAutocastLossesAreFp32AndTheirPredictionsGradientIsRoundedOnce) {
  amp::Autocast autocast{tape, {.level = amp::Level::O1}};
  for (const NamedLoss& loss : named_losses()) {
    SCOPED_TRACE(loss.name);
    const Variable half = tape.input(halves_of(*backend, {2, 3}, with_signs({2, 3}, 1).values));
    const Variable wide = tape.input(ops::cast(half, DType::f32).tensor());
    const Variable target = constant({2, 3}, {0.25f, 0.5f, 0.25f, 0, 1, 0});
    const Variable y = [&] {
      const CastPolicyGuard guard(tape, &autocast);
      return loss.op(half, target);
    }();
    EXPECT_EQ(y.dtype(), DType::f32);
    const Variable y_wide = loss.op(wide, target);
    EXPECT_EQ(bytes_of(*backend, y.tensor()), bytes_of(*backend, y_wide.tensor()));
    const Tensor seed = tensor_of(*backend, {}, {0x1p-20f});
    const auto g = tape.gradients(std::vector{y}, std::vector{seed}, std::vector{half});
    const auto g_wide = tape.gradients(std::vector{y_wide}, std::vector{seed}, std::vector{wide});
    EXPECT_EQ(g[0].dtype(), DType::f16);
    EXPECT_EQ(values(g[0]), values(ops::cast(g_wide[0], DType::f16)));
  }
}

TEST_F(LossTest, WithoutAutocastASixteenBitLossIsRoundedAfterItsReduction) {
  // The mean of 2^12 squared errors of 8^2 = 64; their sum 2^18 is above 65504.
  const Variable y = tape.constant(halves_of(*backend, {4096}, std::vector<float>(4096, 8.0f)));
  const Variable zero = tape.constant(halves_of(*backend, {4096}, std::vector<float>(4096, 0.0f)));
  const Variable mean = ops::mse_loss(y, zero);
  EXPECT_EQ(mean.dtype(), DType::f16);
  EXPECT_EQ(values(mean), std::vector<float>{64});
  EXPECT_EQ(values(ops::mse_loss(y, zero, Reduction::sum)), std::vector<float>{infinity});
  const Variable wide_target = ops::cast(zero, DType::f32);
  EXPECT_EQ(ops::mse_loss(y, wide_target).dtype(), DType::f32) << "mixed inputs promote";
}

TEST_F(LossTest, EveryLossShowsThePredictionsGradient) {
  for (const bool half : {false, true}) {
    for (const NamedLoss& loss : named_losses()) {
      SCOPED_TRACE(loss.name);
      const std::vector<float> at = with_signs({2, 3}, 1).values;
      const Variable prediction =
          tape.input(half ? halves_of(*backend, {2, 3}, at) : tensor_of(*backend, {2, 3}, at));
      const Variable target = input({2, 3}, {0.25f, 0.5f, 0.25f, 0, 1, 0});
      const Variable y = [&] {
        const ScopeGuard scope(tape, "loss");
        return loss.op(prediction, target);
      }();
      SeenGradients seen;
      const CountingGuard counted(tape, seen);
      tape.gradients(std::vector{y}, {}, std::vector{prediction, target}, {.allow_unused = true});
      ASSERT_EQ(seen.totals(), (std::map<std::string, std::uint64_t>{{"loss.prediction", 6}}));
      EXPECT_EQ(seen.rows["loss.prediction"].dtype, half ? DType::f16 : DType::f32);
      EXPECT_EQ(seen.rows["loss.prediction"].kind, GradientKind::activation);
      EXPECT_EQ(seen.rows["loss.prediction"].times, 1);
    }
  }
}

TEST_F(LossTest, ALosssPolicyDoesNotReachItsParts) {
  struct LossesWide final : CastPolicy {
    DType compute_dtype(OpSite site, std::span<const DType>) override {
      const Op op = site.op;
      return op == Op::mse_loss || op == Op::softmax_cross_entropy ? DType::f32 : DType::f16;
    }
    Variable cast(const Variable& x, DType dtype) override { return ops::cast(x, dtype); }
  } policy;
  const HostTensor x = with_signs({2, 3}, 1);
  const Variable y = constant(x.shape, x.values), t = constant({2, 3}, {0.1f, 0.2f, 0.3f, 0.4f, 0.5f, 0.6f});
  const Tensor index = index_of(*backend, {0, 2});
  const auto squares = values(ops::mse_loss(y, t)), entropy = values(ops::softmax_cross_entropy(y, index)),
             soft = values(ops::softmax_cross_entropy(y, t));
  const CastPolicyGuard guard(tape, &policy);
  EXPECT_EQ(values(ops::mse_loss(y, t)), squares);
  EXPECT_EQ(values(ops::softmax_cross_entropy(y, index)), entropy);
  EXPECT_EQ(values(ops::softmax_cross_entropy(y, t)), soft);
}

// ---- errors -------------------------------------------------------------------------------------------

TEST_F(LossTest, ErrorsNameTheLossAndTheShapes) {
  const Variable a = constant({2, 3}, std::vector<float>(6, 0.5f)),
                 b = constant({3, 2}, std::vector<float>(6, 0.5f)), row = constant({3}, {0.5f, 0.5f, 0.5f});
  const auto both = [](const std::string& loss) {
    return std::vector<std::string>{loss + ": ", "(2, 3)", "(3, 2)"};
  };
  expect_rejected([&] { ops::mse_loss(a, b); }, both("mse_loss"));
  expect_rejected([&] { ops::l1_loss(a, b); }, both("l1_loss"));
  expect_rejected([&] { ops::huber_loss(a, b); }, both("huber_loss"));
  expect_rejected([&] { ops::binary_cross_entropy(a, b); }, both("binary_cross_entropy"));
  expect_rejected([&] { ops::binary_cross_entropy_with_logits(a, b); },
                  both("binary_cross_entropy_with_logits"));
  expect_rejected([&] { ops::softmax_cross_entropy(a, b); }, both("softmax_cross_entropy"));
  expect_rejected([&] { ops::mse_loss(a, row); }, {"mse_loss: ", "(2, 3)", "(3)"});
  expect_rejected([&] { ops::softmax_cross_entropy(row, row); },
                  {"softmax_cross_entropy: ", "(rows, classes)"});
  expect_rejected(
      [&] {
        ops::softmax_cross_entropy(a, index_of(*backend, {0, 1, 2}));
      },
      {"softmax_cross_entropy: target", "i32 (3)", "(2, 3)", "i32 (2) is needed"});
  expect_rejected([&] { ops::softmax_cross_entropy(a, a.tensor()); },
                  {"softmax_cross_entropy: target", "f32 (2, 3)"});
  for (const float wrong : {0.0f, -1.0f, infinity, std::numeric_limits<float>::quiet_NaN()})
    expect_rejected([&] { ops::huber_loss(a, a, wrong); }, {"huber_loss: delta"});
  EXPECT_THROW(ops::mse_loss(Variable(), a), AutogradError);
}

}  // namespace
}  // namespace fp16lab::engine::test::loss_test
