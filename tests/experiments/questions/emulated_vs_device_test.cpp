// exp_emulated_vs_device: runs side by side. In process the "device" is the emulated back end, equal or with
// other tensor cores; the program itself rehearses on the PTX machine.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "engine/backend/cuda/runtime/devices.hpp"
#include "engine/backend/emulated/emulated_backend.hpp"
#include "experiments/questions/emulated_vs_device.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"
#include "tests/experiments/app/small_runs.hpp"
#include "tests/support/on_ptx.hpp"

namespace fp16lab::experiments {
namespace {

using testing::HasSubstr;

class EmulatedVsDevice : public SmallRuns {
 protected:
  RunConfig config(const std::vector<std::string>& set) {
    RunConfig all = load_config(write_config());
    for (const std::string& setting : set) apply_setting(all, setting, "test");
    return all;
  }
  /// The emulated back end beside itself, or beside one whose tensor cores keep a bit less.
  Lockstep run(const std::vector<std::string>& set, bool changed, LockstepOptions options = {.steps = 4}) {
    TensorCoreModel row = tensor_core_model("hopper");
    if (changed) row.set(&Stage::fraction_bits, row.block().fraction_bits - 1);
    return run_lockstep(config(set), "hopper", 1, engine::make_emulated_backend(row, 2), options);
  }
  testing_support::Finished program(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"-c", write_config().string(), "-o", "out", "--quiet"});
    return run_inside("exp_emulated_vs_device", arguments);
  }
};

TEST_F(EmulatedVsDevice, EqualBackEndsAreEqualAtEveryStep) {
  for (const char* level : {"amp.level=O0", "amp.level=O1", "amp.level=O2"}) {
    const Lockstep lockstep = run({"amp.dialect=paddle", level, "optimizer.name=adam"}, false);
    EXPECT_FALSE(lockstep.first) << level << summary_of(lockstep);
    EXPECT_EQ(lockstep.steps.size(), 5u) << "step 0 and four more";
    EXPECT_NE(lockstep.steps[1].device.gradient_hash, lockstep.steps[2].device.gradient_hash);
    EXPECT_NE(lockstep.steps[1].device.histogram_hash, 0u);
    EXPECT_THAT(summary_of(lockstep), HasSubstr("no difference"));
  }
}

TEST_F(EmulatedVsDevice, TheFirstDifferenceIsNamedWithStepQuantityTensorAndElement) {
  const Lockstep lockstep =
      run({"amp.dialect=paddle", "amp.level=O2"}, true, {.steps = 20, .histograms_every = 0});
  ASSERT_TRUE(lockstep.first);
  EXPECT_GT(lockstep.first->step, 0u) << "equal weights to begin with";
  EXPECT_EQ(lockstep.steps.size(), lockstep.first->step + 1) << "it ends there";
  EXPECT_NE(lockstep.first->emulated, lockstep.first->device);
  ASSERT_FALSE(lockstep.first->tensors.empty());
  const TensorDifference& first = lockstep.first->tensors.front();
  EXPECT_EQ(first.kind, TensorKind::gradient) << "before what follows from it";
  EXPECT_GT(first.differing, 0u);
  EXPECT_LT(first.first, first.elements);
  EXPECT_NE(first.emulated_bits, first.device_bits);
  EXPECT_NE(first.emulated_digest, first.device_digest);
  const DeviceSide side{.rehearsal = true, .description = "none", .tensor_core = "hopper"};
  EXPECT_THAT(json_of(lockstep, side), HasSubstr("\"first_difference\""));
  EXPECT_THAT(json_of(lockstep, side), HasSubstr(first.name));
  EXPECT_THAT(differences_of(lockstep).front(), HasSubstr(fmt::format("element {}", first.first)));
  EXPECT_EQ(differences_of(lockstep).size(), lockstep.first->tensors.size());
}

TEST_F(EmulatedVsDevice, DifferingElementsAreCountedAndTheFirstIsShown) {
  const auto backend = [] { return engine::make_emulated_backend(tensor_core_model("hopper"), 1); };
  const std::unique_ptr<engine::Backend> ours = backend(), theirs = backend();
  engine::Tensor x = ours->empty({3}, DType::f16), y = theirs->empty({3}, DType::f16);
  ours->fill(x, 1);
  theirs->fill(y, 1);
  EXPECT_TRUE(
      differing_tensors(*ours, {{TensorKind::buffer, "x", x}}, *theirs, {{TensorKind::buffer, "x", y}})
          .empty());
  theirs->fill(y, -1);
  const std::vector<TensorDifference> all =
      differing_tensors(*ours, {{TensorKind::buffer, "x", x}}, *theirs, {{TensorKind::buffer, "x", y}});
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(text_of(all[0]),
            "buffer x, f16 (3): 3 of 3 elements differ; element 0: emulated 3c00, device bc00");
}

TEST_F(EmulatedVsDevice, ATensorThatOneSideLacksIsADifference) {
  const auto backend = engine::make_emulated_backend(tensor_core_model("hopper"), 1);
  engine::Tensor x = backend->empty({3}, DType::f16);
  backend->fill(x, 1);
  const std::vector<RunTensor> some{{TensorKind::gradient, "fc1.weight", x}};
  EXPECT_THAT(text_of(differing_tensors(*backend, some, *backend, {}).at(0)),
              HasSubstr("nothing on the device"));
  EXPECT_THAT(text_of(differing_tensors(*backend, {}, *backend, some).at(0)),
              HasSubstr("nothing on the emulated"));
}

TEST_F(EmulatedVsDevice, RehearsesAndSaysOnEveryLineThatItIsNoGpu) {
  if (!std::filesystem::exists(testing_support::on_ptx())) GTEST_SKIP() << "there is no PTX machine";
  const testing_support::Finished result = testing_support::run_program(
      testing_support::on_ptx(),
      {std::string(FP16LAB_BIN_DIR) + "/exp_emulated_vs_device", "-c", write_config().string(), "-o",
       path("out"), "--quiet", "--rehearse", "--set", "train.steps=2", "--set", "train.batch_size=4"},
      folder_);
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  std::istringstream lines(result.out);
  std::size_t count = 0;
  for (std::string line; std::getline(lines, line); ++count)
    EXPECT_TRUE(line.starts_with("[rehearsal, no GPU] ")) << line;
  EXPECT_GE(count, 4u);
  EXPECT_THAT(result.out, HasSubstr("verdict: REHEARSED"));
  EXPECT_THAT(result.out, HasSubstr("measured: 2 of 2 steps"));
  EXPECT_THAT(read("out/claims.json"), HasSubstr("no other bit after any step"));
  EXPECT_EQ(column("out/exp_emulated_vs_device.csv", "machine"), (std::vector<std::string>(3, "rehearsal")));
  EXPECT_EQ(column("out/exp_emulated_vs_device.csv", "emulated_state_hash"),
            column("out/exp_emulated_vs_device.csv", "device_state_hash"));
  EXPECT_THAT(read("out/exp_emulated_vs_device.json"), HasSubstr("\"rehearsal\": true"));
}

TEST_F(EmulatedVsDevice, WithoutAGpuItExitsWithThree) {
  if (!engine::cuda_status().devices.empty()) GTEST_SKIP() << "there is a GPU";
  expect_one_line_error(program({}), 3, "--rehearse");
}

TEST_F(EmulatedVsDevice, BadOptionsAreUsageErrors) {
  expect_one_line_error(program({"--histograms-every", "often"}), 2, "often");
  expect_one_line_error(program({"--rehearse", "--set", "backend.gemm=cublas-any-order"}), 2,
                        "promises no bits");
}

}  // namespace
}  // namespace fp16lab::experiments
