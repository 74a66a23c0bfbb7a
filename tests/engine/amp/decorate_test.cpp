// What levels make of parameters: dtypes of values, views, gradients; and gradients that add up in 16 bits.
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "engine/amp/levels/autocast.hpp"
#include "engine/amp/levels/decorate.hpp"
#include "engine/nn/linear.hpp"
#include "engine/nn/normalization.hpp"
#include "tests/engine/amp/support.hpp"

namespace fp16lab::engine::test::decorate_test {
namespace {

using amp::AmpOptions;
using amp::Dialect;
using amp::Level;

constexpr DType f32 = DType::f32, f16 = DType::f16, bf16 = DType::bf16;

/// "value model gradient unscaled"
std::string text(DType value, const ParameterDTypes& dtypes) {
  return std::string(name_of(value)) + " " + std::string(name_of(dtypes.model)) + " " +
         std::string(name_of(dtypes.gradient)) + " " + std::string(name_of(dtypes.unscaled));
}

class DecorateTest : public testing::Test {
 protected:
  Parameter& make(const std::string& name, ParameterRole role = ParameterRole::weight,
                  const std::vector<float>& values = {1, 2}) {
    parameters.push_back(std::make_unique<Parameter>(
        name, tensor_of(*backend, {static_cast<std::int64_t>(values.size())}, values)));
    parameters.back()->role = role;
    return *parameters.back();
  }
  std::string planned(const AmpOptions& options, const std::string& name,
                      ParameterRole role = ParameterRole::weight) {
    const amp::ParameterPlan plan = amp::plan_of(amp::resolve(options), make(name, role));
    return text(plan.value, plan.dtypes);
  }
  void decorate(const AmpOptions& options) {
    std::vector<Parameter*> all;
    for (const auto& parameter : parameters) all.push_back(parameter.get());
    amp::decorate(*backend, all, amp::resolve(options));
  }

  std::unique_ptr<Backend> backend = hopper_backend();
  std::vector<std::unique_ptr<Parameter>> parameters;
};

constexpr const char* plain = "f32 f32 f32 f32";

/// The table of engine/autograd/parameter.hpp. Sources: paddle's amp_decorate (master_weight, master_grad),
/// apex's _process_optimizer.py (FP32 masters unscaled from FP16 gradients), mindspore (FP32 parameters, cast
/// where used).
TEST_F(DecorateTest, WeightsHaveTheDtypesOfTheirLevel) {
  EXPECT_EQ(planned({.level = Level::O0}, "w"), plain);
  for (const Dialect dialect : every<amp::Dialect>)
    EXPECT_EQ(planned({.level = Level::O1, .dialect = dialect}, "w"), plain) << name_of(dialect);
  EXPECT_EQ(planned({.level = Level::OD, .dialect = Dialect::paddle}, "w"), plain);

  AmpOptions options{.level = Level::O2, .dialect = Dialect::paddle};
  EXPECT_EQ(planned(options, "w"), "f32 f16 f16 f16");
  options.master_gradients = true;
  EXPECT_EQ(planned(options, "w"), "f32 f16 f32 f32");
  options.master_weights = false;
  EXPECT_EQ(planned(options, "w"), "f16 f16 f32 f32");
  options.master_gradients = {};
  EXPECT_EQ(planned(options, "w"), "f16 f16 f16 f16");
  options.dtype = bf16;
  EXPECT_EQ(planned(options, "w"), "bf16 bf16 bf16 bf16");

  EXPECT_EQ(planned({.level = Level::O2, .dialect = Dialect::mindspore}, "w"), "f32 f16 f32 f32");
  EXPECT_EQ(planned({.level = Level::O3, .dialect = Dialect::mindspore}, "w"), "f32 f16 f32 f32");
  EXPECT_EQ(planned({.level = Level::O2, .dialect = Dialect::apex}, "w"), "f32 f16 f16 f32");
  EXPECT_EQ(planned({.level = Level::O3, .dialect = Dialect::apex}, "w"), "f16 f16 f16 f16");
}

TEST_F(DecorateTest, NormsStayFp32WhereTheLevelSaysSo) {
  const auto norms = [&](const AmpOptions& options) {
    std::string kept;
    if (planned(options, "bn.weight", ParameterRole::batch_norm) == plain) kept += "B";
    if (planned(options, "ln.weight", ParameterRole::layer_norm) == plain) kept += "L";
    return kept;
  };
  EXPECT_EQ(norms({.level = Level::O2, .dialect = Dialect::paddle}), "BL");
  EXPECT_EQ(norms({.level = Level::O2, .dtype = bf16, .dialect = Dialect::paddle}), "B") << "float16 only";
  EXPECT_EQ(norms({.level = Level::O2, .dialect = Dialect::mindspore}), "BL");
  EXPECT_EQ(norms({.level = Level::O2, .dtype = bf16, .dialect = Dialect::mindspore}), "BL");
  EXPECT_EQ(norms({.level = Level::O3, .dialect = Dialect::mindspore}), "");
  EXPECT_EQ(norms({.level = Level::O2, .dialect = Dialect::apex}), "B");
  EXPECT_EQ(norms({.level = Level::O3, .dialect = Dialect::apex}), "");
  EXPECT_EQ(norms({.level = Level::O3, .dialect = Dialect::apex, .keep_batchnorm_fp32 = true}), "B");
  EXPECT_EQ(norms({.level = Level::O2, .dialect = Dialect::apex, .keep_batchnorm_fp32 = false}), "");
}

TEST_F(DecorateTest, ModulesSayWhichParametersAreOfNorms) {
  nn::BatchNorm batch_norm(*backend, "bn", {.features = 2});
  nn::LayerNorm layer_norm(*backend, "ln", 2);
  nn::Linear linear(*backend, "fc", {.inputs = 2, .outputs = 2});
  for (const Parameter* parameter : batch_norm.parameters())
    EXPECT_EQ(parameter->role, ParameterRole::batch_norm) << parameter->name;
  for (const Parameter* parameter : layer_norm.parameters())
    EXPECT_EQ(parameter->role, ParameterRole::layer_norm) << parameter->name;
  for (const Parameter* parameter : linear.parameters())
    EXPECT_EQ(parameter->role, ParameterRole::weight) << parameter->name;
}

TEST_F(DecorateTest, ExcludedLayersAndLayersOutsideOfTheGuardStayFp32) {
  AmpOptions options{.level = Level::O2, .dialect = Dialect::paddle, .excluded = {"fc2", "*.bias"}};
  EXPECT_EQ(planned(options, "fc1.weight"), "f32 f16 f16 f16");
  EXPECT_EQ(planned(options, "fc2.weight"), plain);
  EXPECT_EQ(planned(options, "fc21.weight"), "f32 f16 f16 f16");
  EXPECT_EQ(planned(options, "fc1.bias"), plain) << "parameters by name, too";
  options = {.level = Level::O2, .dialect = Dialect::paddle, .use_guard = true, .guard = {"fc1"}};
  EXPECT_EQ(planned(options, "fc1.weight"), "f32 f16 f16 f16");
  EXPECT_EQ(planned(options, "fc2.weight"), plain);
  options.guard = {};
  EXPECT_EQ(planned(options, "fc2.weight"), "f32 f16 f16 f16") << "an Fp16Region may hold it";
}

TEST_F(DecorateTest, ToFloatWins) {
  AmpOptions options{.level = Level::O2,
                     .dialect = Dialect::paddle,
                     .excluded = {"fc4"},
                     .to_float = {"fc3=f32", "fc4=f16", "fc5=bf16"}};
  EXPECT_EQ(planned(options, "fc3.weight"), plain);
  EXPECT_EQ(planned(options, "fc4.weight"), "f32 f16 f16 f16");
  EXPECT_EQ(planned(options, "fc5.weight"), "f32 bf16 bf16 bf16");
  options = {.level = Level::O1, .to_float = {"fc3=f16"}};
  EXPECT_EQ(planned(options, "fc3.weight"), plain)
      << "without a 16-bit model parameters are cast where they are used";
}

TEST_F(DecorateTest, RoundsValuesOnceWithoutMasterWeights) {
  Parameter& weight = make("fc.weight", ParameterRole::weight, {1.0f + 0x1p-11f, 70000.0f});
  Parameter& norm = make("bn.weight", ParameterRole::batch_norm, {1.0f + 0x1p-11f, 70000.0f});
  decorate({.level = Level::O3, .dialect = Dialect::apex, .keep_batchnorm_fp32 = true});
  EXPECT_EQ(text(weight.value.dtype(), weight.dtypes), "f16 f16 f16 f16");
  EXPECT_THAT(values_of(*backend, weight.value),
              testing::ElementsAre(1.0f, std::numeric_limits<float>::infinity()));
  EXPECT_EQ(weight.version, 1u) << "the value has changed";
  EXPECT_EQ(text(norm.value.dtype(), norm.dtypes), plain);
  EXPECT_THAT(values_of(*backend, norm.value), testing::ElementsAre(1.0f + 0x1p-11f, 70000.0f));
}

/// apex/amp/_initialize.py: model.to(float16) casts buffers too; convert_network leaves BatchNorms alone.
TEST_F(DecorateTest, RunningStatisticsAreLowWhereApexCastsTheWholeModel) {
  const auto dtype_of = [&](const AmpOptions& options) {
    Tensor statistic = tensor_of(*backend, {1}, {1.0f + 0x1p-11f});
    amp::decorate_statistic(*backend, "bn.running_mean", statistic, amp::resolve(options));
    return statistic.dtype();
  };
  EXPECT_EQ(dtype_of({.level = Level::O3, .dialect = Dialect::apex}), f16);
  EXPECT_EQ(dtype_of({.level = Level::O3, .dtype = bf16, .dialect = Dialect::apex}), bf16);
  EXPECT_EQ(dtype_of({.level = Level::O2, .dialect = Dialect::apex, .keep_batchnorm_fp32 = false}), f16);
  EXPECT_EQ(dtype_of({.level = Level::O3, .dialect = Dialect::apex, .keep_batchnorm_fp32 = true}), f32);
  EXPECT_EQ(dtype_of({.level = Level::O3, .dialect = Dialect::apex, .excluded = {"bn"}}), f32);
  EXPECT_EQ(dtype_of({.level = Level::O2, .dialect = Dialect::apex}), f32);
  EXPECT_EQ(dtype_of({.level = Level::O1, .dialect = Dialect::apex}), f32);
  EXPECT_EQ(dtype_of({.level = Level::O2, .dialect = Dialect::paddle, .keep_batchnorm_fp32 = false}), f32);
  EXPECT_EQ(dtype_of({.level = Level::O3, .dialect = Dialect::mindspore}), f32) << "parameters, stored FP32";
}

/// aten/src/ATen/native/cuda/Normalization.cuh: a step of the average in FP32, rounded where it is stored.
TEST_F(DecorateTest, LowRunningStatisticsAreRoundedOnceAStep) {
  nn::BatchNorm norm(*backend, "bn", {.features = 1, .momentum = 0.5f});
  for (nn::Buffer* const buffer : norm.buffers())
    amp::decorate_statistic(*backend, buffer->name, buffer->value,
                            amp::resolve({.level = Level::O3, .dialect = Dialect::apex}));
  Tape tape(*backend);
  const Variable x = tape.constant(tensor_of(*backend, {2, 1}, {1.0f + 0x1p-12f, 3.0f + 0x1p-12f}));
  tape.set_context({.training = true});
  norm.forward(tape, x);
  // The mean 2 + 2^-12 gives 0.5 * 0 + 0.5 * (2 + 2^-12) = 1 + 2^-13, which FP16 rounds to 1. The unbiased
  // variance 2 gives 0.5 * 1 + 0.5 * 2.
  EXPECT_EQ(norm.buffers()[0]->value.dtype(), f16);
  EXPECT_THAT(values_of(*backend, norm.buffers()[0]->value), testing::ElementsAre(1.0f));
  EXPECT_THAT(values_of(*backend, norm.buffers()[1]->value), testing::ElementsAre(1.5f));
  tape.set_context({.training = false});
  const Tensor y = norm.forward(tape, tape.constant(tensor_of(*backend, {1, 1}, {1.0f}))).tensor();
  EXPECT_THAT(values_of(*backend, y), testing::ElementsAre(0.0f)) << "the rounded mean counts";
}

TEST_F(DecorateTest, MasterWeightsKeepTheirBits) {
  Parameter& weight = make("fc.weight", ParameterRole::weight, {1.0f + 0x1p-11f, 70000.0f});
  const auto before = bytes_of(*backend, weight.value);
  decorate({.level = Level::O2, .dialect = Dialect::paddle});
  EXPECT_EQ(bytes_of(*backend, weight.value), before);
  EXPECT_EQ(text(weight.value.dtype(), weight.dtypes), "f32 f16 f16 f16");
}

TEST_F(DecorateTest, RefusesASecondTimeAndChangesNothing) {
  make("fc0.weight");
  Parameter& weight = make("fc1.weight");
  weight.dtypes.model = f16;
  try {
    decorate({.level = Level::O3, .dialect = Dialect::apex});
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::logic_error& error) {
    EXPECT_STREQ(
        error.what(),
        "amp::decorate: fc1.weight is decorated already: its value is f32, the model's f16; decorate fresh "
        "FP32 parameters, once");
  }
  EXPECT_EQ(parameters[0]->value.dtype(), f32) << "all are checked first";
}

// ---- the model's view ----

class ViewTest : public DecorateTest {
 protected:
  Tape tape{*backend};
};

TEST_F(ViewTest, AViewIsTheRoundedValueOncePerVersion) {
  Parameter& weight = make("w", ParameterRole::weight, {1.0f + 0x1p-11f, 3.0f});
  weight.dtypes = {.model = f16, .gradient = f16, .unscaled = f16};
  const Variable view = tape.parameter(weight);
  EXPECT_EQ(view.dtype(), f16);
  EXPECT_THAT(values_of(*backend, view.tensor()), testing::ElementsAre(1.0f, 3.0f));
  EXPECT_EQ(tape.parameter(weight).id(), view.id()) << "the same Variable";
  const std::byte* const memory = weight.model_value.data();
  tape.reset();
  EXPECT_EQ(tape.parameter(weight).tensor().data(), memory) << "the next micro-batch casts nothing";

  const Variable old = tape.parameter(weight);
  backend->fill(weight.value, 5.0);
  ++weight.version;
  EXPECT_THAT(values_of(*backend, tape.parameter(weight).tensor()), testing::ElementsAre(5.0f, 5.0f));
  EXPECT_THAT(values_of(*backend, old.tensor()), testing::ElementsAre(1.0f, 3.0f))
      << "an earlier graph keeps its own";
}

TEST_F(ViewTest, WithoutMastersTheValueItselfIsTheLeaf) {
  Parameter& weight = make("w");
  decorate({.level = Level::O3, .dialect = Dialect::apex});
  const Variable leaf = tape.parameter(weight);
  EXPECT_EQ(leaf.dtype(), f16);
  EXPECT_EQ(tape.parameter_of(leaf), &weight);
  EXPECT_FALSE(weight.model_value.defined());
}

TEST_F(ViewTest, AViewMadeInNoGradModeIsNotUsedForTraining) {
  Parameter& weight = make("w");
  weight.dtypes.model = f16;
  {
    const GradModeGuard off(tape, false);
    EXPECT_FALSE(tape.parameter(weight).requires_gradient());
  }
  EXPECT_TRUE(tape.parameter(weight).requires_gradient());
  tape.backward(ops::sum(tape.parameter(weight)), halves_of(*backend, {}, {1.0f}));
  EXPECT_TRUE(weight.has_gradient);
}

TEST_F(ViewTest, AViewSurvivesABackwardThatReleasesIt) {
  Parameter& weight = make("w");
  weight.dtypes.model = f16;
  for (int pass = 0; pass < 2; ++pass) tape.backward(ops::sum(tape.parameter(weight)));
  EXPECT_THAT(values_of(*backend, weight.gradient), testing::ElementsAre(2.0f, 2.0f));
}

TEST_F(ViewTest, OnlyFloatingValuesAreParameters) {
  Parameter weight{"w", index_of(*backend, {1, 2})};
  EXPECT_THROW(tape.parameter(weight), std::invalid_argument);
}

// ---- gradients ----

/// 2048 + 1 is 2048 in FP16 (a tie, to even), and 2049 in FP32. Three micro-batches: 2048, 1, 1.
TEST_F(ViewTest, LowGradientsAddUpInLow) {
  const auto accumulated = [&](const ParameterDTypes& dtypes, DType value) {
    Parameter weight{"w", filled(*backend, {1}, value)};
    weight.dtypes = dtypes;
    for (const float scale : {2048.0f, 1.0f, 1.0f}) {
      tape.backward(ops::sum(ops::scale(tape.parameter(weight), scale)));
      tape.reset();
    }
    EXPECT_EQ(weight.gradient.dtype(), dtypes.gradient);
    return values_of(*backend, weight.gradient).at(0);
  };
  EXPECT_EQ(accumulated({.model = f16, .gradient = f16, .unscaled = f16}, f32), 2048.0f) << "paddle's O2";
  EXPECT_EQ(accumulated({.model = f16, .gradient = f16, .unscaled = f16}, f16), 2048.0f) << "apex's O3";
  EXPECT_EQ(accumulated({.model = f16, .gradient = f32, .unscaled = f32}, f32), 2050.0f)
      << "master gradients";
  EXPECT_EQ(accumulated({.model = f16, .gradient = f32, .unscaled = f32}, f16), 2050.0f);
  EXPECT_EQ(accumulated({}, f32), 2050.0f) << "FP32";
  // BF16 has steps of 16 at 2048.
  EXPECT_EQ(accumulated({.model = bf16, .gradient = bf16, .unscaled = bf16}, f32), 2048.0f);
}

/// Within one backward pass contributions meet at the model's view, in its dtype.
TEST_F(ViewTest, OneUseAfterAnotherAddsUpInTheModelsDtype) {
  Parameter& weight = make("w", ParameterRole::weight, {1});
  weight.dtypes = {.model = f16, .gradient = f32, .unscaled = f32};
  const Variable w = tape.parameter(weight);
  tape.backward(ops::sum(ops::add(ops::scale(w, 2048.0f), ops::scale(tape.parameter(weight), 1.0f))));
  EXPECT_THAT(values_of(*backend, weight.gradient), testing::ElementsAre(2048.0f));
}

TEST_F(ViewTest, AGradientThatOverflowsLowIsInfinite) {
  Parameter& weight = make("w", ParameterRole::weight, {1});
  weight.dtypes = {.model = f16, .gradient = f16, .unscaled = f16};
  for (int pass = 0; pass < 2; ++pass) {
    tape.backward(ops::sum(ops::scale(tape.parameter(weight), 40000.0f)));
    tape.reset();
  }
  EXPECT_THAT(values_of(*backend, weight.gradient),
              testing::ElementsAre(std::numeric_limits<float>::infinity()));
}

TEST_F(ViewTest, TheGradientsMemoryIsReplacedWhereItsDtypeChanges) {
  Parameter& weight = make("w", ParameterRole::weight, {1});
  tape.backward(ops::sum(tape.parameter(weight)));
  EXPECT_EQ(weight.gradient.dtype(), f32);
  weight.dtypes = {.model = f16, .gradient = f16, .unscaled = f32};
  tape.reset();
  EXPECT_THROW(tape.backward(ops::sum(tape.parameter(weight))), std::logic_error) << "it was not cleared";
  weight.clear_gradient();
  tape.reset();
  tape.backward(ops::sum(tape.parameter(weight)));
  EXPECT_EQ(weight.gradient.dtype(), f16);
  // What GradScaler::unscale may leave: an FP32 gradient where 16-bit ones are made.
  weight.gradient = filled(*backend, {1}, f32, 7.0);
  weight.clear_gradient();
  tape.reset();
  tape.backward(ops::sum(tape.parameter(weight)));
  EXPECT_EQ(weight.gradient.dtype(), f16);
  EXPECT_THAT(values_of(*backend, weight.gradient), testing::ElementsAre(1.0f));
}

/// BatchNorm's parameters at apex's O3 are FP16: computed in FP32 from what is stored, their gradients
/// rounded once.
TEST_F(ViewTest, LowNormParametersGetLowGradients) {
  nn::BatchNorm norm(*backend, "bn", {.features = 2});
  amp::decorate(*backend, norm.parameters(), amp::resolve({.level = Level::O3, .dialect = Dialect::apex}));
  tape.set_context({.training = true});
  const Variable x = tape.constant(halves_of(*backend, {2, 2}, {1, 2, 3, 6}));
  const Variable y = norm.forward(tape, x);
  EXPECT_EQ(y.dtype(), f16);
  tape.backward(ops::sum(y));
  for (const Parameter* parameter : norm.parameters()) {
    EXPECT_EQ(parameter->value.dtype(), f16) << parameter->name;
    EXPECT_EQ(parameter->gradient.dtype(), f16) << parameter->name;
  }
}

}  // namespace
}  // namespace fp16lab::engine::test::decorate_test
