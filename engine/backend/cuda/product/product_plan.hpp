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

/// What a plan must know of a GPU. A block may have 64 KB of shared memory on compute capability 7.5, 99 KB
/// on 8.6, 8.9 and 12.0, 163 KB on 8.0, 227 KB on 9.0 and 10.0; a multiprocessor has 64, 100, 164 or 228 KB
/// (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability").
struct Gpu {
  int multiprocessors;
  std::size_t shared_per_block;
  std::size_t shared_per_multiprocessor;

  /// A device with that many multiprocessors; shared memory defaults to that of compute capability 9.0.
  constexpr Gpu(int count, std::size_t of_block = 227 * 1024, std::size_t of_multiprocessor = 228 * 1024)
      : multiprocessors(count), shared_per_block(of_block), shared_per_multiprocessor(of_multiprocessor) {}
};

/// The counters of a probe, which a block has beside its slices, at most; and what the system takes from each
/// block.
inline constexpr std::size_t static_shared_bytes = 3 * 1024;
inline constexpr std::size_t reserved_shared_bytes = 1024;

/// May a block of this shape be launched? The smallest of every table fits all GPUs.
constexpr bool fits(const Shape& shape, const Gpu& gpu) {
  return shape.shared_bytes() + static_shared_bytes <= gpu.shared_per_block;
}

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

/// Plans with sizes up to `largest` that fit the GPU. std::invalid_argument for extents from extent_limit on.
Plan plan_mma(const Outputs& outputs, const Gpu& gpu, Size largest = Size::large);
Plan plan_fma(const Outputs& outputs, const Gpu& gpu, Size largest = Size::large);
Plan plan_gathered(const Outputs& outputs, const Gpu& gpu);

/// `shape` cut out of the outputs.
Raster raster_of(const Outputs& outputs, const Shape& shape);

}  // namespace fp16lab::engine::tile
