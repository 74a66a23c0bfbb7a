// Products whose operands are gathered. Gathering needs registers beside accumulators and fragments, and loads that are
// waited for where they are made: so tiles are smaller than those of plain matrices, and more blocks share a multiprocessor.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>

#include "engine/backend/cuda/product.hpp"

namespace fp16lab::engine::FP16LAB_MACHINE {

/// MmaTile with more registers for each thread.
template <class Low, int m, int n, int warp_m, int warp_n>
struct GatherTile : MmaTile<Low, m, n, warp_m, warp_n, 4> {};
/// Of 128 threads: 168 registers each where a thread has 32 accumulators, 255 where it has 64 (64 K registers a
/// multiprocessor). That is what ptxas needs to keep cursors and fragments in them.
template <class Low, int m, int n, int warp_m, int warp_n>
inline constexpr int resident_blocks<GatherTile<Low, m, n, warp_m, warp_n>> =
    warp_m* warp_n > 32 * 32 ? 2 : 3;

/// As launch_product.
template <class Low, class SourceA, class SourceB, class Placement>
void launch_gathered(Runtime& runtime, const char* name, const tile::Outputs& outputs, std::int64_t k,
                     const SourceA& a, const SourceB& b, const Epilogue<Placement>& epilogue) {
  if constexpr (std::is_same_v<Low, float>) {
    launch_product<Low>(runtime, name, outputs, k, a, b, epilogue);
  } else {
    static_assert(std::is_trivially_copyable_v<SourceA> && std::is_trivially_copyable_v<SourceB>);
    const auto launch_tile = [&](auto tile) {
      using Tile = decltype(tile);
      static_assert(Tile::threads == 128);
      const tile::Raster raster =
          tile::raster_of(outputs, {Tile::m, Tile::n, Tile::warp_m, Tile::warp_n, Tile::stages});
      constexpr std::int64_t longest_row = std::int64_t{1} << 30;  // of the grid, whose x reaches to 2^31 - 1
      const std::int64_t tiles = raster.tiles();
      const LaunchShape shape{.x = static_cast<std::uint32_t>(std::min(tiles, longest_row)),
                              .y = static_cast<std::uint32_t>((tiles + longest_row - 1) / longest_row),
                              .threads = Tile::threads,
                              .shared_bytes = Tile::shared_bytes};
      launch(runtime, name, &multiply_tiles<Tile, SourceA, SourceB, Placement>, shape, a, b, epilogue, raster,
             static_cast<int>(k));
    };
    // The large tile gathers half as much for each output, once it makes enough blocks for all multiprocessors.
    using Large = GatherTile<Low, 128, 64, 64, 32>;
    using Small = GatherTile<Low, 64, 64, 32, 32>;
    const std::int64_t large_tiles =
        ((outputs.m + Large::m - 1) / Large::m) * ((outputs.n + Large::n - 1) / Large::n);
    if (outputs.m > Small::m && large_tiles >= 2 * runtime.device().multiprocessors)
      launch_tile(Large{});
    else
      launch_tile(Small{});
  }
}

}  // namespace fp16lab::engine::FP16LAB_MACHINE
