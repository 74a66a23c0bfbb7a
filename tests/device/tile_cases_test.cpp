// The acceptance's tile cases take every tile which the planner can choose, on every size of GPU.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "engine/backend/cuda/product/product_plan.hpp"
#include "tests/engine/backend/cases/tile_cases.hpp"

namespace fp16lab::engine::cases {
namespace {

namespace tile = engine::tile;
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

}  // namespace
}  // namespace fp16lab::engine::cases
