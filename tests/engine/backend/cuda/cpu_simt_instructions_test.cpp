// The instructions of the host machine (engine/backend/cuda/runtime/instructions.hpp) against the PTX ISA and
// numerics' scalar reference of the tensor cores.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/backend/cuda/runtime/instructions.hpp"
#include "engine/backend/cuda/runtime/launch.hpp"
#include "engine/backend/cuda/runtime/packs.hpp"
#include "numerics/random/philox.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"
#include "tests/support/message_of.hpp"

namespace fp16lab::engine::cpu_simt {
namespace {

using testing_support::message_of;

constexpr std::array schedules{Schedule::ascending, Schedule::descending, Schedule::scrambled,
                               Schedule::warp_by_warp};

class HostInstructions : public testing::Test {
 protected:
  void TearDown() override {
    set_schedule(Schedule::ascending);
    set_tensor_core("hopper");
  }

  Runtime runtime_{0};
};

// ---- asynchronous copies ----

__global__ void watch_copies(const std::uint32_t* global, std::uint32_t* seen) {
  std::uint32_t* const shared = dynamic_shared<std::uint32_t>();
  for (int i = 0; i < 12; ++i) shared[i] = 1;
  const auto look = [&] {
    for (int i = 0; i < 12; ++i) *seen++ = shared[i];
  };
  copy_16_bytes_async(shared, global);
  commit_copies();
  copy_16_bytes_async(shared + 4, global + 4, 8);
  copy_16_bytes_async(shared + 8, nullptr, 0);
  commit_copies();
  look();
  wait_for_copies<1>();
  look();
  wait_for_copies<0>();
  look();
}

TEST_F(HostInstructions, CopiesAreLateUntilTheyAreWaitedFor) {
  const std::vector<Pack<std::uint32_t, 4>> global{{{10, 11, 12, 13}}, {{14, 15, 16, 17}}};
  std::vector<std::uint32_t> seen(36, 0);
  launch(runtime_, "watch", &watch_copies, {.threads = 1, .shared_bytes = 48}, global[0].values, seen.data());
  EXPECT_EQ(seen, (std::vector<std::uint32_t>{
                      1,  1,  1,  1,  1,  1,  1, 1, 1, 1, 1, 1,    // nothing has arrived
                      10, 11, 12, 13, 1,  1,  1, 1, 1, 1, 1, 1,    // the first group has
                      10, 11, 12, 13, 14, 15, 0, 0, 0, 0, 0, 0}))  // zero-filled behind `valid`
      << "groups arrive in order";
}

TEST_F(HostInstructions, CopiesAreAtOnceWhereWarpsGoAhead) {
  set_schedule(Schedule::warp_by_warp);
  const std::vector<Pack<std::uint32_t, 4>> global{{{10, 11, 12, 13}}, {{14, 15, 16, 17}}};
  std::vector<std::uint32_t> seen(36, 0);
  launch(runtime_, "watch", &watch_copies, {.threads = 1, .shared_bytes = 48}, global[0].values, seen.data());
  for (std::size_t i = 0; i < 36; i += 12)
    EXPECT_EQ(std::vector<std::uint32_t>(seen.begin() + static_cast<std::ptrdiff_t>(i),
                                         seen.begin() + static_cast<std::ptrdiff_t>(i) + 8),
              (std::vector<std::uint32_t>{10, 11, 12, 13, 14, 15, 0, 0}));
}

__global__ void forget_to_wait(const std::uint32_t* global, std::uint32_t* seen) {
  std::uint32_t* const shared = dynamic_shared<std::uint32_t>();
  copy_16_bytes_async(shared, global);
  commit_copies();
  __syncthreads();
  *seen = shared[0];
}
__global__ void copy_uncommitted(const std::uint32_t* global, std::uint32_t* seen) {
  std::uint32_t* const shared = dynamic_shared<std::uint32_t>();
  copy_16_bytes_async(shared, global);
  wait_for_copies<0>();
  *seen = shared[0];
}

TEST_F(HostInstructions, WhatIsNotWaitedForOrNotCommittedIsNotThere) {
  const std::vector<Pack<std::uint32_t, 4>> global{{{10, 11, 12, 13}}};
  for (auto* kernel : {&forget_to_wait, &copy_uncommitted}) {
    std::uint32_t seen = 0;
    launch(runtime_, "late", kernel, {.threads = 1, .shared_bytes = 16}, global[0].values, &seen);
    EXPECT_EQ(seen, 0xa0a0a0a0u) << "shared memory as the block found it";
  }
}

__global__ void access_misaligned(const Float16* memory, int what) {
  Float16* const shared = dynamic_shared<Float16>();
  std::uint32_t registers[4];
  if (what == 0) copy_16_bytes_async(shared + 1, memory);
  if (what == 1) copy_16_bytes_async(shared, memory + 4);
  if (what == 2) load_matrices_x4<false>(registers, shared + 2);
  if (what == 3) shared[0] = load_pack<2>(memory + 1).values[0];
  if (what == 4) store_pack<8>(shared + 4, Pack<Float16, 8>{});
}

TEST_F(HostInstructions, MisalignedAccessesAreRefusedByName) {
  const std::vector<Pack<Float16, 8>> memory(2);
  const auto refusal = [&](int what) {
    return message_of([&] {
      launch(runtime_, "crooked", &access_misaligned, {.threads = 32, .shared_bytes = 64}, memory[0].values,
             what);
    });
  };
  const std::string where = ", block (0, 0, 0), thread 0",
                    kernel = "kernel crooked on the host machine: an access of ";
  EXPECT_EQ(refusal(0), kernel + "16 bytes, 2 behind a multiple of that" + where);
  EXPECT_EQ(refusal(1), kernel + "16 bytes, 8 behind a multiple of that" + where);
  EXPECT_EQ(refusal(2), kernel + "16 bytes, 4 behind a multiple of that" + where);
  EXPECT_EQ(refusal(3), kernel + "4 bytes, 2 behind a multiple of that" + where);
  EXPECT_EQ(refusal(4), kernel + "16 bytes, 8 behind a multiple of that" + where);
}

// ---- matrix loads ----

// Four 8 x 8 matrices whose rows lie in any order, 16 bytes further apart than they are long.
constexpr int row_pitch = 16;
std::size_t place_of_row(int matrix, int row) {
  const int place = (8 * matrix + row) * 13 % 32 * row_pitch;
  return static_cast<std::size_t>(place);
}
std::uint16_t entry(int matrix, int row, int column) {
  return static_cast<std::uint16_t>(matrix << 8 | row << 4 | column);
}

template <bool transposed>
__global__ void load_four(const std::uint16_t* memory, std::uint32_t* out) {
  std::uint16_t* const shared = dynamic_shared<std::uint16_t>();
  for (int i = 0; i < row_pitch; ++i)
    shared[threadIdx.x * row_pitch + i] = memory[threadIdx.x * row_pitch + i];
  __syncwarp();
  const int lane = static_cast<int>(threadIdx.x);
  std::uint32_t registers[4];
  // "Threads 0-7 ... addr0-addr7" are the rows of the first matrix, 8-15 of the second, and so on (PTX ISA,
  // ldmatrix).
  load_matrices_x4<transposed>(registers, shared + place_of_row(lane / 8, lane % 8));
  for (int i = 0; i < 4; ++i) out[4 * lane + i] = registers[i];
}

TEST_F(HostInstructions, LdmatrixGivesEachLaneTheElementsOfPtxFigure) {
  std::vector<std::uint16_t> memory(32 * row_pitch, 0xffff);
  for (int matrix = 0; matrix < 4; ++matrix)
    for (int row = 0; row < 8; ++row)
      for (int column = 0; column < 8; ++column)
        memory[place_of_row(matrix, row) + static_cast<std::size_t>(column)] = entry(matrix, row, column);
  for (const Schedule schedule : schedules) {
    set_schedule(schedule);
    std::vector<std::uint32_t> plain(128, 0), transposed(128, 0);
    const LaunchShape shape{.threads = 32, .shared_bytes = 32 * row_pitch * 2};
    launch(runtime_, "load", &load_four<false>, shape, memory.data(), plain.data());
    launch(runtime_, "load", &load_four<true>, shape, memory.data(), transposed.data());
    for (int lane = 0; lane < 32; ++lane)
      for (int matrix = 0; matrix < 4; ++matrix) {
        // Row i of the figure has the threads 4 i to 4 i + 3, each with two neighbouring elements.
        const int row = lane / 4, first = 2 * (lane % 4);
        const std::size_t at =
            std::size_t{4} * static_cast<std::size_t>(lane) + static_cast<std::size_t>(matrix);
        EXPECT_EQ(plain[at] & 0xffff, entry(matrix, row, first));
        EXPECT_EQ(plain[at] >> 16, entry(matrix, row, first + 1));
        EXPECT_EQ(transposed[at] & 0xffff, entry(matrix, first, row));
        EXPECT_EQ(transposed[at] >> 16, entry(matrix, first + 1, row));
      }
  }
}

// ---- mma.sync ----

constexpr int m = 16, n = 8, k = 16;

/// The fragments of PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type", element by
/// element: which (row, column) lane `lane` holds as its i-th.
struct Place {
  int row, column;
};
Place place_in_a(int lane, int i) {
  const int group = lane >> 2, thread = lane % 4;
  return {(0 <= i && i < 2) || (4 <= i && i < 6) ? group : group + 8,
          i < 4 ? thread * 2 + (i & 1) : thread * 2 + (i & 1) + 8};
}
Place place_in_b(int lane, int i) {
  const int group = lane >> 2, thread = lane % 4;
  return {i < 2 ? thread * 2 + (i & 1) : thread * 2 + (i & 1) + 8, group};
}
Place place_in_c(int lane, int i) {
  const int group = lane >> 2, thread = lane % 4;
  return {i < 2 ? group : group + 8, thread * 2 + (i & 1)};
}

/// c (m x n) += a (m x k) * b (k x n), all row-major, one matrix for each block.
template <class Half>
__global__ void multiply_once(const Half* a, const Half* b, float* c) {
  const int lane = static_cast<int>(threadIdx.x), block = static_cast<int>(blockIdx.x);
  std::uint32_t a_words[4] = {}, b_words[2] = {};
  float sums[4];
  for (int i = 0; i < 8; ++i) {
    const Place place = place_in_a(lane, i);
    a_words[i / 2] |= std::uint32_t{a[(block * m + place.row) * k + place.column].bits()} << (i % 2 * 16);
  }
  for (int i = 0; i < 4; ++i) {
    const Place place = place_in_b(lane, i);
    b_words[i / 2] |= std::uint32_t{b[(block * k + place.row) * n + place.column].bits()} << (i % 2 * 16);
  }
  for (int i = 0; i < 4; ++i) {
    const Place place = place_in_c(lane, i);
    sums[i] = c[(block * m + place.row) * n + place.column];
  }
  multiply_step<Half>(sums, a_words, b_words);
  for (int i = 0; i < 4; ++i) {
    const Place place = place_in_c(lane, i);
    c[(block * m + place.row) * n + place.column] = sums[i];
  }
}

/// Exponents in the middle of the format, so that terms meet and some are far out; about one in 128 is an
/// infinity, a NaN, subnormal, or any word at all.
template <class Half>
std::vector<Half> operands(std::size_t count, std::uint64_t stream) {
  using Format = typename Half::Format;
  constexpr std::uint32_t ones = ((1u << Format::exponent_bits) - 1) << Format::fraction_bits;
  const PhiloxStream words{.seed = 11, .stream = stream};
  std::vector<Half> values;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t word = words.word(i);
    const std::uint32_t sign = word & 0x8000u, fraction = word & ((1u << Format::fraction_bits) - 1);
    const auto exponent = static_cast<std::uint32_t>(Format::bias) - 6 + (word >> 16) % 12;
    std::uint32_t bits = sign | exponent << Format::fraction_bits | fraction;
    if (i % 128 == word >> 25)
      bits = std::array{sign | ones, ones | 1u | fraction, sign | fraction, word >> 7}[word % 4];
    values.push_back(Half::from_bits(static_cast<std::uint16_t>(bits)));
  }
  return values;
}

template <class Half>
void expect_products_of_model(Runtime& runtime, const std::string& generation) {
  constexpr std::size_t blocks = 24;
  set_tensor_core(generation);
  const std::vector<Half> a = operands<Half>(blocks * m * k, 1), b = operands<Half>(blocks * k * n, 2);
  std::vector<float> c(blocks * m * n);
  const PhiloxStream words{.seed = 11, .stream = 3};
  for (std::size_t i = 0; i < c.size(); ++i)
    c[i] = i % 3 == 0
               ? 0.0f
               : std::ldexp(uniform01(words.word(i)) - 0.5f, static_cast<int>(words.word(i) % 40) - 20);
  std::vector<float> d = c;
  launch(runtime, "multiply", &multiply_once<Half>, {.x = blocks, .threads = 32}, a.data(), b.data(),
         d.data());

  const DType format = operand_format_of<Half>;
  const TensorCoreModel& model = tensor_core_model(generation, format);
  std::size_t nan = 0, finite = 0;
  for (std::size_t block = 0; block < blocks; ++block)
    for (std::size_t row = 0; row < m; ++row)
      for (std::size_t column = 0; column < n; ++column) {
        std::array<std::uint32_t, k> left{}, right{};
        for (std::size_t i = 0; i < k; ++i) {
          left[i] = a[(block * m + row) * k + i].bits();
          right[i] = b[(block * k + i) * n + column].bits();
        }
        const std::size_t at = (block * m + row) * n + column;
        const std::uint32_t expected = fused_dot_add(model, format, left, format, right, bits_of(c[at]));
        ASSERT_EQ(bits_of(d[at]), expected)
            << generation << " block " << block << " (" << row << ", " << column << ")";
        (std::isnan(d[at]) ? nan : finite) += 1;
      }
  EXPECT_GT(nan, 0u) << "the data hold special cases";
  EXPECT_GT(finite, c.size() / 2) << "and are not all special";
}

TEST_F(HostInstructions, MmaIsTheScalarReferenceElementByElement) {
  for (const Schedule schedule : schedules) {
    set_schedule(schedule);
    for (const std::string generation : {"hopper", "ampere"}) {
      expect_products_of_model<Float16>(runtime_, generation);
      expect_products_of_model<BFloat16>(runtime_, generation);
    }
    expect_products_of_model<Float16>(runtime_, "turing");  // as two m16n8k8
  }
}

TEST_F(HostInstructions, RoundingToBf16WithIntegersIsRoundingOnce) {
  // Of every upper half the ties, their neighbours and the ends; sm_75 has no conversion.
  for (std::uint32_t upper = 0; upper < 0x10000; ++upper)
    for (const std::uint32_t lower : {0x0000u, 0x0001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      const std::uint32_t bits = upper << 16 | lower;
      ASSERT_EQ(bf16_bits(bits), narrow<BrainFloat16>(float_from_bits(bits)).bits()) << std::hex << bits;
    }
}

TEST_F(HostInstructions, GenerationsDiffer) {
  // Hopper adds 16 products with 25 bits below the largest exponent, Ampere twice 8 with 24: the data of the
  // test above must tell them apart, or it would say nothing about the generation.
  const std::vector<Float16> a = operands<Float16>(m * k, 1), b = operands<Float16>(k * n, 2);
  std::vector<float> hopper(m * n, 0.0f), ampere(m * n, 0.0f);
  launch(runtime_, "multiply", &multiply_once<Float16>, {.threads = 32}, a.data(), b.data(), hopper.data());
  set_tensor_core("ampere");
  launch(runtime_, "multiply", &multiply_once<Float16>, {.threads = 32}, a.data(), b.data(), ampere.data());
  const auto differs = [](float x, float y) { return bits_of(x) != bits_of(y); };
  EXPECT_FALSE(std::equal(hopper.begin(), hopper.end(), ampere.begin(), std::not_fn(differs)));
}

}  // namespace
}  // namespace fp16lab::engine::cpu_simt
