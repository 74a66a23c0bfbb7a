// A warm training step calls no operator new: tensors come from the size-class pool, and everything else keeps its
// memory from the step before. Its own program, because it replaces the allocation functions.
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include <gtest/gtest.h>

#include "engine/autograd/ops.hpp"
#include "engine/backend/emulated/backend_impl.hpp"
#include "engine/data/batch_source.hpp"
#include "engine/nn/mlp.hpp"
#include "engine/train/trainer.hpp"
#include "numerics/tensor_core_model.hpp"

namespace {

std::atomic<std::uint64_t> calls{0};

void* counted(std::size_t size, std::size_t alignment) {
  calls.fetch_add(1, std::memory_order_relaxed);
  // aligned_alloc wants a multiple of the alignment.
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

/// Four batches, made once.
class FixedBatches final : public data::BatchSource {
 public:
  FixedBatches(Backend& backend, std::int64_t rows, std::int64_t features, std::int32_t classes)
      : rows_(rows) {
    for (std::size_t which = 0; which < 4; ++which) {
      std::vector<float> pixels(static_cast<std::size_t>(rows * features));
      for (std::size_t i = 0; i < pixels.size(); ++i)
        pixels[i] = static_cast<float>((i * 37 + which * 11) % 64) / 64.0f;
      std::vector<std::int32_t> labels(static_cast<std::size_t>(rows));
      for (std::size_t i = 0; i < labels.size(); ++i)
        labels[i] = static_cast<std::int32_t>(i + which) % classes;
      data::Batch batch{backend.empty({rows, features}, DType::f32), backend.empty({rows}, DType::i32)};
      backend.upload(std::as_bytes(std::span(pixels)), batch.inputs);
      backend.upload(std::as_bytes(std::span(labels)), batch.targets);
      batches_.push_back(batch);
    }
  }
  std::uint64_t batches_per_epoch() const override { return batches_.size(); }
  std::int64_t rows_per_batch() const override { return rows_; }
  data::Batch batch(Backend&, std::uint64_t index) override { return batches_[index % batches_.size()]; }

 private:
  std::int64_t rows_;
  std::vector<data::Batch> batches_;
};

struct Silent : TrainObserver {
  bool wants_gradients(std::uint64_t) override { return false; }
  void on_gradient(const GradientRecord&) override {}
  void on_step(const StepRecord&) override {}
  void on_evaluation(const EvaluationRecord&) override {}
  bool stop_requested() override { return false; }
};

struct Counts {
  std::uint64_t calls = 0;             ///< of operator new
  std::uint64_t pool_allocations = 0;  ///< of the tensor pool, all of them served from its free lists
};

/// Of `measured` steps after three that warm up.
Counts count(Trainer& trainer, EmulatedBackend& backend, int measured) {
  for (int step = 0; step < 3; ++step) trainer.train_step();
  const std::uint64_t calls_before = calls.load();
  const std::uint64_t pool_before = backend.memory_statistics().allocations;
  for (int step = 0; step < measured; ++step) trainer.train_step();
  return {calls.load() - calls_before, backend.memory_statistics().allocations - pool_before};
}

constexpr int measured_steps = 8;

Counts count_mlp(Level level, int threads, const OptimizerOptions& optimizer) {
  EmulatedBackend backend(tensor_core_model("hopper"), threads);
  FixedBatches batches(backend, 32, 48, 10);
  Silent silent;
  Workload workload;
  workload.model = std::make_unique<nn::Mlp>(backend, nn::MlpOptions{.widths = {48, 64, 64, 10}});
  workload.training = &batches;
  workload.loss = LossKind::cross_entropy;
  Trainer trainer(
      backend, workload, {.steps = 100, .accumulate = 2, .clip_norm = 1.0}, {.level = level},
      // Grows every other step and overflows on the way: both branches of the policy and of the optimizer run.
      {.policy = "dynamic", .initial_scale = 65536.0 * 64, .growth_interval = 2}, optimizer, silent);
  return count(trainer, backend, measured_steps);
}

TEST(SteadyState, TheCounterCounts) {
  const std::uint64_t before = calls.load();
  const auto number = std::make_unique<int>(1);
  const std::vector<int> array(100);
  EXPECT_EQ(calls.load() - before, 2u) << *number << array.size();
}

class SteadyStateOf : public testing::TestWithParam<Level> {};

TEST_P(SteadyStateOf, MlpWithMomentumAllocatesNothing) {
  const Counts counts = count_mlp(GetParam(), 1, {.learning_rate = 0.1, .momentum = 0.9});
  EXPECT_GT(counts.pool_allocations, 100u) << "tensors were made";
  EXPECT_EQ(counts.calls, 0u);
}

TEST_P(SteadyStateOf, MlpWithAdamWAllocatesNothing) {
  const Counts counts =
      count_mlp(GetParam(), 1, {.name = "adamw", .learning_rate = 0.01, .weight_decay = 0.1});
  EXPECT_EQ(counts.calls, 0u);
}

/// Scratch of worker threads is warm as well.
TEST_P(SteadyStateOf, MlpOnTwoThreadsAllocatesNothing) {
  const Counts counts = count_mlp(GetParam(), 2, {.learning_rate = 0.1, .momentum = 0.9});
  EXPECT_EQ(counts.calls, 0u);
}

INSTANTIATE_TEST_SUITE_P(Levels, SteadyStateOf, testing::Values(Level::O0, Level::O1),
                         [](const auto& level) { return std::string(amp::name_of(level.param)); });

}  // namespace
}  // namespace fp16lab::engine::test
