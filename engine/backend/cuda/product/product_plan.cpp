#include "engine/backend/cuda/product/product_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <span>
#include <stdexcept>

namespace fp16lab::engine::tile {

namespace {

std::int32_t tiles_along(std::int64_t extent, int tile) {
  return static_cast<std::int32_t>((extent + tile - 1) / tile);
}

void check(const Outputs& outputs) {
  if (std::max({outputs.m, outputs.n, outputs.batch}) >= extent_limit)
    throw std::invalid_argument(
        fmt::format("{} products of {} x {} outputs; on a GPU each extent must be below {}", outputs.batch,
                    outputs.m, outputs.n, extent_limit));
}

Plan with_grid(Size size, const Raster& raster) {
  Plan plan{.size = size, .raster = raster};
  constexpr std::int64_t longest_row = std::int64_t{1} << 30;  // the grid's; its x reaches to 2^31 - 1
  const std::int64_t tiles = raster.tiles();
  if (tiles == 0) return plan;
  plan.grid_x = static_cast<std::uint32_t>(std::min(tiles, longest_row));
  plan.grid_y = static_cast<std::uint32_t>((tiles + longest_row - 1) / longest_row);
  return plan;
}

/// Warps of this shape that a multiprocessor's shared memory holds at a time; at least one block's.
int resident_warps(const Shape& shape, const Gpu& gpu) {
  const std::size_t block = shape.shared_bytes() + static_shared_bytes + reserved_shared_bytes;
  return std::max(1, static_cast<int>(gpu.shared_per_multiprocessor / block)) * shape.warps();
}

/// The size of least estimated time. A multiprocessor works on ceil(tiles / multiprocessors) of them, each as
/// long as its outputs over the share of the peak that its shape can reach; `shares` holds these, in the
/// order of the shapes, for the eight warps that shapes are made for. If shared memory holds fewer of them,
/// less of their waiting is hidden: the share falls with their number (an estimate).
Plan plan(const Outputs& outputs, const Gpu& gpu, Size largest, std::span<const Shape> shapes,
          std::span<const double> shares) {
  check(outputs);
  Size best = Size::small;
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < shapes.size() && i <= static_cast<std::size_t>(largest); ++i) {
    if (i > 0 && !fits(shapes[i], gpu)) continue;
    const Raster raster = raster_of(outputs, shapes[i]);
    const std::int64_t rounds = (raster.tiles() + gpu.multiprocessors - 1) / gpu.multiprocessors;
    const double share = shares[i] * std::min(8, resident_warps(shapes[i], gpu)) / 8;
    const double time = static_cast<double>(rounds) * shapes[i].m * shapes[i].n / share;
    if (time >= least) continue;
    least = time;
    best = static_cast<Size>(i);
  }
  return with_grid(best, raster_of(outputs, shapes[static_cast<std::size_t>(best)]));
}

}  // namespace

Raster raster_of(const Outputs& outputs, const Shape& shape) {
  return {.tiles_m = tiles_along(outputs.m, shape.m),
          .tiles_n = tiles_along(outputs.n, shape.n),
          .batch = static_cast<std::int32_t>(outputs.batch)};
}

Plan plan_mma(const Outputs& outputs, const Gpu& gpu, Size largest) {
  // By bytes of shared memory for each product (product_plan.hpp); estimates, not measurements.
  constexpr std::array<double, 3> shares{0.5, 0.9, 1.0};
  return plan(outputs, gpu, largest, mma_shapes, shares);
}

Plan plan_fma(const Outputs& outputs, const Gpu& gpu, Size largest) {
  constexpr std::array<double, 2> shares{0.9,
                                         1.0};  // the same 8 x 8 of a thread; more of the operands from L2
  return plan(outputs, gpu, largest, fma_shapes, shares);
}

Plan plan_gathered(const Outputs& outputs, const Gpu& gpu) {
  check(outputs);
  // The larger tile gathers half as much for each output, once it makes enough blocks for all
  // multiprocessors.
  const Raster larger = raster_of(outputs, gather_shape(Size::medium));
  if (outputs.m > gather_shape(Size::small).m && larger.tiles() >= std::int64_t{2} * gpu.multiprocessors &&
      fits(gather_shape(Size::medium), gpu))
    return with_grid(Size::medium, larger);
  return with_grid(Size::small, raster_of(outputs, gather_shape(Size::small)));
}

}  // namespace fp16lab::engine::tile
