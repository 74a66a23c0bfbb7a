// Which tile a product is cut into, and the order of its blocks: decided on the host from extents alone. The
// choice is one of speed; no bit of the result depends on it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "engine/backend/cuda/product/tile_layout.hpp"

namespace fp16lab::engine::tile {

/// A block's tile, and how it is cut into those of its warps.
struct Shape {
  int m, n;
  int warp_m, warp_n;
  int stages;  ///< slices in shared memory at a time

  constexpr int warps() const { return (m / warp_m) * (n / warp_n); }
  constexpr int threads() const { return 32 * warps(); }
  constexpr std::size_t shared_bytes() const {
    return static_cast<std::size_t>(stages) * (m + n) * slice_bytes;
  }
};

/// All that a block may have of shared memory on the smallest GPUs that the kernels run on: 99 KB (compute
/// capability 8.6, 8.9 and 12.0; 163 KB on 8.0, 227 KB on 9.0), of which the counters of a probe take up to 3
/// KB (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability").
inline constexpr std::size_t shared_limit = 96 * 1024;

/// Kernels count rows, columns and k in 32 bits, up to a tile beyond the end: extents must be below.
inline constexpr std::int64_t extent_limit = (std::int64_t{1} << 31) - 256;

/// Index into the tables below.
enum class Size : std::uint8_t { small, medium, large };

/// For tensor cores. For 16 of k, a warp reads 32 (warp_m + warp_n) bytes of shared memory and has warp_m
/// warp_n / 128 instructions to do. 64 x 64 keeps the tensor cores of sm_90 busy: 4 KB in 32 clocks, for 32
/// instructions of 1.6 clocks of the multiprocessor each (mma.sync reaches five eighths of wgmma's 2048 fma a
/// clock); 32 x 32 does not, it is for outputs that are too small to go round. Eight warps a multiprocessor:
/// one large tile, two of medium size.
inline constexpr std::array<Shape, 3> mma_shapes{
    {{64, 64, 32, 32, 4}, {128, 128, 64, 64, 4}, {128, 256, 64, 64, 4}}};
/// For the FP32 chain: 8 x 8 outputs a thread in both.
inline constexpr std::array<Shape, 2> fma_shapes{{{64, 64, 32, 64, 4}, {128, 128, 32, 64, 4}}};

/// For tensor cores where operands are gathered (convolutions). Gathering needs registers beside accumulators
/// and fragments, and loads that are waited for where they are made: so tiles are smaller, and more blocks
/// share a multiprocessor.
inline constexpr std::array<Shape, 2> gather_shapes{{{64, 64, 32, 32, 4}, {128, 64, 64, 32, 4}}};

constexpr const Shape& mma_shape(Size size) { return mma_shapes[static_cast<std::size_t>(size)]; }
constexpr const Shape& fma_shape(Size size) { return fma_shapes[static_cast<std::size_t>(size)]; }
constexpr const Shape& gather_shape(Size size) { return gather_shapes[static_cast<std::size_t>(size)]; }

/// The plan of `batch` products m x n.
struct Outputs {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t batch = 1;
};

struct Plan {
  Size size = Size::small;
  Raster raster;
  /// The grid: x * y blocks, block (x, y) takes tile y * grid_x + x of the raster, and there may be some too
  /// many.
  std::uint32_t grid_x = 0;
  std::uint32_t grid_y = 0;
};

/// For a device of so many multiprocessors, of sizes up to `largest`. std::invalid_argument for extents from
/// extent_limit on.
Plan plan_mma(const Outputs& outputs, int multiprocessors, Size largest = Size::large);
Plan plan_fma(const Outputs& outputs, int multiprocessors, Size largest = Size::large);
Plan plan_gathered(const Outputs& outputs, int multiprocessors);

/// `shape` cut out of the outputs.
Raster raster_of(const Outputs& outputs, const Shape& shape);

}  // namespace fp16lab::engine::tile
