// The trainer at the levels that change the model: bits over threads and resuming, what overflowed, gradients
// that stay scaled, op statistics of a step, and exported weights.
#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "engine/nn/models/mlp.hpp"
#include "engine/train/tensor_dump.hpp"
#include "tests/engine/train/recipe_support.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/temporary_folder.hpp"

namespace fp16lab::engine::test::levels_test {
namespace {

using amp::Dialect;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing_support::message_of;

/// fc1 - bn1 - dropout - fc2 of StatefulNet in three micro-batches a step; overflows at first.
RunSetup accumulating(const AmpOptions& amp) {
  RunSetup setup;
  setup.train = {.steps = 8, .accumulate = 3, .clip_norm = 1.0, .seed = 3};
  setup.amp = amp;
  setup.scaler = {.policy = "dynamic", .initial_scale = 0x1p20, .growth_interval = 3};
  return setup;
}

std::unique_ptr<MethodRun> run_of(const RunSetup& setup, int threads = 1) {
  return std::make_unique<MethodRun>(
      class_batches(7), [](Backend& backend) { return std::make_unique<StatefulNet>(backend); },
      MethodRun::MakeMethod{}, setup, LossKind::cross_entropy, threads);
}

/// Every kind of low model: with and without masters, both 16-bit types, all dialects that have one.
std::vector<AmpOptions> low_models() {
  return {{.level = Level::O2, .dialect = Dialect::paddle},
          {.level = Level::O2, .dialect = Dialect::paddle, .master_weights = false},
          {.level = Level::O2, .dialect = Dialect::paddle, .master_gradients = true},
          {.level = Level::O2, .dtype = DType::bf16, .dialect = Dialect::paddle, .master_weights = false},
          {.level = Level::O2, .dialect = Dialect::apex},
          {.level = Level::O3, .dialect = Dialect::apex},
          {.level = Level::O3, .dialect = Dialect::mindspore, .low_loss = true}};
}

TEST(TrainLevels, ThreadsChangeNoBitOfALowModel) {
  for (const AmpOptions& amp : low_models())
    expect_the_same_with_two_threads([&](int threads) { return run_of(accumulating(amp), threads); });
}

TEST(TrainLevels, ALowModelIsResumedInTheMiddleOfEverything) {
  for (const AmpOptions& amp : low_models()) {
    if (amp.dtype == DType::bf16) continue;  // no scale makes its gradients overflow: see the next test
    const testing_support::TemporaryFolder folder;
    expect_the_same_after_resuming([&] { return run_of(accumulating(amp)); }, folder.path());
  }
}

TEST(TrainLevels, ABf16ModelIsResumedWithoutSkips) {
  const testing_support::TemporaryFolder folder;
  const RunSetup setup = accumulating(
      {.level = Level::O2, .dtype = DType::bf16, .dialect = Dialect::paddle, .master_weights = false});
  const auto whole = run_of(setup);
  whole->recorder.folder = folder.path();
  EXPECT_EQ(whole->trainer.run().skipped_steps, 0u);
  for (const std::uint64_t after : {1u, 4u, 7u}) {
    const auto tail = run_of(setup);
    tail->trainer.resume(CheckpointFile(folder.path() / std::to_string(after)));
    tail->trainer.run();
    expect_same_tail(whole->recorder.steps, tail->recorder.steps, after);
  }
}

TEST(TrainLevels, WithoutMastersTheCheckpointHolds16Bits) {
  const testing_support::TemporaryFolder folder;
  const auto run =
      run_of(accumulating({.level = Level::O2, .dialect = Dialect::paddle, .master_weights = false}));
  run->recorder.folder = folder.path();
  run->trainer.run();
  const SafetensorsReader reader(folder.path() / "8");
  EXPECT_EQ(reader.find("fc1.weight")->describe(), "F16 (5, 6)");
  EXPECT_EQ(reader.find("bn1.weight")->describe(), "F32 (5)") << "norms stay FP32";
  EXPECT_EQ(reader.find("optimizer.fc1.weight.first_moment")->describe(), "F32 (5, 6)");
  // A run with masters keeps FP32, and does not take these weights for its own.
  const auto other = run_of(accumulating({.level = Level::O2, .dialect = Dialect::paddle}));
  EXPECT_THAT(message_of([&] { other->trainer.resume(CheckpointFile(folder.path() / "8")); }),
              AllOf(HasSubstr("'fc1.weight' is F16"), HasSubstr("expected F32")));
}

// ---- what overflowed ----

/// FP16 losses, scaled by the largest finite FP16 number: a loss from 65520 / 65504 on is beyond FP16 then,
/// while the seed is not. No step is taken, so that the losses stay what they are.
RunSetup scaled_losses(double scale) {
  RunSetup setup;
  setup.train = {.steps = 8, .seed = 3};
  setup.amp = {.level = Level::O3, .dialect = Dialect::mindspore, .low_loss = true};
  setup.scaler = {.policy = "fixed", .initial_scale = scale};
  setup.optimizer = {.learning_rate = 0.0};
  return setup;
}

TEST(TrainLevels, ALossBeyondFp16IsALossOverflow) {
  constexpr double scale = 65504;
  constexpr double first_infinite = 65520;  // rounds to infinity, everything below does not
  const auto run = run_of(scaled_losses(scale));
  run->trainer.run();
  int overflows = 0, others = 0;
  for (const StepRow& record : run->recorder.steps) {
    // The loss is an FP16 number, and a product of two such numbers is exact in double.
    const bool expected = record.loss * scale >= first_infinite;
    EXPECT_EQ(run->recorder.loss_overflow(record.step), expected) << "loss " << record.loss;
    ++(expected ? overflows : others);
    const OverflowRow* const overflow = run->recorder.overflow_of(record.step);
    ASSERT_EQ(overflow != nullptr, expected || record.found_inf);
    if (overflow == nullptr) continue;
    EXPECT_EQ(overflow->kind != OverflowKind::loss, record.found_inf);
    EXPECT_EQ(overflow->parameters.empty(), !record.found_inf);
    EXPECT_EQ(overflow->optimizers.empty(), !record.skipped);
  }
  EXPECT_GT(overflows, 0);
  EXPECT_GT(others, 0);
}

TEST(TrainLevels, ALossOverflowAloneSkipsNothing) {
  // Backward begins with S, not with the product: its gradients are finite, and frameworks take the step too.
  const auto run = run_of(scaled_losses(65504));
  run->trainer.run();
  bool alone = false;
  for (const StepRow& record : run->recorder.steps) {
    EXPECT_EQ(record.skipped, record.found_inf);
    alone = alone || (run->recorder.loss_overflow(record.step) && !record.found_inf);
  }
  EXPECT_TRUE(alone);
}

TEST(TrainLevels, AnInfiniteSeedOverflowsBoth) {
  const auto run = run_of(scaled_losses(0x1p17));  // above 65520: infinite as an FP16 seed
  run->trainer.run();
  for (const StepRow& record : run->recorder.steps) {
    EXPECT_TRUE(run->recorder.loss_overflow(record.step));
    EXPECT_TRUE(record.found_inf);
    EXPECT_TRUE(record.skipped);
  }
  EXPECT_EQ(run->recorder.overflows.size(), 8u);
}

TEST(TrainLevels, AnFp32LossNeverOverflowsByItself) {
  RunSetup setup = scaled_losses(0x1p40);
  setup.amp.low_loss = false;
  const auto run = run_of(setup);
  run->trainer.run();
  for (const StepRow& record : run->recorder.steps) {
    EXPECT_FALSE(run->recorder.loss_overflow(record.step));
    EXPECT_TRUE(record.found_inf) << "its gradients do";
  }
}

// ---- gradients that stay scaled, and a scaler that does nothing ----

RunSetup in_fp32(const ScalerOptions& scaler, double loss_scale) {
  RunSetup setup;
  setup.train = {.steps = 6, .accumulate = 2, .seed = 3};
  setup.amp.level = Level::O0;
  setup.scaler = scaler;
  setup.optimizer = {.learning_rate = 0.1, .momentum = 0.9, .loss_scale = loss_scale};
  return setup;
}

TEST(TrainLevels, DividingInTheOptimizerIsDividingInTheScaler) {
  // A power of two: scaled gradients in FP32 have the same significands, nothing is near underflow or
  // overflow.
  const auto dropping = run_of(in_fp32({.policy = "fixed", .initial_scale = 1024}, 1));
  const auto keeping =
      run_of(in_fp32({.policy = "fixed", .initial_scale = 1024, .drop_overflow_update = false}, 1024));
  const auto forgotten =
      run_of(in_fp32({.policy = "fixed", .initial_scale = 1024, .drop_overflow_update = false}, 1));
  for (const auto& run : {&dropping, &keeping, &forgotten}) (*run)->trainer.run();
  EXPECT_EQ(keeping->weights(), dropping->weights());
  EXPECT_NE(forgotten->weights(), dropping->weights());
  for (std::size_t i = 0; i < dropping->recorder.steps.size(); ++i) {
    EXPECT_EQ(keeping->recorder.steps[i].loss, dropping->recorder.steps[i].loss);
    EXPECT_EQ(keeping->recorder.steps[i].grad_norm, dropping->recorder.steps[i].grad_norm)
        << "of the unscaled gradients, also where they are not";
  }
}

TEST(TrainLevels, GradientsThatStayScaledAreNotClipped) {
  for (const bool by_value : {false, true}) {
    RunSetup setup = in_fp32({.policy = "fixed", .drop_overflow_update = false}, 1);
    (by_value ? setup.train.clip_value : setup.train.clip_norm) = 1.0;
    EXPECT_THAT(message_of([&] { run_of(setup); }),
                AllOf(HasSubstr(by_value ? "train.clip_value" : "train.clip_norm"),
                      HasSubstr("scaler.drop_overflow_update")));
  }
}

TEST(TrainLevels, AGradientDumpSaysThatItsGradientsAreScaled) {
  const testing_support::TemporaryFolder folder;
  const auto run =
      run_of(in_fp32({.policy = "fixed", .initial_scale = 1024, .drop_overflow_update = false}, 1024));
  run->trainer.dump_gradients(1, folder.path() / "dump");
  run->trainer.run();
  const SafetensorsReader reader(folder.path() / "dump");
  EXPECT_EQ(reader.metadata().at("scaled"), "1");
  EXPECT_EQ(reader.metadata().at("loss_scale"), "1024");
}

TEST(TrainLevels, ADisabledScalerIsNoScaler) {
  const auto none = run_of(in_fp32({}, 1));
  RunSetup setup = in_fp32({.policy = "dynamic", .initial_scale = 0x1p100, .enabled = false}, 1);
  setup.train.clip_norm = 0.5;
  RunSetup plain = in_fp32({}, 1);
  plain.train.clip_norm = 0.5;
  const auto disabled = run_of(setup), clipped = run_of(plain);
  for (const auto& run : {&none, &disabled, &clipped}) (*run)->trainer.run();
  EXPECT_EQ(disabled->weights(), clipped->weights());
  EXPECT_NE(disabled->weights(), none->weights()) << "clipping did something";
  for (std::size_t i = 0; i < clipped->recorder.steps.size(); ++i) {
    EXPECT_EQ(disabled->recorder.steps[i].grad_norm, clipped->recorder.steps[i].grad_norm);
    EXPECT_EQ(disabled->recorder.steps[i].skipped, false);
  }
}

// ---- op statistics ----

using Row = std::array<std::uint64_t, 5>;  ///< FP16, BF16, FP32, casts to 16 bits, casts to FP32

Row row_of(const amp::OpStatistics& statistics, std::string_view layer, Op op) {
  for (const OpCount& count : statistics.by_layer())
    if (count.layer == layer && count.op == name_of(op))
      return {count.f16, count.bf16, count.f32, count.casts_to_low, count.casts_to_f32};
  return {};
}

/// fc1 - relu - fc2 and cross-entropy in `accumulate` micro-batches, counted in step 2.
std::unique_ptr<MethodRun> counted(const AmpOptions& amp) {
  RunSetup setup;
  setup.train = {.steps = 3, .accumulate = 2};
  setup.amp = amp;
  setup.scaler = {};
  auto run = std::make_unique<MethodRun>(
      class_batches(7),
      [](Backend& backend) {
        return std::make_unique<nn::Mlp>(backend, nn::MlpOptions{.widths = {6, 5, 3}});
      },
      MethodRun::MakeMethod{}, setup);
  run->recorder.count_ops_at = 2;
  run->trainer.run();
  EXPECT_EQ(run->recorder.op_statistics.size(), 1u);
  return run;
}

TEST(TrainLevels, OpStatisticsCountOneStepOfAKnownNetwork) {
  const auto run = counted({.level = Level::O1});
  const amp::OpStatistics& statistics = run->recorder.op_statistics.front();
  // Two micro-batches: two calls each. fc1 casts its input twice, its weight and bias once (the cache keeps
  // them); fc2 gets FP16 from relu. The loss takes FP16 logits to FP32; it and its division by 2 stay there.
  EXPECT_EQ(row_of(statistics, "fc1", Op::linear), (Row{2, 0, 0, 4, 0}));
  EXPECT_EQ(row_of(statistics, "fc2", Op::linear), (Row{2, 0, 0, 2, 0}));
  EXPECT_EQ(row_of(statistics, "", Op::relu), (Row{2, 0, 0, 0, 0}));
  EXPECT_EQ(row_of(statistics, "loss", Op::softmax_cross_entropy), (Row{0, 0, 2, 0, 2}));
  std::uint64_t calls = 0;
  for (const OpCount& count : statistics.by_layer()) calls += count.f16 + count.bf16 + count.f32;
  EXPECT_EQ(calls, 10u) << "these, and the division";
  for (const std::string extent : {"K = 6", "N = 5", "K = 5", "N = 3", "M = 4"}) {
    bool said = false;
    for (const amp::Advice& advice : statistics.advice())
      said = said || advice.text.find(extent) != std::string::npos;
    EXPECT_TRUE(said) << extent;
  }
}

TEST(TrainLevels, OpStatisticsWorkInFp32AndInBf16) {
  const auto wide = counted({.level = Level::O0});
  for (const OpCount& count : wide->recorder.op_statistics.front().by_layer()) {
    EXPECT_EQ(count.f16 + count.bf16 + count.casts_to_low + count.casts_to_f32, 0u) << count.layer;
    EXPECT_EQ(count.f32, 2u) << count.layer;
  }
  EXPECT_THAT(wide->recorder.op_statistics.front().advice(), IsEmpty()) << "of FP16 products only";
  const auto brain = counted({.level = Level::O2, .dtype = DType::bf16, .dialect = Dialect::paddle});
  // Paddle's linear is two ops; the low model needs no casts of weights, and the level casts the output to
  // FP32.
  const amp::OpStatistics& statistics = brain->recorder.op_statistics.front();
  EXPECT_EQ(row_of(statistics, "fc1", Op::matmul), (Row{0, 2, 0, 2, 0}));
  EXPECT_EQ(row_of(statistics, "fc1", Op::add), (Row{0, 2, 0, 0, 0}));
  EXPECT_EQ(row_of(statistics, "", Op::cast), (Row{0, 0, 2, 0, 2}));
}

TEST(TrainLevels, CountingChangesNoBit) {
  for (const Level level : {Level::O0, Level::O1}) {
    const auto watched = counted({.level = level});
    RunSetup setup;
    setup.train = {.steps = 3, .accumulate = 2};
    setup.amp.level = level;
    setup.scaler = {};
    MethodRun plain(
        class_batches(7),
        [](Backend& backend) {
          return std::make_unique<nn::Mlp>(backend, nn::MlpOptions{.widths = {6, 5, 3}});
        },
        MethodRun::MakeMethod{}, setup);
    plain.trainer.run();
    EXPECT_EQ(hashes_of(*watched), hashes_of(plain));
  }
}

// ---- exported weights ----

std::vector<double> numbers_in(const SafetensorsReader& reader, const std::string& name) {
  const SafetensorsEntry& entry = *reader.find(name);
  const std::vector<std::byte> bytes = reader.read(entry);
  const std::size_t size = size_of(*entry.type);
  std::vector<double> numbers;
  for (std::size_t i = 0; i < bytes.size(); i += size) {
    if (entry.type == DType::f64) {
      double value = 0;
      std::memcpy(&value, bytes.data() + i, size);
      numbers.push_back(value);
    } else if (entry.type == DType::f32) {
      float value = 0;
      std::memcpy(&value, bytes.data() + i, size);
      numbers.push_back(static_cast<double>(value));
    } else {
      std::uint16_t bits = 0;
      std::memcpy(&bits, bytes.data() + i, size);
      const int fraction_bits = entry.type == DType::f16 ? 10 : 7;
      const int bias = entry.type == DType::f16 ? 15 : 127;
      const int exponent = (bits & 0x7fff) >> fraction_bits;
      const int fraction = bits & ((1 << fraction_bits) - 1);
      const double magnitude =
          exponent == 0 ? std::ldexp(fraction, 1 - bias - fraction_bits)
                        : std::ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
      numbers.push_back((bits & 0x8000) != 0 ? -magnitude : magnitude);
    }
  }
  return numbers;
}

/// `exact` to a multiple of the spacing of numbers with `precision` bits and least exponent `emin`, ties to
/// even: nearbyint in the default rounding direction, on an exact quotient.
double rounded(double exact, int precision, int emin) {
  if (exact == 0) return exact;
  const double spacing = std::ldexp(1.0, std::max(std::ilogb(exact), emin) - precision + 1);
  return std::nearbyint(exact / spacing) * spacing;
}

TEST(TrainLevels, ExportedWeightsAreRoundedOnce) {
  const testing_support::TemporaryFolder folder;
  for (const AmpOptions& amp :
       {AmpOptions{.level = Level::O0},
        AmpOptions{.level = Level::O2, .dialect = Dialect::paddle, .master_weights = false}}) {
    const auto run = run_of(accumulating(amp));
    run->trainer.run();
    const auto export_as = [&](DType dtype) {
      save_weights(folder.path() / "weights", *run->backend, *run->workload.model, dtype, {{"step", "8"}});
      return std::make_unique<SafetensorsReader>(folder.path() / "weights");
    };
    struct Kind {
      DType dtype;
      std::string shown;
      int precision, emin;
    };
    for (const Kind& kind : {Kind{DType::f16, "F16", 11, -14}, Kind{DType::bf16, "BF16", 8, -126},
                             Kind{DType::f32, "F32", 24, -126}, Kind{DType::f64, "F64", 53, -1022}}) {
      const auto reader = export_as(kind.dtype);
      EXPECT_EQ(reader->metadata(),
                (SafetensorsMetadata{{"dtype", std::string(name_of(kind.dtype))}, {"step", "8"}}));
      EXPECT_EQ(reader->entries().size(), 8u) << "six parameters, two buffers";
      EXPECT_EQ(reader->find("fc1.weight")->describe(), kind.shown + " (5, 6)");
      const auto expect = [&](const std::string& name, const Tensor& tensor) {
        const std::vector<double> actual = numbers_in(*reader, name);
        const std::vector<float> values = values_of(*run->backend, tensor);
        ASSERT_EQ(actual.size(), values.size());
        for (std::size_t i = 0; i < values.size(); ++i)
          EXPECT_EQ(actual[i], rounded(static_cast<double>(values[i]), kind.precision, kind.emin))
              << name << kind.shown;
      };
      for (const Parameter* parameter : run->trainer.parameters()) expect(parameter->name, parameter->value);
      for (const nn::Buffer* buffer : run->workload.model->buffers()) expect(buffer->name, buffer->value);
    }
    EXPECT_THAT(message_of([&] { export_as(DType::i32); }), HasSubstr("must be f16, bf16, f32 or f64"));
  }
}

}  // namespace
}  // namespace fp16lab::engine::test::levels_test
