// Products of two sources, tile by tile, wherever their outputs are: the kernel of Backend::gemm and the
// convolutions.
//
//   launch_product<Operand>(runtime, "name", outputs, k, source_a, source_b, epilogue);
//
// Operand: Float16, BFloat16 or Tf32, by MmaTile; float, by FmaTile. Each pair of source types and placement
// is a kernel of its own for each size of tile, so that few such pairs are better than many.
#pragma once

#include <cstdint>
#include <type_traits>

#include "engine/backend/cuda/product/fma_tile.hpp"
#include "engine/backend/cuda/product/mma_tile.hpp"
#include "engine/backend/cuda/product/product_epilogue.hpp"
#include "engine/backend/cuda/product/product_plan.hpp"
#include "engine/backend/cuda/product/tile_source.hpp"
#include "engine/backend/cuda/runtime/launch.hpp"
#include "engine/backend/cuda/verbs/probe_counting.hpp"

namespace fp16lab::engine::gpu {

/// Operands that are floats in memory, and TF32 numbers on the tensor core.
struct Tf32 {};
template <class Operand>
using InMemory = std::conditional_t<std::is_same_v<Operand, Tf32>, float, Operand>;

/// The tile of one size for such operands.
template <class Operand, tile::Size size>
struct TileOf {
  static constexpr tile::Shape shape = tile::mma_shape(size);
  using Type = MmaTile<InMemory<Operand>, shape.m, shape.n, shape.warp_m, shape.warp_n, shape.stages>;
};
template <tile::Size size>
struct TileOf<float, size> {
  static constexpr tile::Shape shape = tile::fma_shape(size);
  using Type = FmaTile<shape.m, shape.n, shape.stages>;
};

/// Blocks that a multiprocessor must be able to hold at a time. 8 warps of the tiles with 64 x 64 outputs a
/// warp or 8 x 8 a thread: they need more than 128 registers a thread. 16 warps of the small tile for tensor
/// cores.
template <class Tile>
inline constexpr int resident_blocks = (Tile::m * Tile::n / Tile::threads < 64 ? 16 : 8) * 32 / Tile::threads;

/// Does anything launch kernels of this tile on the architecture that is compiled? On compute capability 7.5
/// FP16 and FP32 products have kernels (CudaBackend::require_products), and tiles that its 64 KB of shared
/// memory hold (tile::fits). The others are a trap there.
template <class Tile>
constexpr bool is_launched_here() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
  return Tile::on_sm_75 && Tile::shared_bytes + tile::static_shared_bytes <= 64 * 1024;
#else
  return true;
#endif
}

template <class Tile, class SourceA, class SourceB, class Placement>
__global__ void __launch_bounds__(Tile::threads, resident_blocks<Tile>)
    multiply_tiles(SourceA a, SourceB b, Epilogue<Placement> epilogue, tile::Raster raster, int k) {
  if constexpr (is_launched_here<Tile>()) {
    __shared__ BlockCounts counts;
    const std::int64_t index = std::int64_t{blockIdx.y} * gridDim.x + blockIdx.x;
    if (index >= raster.tiles()) return;
    BlockProbe probe(counts, epilogue.probe);
    const tile::Raster::Tile place = raster.at(index);
    Tile::multiply(a, b, epilogue, probe, place.batch, place.m * Tile::m, place.n * Tile::n, k);
    probe.flush();
  } else {
    asm volatile("trap;");
  }
}

inline tile::Gpu planned_gpu(const Runtime& runtime) {
  const CudaDevice& device = runtime.device();
  return {device.multiprocessors, device.shared_per_block, device.shared_per_multiprocessor};
}

/// How launch_product<Operand, largest> would cut these outputs.
template <class Operand, tile::Size largest = tile::Size::large>
tile::Plan product_plan(Runtime& runtime, const tile::Outputs& outputs) {
  return std::is_same_v<Operand, float> ? tile::plan_fma(outputs, planned_gpu(runtime), largest)
                                        : tile::plan_mma(outputs, planned_gpu(runtime), largest);
}

/// Launches the products of `outputs` over k (below tile::extent_limit); nothing where there are no outputs.
/// Kernels are compiled for the sizes of tile up to `largest`.
template <class Operand, tile::Size largest = tile::Size::large, class SourceA, class SourceB,
          class Placement>
void launch_product(Runtime& runtime, const char* name, const tile::Outputs& outputs, std::int64_t k,
                    const SourceA& a, const SourceB& b, const Epilogue<Placement>& epilogue) {
  static_assert(std::is_same_v<typename SourceA::Element, InMemory<Operand>> &&
                std::is_same_v<typename SourceB::Element, InMemory<Operand>>);
  static_assert(std::is_trivially_copyable_v<SourceA> && std::is_trivially_copyable_v<SourceB>);
  static_assert(sizeof(SourceA) + sizeof(SourceB) + sizeof(Epilogue<Placement>) + sizeof(tile::Raster) <
                4000);
  const tile::Plan plan = product_plan<Operand, largest>(runtime, outputs);
  const auto launch_size = [&](auto size) {
    using Tile = typename TileOf<Operand, size.value>::Type;
    static_assert(Tile::shared_bytes == TileOf<Operand, size.value>::shape.shared_bytes() &&
                  Tile::threads == TileOf<Operand, size.value>::shape.threads());
    const LaunchShape shape{
        .x = plan.grid_x, .y = plan.grid_y, .threads = Tile::threads, .shared_bytes = Tile::shared_bytes};
    launch(runtime, name, &multiply_tiles<Tile, SourceA, SourceB, Placement>, shape, a, b, epilogue,
           plan.raster, static_cast<int>(k));
  };
  using tile::Size;
  if constexpr (largest >= Size::large && !std::is_same_v<Operand, float>)
    if (plan.size == Size::large) return launch_size(std::integral_constant<Size, Size::large>{});
  if constexpr (largest >= Size::medium)
    if (plan.size == Size::medium) return launch_size(std::integral_constant<Size, Size::medium>{});
  launch_size(std::integral_constant<Size, Size::small>{});
}

}  // namespace fp16lab::engine::gpu
