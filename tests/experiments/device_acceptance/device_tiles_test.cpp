// The acceptance's tile cases: that they take every tile which the planner can choose, on every size of GPU,
// and that a tile which is wrong is seen.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "engine/backend/cuda/cpu_simt/host_machine.hpp"
#include "engine/backend/cuda/product/product_plan.hpp"
#include "engine/backend/emulated/emulated_backend.hpp"
#include "experiments/device_acceptance/cases/tile_cases.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"

namespace fp16lab::experiments::acceptance {
namespace {

namespace tile = engine::tile;
namespace cpu_simt = engine::cpu_simt;
using engine::Layout;
using tile::Outputs;
using tile::Size;

using Plan = std::function<tile::Plan(const Outputs&)>;

Plan plan_of_products(DType dtype, int multiprocessors) {
  return [=](const Outputs& outputs) {
    return dtype == DType::f32 ? tile::plan_fma(outputs, multiprocessors)
                               : tile::plan_mma(outputs, multiprocessors);
  };
}
Plan plan_of_convolutions(DType dtype, int multiprocessors) {
  if (dtype == DType::f32) return plan_of_products(dtype, multiprocessors);
  return [=](const Outputs& outputs) { return tile::plan_gathered(outputs, multiprocessors); };
}

/// Every size that any of some thousand extents takes.
std::set<Size> sizes_in_reach(const Plan& plan) {
  std::set<Size> sizes;
  for (std::int64_t m = 40; m <= 4200; m += 64)
    for (std::int64_t n = 40; n <= 4200; n += 64) sizes.insert(plan({m, n, 1}).size);
  return sizes;
}

/// What convolution.cu and convolution_weight.cu make of it: weights are rows of the product, places (or the
/// columns of the weight gradient) its columns; with channels innermost places are the rows, but for an input
/// gradient of many taps.
Outputs outputs_of(const TiledConvolution& one) {
  const std::int64_t places = one.images * one.height * one.width, taps = one.kernel * one.kernel;
  if (one.pass == ConvolutionPass::weight_gradient) return {one.filters, one.channels * taps, 1};
  const bool forward = one.pass == ConvolutionPass::forward;
  const std::int64_t written = forward ? one.filters : one.channels;
  if (one.layout == Layout::nhwc && (forward || taps == 1)) return {places, written, 1};
  return {written, places, 1};
}

TEST(TileCases, TakeEverySizeOfTileOnEveryGpu) {
  for (int multiprocessors = 16; multiprocessors <= 170; ++multiprocessors) {
    SCOPED_TRACE(fmt::format("{} multiprocessors", multiprocessors));
    std::map<DType, std::set<Size>> products;
    for (const TiledProduct& one : tiled_products(multiprocessors)) {
      EXPECT_EQ(plan_of_products(one.dtype, multiprocessors)({one.m, one.n, 1}).size, one.size);
      products[one.dtype].insert(one.size);
    }
    // By operand type and kind: pass, layout and taps.
    std::map<DType, std::map<std::tuple<ConvolutionPass, Layout, std::int64_t>, std::set<Size>>> convolutions;
    for (const TiledConvolution& one : tiled_convolutions(multiprocessors)) {
      EXPECT_EQ(plan_of_convolutions(one.dtype, multiprocessors)(outputs_of(one)).size, one.size);
      convolutions[one.dtype][{one.pass, one.layout, one.kernel}].insert(one.size);
    }
    for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {
      EXPECT_EQ(products[dtype], sizes_in_reach(plan_of_products(dtype, multiprocessors)));
      EXPECT_EQ(convolutions[dtype].size(), 7u);
      for (const auto& [kind, sizes] : convolutions[dtype])
        EXPECT_EQ(sizes, sizes_in_reach(plan_of_convolutions(dtype, multiprocessors)));
    }
    EXPECT_EQ(products[DType::f16].size(), tile::mma_shapes.size()) << "all three are in reach";
  }
}

/// Runs the cases on the host machine; `watcher` may leave launches out.
class TilesOnCpuSimt : public testing::Test {
 protected:
  void TearDown() override {
    cpu_simt::watch_launches({});
    cpu_simt::set_multiprocessors(before_);
  }
  int before_ = cpu_simt::multiprocessors();
};

TEST_F(TilesOnCpuSimt, LaunchEveryKernelOfProducts) {
  const std::set<std::string> of_products{"gemm", "conv2d", "conv2d_input_gradient",
                                          "conv2d_weight_gradient"};
  for (const int multiprocessors : {16, 58, 132}) {
    cpu_simt::set_multiprocessors(multiprocessors);
    const auto backend = cpu_simt::make_cuda_backend_on_cpu({.gemm = engine::GemmRoute::mma});
    std::set<const void*> kernels;
    std::set<std::size_t> shared_bytes;
    cpu_simt::watch_launches([&](const cpu_simt::Launch& launch) {
      if (of_products.contains(launch.name)) {
        kernels.insert(launch.kernel);
        shared_bytes.insert(launch.shared_bytes);
      }
      return false;  // which kernels, not what they do
    });
    for (const VerbCase& one : tile_cases(multiprocessors, {8})) {
      CaseContext context(*backend, CaseSize::full, one.name, 1);
      one.run(context);
    }
    // FP16 and BF16: three tiles, FP32: two, each in four transpositions. Convolutions: two tiles of each of
    // the three types, of filters by planes, of channels by filters, and of the weight gradient from planes
    // and from channels; the input gradient has the kernels of the forward pass.
    EXPECT_EQ(kernels.size(), 4u * (3 + 3 + 2) + 4 * 3 * 2) << multiprocessors;
    EXPECT_TRUE(shared_bytes.contains(48 * 1024)) << "the tile of 128 x 64, which has to opt in";
  }
}

TEST_F(TilesOnCpuSimt, OneThatComputesNothingShowsInItsRowAlone) {
  const auto emulated = engine::make_emulated_backend(tensor_core_model("hopper"), 1);
  const auto backend = cpu_simt::make_cuda_backend_on_cpu({.gemm = engine::GemmRoute::mma});
  std::vector<VerbCase> cases;
  for (VerbCase& one : tile_cases(cpu_simt::multiprocessors(), {8}))
    if (one.verb.starts_with("gemm f16") && one.name.ends_with("NT")) cases.push_back(std::move(one));
  ASSERT_EQ(cases.size(), 3u);
  for (const bool broken : {false, true}) {
    cpu_simt::watch_launches([&](const cpu_simt::Launch& launch) {
      return !broken || launch.shared_bytes != tile::mma_shape(Size::large).shared_bytes();
    });
    for (const VerbRow& row : compare_cases(cases, *emulated, *backend, CaseSize::full, 1)) {
      EXPECT_EQ(row.same(), !(broken && row.verb == "gemm f16, 128x256 tiles")) << row.verb;
      EXPECT_GT(row.elements, 0u);
    }
  }
}

}  // namespace
}  // namespace fp16lab::experiments::acceptance
