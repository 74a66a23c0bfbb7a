// The orders in which the host machine lets threads run (engine/backend/cuda/cpu_simt/executor.hpp): what
// each is, and what only the one that lets a warp go ahead shows.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/backend/cuda/runtime/instructions.hpp"
#include "engine/backend/cuda/runtime/launch.hpp"

namespace fp16lab::engine::cpu_simt {
namespace {

constexpr std::uint32_t full = 0xffffffffu;
constexpr std::array schedules{Schedule::ascending, Schedule::descending, Schedule::scrambled,
                               Schedule::warp_by_warp};

class HostSchedules : public testing::Test {
 protected:
  void TearDown() override { set_schedule(Schedule::ascending); }

  Runtime runtime_{0};
};

__global__ void note_order(std::uint32_t* order, std::uint32_t* arrivals) {
  __shared__ std::uint32_t arrived;
  if (threadIdx.x == 0) arrived = 0;
  for (std::uint32_t round = 0; round < 2; ++round) {
    __syncthreads();
    order[round * blockDim.x + atomicAdd(&arrived, 1) % blockDim.x] = threadIdx.x;
  }
  __syncthreads();
  if (threadIdx.x == 0) *arrivals = arrived;
}

TEST_F(HostSchedules, SchedulesAreTheOrdersTheyAreNamedFor) {
  constexpr std::uint32_t threads = 96;
  const auto orders = [&](Schedule schedule) {
    set_schedule(schedule);
    std::vector<std::uint32_t> order(2 * threads, 0);
    std::uint32_t arrivals = 0;
    launch(runtime_, "note_order", &note_order, {.threads = threads}, order.data(), &arrivals);
    EXPECT_EQ(arrivals, 2 * threads);
    return order;
  };
  const std::vector<std::uint32_t> ascending = orders(Schedule::ascending),
                                   descending = orders(Schedule::descending),
                                   scrambled = orders(Schedule::scrambled);
  for (std::uint32_t i = 0; i < threads; ++i) {
    EXPECT_EQ(ascending[i], i);
    EXPECT_EQ(descending[i], threads - 1 - i);
  }
  const std::vector<std::uint32_t> first(scrambled.begin(), scrambled.begin() + threads),
      second(scrambled.begin() + threads, scrambled.end());
  EXPECT_NE(first, second) << "another order after every barrier";
  std::vector<bool> met(threads, false);
  for (const std::uint32_t thread : first) met[thread] = true;
  EXPECT_EQ(met, std::vector<bool>(threads, true));
}

/// The threads of a block in the order in which they pass a shuffle, and once more.
__global__ void note_order_around_shuffles(std::uint32_t* order) {
  __shared__ std::uint32_t noted;
  if (threadIdx.x == 0) noted = 0;
  for (int round = 0; round < 2; ++round) {
    __syncthreads();
    for (int i = 0; i < 2; ++i) {
      __shfl_sync(full, threadIdx.x, 0);
      order[atomicAdd(&noted, 1)] = threadIdx.x;
    }
  }
}

TEST_F(HostSchedules, AWarpGoesAsFarAsItCanBeforeTheNextBegins) {
  constexpr std::uint32_t warps = 3, passes = 4, threads = 32 * warps;
  set_schedule(Schedule::warp_by_warp);
  std::vector<std::uint32_t> order(passes * threads, 0);
  launch(runtime_, "note_order", &note_order_around_shuffles, {.threads = threads}, order.data());
  std::vector<std::uint32_t> visited;  // warps, in their order
  for (std::size_t i = 0; i < order.size(); i += 64) {
    for (std::size_t j = i; j < i + 64; ++j) EXPECT_EQ(order[j] / 32, order[i] / 32) << j;
    visited.push_back(order[i] / 32);
  }
  ASSERT_EQ(visited.size(), 2 * warps);
  for (std::uint32_t i = 0; i < 2 * warps; ++i)
    EXPECT_EQ(visited[i], (visited[i / warps * warps] + i % warps) % warps) << "each warp once, in a ring";
  EXPECT_NE(visited[0], visited[warps]) << "another one is the first after a barrier";
}

/// Each warp reads what all have written, shuffles, and writes it anew: a barrier is missing before that.
__global__ void overwrite_without_barrier(std::uint32_t* out) {
  std::uint32_t* const shared = dynamic_shared<std::uint32_t>();
  shared[threadIdx.x] = threadIdx.x;
  __syncthreads();
  out[threadIdx.x] =
      __shfl_sync(full, shared[(threadIdx.x + 32) % blockDim.x], static_cast<int>(threadIdx.x));
  __syncwarp();
  shared[threadIdx.x] = 1000;
}

TEST_F(HostSchedules, WarpsInStepHideABarrierThatOneWarpAheadMisses) {
  for (const Schedule schedule : schedules) {
    set_schedule(schedule);
    std::vector<std::uint32_t> out(64, 0), right(64);
    for (std::uint32_t i = 0; i < 64; ++i) right[i] = (i + 32) % 64;
    launch(runtime_, "racing", &overwrite_without_barrier, {.threads = 64, .shared_bytes = 64 * 4},
           out.data());
    EXPECT_EQ(out == right, schedule != Schedule::warp_by_warp);
  }
}

}  // namespace
}  // namespace fp16lab::engine::cpu_simt
