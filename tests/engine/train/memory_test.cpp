// What is alive when a training step needs most memory: weights and their gradients, one layer's cotangent
// and the batch, and nothing else. On both back ends.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/data/synthetic.hpp"
#include "engine/nn/models/mlp.hpp"
#include "engine/train/trainer.hpp"
#include "tests/engine/backend/cuda/on_device.hpp"
#include "tests/engine/train/training_run.hpp"

namespace fp16lab::engine::test {
namespace {

// Powers of two: blocks of the pool are exactly as large as asked for. As in the tutorials' full size, a
// weight matrix is four times an activation, so that the peak is where the last gradient of a weight appears.
constexpr std::int64_t layers = 4, width = 64, rows = 16;
constexpr std::size_t weight = width * width * sizeof(float), activation = rows * width * sizeof(float);
static_assert(weight == 4 * activation);
// Per layer: a bias and its gradient, at most 4 bytes an element, a 16-bit copy of the bias, and its FP32
// master. And scalars in the smallest blocks: step state, seed, loss, loss sum, norms, learning rates,
// cotangents of the loss.
constexpr std::size_t little = layers * 4 * width * sizeof(float) + 32 * 64;
static_assert(little < weight / 2, "the bounds below tell a gradient of a weight, 16 bits wide or more");

struct Measured {
  std::size_t peak = 0;         ///< over all steps
  std::size_t activations = 0;  ///< that the forward pass of the last step has left
};

/// Supervised, and looks at the pool between the passes.
class Watched final : public TrainingMethod {
 public:
  explicit Watched(Measured& measured) : measured_(&measured) {}
  void run(Iteration& iteration) override {
    const auto in_use = [&] { return iteration.backend().memory_statistics().bytes_in_use; };
    {
      const amp::AutocastGuard autocast(iteration.tape(), iteration.autocast());
      data::Batch batch = iteration.begin_micro_batch(0);
      const Variable input = iteration.network_input(batch.inputs);
      batch.inputs = {};
      const std::size_t before = in_use();
      const Variable values = iteration.model().forward(iteration.tape(), input);
      measured_->activations = in_use() - before;
      const Variable loss = iteration.loss_of(iteration.network_output(values), batch.targets);
      iteration.record_loss(loss);
      iteration.backward(loss);
      iteration.tape().reset();
    }
    iteration.unscale(iteration.optimizer(0));
    iteration.clip(iteration.optimizer(0));
    iteration.step(iteration.optimizer(0));
  }
  Evaluation evaluate(Iteration& iteration, const data::Batch& batch) override {
    return Supervised().evaluate(iteration, batch);
  }

 private:
  Measured* measured_;
};

class TrainingMemory : public OnDevice, public testing::WithParamInterface<std::string> {
 protected:
  void SetUp() override {
    if (!emulated()) OnDevice::SetUp();
  }
  bool emulated() const { return GetParam() == "emulated"; }
  /// Scratch of the back end while one weight's 16-bit gradient is computed: the emulated one keeps its
  /// accumulators.
  std::size_t scratch() const { return emulated() ? weight : 0; }

  /// `watched`: with the method above instead of the trainer's own.
  Measured measure(const AmpOptions& amp, bool watched) {
    const std::unique_ptr<Backend> backend =
        emulated() ? make_emulated_backend(tensor_core_model("hopper"), 1) : device_backend();
    data::SyntheticBatches batches({.batch_size = rows, .inputs = {width}, .outputs = width, .batches = 2});
    Measured measured;
    Workload workload{.model = std::make_unique<nn::Mlp>(
                          *backend, nn::MlpOptions{.widths = std::vector<std::int64_t>(layers + 1, width),
                                                   .activation = nn::Activation::none}),
                      .training = &batches,
                      .loss = LossKind::mse};
    if (watched) workload.method = std::make_unique<Watched>(measured);
    Recorder recorder;
    Trainer trainer(*backend, workload, {.steps = 3}, amp,
                    {.policy = amp.level == Level::O0 ? "none" : "dynamic", .initial_scale = 1024},
                    {.learning_rate = 1e-4}, recorder);
    for (int step = 0; step < 3; ++step) trainer.train_step();
    measured.peak = backend->memory_statistics().peak_bytes_in_use;
    return measured;
  }
};

AmpOptions paddle_o2(bool master_weights) {
  AmpOptions amp{.level = Level::O2};
  amp.dialect = amp::Dialect::paddle;
  amp.master_weights = master_weights;
  return amp;
}

// At the last gradient of a weight every weight and every gradient is there, and beside them inputs and
// targets, and the value and the cotangent of the first layer.
TEST_P(TrainingMemory, OfFp32IsWeightsGradientsBatchAndOneLayer) {
  const Measured fp32 = measure({.level = Level::O0}, false);
  EXPECT_GE(fp32.peak, 2 * layers * weight + 4 * activation);
  EXPECT_LE(fp32.peak, 2 * layers * weight + 4 * activation + little);
}

// 16-bit weights and gradients beside FP32 masters are as much as FP32 weights and gradients. Inputs and
// targets, the inputs' cast and the cotangent add 16 bits each (the first layer's value went before: in
// Paddle it is an operation of its own). There is no FP32 copy of a gradient: it would be a `weight`.
TEST_P(TrainingMemory, OfO2WithMastersIsNotAboveFp32) {
  const Measured masters = measure(paddle_o2(true), false);
  const std::size_t known = 2 * layers * weight + 3 * activation + scratch();
  EXPECT_GE(masters.peak, known);
  EXPECT_LE(masters.peak, known + little);
}

TEST_P(TrainingMemory, OfO2WithoutMastersIsHalfOfFp32) {
  const Measured low = measure(paddle_o2(false), false);
  // Before the first step the weights are still FP32, and are rounded one by one.
  const std::size_t at_start = layers * weight + weight / 2;
  const std::size_t known = std::max(layers * weight + 3 * activation + scratch(), at_start);
  EXPECT_GE(low.peak, known);
  EXPECT_LE(low.peak, known + little);
}

// Where product and bias are two operations, as in Paddle, a layer keeps its sum and not its product too. And
// one keeps the cast of its inputs; FP32 reads the batch's own.
TEST_P(TrainingMemory, ALayerKeepsOneActivation) {
  EXPECT_EQ(measure({.level = Level::O0}, true).activations, layers * activation);
  for (const bool masters : {true, false})
    EXPECT_EQ(measure(paddle_o2(masters), true).activations, (layers + 1) * activation / 2) << masters;
}

INSTANTIATE_TEST_SUITE_P(BackEnds, TrainingMemory, testing::Values("emulated", "cuda"),
                         [](const auto& which) { return which.param; });

}  // namespace
}  // namespace fp16lab::engine::test
