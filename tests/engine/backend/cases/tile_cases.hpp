// Products and convolutions that together are cut into every tile that the planner
// (engine/backend/cuda/product/product_plan.hpp) can choose on a device of so many multiprocessors. Which
// tile a product takes depends on its extents and on the device, so the extents are asked of the planner:
// fixed ones that take the large tile on one card take the small one on another.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/backend/backend.hpp"
#include "engine/backend/cuda/product/product_plan.hpp"
#include "tests/engine/backend/cases/verb_cases.hpp"

namespace fp16lab::engine::cases {

/// C (m x n) = op(A) op(B), all transpositions of it: each has a kernel of its own.
struct TiledProduct {
  DType dtype = DType::f16;
  engine::tile::Size size{};  ///< from tile::mma_shapes; FP32: from tile::fma_shapes
  std::int64_t m = 0, n = 0;
};
/// For every operand type and every size that the planner can choose, the smallest one, nearly square.
std::vector<TiledProduct> tiled_products(const engine::tile::Gpu& gpu);

enum class ConvolutionPass : std::uint8_t { forward, input_gradient, weight_gradient };

struct TiledConvolution {
  DType dtype = DType::f16;
  engine::tile::Size size{};  ///< from tile::gather_shapes; FP32: from tile::fma_shapes
  ConvolutionPass pass{};
  engine::Layout layout{};
  std::int64_t kernel = 3;  ///< 3 x 3 with a padding of 1, or 1 x 1
  std::int64_t images = 2, channels = 8, height = 4, width = 9, filters = 8;
};
/// The same for every kernel of the convolutions: three passes in two layouts, and the input gradient of a
/// single tap.
std::vector<TiledConvolution> tiled_convolutions(const engine::tile::Gpu& gpu);

/// One product or convolution as a case of the verb "WHAT f16, 128x256 tiles", with the tiles that the
/// planner chooses on `gpu`: all bits of the accumulators, and rounded, with counts of what was rounded.
/// `one.size` does not matter.
VerbCase product_case(const std::string& what, const TiledProduct& one, std::int64_t k, bool transpose_a,
                      bool transpose_b, const engine::tile::Gpu& gpu);
VerbCase convolution_case(const std::string& what, const TiledConvolution& one, const engine::tile::Gpu& gpu);

/// All of them as cases, products with each of these lengths of k. A case's verb names the tile: "gemm f16,
/// 128x256 tiles".
std::vector<VerbCase> tile_cases(const engine::tile::Gpu& gpu,
                                 const std::vector<std::int64_t>& product_depths);

}  // namespace fp16lab::engine::cases
