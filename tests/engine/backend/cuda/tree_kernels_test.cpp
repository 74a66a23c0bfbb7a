// TREE by warps and blocks (engine/backend/cuda/verbs/tree_kernels.hpp) against TREE from the text of its
// definition, on the host machine: lengths around lanes, chunks, groups of chunks; the reductions of the
// conformance suite do not reach some.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/backend/cuda/runtime/launch.hpp"
#include "engine/backend/cuda/verbs/tree_kernels.hpp"
#include "tests/engine/backend/conformance.hpp"

namespace fp16lab::engine::cpu_simt {
namespace {

using test::Kind;
using test::naive_tree;
using test::random_floats;
using test::same_bytes;

constexpr Schedule schedules[] = {Schedule::ascending, Schedule::descending, Schedule::scrambled,
                                  Schedule::warp_by_warp};

/// Values whose sums round at every addition: with another order they differ.
template <class T>
std::vector<T> sequence(std::int64_t count) {
  std::vector<T> values;
  for (const float x : random_floats(count, Kind::cancelling, 31)) values.push_back(static_cast<T>(x) / T{3});
  return values;
}

template <class T>
T sum_of(const std::vector<T>& values) {
  return naive_tree<T>(values, [](T a, T b) { return a + b; });
}
/// Equal zeros: the earlier one stays. Without NaN.
template <class T>
T maximum_of(const std::vector<T>& values) {
  return naive_tree<T>(values, [](T a, T b) { return b > a ? b : a; });
}

class TreeKernels : public testing::Test {
 protected:
  void TearDown() override { set_schedule(Schedule::ascending); }

  Runtime runtime_{0};
};

// ---- folds ----

template <class Op>
__global__ void fold_both_ways(const float* x, float* by_warp, float* by_thread) {
  for (int used = 1; used <= 32; ++used) {
    const float result = fold_warp(x[threadIdx.x], used, Op{});
    if (threadIdx.x == 0) by_warp[used - 1] = result;
    if (threadIdx.x != static_cast<unsigned>(used - 1)) continue;
    float lanes[32];
    for (int lane = 0; lane < 32; ++lane) lanes[lane] = x[lane];
    fold_registers(lanes, used, Op{});
    by_thread[used - 1] = lanes[0];
  }
}

TEST_F(TreeKernels, FoldsSkipLanesWithoutAnElement) {
  std::vector<float> values = sequence<float>(32);
  values[0] = -0.0f;  // alone it keeps its sign
  std::vector<float> sums(32), sums_by_thread(32), maxima(32), maxima_by_thread(32);
  launch(runtime_, "fold", &fold_both_ways<TreeSum>, {.threads = 32}, values.data(), sums.data(),
         sums_by_thread.data());
  launch(runtime_, "fold", &fold_both_ways<TreeMax>, {.threads = 32}, values.data(), maxima.data(),
         maxima_by_thread.data());
  for (std::size_t used = 1; used <= 32; ++used) {
    const std::vector<float> first(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(used));
    EXPECT_TRUE(same_bytes(sums[used - 1], sum_of(first))) << used;
    EXPECT_TRUE(same_bytes(sums_by_thread[used - 1], sum_of(first))) << used;
    EXPECT_TRUE(same_bytes(maxima[used - 1], maximum_of(first))) << used;
    EXPECT_TRUE(same_bytes(maxima_by_thread[used - 1], maximum_of(first))) << used;
  }
}

// ---- blocks ----

/// Sum and maximum, one after the other in the same shared memory.
template <class T>
__global__ void reduce_twice(const T* x, std::int64_t count, T* results) {
  __shared__ TreeScratch<T> scratch;
  const auto get = [=](std::int64_t i) { return x[i]; };
  const T sum = reduce_by_block<T>(count, get, TreeSum{}, scratch);
  const T maximum = reduce_by_block<T>(count, get, TreeMax{}, scratch);
  if (threadIdx.x != 0) return;
  results[0] = sum;
  results[1] = maximum;
}

template <class T>
void expect_tree_by_block(Runtime& runtime, const std::vector<T>& values, std::uint32_t threads) {
  const std::string what = std::to_string(values.size()) + " by " + std::to_string(threads) + " threads";
  T results[2] = {};
  launch(runtime, "reduce_twice", &reduce_twice<T>, {.threads = threads}, values.data(),
         static_cast<std::int64_t>(values.size()), results);
  EXPECT_TRUE(same_bytes(results[0], sum_of(values))) << "sum of " << what;
  EXPECT_TRUE(same_bytes(results[1], maximum_of(values))) << "maximum of " << what;
}

TEST_F(TreeKernels, BlocksOfAnySizeReduceAnyLength) {
  for (const Schedule schedule : schedules) {
    set_schedule(schedule);
    for (const std::int64_t count :
         {1, 2, 31, 32, 33, 1023, 1024, 1025, 1057, 33 * 1024, 33 * 1024 + 1, 70001})
      for (const std::uint32_t threads : {32u, 96u, 1024u}) {
        expect_tree_by_block(runtime_, sequence<float>(count), threads);
        expect_tree_by_block(runtime_, sequence<double>(count), threads);
      }
  }
}

TEST_F(TreeKernels, BlocksReduceMoreThanAMillionElements) {
  constexpr std::int64_t group = 1024 * 1024;  // chunk results fill one chunk
  for (const std::int64_t count : {group, group + 1, 2 * group + 1025})
    expect_tree_by_block(runtime_, sequence<double>(count), 512);
}

// ---- levels above the chunks ----

/// chunks[0], chunks[1], ... as chunk results that come one after the other.
template <class T>
__global__ void append_all(const T* chunks, std::int64_t count, T* results) {
  UpperTreeLevels<T, TreeSum> sum;
  UpperTreeLevels<T, TreeMax> maximum;
  for (std::int64_t i = 0; i < count; ++i) {
    const T mine = threadIdx.x == 0 ? chunks[i] : T{1000};  // only lane 0's counts
    sum.append(mine);
    maximum.append(mine);
  }
  const T total = sum.finish(), largest = maximum.finish();
  if (threadIdx.x != 0) return;
  results[0] = total;
  results[1] = largest;
}

TEST_F(TreeKernels, AWarpKeepsTheUpperLevels) {
  for (const std::int64_t count : {1, 2, 31, 32, 33, 1023, 1024, 1025, 2048, 33 * 1024 + 5}) {
    const std::vector<float> chunks = sequence<float>(count);
    float results[2] = {};
    launch(runtime_, "append_all", &append_all<float>, {.threads = 32}, chunks.data(), count, results);
    EXPECT_TRUE(same_bytes(results[0], sum_of(chunks))) << count;
    EXPECT_TRUE(same_bytes(results[1], maximum_of(chunks))) << count;
  }
}

}  // namespace
}  // namespace fp16lab::engine::cpu_simt
