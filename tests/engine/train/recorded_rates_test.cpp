// Recorded rates: a step's counts of its casts equal those of an observer that sees every value before and
// after its rounding, over formats, dialects and levels.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "engine/amp/levels/autocast.hpp"
#include "engine/amp/levels/decorate.hpp"
#include "engine/autograd/counting.hpp"
#include "engine/nn/losses.hpp"
#include "engine/nn/models/mlp.hpp"
#include "engine/train/tensor_log.hpp"
#include "tests/engine/amp/asked_scales.hpp"
#include "tests/engine/nn/support.hpp"
#include "tests/engine/train/recipe_support.hpp"
#include "tests/support/char_model.hpp"
#include "tests/support/lenet5.hpp"

namespace fp16lab::engine::test::recorded_rates_test {
namespace {

using amp::Dialect;

/// Looks at the elements of every gradient that is rounded to 16 bits on the tape, at slots with a label or
/// without. It has no histogram and no probe, and its tape has no observer: for FP32 values before a rounding
/// it asks the tape (which computes the operation again), and what FP8 makes zero it knows by the format's
/// tie.
class Onlooker final : public Tap {
 public:
  Onlooker(Backend& backend, std::optional<DType> fp8) : backend_(&backend), fp8_(fp8) {}

  CastCounts stored, rounded;  ///< tensors in 16 bits, and FP8 roundings in products

  bool wants(const Site& site) override { return site.what == What::values; }
  void see(const Event& event) override {
    if (const auto* recorded = event.as<Recorded>()) look_at(*recorded);
    if (const auto* gave = event.as<VjpGave>(); gave != nullptr && gave->result.defined()) look_at(*gave);
    if (const auto* whole = event.as<ParameterGradient>()) {
      ASSERT_FALSE(whole->before.defined());
      const Tensor& gradient = whole->parameter.gradient;
      if (whole->contribution.dtype() == DType::f32 && gradient.dtype() != DType::f32)
        count(whole->contribution, gradient);
    }
  }

 private:
  void look_at(const Recorded& recorded) {
    const auto& [tape, op, result, operands] = recorded;
    const BackwardSite* const site = tape.backward_site();
    if (site == nullptr) return;
    const bool of_gradient = std::any_of(operands.begin(), operands.end(), [&](const Slot& slot) {
      return slot.input.id() == site->cotangent || gradients_.contains(slot.input.id());
    });
    if (!of_gradient) return;
    gradients_.insert(result.id());
    const bool picks = op == Op::select_positive || op == Op::negate;  // elements as they are: no rounding
    if (result.dtype() == DType::f32 || picks) return;
    const Tensor value = tape.value_of(result);
    const Tensor wide = op == Op::cast ? tape.value_of(operands.front().input) : recorded.unrounded();
    if (wide.defined() && wide.dtype() == DType::f32) count(wide, value);
  }
  void look_at(const VjpGave& gave) {
    gradients_.clear();
    const bool of_product = gave.site.op == Op::linear || gave.site.op == Op::matmul;
    const Variable &cotangent = gave.cotangent, &output = gave.output;
    if (!fp8_.has_value() || !of_product || cotangent.dtype() == DType::f32 || output.id() == last_) return;
    last_ = output.id();
    const double tie = fp8_ == DType::e4m3 ? 0x1p-10 : 0x1p-17;
    for (const float x : values_of(*backend_, cotangent.tensor())) {
      if (x == 0 || !std::isfinite(x)) continue;
      ++rounded.values;
      if (std::fabs(static_cast<double>(x)) <= tie) ++rounded.underflow;
    }
  }
  void count(const Tensor& wide, const Tensor& value) {
    const std::vector<float> before = values_of(*backend_, wide), after = values_of(*backend_, value);
    for (std::size_t i = 0; i < after.size(); ++i) {
      if (before[i] == 0 || !std::isfinite(before[i])) continue;
      ++stored.values;
      if (after[i] == 0) ++stored.underflow;
      if (!std::isfinite(after[i])) ++stored.overflow;
    }
  }

  Backend* backend_;
  std::optional<DType> fp8_;
  std::set<std::uint32_t> gradients_;  ///< what the vjp has made of the cotangent so far
  std::uint32_t last_ = std::numeric_limits<std::uint32_t>::max();
};

constexpr Dialect dialects[] = {Dialect::torch, Dialect::paddle, Dialect::mindspore, Dialect::apex};
constexpr std::optional<DType> fp8_formats[] = {std::nullopt, DType::e4m3, DType::e5m2};

AmpOptions options_of(Dialect dialect, Level level, DType dtype, std::optional<DType> fp8) {
  AmpOptions options{.level = level, .dtype = dtype, .dialect = dialect};
  options.fp8_gradients = fp8;
  if (fp8.has_value()) options.fp8_operands = DType::e4m3;
  return options;
}

/// Not every dialect has every level.
bool exists(const AmpOptions& options) {
  try {
    amp::resolve(options);
  } catch (const std::exception&) {
    return false;
  }
  return true;
}

/// A network whose backward pass is looked at.
struct Network {
  const char* name;
  std::vector<int> log2_scales;
  bool watches;  ///< it has places where a sum of several gradients is shown as stored
  bool products;
};
const Network networks[] = {
    // From scales at which nearly all is lost, in BF16 too, to those at which FP16 overflows.
    {"mlp", {-130, -124, -20, -12, 0, 12, 24}, false, true},
    {"transformer", {-124, -18, 16}, true, true},
    {"lstm", {-124, -18, 20}, true, true},
    {"lenet5", {-20}, false, false},
};

std::unique_ptr<nn::Module> made(Backend& backend, std::string_view name) {
  if (name == "mlp")
    return std::make_unique<nn::Mlp>(backend, nn::MlpOptions{.widths = {6, 16, 16, 3}, .seed = 3});
  if (name == "lenet5") return std::make_unique<LeNet5>(backend, LeNet5Options{.classes = 3, .seed = 3});
  if (name == "lstm")
    return std::make_unique<CharLstm>(
        backend,
        CharLstmOptions{.symbols = 3, .embedding = 4, .hidden = 6, .layers = 2, .dropout = 0.25f, .seed = 3});
  return std::make_unique<CharTransformer>(
      backend,
      CharTransformerOptions{
          .symbols = 3, .context = 4, .embedding = 8, .heads = 2, .layers = 1, .dropout = 0.25f, .seed = 3});
}

/// One backward pass of a fresh network, with a watcher or an observer.
void pass_backward(Backend& backend, const Network& network, const AmpOptions& options, int log2_scale,
                   TensorLog* log, Onlooker* onlooker, GradientScales* scales = nullptr) {
  const auto model = made(backend, network.name);
  Tape tape(backend);
  tape.set_context(training_context(backend, 5, 1));
  amp::Autocast autocast(tape, options);
  const amp::AmpPlan& plan = autocast.plan();
  amp::decorate(backend, model->parameters(), plan);
  const std::string_view name = network.name;
  Variable inputs;
  if (name == "mlp" || name == "lenet5") {
    const Shape shape = name == "mlp" ? Shape{8, 6} : Shape{8, 1, 32, 32};
    inputs = tape.constant(
        tensor_of(backend, shape, uniform_values(static_cast<std::size_t>(shape.element_count()), 7, 1.0f)));
    if (plan.rules.low_inputs) inputs = ops::cast(inputs, plan.low);
  } else {
    inputs = tape.constant(symbols_of(backend, {2, 4}, {0, 1, 2, 0, 1, 1, 2, 0}));
  }
  if (onlooker != nullptr) tape.set_taps({onlooker});
  Variable loss;
  {
    const amp::AutocastGuard guard(tape, autocast);
    Variable outputs = model->forward(tape, inputs);
    if (plan.rules.f32_outputs) outputs = ops::cast(outputs, DType::f32);
    loss = nn::cross_entropy_loss(outputs, index_of(backend, {0, 1, 2, 0, 1, 1, 2, 0}));
  }
  Tensor seed = backend.empty(loss.shape(), loss.dtype());
  backend.fill(seed, std::ldexp(1.0, log2_scale));
  std::optional<CountingGuard> counted;
  if (log != nullptr) counted.emplace(tape, *log);
  tape.set_gradient_scales(scales);
  tape.backward(loss, seed);
  if (log != nullptr) log->settle(backend);
}

TEST(RecordedRates, AreWhatAnOnlookerCounts) {
  std::uint64_t underflow[2] = {0, 0}, overflow = 0, rounded_underflow = 0;
  for (const Network& network : networks)
    for (const Dialect dialect : dialects)
      for (const Level level : {Level::O1, Level::O2, Level::O3})
        for (const DType dtype : {DType::f16, DType::bf16})
          for (const std::optional<DType> fp8 : fp8_formats) {
            const AmpOptions options = options_of(dialect, level, dtype, fp8);
            if (!exists(options) || (fp8.has_value() && !network.products)) continue;
            for (const int log2_scale : network.log2_scales) {
              SCOPED_TRACE(std::string(network.name) + " " + std::string(name_of(dialect)) + " " +
                           std::string(name_of(level)) + " " + std::string(name_of(dtype)) + " fp8 " +
                           std::string(OperandRounding{fp8}.name()) + " at 2^" + std::to_string(log2_scale));
              const auto backend = hopper_backend();
              TensorLog log;
              Onlooker onlooker(*backend, fp8);
              pass_backward(*backend, network, options, log2_scale, nullptr, &onlooker);
              pass_backward(*backend, network, options, log2_scale, &log, nullptr);
              CastCounts expected = onlooker.stored;
              expected += onlooker.rounded;
              const auto counted = log.cast_counts();
              ASSERT_TRUE(counted.has_value());
              EXPECT_EQ(counted->underflow, expected.underflow);
              EXPECT_EQ(counted->overflow, expected.overflow);
              // What is shown as stored adds values, and loses none of them.
              if (network.watches || !network.products) {
                EXPECT_GE(counted->values, expected.values);
              } else {
                EXPECT_EQ(counted->values, expected.values);
              }
              underflow[dtype == DType::bf16 ? 1 : 0] += onlooker.stored.underflow;
              overflow += onlooker.stored.overflow;
              rounded_underflow += onlooker.rounded.underflow;
            }
          }
  EXPECT_GT(underflow[0], 0u);
  EXPECT_GT(underflow[1], 0u) << "BF16 loses something at 2^-130";
  EXPECT_GT(overflow, 0u);
  EXPECT_GT(rounded_underflow, 0u);
}

/// Derivatives that are one 16-bit verb, which has no probe, and those that are FP32 until a cast.
TEST(RecordedRates, AreWhatAnOnlookerCountsInDerivativesOfFunctions) {
  using Function = std::function<Variable(const Variable&)>;
  const std::map<std::string, Function> functions = {
      {"exp", [](const Variable& x) { return ops::exp(x); }},
      {"log", [](const Variable& x) { return ops::log(x); }},
      {"square_root", [](const Variable& x) { return ops::square_root(x); }},
      {"tanh", [](const Variable& x) { return ops::tanh(x); }},
      {"multiply", [](const Variable& x) { return ops::multiply(x, x); }},
      {"divide", [](const Variable& x) { return ops::divide(ops::scale(x, 3.0f), x); }},
      {"mean", [](const Variable& x) { return ops::mean(x); }},
  };
  for (const auto& [name, function] : functions) {
    SCOPED_TRACE(name);
    const auto backend = hopper_backend();
    TensorLog log;
    Onlooker onlooker(*backend, std::nullopt);
    for (const bool logged : {false, true}) {
      Tape tape(*backend);
      const Variable x = tape.input(halves_of(*backend, {6}, {0.0123f, 0.25f, 1.37f, 3.3f, 9.1f, 0.5f}));
      const Variable y = ops::sum(ops::cast(function(x), DType::f32));
      Counting counting(tape, log);
      tape.set_taps(logged ? Taps{&counting} : Taps{&onlooker});
      tape.gradients(std::vector{y}, std::vector{tensor_of(*backend, y.shape(), {0x1.8p-25f})},
                     std::vector{x});
    }
    log.settle(*backend);
    EXPECT_GT(onlooker.stored.values, 0u);
    EXPECT_EQ(log.cast_counts(), onlooker.stored);
  }
}

/// A product's own exponent is a store too: it stores its gradient times a power of two.
TEST(RecordedRates, AreWhatAnOnlookerCountsWithScalesOfLayers) {
  std::uint64_t underflow = 0, overflow = 0;
  for (const Dialect dialect : dialects)
    for (const int change : {-30, -6, 5, 30}) {
      SCOPED_TRACE(std::string(name_of(dialect)) + " 2^" + std::to_string(change));
      const auto backend = hopper_backend();
      const AmpOptions options = options_of(dialect, Level::O1, DType::f16, std::nullopt);
      AskedScales scales([change](const GradientSite& site) { return site.scope == "fc2" ? change : 2; });
      TensorLog log;
      Onlooker onlooker(*backend, std::nullopt);
      pass_backward(*backend, networks[0], options, 0, nullptr, &onlooker, &scales);
      pass_backward(*backend, networks[0], options, 0, &log, nullptr, &scales);
      EXPECT_EQ(log.cast_counts(), onlooker.stored);
      underflow += onlooker.stored.underflow;
      overflow += onlooker.stored.overflow;
    }
  EXPECT_GT(underflow, 0u);
  EXPECT_GT(overflow, 0u);
}

/// Adds up what it is shown of a step.
struct Adding final : Tap {
  std::uint64_t lost = 0, values = 0;
  bool any_cast = false;
  std::map<std::string, DType> rows;  ///< "tensor dtype"
  std::map<std::string, std::uint64_t> lost_of;
  std::set<std::string> intermediate;
  std::uint64_t lost_in_all = 0;
  int with_rate = 0, without = 0;
  std::vector<double> scales;

  bool wants(const Site& site) override { return site.what == What::gradients; }
  void see(const Event& event) override {
    if (const auto* row = event.as<HistogramRow>()) add(*row);
    if (const auto* row = event.as<StepRow>()) end(*row);
  }
  void add(const HistogramRow& record) {
    rows[record.tensor + " " + std::string(name_of(record.dtype))] = record.dtype;
    EXPECT_EQ(record.before.total(), record.after.total());
    EXPECT_TRUE(record.before.extremes_known() && record.after.extremes_known());
    if (record.dtype == DType::f32) {
      EXPECT_EQ(record.before, record.after) << record.tensor << ": stored in FP32, nothing is cast";
      return;
    }
    any_cast = true;
    lost += record.after.zero - record.before.zero;
    lost_of[record.tensor] += record.after.zero - record.before.zero;
    if (record.intermediate) intermediate.emplace(record.tensor);
    values += record.before.finite_nonzero();
  }
  void end(const StepRow& record) {
    if (!any_cast) {
      EXPECT_FALSE(record.underflow_rate.has_value());
      ++without;
    } else {
      EXPECT_EQ(record.underflow_rate.value_or(-1),
                values == 0 ? 0.0 : static_cast<double>(lost) / static_cast<double>(values));
      ++with_rate;
    }
    scales.push_back(record.loss_scale);
    lost_in_all += lost;
    lost = values = 0;
    any_cast = false;
  }
};

struct Watched {
  Watched(const AmpOptions& options, const ScalerOptions& scaler)
      : trainer(*backend, fill(), {.steps = 4, .accumulate = 2, .seed = 3}, options, scaler,
                {.learning_rate = 0.01}, seen) {
    trainer.run();
  }
  Workload& fill() {
    workload.model = std::make_unique<nn::Mlp>(*backend, nn::MlpOptions{.widths = {6, 8, 3}, .seed = 3});
    workload.training = &batches;
    return workload;
  }
  std::unique_ptr<Backend> backend = hopper_backend();
  FixedBatches batches{class_batches(5)};
  Workload workload;
  Adding seen;
  Trainer trainer;
};

TEST(RecordedRates, OfAStepAreZerosAfterMinusBefore) {
  for (const Dialect dialect : dialects)
    for (const Level level : {Level::O1, Level::O2, Level::O3}) {
      for (const DType dtype : {DType::f16, DType::bf16})
        for (const std::optional<DType> fp8 : fp8_formats) {
          const AmpOptions options = options_of(dialect, level, dtype, fp8);
          if (!exists(options)) continue;
          SCOPED_TRACE(std::string(name_of(dialect)) + " " + std::string(name_of(level)) + " " +
                       std::string(name_of(dtype)) + " fp8 " + std::string(OperandRounding{fp8}.name()));
          std::uint64_t lost = 0;
          std::size_t fp8_rows = 0;
          for (const int log2_scale : {-14, -18, -22}) {
            const Watched low(options, {.policy = "fixed", .initial_scale = std::ldexp(1.0, log2_scale)});
            EXPECT_EQ(low.seen.with_rate, 4);
            lost += low.seen.lost_in_all;
            fp8_rows += low.seen.rows.count("fc1.output e5m2") + low.seen.rows.count("fc1.output e4m3");
          }
          const bool shows_fp8 = fp8.has_value();
          EXPECT_EQ(fp8_rows, shows_fp8 ? 3u : 0u);
          if (dtype == DType::f16 || shows_fp8) {
            EXPECT_GT(lost, 0u);
          } else {
            EXPECT_EQ(lost, 0u) << "BF16 holds all of it";
          }
        }
    }
}

/// Paddle's Linear adds in FP32: the gradient of its product is lost in a cast that belongs to no slot of the
/// layer.
TEST(RecordedRates, CastsBetweenTheLayersGradientsAreRowsOfTheirOwn) {
  const ScalerOptions scaler{.policy = "fixed", .initial_scale = 0x1p-30};
  const Watched paddle({.level = Level::O1, .dialect = Dialect::paddle}, scaler);
  EXPECT_THAT(paddle.seen.intermediate, testing::ElementsAre("fc1.matmul", "fc2.matmul"));
  EXPECT_EQ(paddle.seen.rows.count("fc2.matmul f16"), 1u);
  EXPECT_GT(paddle.seen.lost_of.at("fc2.matmul"), 0u);
  EXPECT_EQ(paddle.seen.lost_of.at("fc2.input") + paddle.seen.lost_of.at("fc2.weight"), 0u)
      << "zeros before the cast already";
  const Watched torch({.level = Level::O1}, scaler);
  EXPECT_THAT(torch.seen.intermediate, testing::IsEmpty());
}

TEST(RecordedRates, Fp32HasNone) {
  const Watched run({.level = Level::O0}, {.policy = "fixed", .initial_scale = 0x1p-40});
  EXPECT_EQ(run.seen.without, 4);
  EXPECT_EQ(run.seen.with_rate, 0);
}

TEST(RecordedRates, UsesWithScalesOfTheirOwnAreCountedWhereTheyWereStored) {
  for (const ScalerOptions& scaler :
       {ScalerOptions{.policy = "layerwise", .initial_scale = 0x1p-18, .groups = {"fc1.*=2^-2", "fc2.*=2^4"}},
        ScalerOptions{.policy = "ada-loss", .initial_scale = 0x1p-30}}) {
    SCOPED_TRACE(scaler.policy);
    const Watched run({.level = Level::O1}, scaler);
    EXPECT_EQ(run.seen.with_rate, 4);
    EXPECT_GT(run.seen.lost_in_all, 0u);
  }
}

TEST(RecordedRates, PoliciesByStatisticsTakeTheRangeOfWhatWasStored) {
  for (const char* const policy : {"lost-mass", "popart", "openseq2seq-logmax"}) {
    SCOPED_TRACE(policy);
    const ScalerOptions scaler{
        .policy = policy, .initial_scale = 0x1p30, .parameters = {{"max_scale", 0x1p100}}};
    const Watched bf16({.level = Level::O1, .dtype = DType::bf16}, scaler);
    const Watched f16({.level = Level::O1}, scaler);
    for (const double scale : bf16.seen.scales) EXPECT_GE(scale, 0x1p30) << "BF16 has room";
    EXPECT_LT(f16.seen.scales.back(), 0x1p30);
  }
}

TEST(RecordedRates, OtherRoundingsAreRowsOfTheirOwnAndNoPolicysBusiness) {
  const auto backend = hopper_backend();
  TensorLog log;
  CastProbe stored, rounded;
  const Tensor wide = tensor_of(*backend, {4}, {1.0f, 0x1p-18f, 0x1p-30f, 0.0f});
  Tensor low = backend->empty({4}, DType::f16);
  backend->cast(wide, low, &stored);
  backend->histogram(low, DType::e5m2, rounded);
  const auto count = [&](const char* name, DType dtype, const CastProbe& probe, bool intermediate) {
    log.see(Event(
        CountedTensor{Observed::gradients, name, GradientKind::activation, dtype, probe, 0, intermediate}));
  };
  count("fc.output", DType::f16, stored, false);
  count("fc.output", DType::e5m2, rounded, true);
  count("fc.matmul", DType::f16, stored, true);
  log.settle(*backend);
  EXPECT_EQ(log.cast_counts(), (CastCounts{.values = 3 + 2 + 3, .underflow = 1 + 1 + 1, .overflow = 0}));
  EXPECT_EQ(log.statistics().activation, stored.before);
  EXPECT_EQ(log.statistics().range, range_of(DType::f16));
}

}  // namespace
}  // namespace fp16lab::engine::test::recorded_rates_test
