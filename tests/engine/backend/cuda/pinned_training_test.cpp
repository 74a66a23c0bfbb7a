// Training does not show which route its products took: with a right library, with one that is wrong for
// every product, and with one whose first algorithm is wrong, every step has the bits of the emulated back
// end. CUDA's kernels and the fake library run on the PTX machine.
#include <gtest/gtest.h>

#include "engine/data/loader.hpp"
#include "engine/nn/models/mlp.hpp"
#include "engine/train/trainer.hpp"
#include "tests/engine/autograd/support.hpp"
#include "tests/engine/backend/cuda/machine_with_library.hpp"
#include "tests/engine/nn/synthetic_images.hpp"

namespace fp16lab::engine::test {
namespace {

struct RunSetup {
  AmpOptions amp{.level = Level::O1};
  std::uint64_t histograms_every = 0;  ///< then products are counted: our own epilogue
  bool graph = false;
};

struct Recorder final : TrainObserver {
  std::uint64_t histograms_every = 0;
  std::vector<std::uint64_t> hashes;
  std::vector<ExponentHistogram> histograms;

  bool wants_gradients(std::uint64_t step) override {
    return histograms_every > 0 && step % histograms_every == 0;
  }
  void on_gradient(const HistogramRow& record) override {
    histograms.push_back(record.before);
    histograms.push_back(record.after);
  }
  void on_step(const StepRow& record) override { hashes.push_back(record.state_hash); }
};

Recorder trained(Backend& backend, const RunSetup& setup) {
  // Of 40 pixels: products over more than one block of 16.
  const data::Dataset dataset = meaningless(1, 40);
  data::Loader training(dataset, data::unit_normalisation(), {.batch_size = 24, .seed = 3});
  data::Loader evaluation(dataset, data::unit_normalisation(), {.batch_size = 24, .shuffle = false});
  Workload workload;
  workload.model = std::make_unique<nn::Mlp>(backend, nn::MlpOptions{.widths = {40, 33, 3}, .seed = 3});
  workload.training = &training;
  workload.evaluation = &evaluation;
  Recorder recorder;
  recorder.histograms_every = setup.histograms_every;
  TrainOptions train{.steps = 6, .seed = 3};
  train.graph = setup.graph;
  Trainer trainer(backend, workload, train, setup.amp,
                  ScalerOptions{.policy = "dynamic", .initial_scale = 0x1p10},
                  OptimizerOptions{.learning_rate = 0.1, .momentum = 0.9}, recorder);
  trainer.run();
  return recorder;
}

void expect_emulated_bits(MachineWithLibrary& machine, const RunSetup& setup) {
  const std::unique_ptr<Backend> emulated = hopper_backend();
  RunSetup verb_by_verb = setup;
  verb_by_verb.graph = false;
  const Recorder expected = trained(*emulated, verb_by_verb), seen = trained(*machine.backend, setup);
  EXPECT_EQ(seen.hashes.size(), 6u);
  EXPECT_EQ(seen.hashes, expected.hashes);
  EXPECT_EQ(seen.histograms, expected.histograms);
}

TEST(CudaPinnedTraining, HasTheEmulatorsBitsOnTheLibrarysRoute) {
  for (const RunSetup& setup :
       {RunSetup{}, RunSetup{.amp = {.level = Level::O2, .dialect = amp::Dialect::paddle}},
        RunSetup{.histograms_every = 2}}) {
    MachineWithLibrary machine({right});
    expect_emulated_bits(machine, setup);
    EXPECT_TRUE(machine.reports.empty()) << machine.reports.front();
    EXPECT_FALSE(machine.log->asked.empty());
  }
}

TEST(CudaPinnedTraining, HasThemWhereTheLibraryIsRefusedOrItsFirstAlgorithmIs) {
  constexpr FakeAlgorithm wrong{.topology = Topology::interleaved}, twice{.fault = Fault::rounds_twice};
  MachineWithLibrary refused({wrong, twice}), second({wrong, right});
  expect_emulated_bits(refused, {});
  expect_emulated_bits(second, {});
  EXPECT_FALSE(refused.reports.empty());
  EXPECT_TRUE(second.reports.empty());
}

TEST(CudaPinnedTraining, HasThemWhereStepsAreRecordedAndReplayed) {
  MachineWithLibrary machine({right});
  expect_emulated_bits(machine, {.graph = true});
}

}  // namespace
}  // namespace fp16lab::engine::test
