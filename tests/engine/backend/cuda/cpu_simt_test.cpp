// The host machine (engine/backend/cuda/cpu_simt/) against what CUDA promises of blocks, warps and launches:
// what the conformance suite concludes about kernels rests on it.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/backend/cuda/runtime/instructions.hpp"
#include "engine/backend/cuda/runtime/launch.hpp"
#include "tests/support/message_of.hpp"

namespace fp16lab::engine::cpu_simt {
namespace {

using testing_support::message_of;

constexpr std::uint32_t full = 0xffffffffu;
constexpr std::array schedules{Schedule::ascending, Schedule::descending, Schedule::scrambled,
                               Schedule::warp_by_warp};

class HostMachine : public testing::Test {
 protected:
  void TearDown() override { set_schedule(Schedule::ascending); }

  Runtime runtime_{0};
};

// ---- places ----

__global__ void note_places(std::uint32_t* seen, std::uint32_t* extents) {
  const std::uint32_t block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  ++seen[block * blockDim.x + threadIdx.x];
  extents[0] = gridDim.x;
  extents[1] = gridDim.y;
  extents[2] = gridDim.z;
  extents[3] = blockDim.x;
}

TEST_F(HostMachine, EveryThreadOfEveryBlockRunsOnce) {
  for (const Schedule schedule : schedules) {
    set_schedule(schedule);
    std::vector<std::uint32_t> seen(3 * 2 * 4 * 65, 0), extents(4, 0);
    launch(runtime_, "note_places", &note_places, {.x = 3, .y = 2, .z = 4, .threads = 65}, seen.data(),
           extents.data());
    EXPECT_EQ(seen, std::vector<std::uint32_t>(seen.size(), 1));
    EXPECT_EQ(extents, (std::vector<std::uint32_t>{3, 2, 4, 65}));
  }
}

TEST_F(HostMachine, LaunchesThatNoGpuTakesAreRefusedByName) {
  std::uint32_t word = 0;
  const auto refusal = [&](const LaunchShape& shape) {
    return message_of([&] { launch(runtime_, "note_places", &note_places, shape, &word, &word); });
  };
  EXPECT_EQ(refusal({.threads = 1025}),
            "kernel note_places: 1025 threads in a block; from 1 to 1024 are possible");
  EXPECT_EQ(refusal({.threads = 0}), "kernel note_places: 0 threads in a block; from 1 to 1024 are possible");
  EXPECT_EQ(refusal({.y = 65536}),
            "kernel note_places: a grid of (1, 65536, 1) blocks; y and z reach to 65535");
  EXPECT_EQ(refusal({.z = 65536}),
            "kernel note_places: a grid of (1, 1, 65536) blocks; y and z reach to 65535");
  EXPECT_EQ(
      refusal({.shared_bytes = 232449}),
      "kernel note_places: 232449 bytes of dynamic shared memory; a block of sm_90 may have 232448 of both");
  EXPECT_EQ(word, 0u);
}

/// 2064 bytes of static shared memory, as the counters of a probe have.
__global__ void count_with_dynamic(std::uint32_t* out) {
  struct Counts {
    std::uint32_t of[516];
  };
  FP16LAB_SHARED(Counts, counts);
  if (threadIdx.x == 0) out[0] = counts.of[0];
  __syncthreads();
  counts.of[threadIdx.x] = threadIdx.x;
  __syncthreads();
  if (threadIdx.x == 0) out[1] = counts.of[blockDim.x - 1];
}

TEST_F(HostMachine, StaticAndDynamicSharedMemoryAreCountedTogether) {
  std::array<std::uint32_t, 2> seen{};
  constexpr std::uint32_t threads = 8;
  const auto refusal = [&](std::size_t dynamic_bytes,
                           bool (*opts_in)(std::size_t, std::size_t)) -> std::string {
    seen = {};
    try {
      execute({.name = "count", .threads = threads, .shared_bytes = dynamic_bytes, .opts_in = opts_in},
              Schedule::ascending, [&] { count_with_dynamic(seen.data()); });
    } catch (const std::logic_error& error) {
      return error.what();
    }
    return "";
  };
  // What CUDA lets a block have without being told: 2064 bytes are 17 * 128 where dynamic memory follows.
  EXPECT_EQ(refusal(49152 - 2176, nullptr), "");
  EXPECT_EQ(seen, (std::array<std::uint32_t, 2>{0xa0a0a0a0u, threads - 1}))
      << "garbage at first, then shared";
  const std::string refused =
      " of static shared memory; without cudaFuncSetAttribute a block may have 49152 of both";
  EXPECT_NE(refusal(49152 - 2175, nullptr).find("46977 bytes of dynamic and 2064" + refused),
            std::string::npos);
  // The rule that looks at dynamic memory alone leaves a tile of just 48 KiB without its counters.
  const auto dynamic_alone = [](std::size_t, std::size_t dynamic_bytes) { return dynamic_bytes > 48 * 1024; };
  EXPECT_NE(refusal(49152, dynamic_alone).find("49152 bytes of dynamic and 2064" + refused),
            std::string::npos);
  EXPECT_EQ(refusal(49152, &needs_opt_in), "");
  // Nor does the opt-in go beyond the block of compute capability 9.0.
  EXPECT_NE(refusal(232448, &needs_opt_in).find("a block of sm_90 may have 232448 of both"),
            std::string::npos);
  EXPECT_EQ(refusal(232448 - 2176, &needs_opt_in), "");
}

__global__ void share_uncounted(std::uint32_t* out) {
  __shared__ std::uint32_t word;
  word = 1;
  out[0] = word;
}

TEST_F(HostMachine, SharedMemoryThatNobodyCountsIsRefusedBesideDynamic) {
  std::uint32_t word = 0;
  launch(runtime_, "share", &share_uncounted, {.threads = 1}, &word);
  EXPECT_EQ(word, 1u);
  EXPECT_NE(message_of([&] {
              launch(runtime_, "share", &share_uncounted, {.threads = 1, .shared_bytes = 4}, &word);
            }).find("expected FP16LAB_SHARED"),
            std::string::npos);
}

// ---- blocks ----

/// Round by round, every thread takes what the thread `distance` further on had: a rotation by rounds *
/// distance.
__global__ void rotate(std::uint32_t* values, std::uint32_t rounds, std::uint32_t distance) {
  std::uint32_t* const shared = dynamic_shared<std::uint32_t>();
  FP16LAB_SHARED(std::uint32_t, last);
  std::uint32_t* const own = values + blockIdx.x * blockDim.x;
  shared[threadIdx.x] = own[threadIdx.x];
  for (std::uint32_t round = 0; round < rounds; ++round) {
    __syncthreads();
    const std::uint32_t taken = shared[(threadIdx.x + distance) % blockDim.x];
    __syncthreads();
    shared[threadIdx.x] = taken;
  }
  if (threadIdx.x == 0) last = shared[0];
  __syncthreads();
  own[threadIdx.x] = shared[threadIdx.x] + 1000 * last;
}

TEST_F(HostMachine, BarriersOrderSharedMemoryUnderEverySchedule) {
  constexpr std::uint32_t threads = 100, blocks = 3, rounds = 7, distance = 13;
  for (const Schedule schedule : schedules) {
    set_schedule(schedule);
    std::vector<std::uint32_t> values(threads * blocks), expected(values.size());
    for (std::uint32_t i = 0; i < values.size(); ++i) values[i] = i;
    for (std::uint32_t i = 0; i < values.size(); ++i) {
      const std::uint32_t block = i / threads, shift = rounds * distance;
      expected[i] =
          block * threads + (i % threads + shift) % threads + 1000 * (block * threads + shift % threads);
    }
    launch(runtime_, "rotate", &rotate, {.x = blocks, .threads = threads, .shared_bytes = threads * 4},
           values.data(), rounds, distance);
    EXPECT_EQ(values, expected);
  }
}

__global__ void take_from_next_without_barrier(std::uint32_t* out) {
  std::uint32_t* const shared = dynamic_shared<std::uint32_t>();
  shared[threadIdx.x] = threadIdx.x;
  out[threadIdx.x] = shared[(threadIdx.x + 1) % blockDim.x];
}

TEST_F(HostMachine, AMissingBarrierGivesOtherResultsUnderAnotherSchedule) {
  std::vector<std::vector<std::uint32_t>> results;
  for (const Schedule schedule : schedules) {
    set_schedule(schedule);
    std::vector<std::uint32_t> out(64, 0);
    launch(runtime_, "racing", &take_from_next_without_barrier, {.threads = 64, .shared_bytes = 64 * 4},
           out.data());
    results.push_back(out);
  }
  EXPECT_NE(results[0], results[1]);
  EXPECT_NE(results[0], results[2]);
  EXPECT_NE(results[1], results[2]);
}

__global__ void look_at_new_shared_memory(std::uint32_t* wrong_bytes, std::uint32_t bytes) {
  unsigned char* const shared = dynamic_shared<unsigned char>();
  if (reinterpret_cast<std::uintptr_t>(shared) % 128 != 0) ++*wrong_bytes;
  for (std::uint32_t i = 0; i < bytes; ++i) {
    if (shared[i] != 0xa0) ++*wrong_bytes;
    shared[i] = 0;  // must not be found by the next block
  }
}

TEST_F(HostMachine, DynamicSharedMemoryIsAlignedAndGarbageInEveryBlock) {
  std::uint32_t wrong_bytes = 0;
  launch(runtime_, "look", &look_at_new_shared_memory, {.x = 3, .threads = 1, .shared_bytes = 1000},
         &wrong_bytes, 1000u);
  EXPECT_EQ(wrong_bytes, 0u);
}

__global__ void leave_early(std::uint32_t* sum, std::uint32_t staying) {
  __shared__ std::uint32_t shared_sum;
  if (threadIdx.x >= staying) return;
  if (threadIdx.x == 0) shared_sum = 0;
  __syncthreads();
  atomicAdd(&shared_sum, threadIdx.x);
  __syncthreads();
  if (threadIdx.x == staying - 1) *sum = shared_sum;
}

TEST_F(HostMachine, BarriersOfTheBlockDoNotWaitForThreadsThatHaveEnded) {
  for (const Schedule schedule : schedules) {
    set_schedule(schedule);
    std::uint32_t sum = 0;
    launch(runtime_, "leave_early", &leave_early, {.threads = 128}, &sum, 40u);
    EXPECT_EQ(sum, 39u * 40u / 2u);
  }
}

// ---- warps ----

constexpr int widths = 3, distances = 40;
constexpr std::array<int, widths> width_of{8, 16, 32};
enum Kind { indexed, down, up, xored, kinds };

std::size_t shuffle_place(int kind, int width, int distance, int thread) {
  const int place = ((kind * widths + width) * distances + distance) * 64 + thread;
  return static_cast<std::size_t>(place);
}

__global__ void shuffle_all(std::int32_t* out) {
  const int thread = static_cast<int>(threadIdx.x);
  const std::int32_t value = 100 + thread;
  for (int w = 0; w < widths; ++w)
    for (int distance = 0; distance < distances; ++distance) {
      const int width = width_of[static_cast<std::size_t>(w)];
      const auto unsigned_distance = static_cast<unsigned>(distance);
      out[shuffle_place(indexed, w, distance, thread)] = __shfl_sync(full, value, distance, width);
      out[shuffle_place(down, w, distance, thread)] = __shfl_down_sync(full, value, unsigned_distance, width);
      out[shuffle_place(up, w, distance, thread)] = __shfl_up_sync(full, value, unsigned_distance, width);
      out[shuffle_place(xored, w, distance, thread)] = distance < 32
                                                           ? __shfl_xor_sync(full, value, distance, width)
                                                           : __shfl_sync(full, value, thread % 32);
    }
}

// CUDA C++ Programming Guide, "Warp Shuffle Functions": the source lane of each form, in segments of `width`
// lanes.
TEST_F(HostMachine, ShufflesReadTheLanesOfTheirDefinition) {
  for (const Schedule schedule : schedules) {
    set_schedule(schedule);
    std::vector<std::int32_t> out(shuffle_place(kinds, 0, 0, 0), 0);
    launch(runtime_, "shuffle_all", &shuffle_all, {.threads = 64}, out.data());
    for (int w = 0; w < widths; ++w)
      for (int distance = 0; distance < distances; ++distance)
        for (int thread = 0; thread < 64; ++thread) {
          const int width = width_of[static_cast<std::size_t>(w)], lane = thread % 32, warp = thread - lane;
          const int begin = lane - lane % width, end = begin + width;
          const auto value_of = [&](int source) { return 100 + warp + source; };
          const auto at = [&](Kind kind) { return out[shuffle_place(kind, w, distance, thread)]; };
          ASSERT_EQ(at(indexed), value_of(begin + distance % width));
          ASSERT_EQ(at(down), value_of(lane + distance < end ? lane + distance : lane));
          ASSERT_EQ(at(up), value_of(lane - distance >= begin ? lane - distance : lane));
          // "... able to access elements from earlier groups of threads, however if they attempt to access
          // elements from later groups of threads their own value of var will be returned."
          const int partner = distance < 32 ? lane ^ distance : lane;
          ASSERT_EQ(at(xored), value_of(partner < end ? partner : lane))
              << width << " " << distance << " " << lane;
        }
  }
}

__global__ void vote(const std::uint32_t* ballots, std::uint32_t* out, std::uint32_t count) {
  const std::uint32_t lane = threadIdx.x % 32;
  for (std::uint32_t i = 0; i < count; ++i) {
    const bool vote = (ballots[i] >> lane & 1u) != 0;
    out[(3 * i) * blockDim.x + threadIdx.x] = __ballot_sync(full, vote);
    out[(3 * i + 1) * blockDim.x + threadIdx.x] = __any_sync(full, vote) ? 1 : 0;
    out[(3 * i + 2) * blockDim.x + threadIdx.x] = __all_sync(full, vote) ? 1 : 0;
  }
}

TEST_F(HostMachine, VotesCollectOneBitOfEachLane) {
  const std::vector<std::uint32_t> ballots{0, 1, 0x80000000u, 0x12345678u, 0xfffffffeu, 0xffffffffu};
  for (const Schedule schedule : schedules) {
    set_schedule(schedule);
    std::vector<std::uint32_t> out(ballots.size() * 3 * 64, 7);
    launch(runtime_, "vote", &vote, {.threads = 64}, ballots.data(), out.data(),
           static_cast<std::uint32_t>(ballots.size()));
    for (std::size_t i = 0; i < ballots.size(); ++i)
      for (std::size_t thread = 0; thread < 64; ++thread) {
        EXPECT_EQ(out[3 * i * 64 + thread], ballots[i]);
        EXPECT_EQ(out[(3 * i + 1) * 64 + thread], ballots[i] != 0 ? 1u : 0u);
        EXPECT_EQ(out[(3 * i + 2) * 64 + thread], ballots[i] == full ? 1u : 0u);
      }
  }
}

__global__ void add_up_by_shuffles(double* out) {
  double value = static_cast<double>(threadIdx.x % 32);
  for (int distance = 16; distance > 0; distance /= 2)
    value += __shfl_down_sync(full, value, static_cast<unsigned>(distance));
  if (threadIdx.x % 32 == 0) out[threadIdx.x / 32] = value;
}

TEST_F(HostMachine, WarpsExchangeEightByteValuesIndependently) {
  std::vector<double> sums(4, 0.0);
  launch(runtime_, "add_up", &add_up_by_shuffles, {.threads = 128}, sums.data());
  EXPECT_EQ(sums, std::vector<double>(4, 31.0 * 32.0 / 2.0));
}

__global__ void reverse_in_warp(std::uint32_t* out) {
  __shared__ std::uint32_t shared[64];
  const std::uint32_t lane = threadIdx.x % 32, first = threadIdx.x - lane;
  shared[threadIdx.x] = threadIdx.x;
  __syncwarp();
  out[threadIdx.x] = shared[first + 31 - lane];
}

TEST_F(HostMachine, SyncwarpOrdersSharedMemoryOfTheWarp) {
  for (const Schedule schedule : schedules) {
    set_schedule(schedule);
    std::vector<std::uint32_t> out(64, 0);
    launch(runtime_, "reverse", &reverse_in_warp, {.threads = 64}, out.data());
    for (std::uint32_t i = 0; i < 64; ++i) EXPECT_EQ(out[i], i / 32 * 32 + 31 - i % 32);
  }
}

// ---- what a GPU would hang or err on ----

__global__ void shuffle_in_half_a_warp(std::int32_t* out) {
  if (threadIdx.x % 32 < 16) out[threadIdx.x] = __shfl_sync(full, 1, 0);
}
__global__ void shuffle_after_others_have_left(std::int32_t* out) {
  if (threadIdx.x == 31) return;
  out[threadIdx.x] = __shfl_sync(full, 1, 0);
}
__global__ void meet_in_different_exchanges(std::int32_t* out) {
  if (threadIdx.x < 16)
    out[threadIdx.x] = __shfl_sync(full, 1, 0);
  else
    out[threadIdx.x] = __ballot_sync(full, true) != 0 ? 1 : 0;
}
__global__ void shuffle_with_a_partial_mask(std::int32_t* out) {
  out[threadIdx.x] = __shfl_sync(0xffffu, 1, 0);
}
__global__ void shuffle_everywhere(std::int32_t* out) { out[threadIdx.x] = __shfl_sync(full, 1, 0); }
__global__ void wait_at_barrier_and_exchange(std::int32_t* out) {
  if (threadIdx.x < 16)
    __syncthreads();
  else
    out[threadIdx.x] = __shfl_sync(full, 1, 0);
}

TEST_F(HostMachine, AnExchangeThatNotAllLanesReachIsRefusedByName) {
  std::vector<std::int32_t> out(64, 0);
  const auto refusal = [&](const char* name, auto* kernel, std::uint32_t threads = 64) {
    return message_of([&] { launch(runtime_, name, kernel, {.threads = threads}, out.data()); });
  };
  for (const Schedule schedule : schedules) {
    set_schedule(schedule);
    for (const std::string& message :
         {refusal("half", &shuffle_in_half_a_warp), refusal("half", &shuffle_after_others_have_left),
          refusal("half", &wait_at_barrier_and_exchange, 32), refusal("half", &shuffle_everywhere, 48)}) {
      EXPECT_EQ(message.find("kernel half on the host machine: "), 0u) << message;
      EXPECT_NE(message.find("that not all of its lanes reach"), std::string::npos) << message;
      EXPECT_NE(message.find("block (0, 0, 0)"), std::string::npos) << message;
    }
    EXPECT_NE(refusal("mixed", &meet_in_different_exchanges)
                  .find("kernel mixed on the host machine: lanes of a warp meet"),
              std::string::npos);
    EXPECT_NE(refusal("masked", &shuffle_with_a_partial_mask).find("kernel masked"), std::string::npos);
    // The machine is as new.
    std::vector<double> sums(2, 0.0);
    launch(runtime_, "add_up", &add_up_by_shuffles, {.threads = 64}, sums.data());
    EXPECT_EQ(sums, std::vector<double>(2, 31.0 * 32.0 / 2.0));
  }
}

struct Counted {
  explicit Counted(int& alive) : alive_(&alive) { ++*alive_; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  ~Counted() { --*alive_; }
  int* alive_;
};

__global__ void throw_in_one_thread(int* alive) {
  const Counted counted(*alive);
  __syncthreads();
  if (blockIdx.x == 1 && threadIdx.x == 17) throw std::out_of_range("thread 17");
  __syncthreads();
}

TEST_F(HostMachine, ExceptionsOfAThreadArriveAndUnwindTheOthers) {
  for (const Schedule schedule : schedules) {
    set_schedule(schedule);
    int alive = 0;
    const auto run = [&] {
      launch(runtime_, "throwing", &throw_in_one_thread, {.x = 2, .threads = 40}, &alive);
    };
    EXPECT_THROW(run(), std::out_of_range);
    EXPECT_EQ(alive, 0);
    EXPECT_EQ(message_of(run), "thread 17");
    EXPECT_EQ(alive, 0);
  }
}

}  // namespace
}  // namespace fp16lab::engine::cpu_simt
