// emulated_gemm against the scalar fused_dot_add: bit for bit, every row of the table and rows beyond it, on
// every instruction set that this CPU has.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "numerics/gemm/strided_gemm.hpp"
#include "tests/numerics/gemm/gemm_cases.hpp"
#include "tests/numerics/gemm/gemm_checks.hpp"

namespace fp16lab {
namespace {

using test::Accumulator;
using test::CaseMaker;
using test::check_layout;
using test::Data;
using test::definition;
using test::Problem;

constexpr auto f16 = DType::f16;
constexpr auto f32 = DType::f32;
using Shape = std::tuple<int, int, int>;

/// Each instruction set in one layout, which rotates.
void check_targets(const TensorCoreModel& model, const Problem& p) {
  static test::Layout layout = 0;
  const auto expected = definition(model, p);
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    const test::ForcedTarget forced(target);
    check_layout(model, p, expected, layout % test::all_layouts, 1);
    layout += 7;
  }
}

void check_all_layouts(const TensorCoreModel& model, const Problem& p) {
  const auto expected = definition(model, p);
  for (test::Layout layout = 0; layout < test::all_layouts; ++layout)
    check_layout(model, p, expected, layout, 1);
}

class EmulatedGemmOf : public ::testing::TestWithParam<Data> {};

TEST_P(EmulatedGemmOf, EveryRowOfTheTable) {
  CaseMaker maker(1234u + static_cast<unsigned>(GetParam()));
  const Shape shapes[] = {{7, 65, 33}, {33, 18, 48}, {5, 70, 37}, {40, 20, 16}, {2, 33, 100}, {1, 17, 3}};
  std::size_t turn = 0;
  for (const TensorCoreModel& model : tensor_core_models())
    for (const auto& [a, b] : test::operand_pairs(model))
      for (const Accumulator accumulator : {test::all_accumulators[turn % 3], Accumulator::extreme}) {
        const auto& [m, n, k] = shapes[turn++ % std::size(shapes)];
        check_targets(model, maker.make(a, b, model.accumulator(), GetParam(), accumulator, m, n, k));
        if (HasFatalFailure()) return;
      }
}

INSTANTIATE_TEST_SUITE_P(AllData, EmulatedGemmOf, ::testing::ValuesIn(test::all_data),
                         [](const auto& data) { return test::name_of(data.param); });

TEST(EmulatedGemmModels, RowsThatNoHardwareHas) {
  CaseMaker maker(7);
  for (int round = 0; round < 400; ++round) {
    const TensorCoreModel model = test::random_model(maker);
    const auto pairs = test::operand_pairs(model);
    const auto& [a, b] = pairs[maker.random() % pairs.size()];
    const Data data = test::all_data[maker.random() % std::size(test::all_data)];
    const Accumulator accumulator = test::all_accumulators[maker.random() % 3];
    const int m = 1 + static_cast<int>(maker.random() % 12), n = 1 + static_cast<int>(maker.random() % 70);
    const int k = 1 + static_cast<int>(maker.random() % 90);
    SCOPED_TRACE(fmt::format("round {} {}", round, test::name_of(data)));
    check_targets(model, maker.make(a, b, model.accumulator(), data, accumulator, m, n, k));
    if (HasFatalFailure()) return;
  }
}

TEST(EmulatedGemmModels, FloorsAndBitsFarOutside) {
  CaseMaker maker(17);
  for (const int floor : {-1000, -300, -101, -100, 50, 100, 101, 300, 500, 1000})
    for (const int bits : {1, 25, 26, 44, 48})
      for (const BlockOutput output : {BlockOutput::fp32_toward_zero, BlockOutput::fp16_nearest_even}) {
        TensorCoreModel model = tensor_core_model("hopper", DType::bf16);
        model.set(&Stage::exponent_floor, floor);
        model.set(&Stage::fraction_bits, bits);
        model.set(&Stage::output, output);
        for (const Data data : {Data::normal, Data::far_exponents})
          check_targets(model, maker.make(DType::bf16, DType::bf16, model.accumulator(), data,
                                          Accumulator::extreme, 4, 30, 40));
        if (HasFatalFailure()) return;
      }
}

TEST(EmulatedGemmBlocks, EveryLayoutOfEveryElementSize) {
  CaseMaker maker(3);
  const Shape shapes[] = {{33, 129, 100}, {40, 64, 64}, {65, 1, 31}, {8, 200, 40}};
  for (const char* name : {"hopper", "blackwell-tcgen05"})
    for (const DType format : {f16, DType::tf32, DType::e4m3})
      for (const auto& [m, n, k] : shapes) {
        const TensorCoreModel& model = tensor_core_model(name, format);
        check_all_layouts(model,
                          maker.make(format, format, f32, Data::normal, Accumulator::similar, m, n, k));
        if (HasFatalFailure()) return;
      }
}

TEST(EmulatedGemmStrided, AnyStridesOfEveryElementSize) {
  // Strides of rows and columns in a space of 32 x 32 elements: by rows, by columns, with gaps, backwards.
  constexpr std::pair<int, int> layouts[] = {{9, 1},  {1, 9},   {32, 1},  {1, 32},  {32, 2},
                                             {3, 64}, {-32, 1}, {1, -32}, {-40, -3}};
  CaseMaker maker(5);
  for (const auto& [m, n, k] :
       {Shape{7, 6, 9}, Shape{1, 6, 9}, Shape{7, 1, 1}, Shape{3, 9, 1}, Shape{9, 1, 5}})
    for (const DType format : {f16, DType::tf32, DType::e4m3})
      for (const auto& a_layout : layouts)
        for (const auto& b_layout : layouts) {
          const TensorCoreModel& model = tensor_core_model("hopper", format, format, f32);
          const Problem p = maker.make(format, format, f32, Data::normal, Accumulator::similar, m, n, k);
          const auto lay = [&](const std::vector<std::uint32_t>& words, int rows, int columns, auto layout,
                               std::vector<unsigned char>& memory) {
            const std::int64_t size = static_cast<std::int64_t>(size_of(format)), first = 1024;
            memory.assign(static_cast<std::size_t>(2 * first * size), 0x7f);  // NaN in every format
            for (int i = 0; i < rows; ++i)
              for (int j = 0; j < columns; ++j)
                std::memcpy(memory.data() + (first + i * layout.first + j * layout.second) * size,
                            &words[static_cast<std::size_t>(i * columns + j)],
                            static_cast<std::size_t>(size));
            return StridedMatrix{format, memory.data() + first * size, layout.first, layout.second};
          };
          std::vector<unsigned char> a_memory, b_memory;
          const StridedMatrix a = lay(p.a, m, k, a_layout, a_memory), b = lay(p.b, k, n, b_layout, b_memory);
          std::vector<std::uint32_t> d = p.c;
          emulated_gemm(model, {m, n, k}, a, b, d.data(), d.data(), n);
          ASSERT_EQ(d, definition(model, p))
              << a_layout.first << ' ' << a_layout.second << ", " << b_layout.first << ' ' << b_layout.second;
        }
  EXPECT_THROW(emulated_gemm(tensor_core_model("hopper"), {2, 2, 2}, StridedMatrix{f16, nullptr, 2, 1},
                             StridedMatrix{f16, nullptr, 2, 1}, nullptr, std::vector<float>(4).data(), 2),
               std::invalid_argument);
}

TEST(EmulatedGemmBlocks, CacheBlocksAndThreadsChangeNoBit) {
  CaseMaker maker(99);
  TensorCoreModel odd = tensor_core_model("volta");
  odd.set(&Stage::products, 3);  // blocks of K are 255 deep
  const std::vector<TensorCoreModel> models = {tensor_core_model("hopper"), tensor_core_model("volta"), odd,
                                               tensor_core_model("hopper", f16, DType::f16)};
  const Shape shapes[] = {{3, 5, 700}, {1, 2100, 20}, {530, 3, 20}, {300, 140, 40}};
  for (const TensorCoreModel& model : models)
    for (const auto data : {Data::wide, Data::sprinkled_special, Data::cancelling})
      for (const auto& [m, n, k] : shapes) {
        const auto p = maker.make(f16, f16, model.accumulator(), data, Accumulator::similar, m, n, k);
        const auto expected = definition(model, p);
        for (const int threads : {1, 2, 3})
          check_layout(model, p, expected, static_cast<unsigned>(threads) * 5 % 16, threads);
        if (HasFatalFailure()) return;
      }
}

TEST(EmulatedGemmBlocks, DeepProductsOfEveryRow) {
  // Two and a half blocks of K: accumulators rest in D, in FP16 too, and are admitted anew.
  CaseMaker maker(98);
  for (const TensorCoreModel& model : tensor_core_models()) {
    const auto [a, b] = test::operand_pairs(model).front();
    const Data data = model.accumulator() == f32 ? Data::normal : Data::near_half_overflow;
    check_targets(model, maker.make(a, b, model.accumulator(), data, Accumulator::similar, 4, 38, 630));
    if (HasFatalFailure()) return;
  }
}

/// m = 5, n = 67: `a` and `b` everywhere, c alternating in sign.
Problem uniform(DType format, DType operands, std::uint32_t a, std::uint32_t b, std::uint32_t c,
                std::int64_t k) {
  Problem p{operands, operands, format, 5, 67, k, {}, {}, {}};
  p.a.assign(static_cast<std::size_t>(5 * k), a);
  p.b.assign(static_cast<std::size_t>(67 * k), b);
  p.c.assign(5 * 67, c);
  const std::uint32_t sign = format == f32 ? 0x80000000U : 0x8000U;
  for (std::size_t i = 0; i < p.c.size(); i += 3) p.c[i] ^= sign;
  return p;
}

TEST(EmulatedGemmBlocks, SumOfTheBlockThatLeavesInt32) {
  // 16 products of 1.99902344 each are 16 * 3.996 * 2^25 quanta, just below 2^31; c = +-1.9 sends the sum
  // over.
  const std::uint32_t large = bits_of(1.9F);
  // The negative end itself: the products sum to -(2^31 - 2^21 + 2^9), c is the rest of -2^31.
  const std::uint32_t rest = bits_of(0x1p-4F - 0x1p-16F);
  for (const std::uint32_t c : {large, rest, rest + 1})
    for (const std::uint32_t b : {0x3fffU, 0xbfffU}) {
      check_targets(tensor_core_model("hopper"), uniform(f32, f16, 0x3fff, b, c, 16));
      // In FP16 the sum rounds to 64 or to an odd neighbour of it.
      const std::uint32_t half = c == large ? 0x3f9a : 0x2bff;
      check_targets(tensor_core_model("hopper", f16, DType::f16),
                    uniform(DType::f16, f16, 0x3fff, b, half, 16));
    }
  // 32 of the former: already half of them and c leave int32. No hardware has such a row.
  TensorCoreModel longer = tensor_core_model("hopper");
  longer.set(&Stage::products, 32);
  for (const std::uint32_t b : {0x3fffU, 0xbfffU})
    for (const int bits : {24, 25}) {
      longer.set(&Stage::fraction_bits, bits);
      check_targets(longer, uniform(f32, f16, 0x3fff, b, large, 32));
    }
  // 32 products of 1.875^2: each half stays inside, their sum does not.
  for (const std::uint32_t b : {0x3fU, 0xbfU})
    check_targets(tensor_core_model("blackwell-tcgen05", DType::e4m3),
                  uniform(f32, DType::e4m3, 0x3f, b, large, 32));
}

TEST(EmulatedGemmBlocks, ExponentsAtTheBoundsOfTheFastKernel) {
  // All elements of A have one exponent and all of B another, but for zeros, so that whole tiles are just
  // inside or just outside of what the fast kernel takes; accumulators are around the products, whole rows of
  // A and columns of B are zero.
  CaseMaker maker(55);
  const auto number = [&](int exponent) {
    return (maker.random() & 0x807fffffU) | static_cast<std::uint32_t>(exponent + 127) << 23;
  };
  const auto tile = [&](const TensorCoreModel& model, int a_exponent, int b_exponent, int c_exponent) {
    Problem p{DType::tf32, DType::tf32, f32, 6, 20, 40, {}, {}, {}};
    for (std::int64_t i = 0; i < p.m * p.k; ++i)
      p.a.push_back(i < 2 * p.k || maker.random() % 4 == 0 ? 0 : number(a_exponent));
    for (std::int64_t i = 0; i < p.k * p.n; ++i)
      p.b.push_back(i % p.n % 6 == 0 || maker.random() % 4 == 0 ? 0 : number(b_exponent));
    for (std::int64_t i = 0; i < p.m * p.n; ++i)
      p.c.push_back(i % 5 == 0 ? 0 : number(c_exponent + static_cast<int>(i % 2)));
    check_targets(model, p);
  };
  // With 22 bits an exponent wrong by one costs an accumulator its last places, with 12 bits a product.
  for (const int bits : {25, 22, 12}) {
    TensorCoreModel model = tensor_core_model("hopper", DType::tf32);
    model.set(&Stage::fraction_bits, bits);
    for (const int a_exponent : {0, 26, 27, 60})
      for (const int bound : {-101, a_exponent - 127})
        for (int sum = bound - 3; sum <= bound + 2; ++sum) {
          const int b_exponent = sum - a_exponent;
          if (b_exponent < -126) continue;
          for (const int c_exponent : {sum - 1, bound - 2, bound - 1, bound, sum + 20})
            tile(model, a_exponent, b_exponent, c_exponent);
          tile(model, b_exponent, a_exponent, sum);  // the larger one on the other side
        }
    for (const int floor : {-104, -102, -101, -100, -70, 90, 100, 101}) {  // the model's own, visible or not
      TensorCoreModel with_floor = model;
      with_floor.set(&Stage::exponent_floor, floor);
      for (const int sum : {floor - 3, floor - 1, floor, floor + 1})
        for (const int c_exponent : {floor - 2, floor - 1, floor + 1})
          tile(with_floor, sum / 2, sum - sum / 2, c_exponent);
      tile(with_floor, 0, 0, 0);  // a floor above F alone
    }
    for (int sum = bits - 10; sum <= bits + 2; ++sum)  // around F, above which no exponent is added to
      for (const int c_exponent : {sum - 1, bits - 2, bits - 1, bits, bits + 1})
        tile(model, sum - 3, 3, c_exponent);
    for (int sum = 97; sum <= 127; ++sum)
      for (const int c_exponent : {sum - 1, 125, 126}) tile(model, sum - 40, 40, c_exponent);
    if (HasFatalFailure()) return;
    // NaN and infinity among numbers so small that their exponents alone would pass.
    for (const std::uint32_t special : {0x7f800000U, 0xffffffffU})
      for (const bool alone : {false, true}) {
        Problem p{DType::tf32, DType::tf32, f32, 2, 20, 10, {}, {}, {}};
        for (int i = 0; i < 20; ++i) p.a.push_back(i == 7 ? special : alone ? 0 : number(-40));
        for (int i = 0; i < 200; ++i) p.b.push_back(number(-45));
        check_targets(model, p);
      }
  }
}

TEST(EmulatedGemmBlocks, BoundsOfTheGeneralKernel) {
  constexpr auto bf16 = DType::bf16;
  TensorCoreModel model = tensor_core_model("hopper", bf16);
  // The sum 2^54 - 1 needs 54 bits; FP64 would make it 2^54, and 64 of what truncates to just below.
  model.set(&Stage::products, 64);
  model.set(&Stage::fraction_bits, 48);
  Problem p{bf16, bf16, f32, 1, 20, 64, std::vector<std::uint32_t>(64, 0x3f80), {}, {}};
  p.b.assign(64 * 20, 0x3f80);
  for (std::size_t j = 0; j < 20; ++j) p.b[63 * 20 + j] = 0xa780;  // -2^-48
  p.c.assign(20, 0x3f800000);
  check_targets(model, p);
  // A zero beside 2^127 does not count, not even against the smallest products.
  model.set(&Stage::fraction_bits, 8);
  Problem q{bf16, bf16, f32, 1, 20, 2, {0x1cff, 0}, std::vector<std::uint32_t>(40, 0x1f7f), {}};
  for (std::size_t j = 0; j < 20; ++j) q.b[20 + j] = 0x7f00;
  check_targets(model, q);
}

TEST(EmulatedGemmBlocks, HalfAccumulatorsAtTheBrink) {
  // 65504 + 16 is a tie and goes to infinity, 65504 + 15.99 does not; then an infinity must stay one although
  // later products bring the sum back, and meet its opposite as NaN.
  const auto& model = tensor_core_model("hopper", f16, DType::f16);
  for (const std::uint32_t a : {0x4c00U, 0x4bffU, 0xcc00U, 0xcbffU}) {
    Problem p = uniform(DType::f16, f16, 0, 0x3c00, 0x7bff, 40);
    for (std::size_t row = 0; row < 5; ++row) {
      p.a[row * 40] = a;
      p.a[row * 40 + 20] = 0xf800;
      if (row == 3) p.a[row * 40 + 36] = a ^ 0x7c00;
    }
    check_targets(model, p);
  }
}

TEST(EmulatedGemmEdges, EmptyProblems) {
  const auto& model = tensor_core_model("hopper");
  const MatrixView<Float16> none;
  const float c[6] = {1, -0.0F, float_from_bits(0x7f800001), 4, 5, 6};
  float d[6] = {};
  emulated_gemm(model, {2, 3, 0}, none, none, c, d, 3);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(bits_of(d[i]), bits_of(c[i])) << "K = 0 copies C, NaN payloads too";
  emulated_gemm(model, {2, 3, 0}, none, none, nullptr, d, 3);
  for (const float x : d) EXPECT_EQ(bits_of(x), 0u);
  Float16 half[2] = {Float16::from_bits(1), Float16::from_bits(2)};
  emulated_gemm(tensor_core_model("hopper", f16, DType::f16), {1, 1, 0}, none, none, nullptr, half, 1);
  EXPECT_EQ(half[0].bits(), 0);
  EXPECT_EQ(half[1].bits(), 2);
  d[0] = 7;
  emulated_gemm(model, {0, 3, 4}, none, none, nullptr, d, 3);
  emulated_gemm(model, {3, 0, 4}, none, none, nullptr, static_cast<float*>(nullptr), 0);
  EXPECT_EQ(d[0], 7);
}

template <class A, class D>
std::string complaint(const TensorCoreModel& model, GemmShape shape, MatrixView<A> a, MatrixView<A> b, D* d,
                      std::int64_t ldd, int threads) {
  try {
    emulated_gemm(model, shape, a, b, nullptr, d, ldd, threads);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "nothing thrown";
}

TEST(EmulatedGemmEdges, BadArgumentsAreNamed) {
  using ::testing::AssertionResult;
  const auto& model = tensor_core_model("hopper");
  const std::vector<Float16> x(64);
  std::vector<float> d(64);
  const auto run = [&](GemmShape s, std::int64_t lda, std::int64_t ldb, bool b_transposed, std::int64_t ldd,
                       int threads) {
    return complaint(model, s, MatrixView<Float16>{x.data(), lda, false},
                     MatrixView<Float16>{x.data(), ldb, b_transposed}, d.data(), ldd, threads);
  };
  const auto says = [](const std::string& message, const char* part) -> AssertionResult {
    if (message.find(part) != std::string::npos) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << message << " does not say " << part;
  };
  EXPECT_TRUE(says(run({-1, 2, 3}, 3, 2, false, 2, 1), "m=-1"));
  EXPECT_TRUE(says(run({2, 2, 3}, 2, 2, false, 2, 1), "2 of A must be at least 3"));
  EXPECT_TRUE(says(run({2, 2, 3}, 3, 2, true, 2, 1), "2 of B must be at least 3"));
  EXPECT_TRUE(says(run({2, 2, 3}, 3, 2, false, 1, 1), "ldd=1"));
  EXPECT_TRUE(says(run({2, 2, 3}, 3, 2, false, 2, 0), "threads=0"));
  EXPECT_TRUE(says(complaint(model, {2, 2, 3}, MatrixView<Float16>{nullptr, 3, false},
                             MatrixView<Float16>{x.data(), 2, false}, d.data(), 2, 1),
                   "A is null"));

  const GemmShape one{1, 1, 1};
  const MatrixView<Float16> halves{x.data(), 1, false};
  std::vector<Float16> half_d(1);
  const std::vector<BFloat16> y(1);
  EXPECT_TRUE(says(complaint(model, one, halves, halves, half_d.data(), 1, 1), "accumulates in f32"));
  EXPECT_TRUE(says(complaint(tensor_core_model("volta"), one, MatrixView<BFloat16>{y.data(), 1, false},
                             MatrixView<BFloat16>{y.data(), 1, false}, d.data(), 1, 1),
                   "no bf16 operands"));
  TensorCoreModel broken = model;
  broken.set(&Stage::products, 65);
  EXPECT_TRUE(says(complaint(broken, one, halves, halves, d.data(), 1, 1), "block of 65"));
  broken = model;
  broken.set(&Stage::fraction_bits, 49);
  EXPECT_TRUE(says(complaint(broken, one, halves, halves, d.data(), 1, 1), "49 fraction bits"));
}

}  // namespace
}  // namespace fp16lab
