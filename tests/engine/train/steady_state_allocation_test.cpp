// A warm training step of any network calls no operator new, neither within an epoch nor where the loader
// shuffles the next one: tensors come from the size-class pool, and everything else keeps its memory from the
// step before. Its own program, because it replaces the allocation functions.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/autograd/ops.hpp"
#include "engine/backend/emulated/emulated_backend.hpp"
#include "engine/data/loader.hpp"
#include "engine/data/text.hpp"
#include "engine/nn/conv2d.hpp"
#include "engine/nn/models/mlp.hpp"
#include "engine/nn/normalization.hpp"
#include "engine/train/methods/gan.hpp"
#include "engine/train/methods/two_models.hpp"
#include "engine/train/trainer.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"
#include "tests/support/char_model.hpp"
#include "tests/support/gan.hpp"
#include "tests/support/lenet5.hpp"

namespace {

std::atomic<std::uint64_t> calls{0};

void* counted(std::size_t size, std::size_t alignment) {
  calls.fetch_add(1, std::memory_order_relaxed);
  // aligned_alloc needs a multiple of the alignment.
  const std::size_t rounded = (size + alignment - 1) / alignment * alignment;
  void* const memory = std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// Every replaceable form: the others (arrays, nothrow) call these by default, [replacement.functions].
void* operator new(std::size_t size) { return counted(size, alignof(std::max_align_t)); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return counted(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace fp16lab::engine::test {
namespace {

struct Case {
  Level level = Level::O0;
  amp::Dialect dialect = amp::Dialect::torch;
  int threads = 1;
  bool per_loss = false;  ///< a scale for each loss
  amp::LowRounding rounding = amp::LowRounding::nearest;
  bool graph = false;  ///< steps are recorded, and replayed
};
void PrintTo(const Case& what, std::ostream* out) {
  *out << name_of(what.dialect) << " " << name_of(what.level) << " on " << what.threads << " threads";
}

/// What the measured steps did.
struct Counts {
  std::uint64_t calls = 0;             ///< calls of operator new
  std::uint64_t pool_allocations = 0;  ///< from the tensor pool, all of them from its free lists
  std::uint64_t epochs_begun = 0;      ///< each with an order of its own
  std::uint64_t skipped_steps = 0;     ///< those of the optimizer that skipped most
};

/// The first is done verb by verb, where steps are recorded the second is.
constexpr std::uint64_t warm_steps = 4, measured_steps = 8;

/// Every loader below has four batches an epoch, and a step takes `accumulate` of them.
constexpr std::int64_t batches_per_epoch = 4;

Counts count(Backend& backend, Workload& workload, TrainOptions train, const Case& what,
             const OptimizerOptions& optimizer) {
  Tap nobody;
  train.graph = what.graph;
  Trainer trainer(
      backend, workload, train, {.level = what.level, .dialect = what.dialect, .rounding = what.rounding},
      // Grows every other step; f16 overflows on the way, so that both branches of the policy and of
      // the optimizer run.
      {.policy = "dynamic", .initial_scale = 65536.0 * 64, .growth_interval = 2, .per_loss = what.per_loss},
      optimizer, nobody);
  const auto epoch = [&] {
    return trainer.iteration() * static_cast<std::uint64_t>(train.accumulate) /
           workload.training->batches_per_epoch();
  };
  for (std::uint64_t step = 0; step < warm_steps; ++step) trainer.train_step();
  const std::uint64_t epoch_before = epoch();
  const auto skipped = [&] {
    const StepState state = trainer.step_state();
    return *std::max_element(state.skipped_steps.begin(), state.skipped_steps.end());
  };
  const std::uint64_t skipped_before = skipped();
  const std::uint64_t pool_before = backend.memory_statistics().allocations;
  const std::uint64_t calls_before = calls.load();
  for (std::uint64_t step = 0; step < measured_steps; ++step) trainer.train_step();
  return {.calls = calls.load() - calls_before,
          .pool_allocations = backend.memory_statistics().allocations - pool_before,
          .epochs_begun = epoch() - epoch_before,
          .skipped_steps = skipped() - skipped_before};
}

/// Counts of a network that learns to classify `images`, `batch_size` at a time.
template <class MakeModel>
Counts count_images(const Case& what, const data::Dataset& images, data::LoaderOptions loader_options,
                    const TrainOptions& train, const OptimizerOptions& optimizer, const MakeModel& make_model,
                    std::unique_ptr<TrainingMethod> method = {}) {
  const auto owned = make_emulated_backend(tensor_core_model("hopper"), what.threads);
  Backend& backend = *owned;
  loader_options.batch_size = images.count() / batches_per_epoch;
  loader_options.seed = 1;
  data::Loader loader(images, data::unit_normalisation(), loader_options);
  Workload workload;
  workload.model = make_model(backend);
  workload.training = &loader;
  workload.method = std::move(method);
  return count(backend, workload, train, what, optimizer);
}

/// Pixels and labels without a meaning, but not all the same.
data::Dataset images(std::int64_t count, std::int64_t side) {
  constexpr std::int64_t classes = 10;
  std::vector<std::uint8_t> pixels, labels;
  for (std::int64_t i = 0; i < count * side * side; ++i)
    pixels.push_back(static_cast<std::uint8_t>(i * 37 % 251));
  for (std::int64_t i = 0; i < count; ++i) labels.push_back(static_cast<std::uint8_t>(i % classes));
  return data::labelled_images({1, side, side}, classes, pixels, labels);
}

Counts count_mlp(const Case& what, const OptimizerOptions& optimizer) {
  return count_images(what, images(128, 7), {}, {.steps = 100, .accumulate = 2, .clip_norm = 1.0}, optimizer,
                      [](Backend& backend) {
                        return std::make_unique<nn::Mlp>(backend, nn::MlpOptions{.widths = {49, 64, 64, 10}});
                      });
}

Counts count_two_models(const Case& what) {
  const auto make_mlp = [](Backend& backend, const char* path) {
    return std::make_unique<nn::Mlp>(backend, nn::MlpOptions{.widths = {49, 64, 10}, .path = path});
  };
  return count_images(
      what, images(128, 7), {}, {.steps = 100, .accumulate = 2, .clip_norm = 1.0},
      {.learning_rate = 0.1, .momentum = 0.9},
      [&](Backend& backend) {
        return std::make_unique<nn::ModelPair>(make_mlp(backend, "model0"), make_mlp(backend, "model1"));
      },
      std::make_unique<TwoModels>());
}

Counts count_gan(const Case& what) {
  return count_images(
      what, images(32, 7), {}, {.steps = 100, .accumulate = 2},
      {.name = optim::Algorithm::adam, .learning_rate = 0.01},
      [](Backend& backend) {
        return gan_of(backend, {8, 32, 49}, {49, 32, 1});
      },
      std::make_unique<AdversarialTraining>());
}

Counts count_lenet5(const Case& what, Layout layout) {
  return count_images(what, images(32, 28), {.layout = layout, .padding = 2}, {.steps = 100},
                      {.learning_rate = 0.1, .momentum = 0.9}, [layout](Backend& backend) {
                        return std::make_unique<LeNet5>(backend, LeNet5Options{.layout = layout});
                      });
}

/// All norms, after a convolution with padding and a stride, a transposed one in two groups that undoes the
/// stride, and a depthwise one; average pooling.
class NormedNetwork final : public nn::Module {
 public:
  NormedNetwork(Backend& backend, Layout layout)
      : layout_(layout),
        conv_(&add_child(std::make_unique<nn::Conv2d>(
            backend, "conv",
            nn::Conv2dOptions{.inputs = 1,
                              .outputs = 6,
                              .geometry = {.stride = {2, 2}, .padding = {1, 1}, .layout = layout}}))),
        batch_norm_(&add_child(std::make_unique<nn::BatchNorm>(
            backend, "bn", nn::BatchNormOptions{.features = 6, .layout = layout}))),
        up_(&add_child(std::make_unique<nn::ConvTranspose2d>(
            backend, "up",
            nn::Conv2dOptions{.inputs = 6,
                              .outputs = 6,
                              .kernel = {2, 2},
                              .geometry = {.stride = {2, 2}, .layout = layout, .groups = 2}}))),
        group_norm_(&add_child(std::make_unique<nn::GroupNorm>(
            backend, "gn", nn::GroupNormOptions{.groups = 2, .channels = 6, .layout = layout}))),
        depthwise_(&add_child(std::make_unique<nn::Conv2d>(
            backend, "depthwise",
            nn::Conv2dOptions{
                .inputs = 6,
                .outputs = 6,
                .geometry = {.stride = {2, 2}, .padding = {1, 1}, .layout = layout, .groups = 6}}))),
        layer_norm_(&add_child(std::make_unique<nn::LayerNorm>(backend, "ln", features))),
        rms_norm_(&add_child(std::make_unique<nn::RmsNorm>(backend, "rms", features))),
        head_(&add_child(std::make_unique<nn::Linear>(
            backend, "head", nn::LinearOptions{.inputs = features, .outputs = 10}))) {}

  Variable forward(Tape& tape, const Variable& x) override {
    Variable y = ops::relu(batch_norm_->forward(tape, conv_->forward(tape, x)));
    y = ops::relu(group_norm_->forward(tape, up_->forward(tape, y)));
    y = ops::average_pool2d(depthwise_->forward(tape, y), {.layout = layout_});
    y = ops::reshape(y, {x.shape()[0], features});
    return head_->forward(tape, rms_norm_->forward(tape, layer_norm_->forward(tape, y)));
  }

 private:
  static constexpr std::int64_t features = 6 * 2 * 2;  ///< of 8x8 images, halved twice

  Layout layout_;
  nn::Conv2d* conv_;
  nn::BatchNorm* batch_norm_;
  nn::ConvTranspose2d* up_;
  nn::GroupNorm* group_norm_;
  nn::Conv2d* depthwise_;
  nn::LayerNorm* layer_norm_;
  nn::RmsNorm* rms_norm_;
  nn::Linear* head_;
};

Counts count_normed_network(const Case& what, Layout layout) {
  return count_images(what, images(32, 8), {.layout = layout}, {.steps = 100, .clip_value = 0.5},
                      {.learning_rate = 0.1, .momentum = 0.9}, [layout](Backend& backend) {
                        return std::make_unique<NormedNetwork>(backend, layout);
                      });
}

/// Counts of a network that learns to predict characters: four windows of `context` a batch.
template <class MakeModel>
Counts count_text(const Case& what, std::int64_t context, const OptimizerOptions& optimizer,
                  const MakeModel& make_model) {
  constexpr std::int64_t batch_size = 4;
  std::vector<std::int32_t> symbols(static_cast<std::size_t>(batches_per_epoch * batch_size * context + 1));
  for (std::size_t i = 0; i < symbols.size(); ++i) symbols[i] = static_cast<std::int32_t>(i * i % 17);
  const auto owned = make_emulated_backend(tensor_core_model("hopper"), what.threads);
  Backend& backend = *owned;
  data::TextLoader loader(symbols, {.batch_size = batch_size, .context = context, .seed = 1});
  Workload workload;
  workload.model = make_model(backend);
  workload.training = &loader;
  return count(backend, workload, {.steps = 100, .clip_norm = 1.0}, what, optimizer);
}

/// 20 steps: more than any list of fixed length in the operations.
Counts count_lstm(const Case& what, std::int64_t layers) {
  return count_text(
      what, 20, {.name = optim::Algorithm::adam, .learning_rate = 0.01}, [layers](Backend& backend) {
        return std::make_unique<CharLstm>(
            backend,
            CharLstmOptions{.symbols = 17, .embedding = 8, .hidden = 16, .layers = layers, .dropout = 0.1f});
      });
}

Counts count_transformer(const Case& what) {
  return count_text(
      what, 16, {.name = optim::Algorithm::adamw, .learning_rate = 0.01, .weight_decay = 0.1},
      [](Backend& backend) {
        return std::make_unique<CharTransformer>(
            backend,
            CharTransformerOptions{
                .symbols = 17, .context = 16, .embedding = 16, .heads = 2, .layers = 2, .dropout = 0.1f});
      });
}

TEST(SteadyState, TheCounterCounts) {
  const std::uint64_t before = calls.load();
  const auto number = std::make_unique<int>(1);
  const std::vector<int> array(100);
  EXPECT_EQ(calls.load() - before, 2u) << *number << array.size();
}

class SteadyStateOf : public testing::TestWithParam<Case> {
 protected:
  static void expect_no_allocation(const Counts& counts) {
    if (!GetParam().graph) {
      EXPECT_GT(counts.pool_allocations, 100u) << "tensors were made";
    }
    EXPECT_GT(counts.epochs_begun, 0u) << "the loader shuffled";
    if (GetParam().level != Level::O0) {
      EXPECT_GT(counts.skipped_steps, 0u) << "f16 overflowed";
      EXPECT_LT(counts.skipped_steps, measured_steps) << "and not always";
    }
    EXPECT_EQ(counts.calls, 0u);
  }
};

TEST_P(SteadyStateOf, MlpWithMomentumAllocatesNothing) {
  expect_no_allocation(count_mlp(GetParam(), {.learning_rate = 0.1, .momentum = 0.9}));
}

TEST_P(SteadyStateOf, MlpWithAdamWAllocatesNothing) {
  expect_no_allocation(
      count_mlp(GetParam(), {.name = optim::Algorithm::adamw, .learning_rate = 0.01, .weight_decay = 0.1}));
}

TEST_P(SteadyStateOf, MlpWithOtherUpdateRulesAllocatesNothing) {
  // LAMB takes directions and norms from the pool.
  using enum optim::Algorithm;
  for (const optim::Algorithm name : {rmsprop, lamb, adam_weight_decay})
    expect_no_allocation(count_mlp(
        GetParam(),
        {.name = name, .learning_rate = 0.001, .momentum = 0.9, .weight_decay = 0.1, .centered = true}));
}

TEST_P(SteadyStateOf, LeNet5AllocatesNothing) {
  expect_no_allocation(count_lenet5(GetParam(), Layout::nchw));
  expect_no_allocation(count_lenet5(GetParam(), Layout::nhwc));
}

TEST_P(SteadyStateOf, BatchNormAndLayerNormAllocateNothing) {
  expect_no_allocation(count_normed_network(GetParam(), Layout::nchw));
  expect_no_allocation(count_normed_network(GetParam(), Layout::nhwc));
}

TEST_P(SteadyStateOf, CharLstmOfOneLayerAllocatesNothing) { expect_no_allocation(count_lstm(GetParam(), 1)); }
TEST_P(SteadyStateOf, CharLstmOfTwoLayersAllocatesNothing) {
  expect_no_allocation(count_lstm(GetParam(), 2));
}
TEST_P(SteadyStateOf, CharTransformerAllocatesNothing) {
  expect_no_allocation(count_transformer(GetParam()));
}

TEST_P(SteadyStateOf, TwoModelsAllocateNothing) { expect_no_allocation(count_two_models(GetParam())); }
TEST_P(SteadyStateOf, AdversarialTrainingAllocatesNothing) {
  if (!GetParam().graph) expect_no_allocation(count_gan(GetParam()));  // else it is refused
}
TEST_P(SteadyStateOf, AScaleForEachLossAllocatesNothing) {
  Case what = GetParam();
  what.per_loss = true;
  expect_no_allocation(count_two_models(what));
  if (!what.graph) expect_no_allocation(count_gan(what));
}

// Scratch of worker threads is warm as well.
INSTANTIATE_TEST_SUITE_P(
    LevelsAndThreads, SteadyStateOf,
    testing::Values(Case{.level = Level::O0, .threads = 1}, Case{.level = Level::O0, .threads = 2},
                    Case{.level = Level::O1, .threads = 1}, Case{.level = Level::O1, .threads = 2},
                    // A 16-bit model: views of master weights, gradients that add up in FP16, and
                    // no masters at all.
                    Case{Level::O2, amp::Dialect::paddle, 1}, Case{Level::O2, amp::Dialect::mindspore, 1},
                    Case{Level::O3, amp::Dialect::apex, 1},
                    Case{.level = Level::O1, .rounding = amp::LowRounding::stochastic},
                    Case{.level = Level::O1, .graph = true},
                    Case{.level = Level::O2, .dialect = amp::Dialect::paddle, .threads = 2, .graph = true}),
    [](const auto& instance) {
      return std::string(name_of(instance.param.dialect)) + std::string(name_of(instance.param.level)) +
             "Threads" + std::to_string(instance.param.threads) +
             (instance.param.rounding == amp::LowRounding::nearest ? "" : "Stochastic") +
             (instance.param.graph ? "Replayed" : "");
    });

}  // namespace
}  // namespace fp16lab::engine::test
