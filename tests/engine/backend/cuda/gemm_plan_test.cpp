// The index maps and launch plans of the CUDA products, which are pure functions: walked in whole, and
// compared with the PTX ISA's words for ldmatrix and mma.m16n8k16, typed in again here.
#include "engine/backend/cuda/product/product_plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/backend/cuda/product/tile_layout.hpp"

namespace fp16lab::engine::tile {
namespace {

constexpr int bank_bytes = 4, banks = 32;

/// How often shared memory must be read (written) to serve 16 bytes to (from) each of 8 lanes: lanes that
/// name the same 16 bytes are served together. 1 is the least (CUDA C++ Best Practices Guide, "Shared Memory
/// and Memory Banks").
int passes_over_banks(const std::vector<int>& addresses) {
  std::vector<std::set<int>> of_bank(banks);
  for (const int address : addresses)
    for (int byte = 0; byte < run_bytes; byte += bank_bytes)
      of_bank[static_cast<std::size_t>((address + byte) / bank_bytes % banks)].insert(address);
  std::size_t most = 0;
  for (const auto& rows : of_bank) most = std::max(most, rows.size());
  return static_cast<int>(most);
}

/// body(a SliceLayout) for every layout that a kernel has.
template <class Body>
void for_each_layout(const Body& body) {
  const auto both_runs = [&]<int element_bytes, int outer>() {
    body(SliceLayout<element_bytes, outer, Runs::along_k>{});
    body(SliceLayout<element_bytes, outer, Runs::along_outer>{});
  };
  both_runs.template operator()<2, 64>();
  both_runs.template operator()<2, 128>();
  both_runs.template operator()<2, 256>();
  both_runs.template operator()<4, 64>();
  both_runs.template operator()<4, 128>();
}

template <class Layout>
constexpr int outer_of = Layout::bytes / slice_bytes;

TEST(SliceLayout, EveryElementHasAPlaceOfItsOwnInsideTheSlice) {
  for_each_layout([](auto layout) {
    using Layout = decltype(layout);
    constexpr int element_bytes = slice_bytes / Layout::k;
    std::vector<int> uses(static_cast<std::size_t>(Layout::bytes / element_bytes), 0);
    for (int outer = 0; outer < outer_of<Layout>; ++outer)
      for (int k = 0; k < Layout::k; ++k) {
        const int in_run = (Layout::runs == Runs::along_k ? k : outer) % Layout::run_elements;
        const int at = Layout::offset_of(outer, k) / element_bytes + in_run;
        ASSERT_GE(at, 0);
        ASSERT_LT(at, static_cast<int>(uses.size()));
        ++uses[static_cast<std::size_t>(at)];
      }
    for (const int count : uses) ASSERT_EQ(count, 1);
  });
}

TEST(SliceLayout, ThreadsThatCopyMeetInNoBank) {
  for_each_layout([](auto layout) {
    using Layout = decltype(layout);
    // Neighbouring threads copy neighbouring runs of the slice as it was stored.
    for (int first = 0; first < Layout::rows * Layout::runs_per_row; first += 8) {
      std::vector<int> addresses;
      for (int i = first; i < first + 8; ++i)
        addresses.push_back(Layout::offset(i / Layout::runs_per_row, i % Layout::runs_per_row));
      EXPECT_EQ(passes_over_banks(addresses), 1);
    }
  });
}

/// A register of ldmatrix: the elements that its halves hold.
struct Halves {
  BlockIndex half[2];
};

/// What lane `lane` gets in register `i` of ldmatrix.x4 when lane L names the run of `run_of_lane(L)`: the 8
/// lanes from 8 i name the rows of matrix i, lane 4 r + c gets elements (r, 2 c) and (r, 2 c + 1) of it, or
/// with .trans (2 c, r) and (2 c + 1, r).
template <class RunOfLane>
Halves register_of(int lane, int i, Runs runs, const RunOfLane& run_of_lane) {
  Halves result;
  for (int h = 0; h < 2; ++h) {
    const bool transposed = runs == Runs::along_outer;
    const int row = transposed ? 2 * (lane % 4) + h : lane / 4;
    const int column = transposed ? lane / 4 : 2 * (lane % 4) + h;
    BlockIndex element = run_of_lane(8 * i + row, runs);
    (runs == Runs::along_k ? element.k : element.outer) += column;
    result.half[h] = element;
  }
  return result;
}

TEST(Fragments, OfAAreThoseOfThePtxIsa) {
  for (const Runs runs : {Runs::along_k, Runs::along_outer}) {
    std::set<std::pair<int, int>> loaded;
    for (int lane = 0; lane < 32; ++lane)
      for (int element = 0; element < 8; ++element) {  // a0 .. a7
        // "row = groupID for ai where 0 <= i < 2 || 4 <= i < 6, groupID + 8 otherwise;
        //  col = (threadID_in_group * 2) + (i & 0x1) for ai where i < 4, + 8 for ai where i >= 4"
        const int group = lane >> 2, in_group = lane % 4;
        const bool first_rows = element < 2 || (element >= 4 && element < 6);
        const int row = first_rows ? group : group + 8;
        const int column = in_group * 2 + (element & 1) + (element >= 4 ? 8 : 0);
        const Halves halves =
            register_of(lane, element / 2, runs, [](int l, Runs r) { return a_run_of_lane(l, r); });
        EXPECT_EQ(halves.half[element % 2].outer, row) << "lane " << lane << ", a" << element;
        EXPECT_EQ(halves.half[element % 2].k, column) << "lane " << lane << ", a" << element;
        loaded.insert({row, column});
      }
    EXPECT_EQ(loaded.size(), 256u);
  }
}

TEST(Fragments, OfBAreThoseOfThePtxIsaForTwoInstructions) {
  for (const Runs runs : {Runs::along_k, Runs::along_outer}) {
    std::set<std::pair<int, int>> loaded;
    for (int instruction = 0; instruction < 2; ++instruction)
      for (int lane = 0; lane < 32; ++lane)
        for (int element = 0; element < 4; ++element) {  // b0 .. b3
          // "row = (threadID_in_group * 2) + (i & 0x1) for bi where i < 2, + 8 for bi where i >= 2; col =
          // groupID"
          const int row = lane % 4 * 2 + (element & 1) + (element >= 2 ? 8 : 0);
          const int column = 8 * instruction + (lane >> 2);
          const Halves halves = register_of(lane, 2 * instruction + element / 2, runs,
                                            [](int l, Runs r) { return b_run_of_lane(l, r); });
          EXPECT_EQ(halves.half[element % 2].outer, column) << "lane " << lane << ", b" << element;
          EXPECT_EQ(halves.half[element % 2].k, row) << "lane " << lane << ", b" << element;
          loaded.insert({row, column});
        }
    EXPECT_EQ(loaded.size(), 256u);
  }
}

TEST(Fragments, NoLdmatrixMeetsABankTwice) {
  for_each_layout([](auto layout) {
    using Layout = decltype(layout);
    if (Layout::run_elements != 8) return;  // FP32 has no ldmatrix
    for (int outer = 0; outer < outer_of<Layout>; outer += 16)
      for (int k = 0; k < Layout::k; k += 16)
        for (int matrix = 0; matrix < 4; ++matrix) {  // each of the four is a phase of its own
          std::vector<int> of_a, of_b;
          for (int lane = 8 * matrix; lane < 8 * matrix + 8; ++lane) {
            const BlockIndex a = a_run_of_lane(lane, Layout::runs), b = b_run_of_lane(lane, Layout::runs);
            of_a.push_back(Layout::offset_of(outer + a.outer, k + a.k));
            of_b.push_back(Layout::offset_of(outer + b.outer, k + b.k));
          }
          EXPECT_EQ(passes_over_banks(of_a), 1);
          EXPECT_EQ(passes_over_banks(of_b), 1);
        }
  });
}

TEST(FmaThreads, OwnEveryOutputOfTheirWarpOnceAndMeetInNoBank) {
  for (const Runs runs : {Runs::along_k, Runs::along_outer})
    for (const int lanes : {4, 8}) {
      std::set<int> owned;
      for (int lane = 0; lane < lanes; ++lane)
        for (int i = 0; i < 8; ++i) {
          const int outer = fma_outer_of(lane, lanes, i, runs);
          EXPECT_GE(outer, fma_outer_of(lane, lanes, 0, runs)) << "kernels take the first for the least";
          owned.insert(outer);
        }
      EXPECT_EQ(static_cast<int>(owned.size()), 8 * lanes);
      EXPECT_EQ(*owned.rbegin(), 8 * lanes - 1);
    }
  for_each_layout([](auto layout) {
    using Layout = decltype(layout);
    if (Layout::run_elements != 4) return;
    // 16 bytes a lane: a quarter of the warp at a time, lanes 8 q .. 8 q + 7, which share their rows of A.
    for (int outer = 0; outer < outer_of<Layout>; outer += 64)
      for (int k = 0; k < Layout::k; ++k)
        for (int i = 0; i < 8; i += Layout::runs == Runs::along_k ? 1 : 4) {
          std::vector<int> of_b(8);
          for (int lane = 0; lane < 8; ++lane)
            of_b[static_cast<std::size_t>(lane)] =
                Layout::offset_of(outer + fma_outer_of(lane, 8, i, Layout::runs), k);
          EXPECT_EQ(passes_over_banks(of_b), 1);
        }
  });
}

TEST(Raster, VisitsEveryTileOnceAndNoOther) {
  for (const int tiles_m : {1, 2, 7, 8, 9, 64})
    for (const int tiles_n : {1, 3, 8, 33})
      for (const int batch : {1, 3}) {
        const Raster raster{.tiles_m = tiles_m, .tiles_n = tiles_n, .batch = batch};
        std::set<std::tuple<int, int, int>> seen;
        for (std::int64_t i = 0; i < raster.tiles(); ++i) {
          const Raster::Tile tile = raster.at(i);
          ASSERT_TRUE(tile.batch >= 0 && tile.batch < batch && tile.m >= 0 && tile.m < tiles_m &&
                      tile.n >= 0 && tile.n < tiles_n);
          seen.insert({tile.batch, tile.m, tile.n});
        }
        EXPECT_EQ(static_cast<std::int64_t>(seen.size()), raster.tiles());
        EXPECT_EQ(raster.tiles(), std::int64_t{tiles_m} * tiles_n * batch);
      }
}

TEST(Raster, NeighbouringBlocksShareOperands) {
  // 64 blocks in a row read 8 tile rows of A and 8 tile columns of B, where rows of 64 would read 1 and 64.
  const Raster raster{.tiles_m = 64, .tiles_n = 64};
  std::set<int> rows, columns;
  for (int i = 0; i < 64; ++i) {
    rows.insert(raster.at(i).m);
    columns.insert(raster.at(i).n);
  }
  EXPECT_EQ(rows.size(), 8u);
  EXPECT_EQ(columns.size(), 8u);
}

template <class MakePlan, class ShapeOf>
void expect_plans_cover_outputs(const MakePlan& make_plan, const ShapeOf& shape_of) {
  const std::vector<std::int64_t> extents{1, 63, 64, 65, 127, 128, 129, 1000, 8192, extent_limit - 1};
  for (const std::int64_t m : extents)
    for (const std::int64_t n : extents)
      for (const std::int64_t batch : {std::int64_t{1}, std::int64_t{3}, std::int64_t{70000}})
        for (const int multiprocessors : {1, 4, 108, 132}) {
          if (std::min(m, n) * batch > std::int64_t{1} << 28)
            continue;  // 2^59 outputs: there is no such memory
          const Plan plan = make_plan(Outputs{m, n, batch}, multiprocessors);
          const Shape& shape = shape_of(plan.size);
          // ceil, without the formula of the plan: the last tile begins inside, and one more would begin
          // outside.
          EXPECT_LT((std::int64_t{plan.raster.tiles_m} - 1) * shape.m, m);
          EXPECT_GE(std::int64_t{plan.raster.tiles_m} * shape.m, m);
          EXPECT_LT((std::int64_t{plan.raster.tiles_n} - 1) * shape.n, n);
          EXPECT_GE(std::int64_t{plan.raster.tiles_n} * shape.n, n);
          EXPECT_EQ(plan.raster.batch, batch);
          // Tiles begin within 32 bits, and so does the last row of each.
          EXPECT_LE(std::int64_t{plan.raster.tiles_m} * shape.m, std::int64_t{1} << 31);
          // All tiles, in a grid that CUDA takes (x up to 2^31 - 1, y up to 65535).
          const std::int64_t x = plan.grid_x, y = plan.grid_y, tiles = plan.raster.tiles();
          if (y > 65535) continue;  // 2^46 tiles: nor this one
          EXPECT_LE(x, (std::int64_t{1} << 31) - 1);
          EXPECT_GE(x * y, tiles);
          EXPECT_LT((y - 1) * x, tiles);
        }
}

TEST(Plan, TilesCoverEveryOutput) {
  expect_plans_cover_outputs([](const Outputs& outputs, int count) { return plan_mma(outputs, count); },
                             mma_shape);
  expect_plans_cover_outputs([](const Outputs& outputs, int count) { return plan_fma(outputs, count); },
                             fma_shape);
}

TEST(Plan, ManySmallProductsFitIntoTheGrid) {
  const std::int64_t batch = (std::int64_t{1} << 30) + 5;
  const Plan plan = plan_mma({1, 1, batch}, 132);
  EXPECT_GT(plan.grid_y, 1u);
  EXPECT_LE(plan.grid_y, 65535u);
  EXPECT_GE(std::int64_t{plan.grid_x} * plan.grid_y, batch);
}

TEST(Plan, NoOutputsMeansNoBlocks) {
  EXPECT_EQ(plan_mma({0, 5, 1}, 132).grid_x * plan_mma({0, 5, 1}, 132).grid_y, 0u);
  EXPECT_EQ(plan_fma({5, 0, 1}, 132).grid_x, 0u);
}

TEST(Plan, TakesLargeTilesWhereTheyFillTheDeviceAndSmallOnesWhereNot) {
  constexpr int h200 = 132;
  EXPECT_EQ(plan_mma({8192, 8192, 1}, h200).size, Size::large);
  EXPECT_EQ(plan_mma({64, 10, 1}, h200).size, Size::small);
  EXPECT_EQ(plan_mma({512, 512, 1}, h200).size, Size::small)
      << "8 large tiles would leave 124 multiprocessors idle";
  EXPECT_EQ(plan_fma({8192, 8192, 1}, h200).size, Size::medium);
  EXPECT_EQ(plan_fma({64, 10, 1}, h200).size, Size::small);
  for (const std::int64_t extent : {1, 500, 8192}) {
    EXPECT_EQ(plan_mma({extent, extent, 1}, h200, Size::small).size, Size::small);
    EXPECT_LE(plan_mma({extent, extent, 1}, h200, Size::medium).size, Size::medium);
  }
}

TEST(Plan, ExtentsBeyond32BitsAreRefusedByName) {
  EXPECT_THAT(
      [] {
        plan_mma({extent_limit, 3, 2}, 132);
      },
      testing::ThrowsMessage<std::invalid_argument>(
          "2 products of 2147483392 x 3 outputs; on a GPU each extent must be below 2147483392"));
}

TEST(Plan, BlocksFitIntoTheSharedMemoryOfEveryGeneration) {
  // KB a block may have, and KB of the multiprocessor, of which each block takes 1 KB for the system (CUDA
  // C++ Programming Guide, "Technical Specifications per Compute Capability", and the tuning guides). The
  // probe's counters are static.
  struct Generation {
    const char* name;
    std::size_t block_kb, multiprocessor_kb;
    bool data_center;
  };
  constexpr std::size_t counters = 2 * 258 * 4;
  for (const Generation& generation :
       {Generation{"7.5", 64, 64, false}, Generation{"8.0", 163, 164, true},
        Generation{"8.6 and 8.9", 99, 100, false}, Generation{"9.0", 227, 228, true}}) {
    const Gpu gpu(58, generation.block_kb * 1024, generation.multiprocessor_kb * 1024);
    const auto holds = [&](const Shape& shape) {
      const std::size_t block = shape.shared_bytes() + counters;
      if (!fits(shape, gpu)) {
        EXPECT_STREQ(generation.name, "7.5") << shape.m << " x " << shape.n;
        return;
      }
      EXPECT_LE(block, generation.block_kb * 1024) << generation.name;
      // Where tiles were chosen for speed, eight warps fit at a time.
      const std::size_t blocks = 8u / static_cast<std::size_t>(shape.warps());
      if (generation.data_center) {
        EXPECT_LE(blocks * (block + 1024), generation.multiprocessor_kb * 1024) << generation.name;
      }
    };
    for (const Shape& shape : mma_shapes) holds(shape);
    for (const Shape& shape : fma_shapes) holds(shape);
    for (const Shape& shape : gather_shapes) {
      holds(shape);
      EXPECT_TRUE(fits(shape, gpu));
    }
    for (const Shape* smallest : {&mma_shapes[0], &fma_shapes[0]}) EXPECT_TRUE(fits(*smallest, gpu));
    // Whatever the outputs, the block of the plan can be launched.
    for (const std::int64_t m : {1, 60, 130, 500, 1000, 4000, 8192})
      for (const std::int64_t n : {1, 60, 130, 500, 1000, 4000, 8192}) {
        const Outputs outputs{m, n, 1};
        EXPECT_TRUE(fits(mma_shape(plan_mma(outputs, gpu).size), gpu)) << generation.name;
        EXPECT_TRUE(fits(fma_shape(plan_fma(outputs, gpu).size), gpu)) << generation.name;
        EXPECT_TRUE(fits(gather_shape(plan_gathered(outputs, gpu).size), gpu)) << generation.name;
      }
  }
}

TEST(Plan, CreditsAShapeWithTheWarpsThatSharedMemoryHolds) {
  // 100 KB of a multiprocessor hold one medium block of 4 warps, or one large one of 8, or two small ones.
  constexpr Gpu ada(58, 99 * 1024, 100 * 1024), a100(108, 163 * 1024, 164 * 1024),
      turing(40, 64 * 1024, 64 * 1024);
  EXPECT_EQ(plan_mma({8192, 8192, 1}, ada).size, Size::large);
  for (const std::int64_t extent : {64, 256, 640, 768, 1024, 1536, 2048, 4096})
    EXPECT_NE(plan_mma({extent, extent, 1}, ada).size, Size::medium) << extent;
  EXPECT_EQ(plan_mma({1024, 1408, 1}, a100).size, Size::medium) << "88 of them, two at a time fit";
  for (const std::int64_t extent : {64, 1024, 8192}) {
    EXPECT_EQ(plan_mma({extent, extent, 1}, turing).size, Size::small);
    EXPECT_EQ(plan_fma({extent, extent, 1}, turing).size, Size::small);
  }
}

TEST(Plan, ThreadsDivideTheRunsOfASlice) {
  // Every thread copies the same number of runs of each operand, and keeps its place in the row.
  const auto divides = [](const Shape& shape, int element_bytes) {
    const int run_elements = run_bytes / element_bytes;
    for (const int outer : {shape.m, shape.n}) {
      const int runs = outer * slice_bytes / run_bytes;
      EXPECT_EQ(runs % shape.threads(), 0);
      EXPECT_EQ(shape.threads() % (slice_bytes / run_bytes), 0);
      EXPECT_EQ(shape.threads() % (outer / run_elements), 0);
    }
  };
  for (const Shape& shape : mma_shapes) divides(shape, 2);
  for (const Shape& shape : fma_shapes) divides(shape, 4);
}

}  // namespace
}  // namespace fp16lab::engine::tile
