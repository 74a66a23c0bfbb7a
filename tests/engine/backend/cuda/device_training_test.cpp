// Training on a device, through libfp16lab_cuda.so: step by step and as a replayed graph with the bits of the emulated
// back end. On a GPU where there is one, and on the PTX machine (CTest's entry cuda_device_training_ptx).
#include <gtest/gtest.h>

#include "engine/backend/cuda/cuda_backend.hpp"
#include "engine/backend/cuda/runtime/devices.hpp"
#include "engine/backend/emulated/emulated_backend.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"
#include "tests/engine/backend/cuda/graph_run.hpp"

namespace fp16lab::engine::test::graph {
namespace {

/// The emulated run.
Shown expect_three_alike_on_device(const Case& setup) {
  const auto device = [] { return make_cuda_backend({.gemm = GemmRoute::mma}); };
  const std::string row(device()->tensor_core());
  const Shown emulated = shown_by(make_emulated_backend(tensor_core_model(row), 1), setup, false);
  EXPECT_FALSE(emulated.steps.empty());
  expect_same(emulated, shown_by(device(), setup, false), "step by step");
  expect_same(emulated, shown_by(device(), setup, true), "replayed");
  return emulated;
}

class DeviceTraining : public testing::Test {
 protected:
  void SetUp() override {
    if (const CudaStatus status = cuda_status(); status.devices.empty()) GTEST_SKIP() << status.reason;
  }
};

TEST_F(DeviceTraining, MixedPrecisionWithOverflowsAndHistograms) {
  const Shown shown = expect_three_alike_on_device({});
  EXPECT_GT(shown.skipped, 0u);
  EXPECT_LT(shown.skipped, shown.steps.size());
  EXPECT_FALSE(shown.gradients.empty());
}

/// BF16 and TF32 on tensor cores that have them; others refuse the first product by their capability.
TEST_F(DeviceTraining, Bf16AndTf32) {
  for (const DType dtype : {DType::bf16, DType::tf32}) {
    SCOPED_TRACE(name_of(dtype));
    for (const Network network : {Network::mlp, Network::convolution}) {
      const Case setup{.network = network, .amp = {.level = Level::O1, .dtype = dtype}};
      if (multiplies_bf16_and_tf32(cuda_status().devices.front())) {
        expect_three_alike_on_device(setup);
        continue;
      }
      try {
        shown_by(make_cuda_backend({.gemm = GemmRoute::mma}), setup, false);
        FAIL() << "it trained";
      } catch (const std::invalid_argument& error) {
        EXPECT_THAT(error.what(), testing::HasSubstr("whose tensor cores multiply FP16 alone"));
      }
    }
  }
}

TEST_F(DeviceTraining, FullPrecision) {
  expect_three_alike_on_device({.amp = {.level = Level::O0}, .scaler = {.policy = "none"}});
}

TEST_F(DeviceTraining, ConvolutionWithBatchNormAndPooling) {
  expect_three_alike_on_device({.network = Network::convolution});
}

TEST_F(DeviceTraining, AccumulatedMicroBatchesAndAClippedNorm) {
  expect_three_alike_on_device(
      {.train = {.steps = 6, .accumulate = 3, .clip_norm = 0.25, .seed = 3, .evaluate_every = 4}});
}

}  // namespace
}  // namespace fp16lab::engine::test::graph
