// Products whose operands are gathered: tile::gather_shapes on tensor cores, launch_product for FP32.
#pragma once

#include <cstdint>
#include <type_traits>

#include "engine/backend/cuda/product/product.hpp"
#include "engine/backend/cuda/runtime/element_types.hpp"

namespace fp16lab::engine::gpu {

/// MmaTile with more registers for each thread.
template <class Half, int m, int n, int warp_m, int warp_n, int stages>
struct GatherTile : MmaTile<Half, m, n, warp_m, warp_n, stages> {};
/// For 128 threads: 168 registers each where a thread has 32 accumulators, 255 where it has 64 (64 K
/// registers a multiprocessor). That is what ptxas needs to keep cursors and fragments in them.
template <class Half, int m, int n, int warp_m, int warp_n, int stages>
inline constexpr int resident_blocks<GatherTile<Half, m, n, warp_m, warp_n, stages>> =
    warp_m* warp_n > 32 * 32 ? 2 : 3;

/// visitor(Operand{}) for products of tensors of `dtype`, as launch_product has it.
template <class Visitor>
void with_operands(DType dtype, bool tf32, const Visitor& visitor) {
  if (tf32)
    visitor(Tf32{});
  else
    with_element_type(dtype, visitor);
}

/// As launch_product.
template <class Operand, class SourceA, class SourceB, class Placement>
void launch_gathered(Runtime& runtime, const char* name, const tile::Outputs& outputs, std::int64_t k,
                     const SourceA& a, const SourceB& b, const Epilogue<Placement>& epilogue) {
  if constexpr (std::is_same_v<Operand, float>) {
    launch_product<Operand>(runtime, name, outputs, k, a, b, epilogue);
  } else {
    static_assert(std::is_trivially_copyable_v<SourceA> && std::is_trivially_copyable_v<SourceB>);
    const tile::Plan plan = tile::plan_gathered(outputs, planned_gpu(runtime));
    const auto launch_size = [&](auto size) {
      constexpr tile::Shape cut = tile::gather_shape(size.value);
      using Tile = GatherTile<InMemory<Operand>, cut.m, cut.n, cut.warp_m, cut.warp_n, cut.stages>;
      static_assert(Tile::threads == 128 && Tile::shared_bytes == cut.shared_bytes());
      const LaunchShape shape{
          .x = plan.grid_x, .y = plan.grid_y, .threads = Tile::threads, .shared_bytes = Tile::shared_bytes};
      launch(runtime, name, &multiply_tiles<Tile, SourceA, SourceB, Placement>, shape, a, b, epilogue,
             plan.raster, static_cast<int>(k));
    };
    using tile::Size;
    if (plan.size == Size::small)
      launch_size(std::integral_constant<Size, Size::small>{});
    else
      launch_size(std::integral_constant<Size, Size::medium>{});
  }
}

}  // namespace fp16lab::engine::gpu
