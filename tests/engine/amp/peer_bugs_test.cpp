// Bugs of other loss scalers, each as a test that ours must pass, in the order of their list:
//    1  an overflow in optimizer A only, in both orders: A steps with B's flag (Paddle's dygraph AmpScaler)
//    2  update with no check counts as a good step (the same)
//    3  scale outside of autocast disables the scaler for good (the same)
//    4  momentum and weight decay move under a skipped step, whose gradients are zeros (Paddle's static
//       decorator)
//    5  factors other than 2 are ignored; the scale falls below the floor, or to 0 (apex)
//    6  growth reaches inf, which stays inf (flax#2547, Keras 3, pytorch#98828)
//    7  a step whose gradients are all zero poisons the averages (OpenSeq2Seq's log-max):
//       LogMaxPolicy.StepsOfZerosDoNotPoisonTheAverages, statistics_policies_test.cpp
//    8  the floor is lost where the state is copied or stored (jmp)
//    9  growth one step later than the interval says (flax, DeepSpeed): here an option
//   10  rules that only traces distinguish: policy_traces_test.cpp, tests/golden/policy_traces.tsv
//   11  hysteresis: three rules of when overflows are forgiven again (apex's kernel, Megatron-LM, DeepSpeed)
//   12  an optimizer without gradients ends the iteration of all (torch's "No inf checks were recorded")
//   13  "Attempting to unscale FP16 gradients" does not name the gradients (torch)
//   14  the scale changes inside an accumulation window (several wrappers of torch)
//   15  scaler state is lost over a restart, in a growth window or a hysteresis count (metaseq#3,
//       transformers#34053)
//   16  positional arguments: DynamicLossScaleManager(4, 3000) sets other things than meant (MindSpore)
//   17  the histogram's direction is documented the wrong way round (popart):
//       PopartPolicy.AFullUpperBinReducesAnEmptyOneRaises, in the same file
//   18  the comparison of two runs counts zeros of the FP32 run (Paddle):
//       tests/analysis/range_mass_report_test.cpp, run_comparison_test.cpp
//   19  values at 2^-25, just above it, 65519.99 and 65520 in reports:
//       tests/analysis/range_mass_report_test.cpp, tests/numerics/histogram/value_histogram_test.cpp
// Numbers 20 and up, about the callers of scalers, are in peer_regressions_test.cpp.
#include <cstring>
#include <filesystem>
#include <string>
#include <type_traits>
#include <vector>

#include "engine/amp/policies/counters.hpp"
#include "engine/train/checkpoint.hpp"
#include "tests/engine/amp/policy_traces.hpp"
#include "tests/engine/amp/scaler_support.hpp"
#include "tests/support/temporary_folder.hpp"

namespace fp16lab::engine::test {
namespace {

using amp::GradScaler;
using amp::ScalerError;
using amp::ScalerOptions;
using Kind = ScalerError::Kind;
using PeerBug = ScalerTest;

TEST_F(PeerBug, N01_EveryOptimizerHasItsOwnFlagWhateverTheOrder) {
  for (const bool unscale_a_first : {true, false}) {
    for (const bool step_a_first : {true, false}) {
      const double before = scale();
      const auto a_before = bytes_of(*backend, a.value), b_before = bytes_of(*backend, b.value);
      begin();
      give(a, infinity);
      give(b, 1.0f);
      scaler.unscale(unscale_a_first ? *first : *second);
      scaler.unscale(unscale_a_first ? *second : *first);
      scaler.step(step_a_first ? *first : *second);
      scaler.step(step_a_first ? *second : *first);
      scaler.update();
      EXPECT_EQ(bytes_of(*backend, a.value), a_before) << "A has overflowed";
      EXPECT_NE(bytes_of(*backend, b.value), b_before) << "B has not";
      EXPECT_EQ(scale(), before / 2) << "the clean optimizer that stepped last hides nothing";
    }
  }
}

TEST_F(PeerBug, N02_UpdateNeedsACheck) {
  const auto before = bytes_of(*backend, step);
  for (int call = 0; call < 8; ++call)  // twice the growth interval
    expect_scaler_error(Kind::update_without_check, "GradScaler::update", "", "", [&] { scaler.update(); });
  EXPECT_EQ(bytes_of(*backend, step), before) << "no good step was counted";
}

TEST_F(PeerBug, N03_ASeedOutsideOfAutocastDisablesNothing) {
  Tape tape(*backend);
  ASSERT_EQ(tape.cast_policy(), nullptr);
  begin();
  tape.backward(ops::sum(tape.parameter(a)), scaler.seed());
  EXPECT_EQ(values_of(*backend, a.gradient), (std::vector<float>{65536, 65536})) << "scaled all the same";
  scaler.minimize(*first);
  EXPECT_EQ(values_of(*backend, a.value), (std::vector<float>{0.5f, 1.5f})) << "and unscaled";
  iterate(infinity);
  EXPECT_EQ(scale(), 32768.0);
  EXPECT_TRUE(scaler.enabled() && scaler.checks());
}

TEST_F(PeerBug, N04_ASkippedStepMovesNeitherMomentumNorDecayedWeights) {
  const auto decayed = optim::make_optimizer(
      *backend, {&b}, {.learning_rate = 0.5, .momentum = 0.9, .weight_decay = 0.1}, 100, 1);
  begin();
  give(b, 65536.0f);
  scaler.minimize(*decayed);
  const auto weight = bytes_of(*backend, b.value);
  const auto velocity = bytes_of(*backend, decayed->state().at(0).tensor);
  give(b, nan);
  scaler.minimize(*decayed);
  EXPECT_EQ(bytes_of(*backend, b.value), weight);
  EXPECT_EQ(bytes_of(*backend, decayed->state().at(0).tensor), velocity);
  // Gradients of zeros, what the peer's kernel makes of the overflow, do move both.
  decayed->clear_gradients(optim::ClearTo::zero);
  scaler.minimize(*decayed);
  EXPECT_NE(bytes_of(*backend, b.value), weight);
  EXPECT_NE(bytes_of(*backend, decayed->state().at(0).tensor), velocity);
}

class FactorThree : public ScalerTest {
 protected:
  FactorThree()
      : ScalerTest({.policy = "apex",
                    .initial_scale = 64,
                    .growth_factor = 3,
                    .backoff_factor = 0.25,
                    .growth_interval = 2}) {}
};

TEST_F(FactorThree, N05_FactorsAreHonoured) {
  std::vector<double> scales;
  for (const char kind : std::string_view("FFFFOFF")) {
    iterate(kind == 'O' ? infinity : 1.0f);
    scales.push_back(scale());
  }
  EXPECT_EQ(scales, (std::vector<double>{64, 192, 192, 576, 144, 144, 432}));
}

TEST_F(PeerBug, N05_TheScaleNeverFallsBelowTheFloorNorToZero) {
  for (const amp::PolicyDescription& description : amp::scale_policies()) {
    if (description.find("initial_scale") == nullptr) continue;
    for (const double floor : {0.0, 0.25, 1.0, 3.0}) {
      const amp::ScalePolicy policy = amp::make_scale_policy(
          {.policy = std::string(description.name),
           .initial_scale = 16,
           .parameters = {{"min_scale", floor}, {"max_scale", 0}, {"finite_guard", 1}, {"min_loss_scale", 0}},
           .power_of_two = amp::PowerOfTwo::any});
      StepState state = policy.initial;
      for (const double s : trace_from(state, policy, std::string(2000, 'O'))) {
        ASSERT_GE(s, floor) << description.name;
        ASSERT_TRUE(amp::is_usable_scale(s)) << description.name;
      }
    }
  }
  EXPECT_EQ(trace_of("apex", "", std::string(2000, 'O')).back(), 0x1p-126);
  EXPECT_EQ(trace_of("apex", "min_scale=128", std::string(2000, 'O')).back(), 128.0);
}

class NearTheTop : public ScalerTest {
 protected:
  NearTheTop() : ScalerTest({.policy = "dynamic", .initial_scale = 0x1p126, .growth_interval = 1}) {}
};

TEST_F(NearTheTop, N06_GrowthStopsBelowInfinityAndALoadedInfinityComesBack) {
  for (int good = 0; good < 5; ++good) iterate(1.0f);
  EXPECT_EQ(scale(), 0x1p127);
  iterate(infinity);
  EXPECT_EQ(scale(), 0x1p126);

  StepState loaded = state();  // a checkpoint of another library's scaler
  amp::TorchScaling::State policy{.scale = infinity, .growth_tracker = 0};
  std::memcpy(loaded.policy.data(), &policy, sizeof(policy));
  loaded.set_scale(static_cast<double>(infinity));
  backend->write_step_state(loaded, step);
  iterate(infinity);
  EXPECT_EQ(scale(), 0x1p126);
  iterate(infinity);
  EXPECT_EQ(scale(), 0x1p125);
}

TEST_F(PeerBug, N06_NoPolicyGrowsToInfinityUnlessItIsAskedTo) {
  for (const amp::PolicyDescription& description : amp::scale_policies()) {
    amp::PolicySettings settings{{"growth_interval", 1}, {"max_scale", 0}, {"finite_guard", 1}};
    if (description.find("initial_scale") != nullptr) settings.emplace("initial_scale", 0x1p126);
    const amp::ScalePolicy policy = amp::make_scale_policy({.policy = std::string(description.name),
                                                            .parameters = settings,
                                                            .power_of_two = amp::PowerOfTwo::any});
    StepState state = policy.initial;
    const double top = trace_from(state, policy, std::string(600, 'F')).back();
    EXPECT_TRUE(amp::is_usable_scale(top)) << description.name << ": " << top;
  }
  // The peers' own results, with FP32 scales, where no check guards the product.
  EXPECT_EQ(trace_of("keras3", "growth_interval=1 initial_scale=1.7014118346046923e38", "FO"),
            (std::vector<double>{static_cast<double>(infinity), static_cast<double>(infinity)}));
  EXPECT_EQ(trace_of("colossalai", "growth_interval=1 initial_scale=1.7014118346046923e38", "FO"),
            (std::vector<double>{static_cast<double>(infinity), static_cast<double>(infinity)}));
  EXPECT_EQ(trace_of("keras3", "growth_interval=1 initial_scale=1.7014118346046923e38 finite_guard=1", "FO"),
            (std::vector<double>{0x1p127, 0x1p126}));
}

TEST_F(PeerBug, N08_TheFloorOutlivesCopiesAndBytes) {
  // The peer's floor of 0.125 becomes 1 when its object passes through tree_map.
  const amp::ScalePolicy policy = policy_of("jmp", "initial_scale=1 min_scale=0.125");
  const amp::ScalePolicy copy = policy;
  backend->write_step_state(copy.initial, step);
  std::vector<double> scales;
  for (int overflow = 0; overflow < 5; ++overflow) {
    StepState between = state();  // out of the back end's memory and in again
    between.found_inf.front() = 1;
    backend->write_step_state(between, step);
    backend->run(copy.update, step);
    scales.push_back(scale());
  }
  EXPECT_EQ(scales, (std::vector<double>{0.5, 0.25, 0.125, 0.125, 0.125}));
}

TEST_F(PeerBug, N09_GrowthIsDueAfterExactlyTheInterval) {
  std::vector<double> scales;
  for (int good = 0; good < 9; ++good) {
    iterate(1.0f);
    scales.push_back(scale() / 65536.0);
  }
  EXPECT_EQ(scales, (std::vector<double>{1, 1, 1, 2, 2, 2, 2, 4, 4}));
}

TEST_F(PeerBug, N09_ThePeersExtraGoodStepIsAnOption) {
  // The steps, of 13 good ones, after which the scale has grown; interval 4.
  const auto growths = [](const std::string& name, const std::string& settings) {
    std::vector<int> steps;
    const std::vector<double> scales =
        trace_of(name, "initial_scale=1024 growth_interval=4 " + settings, std::string(13, 'F'));
    for (std::size_t i = 0; i < scales.size(); ++i)
      if (scales[i] != (i == 0 ? 1024 : scales[i - 1])) steps.push_back(static_cast<int>(i) + 1);
    return steps;
  };
  const std::vector<int> exact = {4, 8, 12};
  for (const std::string name :
       {"torch", "paddle", "paddle-static", "paddle-static-legacy", "mindspore", "mindspore-cell",
        "mindspore-amp", "apex", "apex-fp16-utils", "apex-hysteresis", "megatron", "colossalai", "fastllm",
        "fairseq", "tf1-exponential", "keras2", "keras3", "jmp"})
    EXPECT_EQ(growths(name, ""), exact) << name;
  EXPECT_EQ(growths("openseq2seq-backoff", "max_scale=65536"), exact);
  EXPECT_EQ(growths("flax", ""), (std::vector<int>{5, 10})) << "one more before every growth";
  EXPECT_EQ(growths("deepspeed", ""), (std::vector<int>{5, 9, 13})) << "one more before the first";
  EXPECT_EQ(growths("flax", "extra_good_step=0"), exact);
  EXPECT_EQ(growths("deepspeed", "extra_good_step=0"), exact);
  EXPECT_EQ(growths("mxnet", ""), (std::vector<int>{5, 9, 13})) << "decided after 4, in force one step later";
  EXPECT_EQ(growths("metaseq", ""), (std::vector<int>{4, 8})) << "the interval doubles with the scale";
}

TEST_F(PeerBug, N11_OverflowsAreForgivenAgainByThreeRules) {
  const std::string settings = "initial_scale=1024 growth_interval=4 hysteresis=2";
  // A good step gives the forgiven overflow back: isolated ones never lower the scale.
  EXPECT_EQ(trace_of("apex-hysteresis", settings, "OFOFOF").back(), 1024.0);
  EXPECT_EQ(trace_of("deepspeed", settings + " consecutive_hysteresis=1", "OFOFOF").back(), 1024.0);
  EXPECT_EQ(trace_of("apex-hysteresis", settings, "OFOO").back(), 512.0);
  // Only growth gives it back: the first is forgiven, every later one backs off until then.
  EXPECT_EQ(trace_of("megatron", settings, "OFOFO"), (std::vector<double>{1024, 1024, 512, 512, 256}));
  EXPECT_EQ(trace_of("megatron", settings, "OFOFFFFO"),
            (std::vector<double>{1024, 1024, 512, 512, 512, 512, 1024, 1024}));
  // The same, where growth is due one good step later.
  EXPECT_EQ(trace_of("deepspeed", settings, "OFOFO"), (std::vector<double>{1024, 1024, 512, 512, 256}));
  EXPECT_EQ(trace_of("deepspeed", settings, "OFOFFFFO"),
            (std::vector<double>{1024, 1024, 512, 512, 512, 512, 512, 256}));
  EXPECT_EQ(trace_of("deepspeed", settings, "OFOFFFFFO"),
            (std::vector<double>{1024, 1024, 512, 512, 512, 512, 512, 1024, 1024}));
  // Paddle's count of bad steps is cleared by a good one, TensorFlow's is not.
  const std::string bad_steps = "initial_scale=1024 growth_interval=4 bad_steps=2 backoff_factor=0.5";
  EXPECT_EQ(trace_of("paddle", bad_steps, "OFOFOF").back(), 1024.0);
  EXPECT_EQ(trace_of("tf1-exponential", bad_steps, "OFOFOF"),
            (std::vector<double>{1024, 1024, 512, 512, 512, 512}));
  // A hysteresis of 1 forgives nothing.
  for (const std::string name : {"apex-hysteresis", "megatron", "deepspeed"})
    EXPECT_EQ(trace_of(name, "initial_scale=1024 hysteresis=1", "O").back(), 512.0) << name;
}

TEST_F(PeerBug, N12_AnOptimizerWithoutGradientsIsNamedAndTheOthersGoOn) {
  const auto a_before = bytes_of(*backend, a.value), b_before = bytes_of(*backend, b.value);
  begin();
  give(a, 65536.0f);
  expect_scaler_error(Kind::no_gradients, "GradScaler::unscale", "sgd", "b.weight",
                      [&] { scaler.unscale(*second); });
  scaler.unscale(*first);
  expect_scaler_error(Kind::no_gradients, "GradScaler::step", "sgd", "b.weight",
                      [&] { scaler.step(*second); });
  scaler.step(*first);
  scaler.update();
  EXPECT_NE(bytes_of(*backend, a.value), a_before);
  EXPECT_EQ(bytes_of(*backend, b.value), b_before);
  EXPECT_EQ(state().taken_steps[0], 1u);
  EXPECT_EQ(state().taken_steps[1] + state().skipped_steps[1], 0u);
  // A caller who needs such a step all the same clears to zero: zeros count as gradients.
  second->clear_gradients(optim::ClearTo::zero);
  EXPECT_NO_THROW(scaler.minimize(*second));
}

class TorchLike : public ScalerTest {
 protected:
  TorchLike() : ScalerTest({.policy = "dynamic", .allow_low_gradients = false}) {}
};

TEST_F(TorchLike, N13_TheMessageAboutFp16GradientsNamesTheParameter) {
  give(a, 1.0f, DType::f16);
  expect_scaler_error(Kind::gradient_dtype, "GradScaler::unscale", "sgd", "a.weight",
                      [&] { scaler.unscale(*first); });
}

using Accumulation = AccumulationTest;

TEST_F(Accumulation, N14_TheScaleIsConstantInsideAWindow) {
  // Growth is due after 4 iterations: it must come between two windows of 3 micro-batches, not in one.
  for (int window = 0; window < 5; ++window) {
    const float s = window < 4 ? 8192.0f : 16384.0f;
    begin();
    first->clear_gradients();
    for (const float x : {0x1p-4f, 0x1p-5f, 0x1p-6f}) {
      EXPECT_EQ(values_of(*backend, scaler.seed()), std::vector<float>{s});
      add_micro_batch(x);
    }
    EXPECT_EQ(values_of(*backend, a.gradient), (std::vector<float>{s * 0.109375f, 0}));
    scaler.unscale(*first);
    EXPECT_EQ(values_of(*backend, a.gradient), (std::vector<float>{0.109375f, 0}));
    scaler.step(*first);
    scaler.update();
  }
  EXPECT_EQ(state().taken_steps[0], 5u);
}

TEST_F(PeerBug, N15_AGrowthWindowContinuesWhereItStood) {
  for (std::size_t stop = 0; stop <= sequence_a.size(); ++stop) {
    const auto run = [&](GradScaler& scaler_, std::string_view part, std::vector<double>& scales) {
      for (const char kind : part) {
        give(a, kind == 'O' ? infinity : 1.0f);
        scaler_.minimize(*first);
        scales.push_back(scale());
      }
    };
    const ScalerOptions options{.policy = "dynamic", .initial_scale = 65536, .growth_interval = 4};
    std::vector<double> scales;
    backend->write_step_state(StepState{}, step);
    GradScaler before(*backend, options, step);
    run(before, sequence_a.substr(0, stop), scales);
    const StepState saved = state();
    backend->write_step_state(StepState{}, step);
    GradScaler after(*backend, options, step);
    backend->write_step_state(saved, step);
    run(after, sequence_a.substr(stop), scales);
    EXPECT_EQ(scales, powers_of_two(torch_a)) << "stopped after " << stop;
  }
}

TEST_F(PeerBug, N15_CountsOfEveryPolicyContinueFromACheckpoint) {
  // Stops in growth windows, after a forgiven overflow, and between two bad steps.
  const testing_support::TemporaryFolder folder;
  const std::string sequence = "FFOFFFOOFFFFFOFOFFFF";
  for (const amp::PolicyDescription& description : amp::scale_policies()) {
    amp::PolicySettings settings{
        {"hysteresis", 3}, {"bad_steps", 2}, {"growth_interval", 3}, {"tolerance", 0.3}};
    const amp::ScalePolicy policy = amp::make_scale_policy({.policy = std::string(description.name),
                                                            .parameters = std::move(settings),
                                                            .power_of_two = amp::PowerOfTwo::any});
    for (const std::size_t stop : {2u, 3u, 7u, 15u}) {
      SCOPED_TRACE(std::string(description.name) + ", stopped after " + std::to_string(stop));
      StepState whole = policy.initial;
      trace_from(whole, policy, sequence.substr(0, stop));
      backend->write_step_state(whole, step);
      const auto training_state = [&](const Tensor& memory) {
        return TrainingState{.backend = backend.get(),
                             .step = memory,
                             .tensors = {{"a.weight", a.value}},
                             .policy = policy.name,
                             .optimizer = "sgd",
                             .counters = {}};
      };
      const std::filesystem::path file = folder.path() / "checkpoint";
      save_checkpoint(file, training_state(step), {});
      TrainingState loaded = training_state(backend->make_step_state(policy.initial));
      CheckpointFile(file).load(loaded);
      StepState resumed = backend->read_step_state(loaded.step);
      EXPECT_EQ(trace_from(resumed, policy, sequence.substr(stop)),
                trace_from(whole, policy, sequence.substr(stop)));
      EXPECT_EQ(std::memcmp(&resumed, &whole, sizeof(whole)), 0);
    }
  }
}

template <class Options, class... Values>
concept MadeOf = requires(Values... values) {
  Options{values...};
};
template <class Options>
concept MadeByName = requires {
  Options{.policy = "dynamic", .initial_scale = 4.0, .growth_factor = 2.0};
};

TEST_F(PeerBug, N16_OptionsHaveNames) {
  static_assert(MadeByName<ScalerOptions> && MadeOf<ScalerOptions>);
  // (4, 3000), (4, 3000, 2000) and the same after a policy, in braces or parentheses.
  static_assert(!MadeOf<ScalerOptions, int, int> && !MadeOf<ScalerOptions, double, double>);
  static_assert(!MadeOf<ScalerOptions, double, double, std::int64_t>);
  static_assert(!MadeOf<ScalerOptions, const char*> && !MadeOf<ScalerOptions, std::string>);
  static_assert(!MadeOf<ScalerOptions, const char*, double, double>);
  static_assert(!MadeOf<ScalerOptions, std::string, double, double, double, std::int64_t>);
  static_assert(!std::is_constructible_v<ScalerOptions, double, double>);
  static_assert(!std::is_constructible_v<ScalerOptions, const char*, double, double>);
  static_assert(!std::is_constructible_v<ScalerOptions, std::string, double, double, double, std::int64_t>);
  // Nor does a scaler take numbers, or a name.
  static_assert(std::is_constructible_v<GradScaler, Backend&, const ScalerOptions&, Tensor>);
  static_assert(!std::is_constructible_v<GradScaler, Backend&, double, Tensor>);
  static_assert(!std::is_constructible_v<GradScaler, Backend&, double, double, Tensor>);
  static_assert(!std::is_constructible_v<GradScaler, Backend&, const char*, Tensor>);
  static_assert(!std::is_convertible_v<double, ScalerOptions>);
}

}  // namespace
}  // namespace fp16lab::engine::test
