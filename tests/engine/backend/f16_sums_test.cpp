// Sums in FP16: products of FP16 follow the row's definition with an FP16 accumulator, and nothing else
// changes. Orders of libraries: products of 16 bits follow a plan.
#include <gmock/gmock.h>

#include "engine/backend/emulated/emulated_backend.hpp"
#include "numerics/gemm/library_plan.hpp"
#include "tests/engine/backend/conformance.hpp"
#include "tests/engine/backend/on_backend.hpp"
#include "tests/support/message_of.hpp"

namespace fp16lab::engine::test {
namespace {

using testing_support::message_of;

const TensorCoreModel& f16_row(const char* name) { return tensor_core_model(name, DType::f16, DType::f16); }

/// Each layout and shape is another order of the plan onednn; the planned product is of the call as torch
/// sees it.
TEST(LibraryOrder, ProductsAreInTheOrderOfThePlan) {
  const TensorCoreModel& row = tensor_core_model("avx512_bf16", DType::bf16);
  struct Call {
    std::int64_t batch, m, n, k;  ///< batch 0: no batch
    bool transpose_a, transpose_b;
  };
  for (const auto& [batch, m, n, k, transpose_a, transpose_b] :
       {Call{0, 24, 20, 1100, false, true}, Call{0, 24, 20, 1100, true, false},
        Call{0, 4, 4, 90, false, true}, Call{0, 4, 4, 90, false, false}, Call{3, 16, 17, 700, false, false},
        Call{0, 1, 40, 200, true, false}}) {
    const std::int64_t count = std::max<std::int64_t>(1, batch);
    const auto a = random_of<BFloat16>(count * m * k, Kind::wide, 91),
               b = random_of<BFloat16>(count * k * n, Kind::wide, 92);
    const auto bias = random_floats(n, Kind::ordinary, 93);
    const PlannedProduct order =
        library_plan("onednn").product(row, {.shape = {m, n, k},
                                             .batch = count,
                                             .kind = batch > 0 ? ProductKind::bmm : ProductKind::mm,
                                             .a_transposed = transpose_a && m > 1,
                                             .b_transposed = transpose_b,
                                             .a = DType::bf16,
                                             .b = DType::bf16,
                                             .threads = 2});
    std::vector<float> expected(static_cast<std::size_t>(count * m * n));
    for (std::int64_t i = 0; i < count; ++i)
      planned_gemm(order, {m, n, k},
                   {DType::bf16, a.data() + i * m * k, transpose_a ? 1 : k, transpose_a ? m : 1},
                   {DType::bf16, b.data() + i * k * n, transpose_b ? 1 : n, transpose_b ? k : 1},
                   expected.data() + i * m * n, n);
    for (std::size_t i = 0; i < expected.size(); ++i)
      expected[i] = canonical(expected[i] + bias[i % static_cast<std::size_t>(n)]);
    const auto product = [&](std::string_view plan, int threads) {
      const auto backend =
          make_emulated_backend(row, threads, FloatOverflow::infinity, {.plan = plan, .threads = 2});
      const auto shape = [batch = batch](std::int64_t rows, std::int64_t columns) {
        return batch > 0 ? Shape{batch, rows, columns} : Shape{rows, columns};
      };
      const Tensor ta = uploaded(*backend, transpose_a ? shape(k, m) : shape(m, k), a),
                   tb = uploaded(*backend, transpose_b ? shape(n, k) : shape(k, n), b),
                   tbias = uploaded(*backend, Shape{n}, bias);
      Tensor out = backend->empty(shape(m, n), DType::f32);
      backend->gemm({.a = ta,
                     .b = tb,
                     .out = out,
                     .transpose_a = transpose_a,
                     .transpose_b = transpose_b,
                     .bias = &tbias});
      return downloaded<float>(*backend, out);
    };
    for (const int threads : {1, 3})
      expect_same_bits(product("onednn", threads), expected, order_text(order));
    EXPECT_NE(product("instruction", 1), expected) << order_text(order);
  }
}

TEST(LibraryOrder, WhatHasNoRuleIsRefusedByName) {
  const auto backend = make_emulated_backend("avx512_bf16", DType::f32, 1, FloatOverflow::infinity,
                                             {.plan = "onednn", .threads = 3});
  const Tensor a = uploaded(*backend, Shape{2048, 64}, random_of<BFloat16>(2048 * 64, Kind::ordinary, 1));
  Tensor out = backend->empty(Shape{64, 64}, DType::f32);
  EXPECT_THAT(message_of([&] { backend->gemm({.a = a, .b = a, .out = out, .transpose_a = true}); }),
              testing::HasSubstr("plan 'onednn': whether K of 64 x 64 x 2048 is split in 3 threads"));
  const Tensor x = backend->empty(Shape{1, 1, 4, 4}, DType::bf16),
               w = backend->empty(Shape{1, 1, 1, 1}, DType::bf16);
  Tensor y = backend->empty(Shape{1, 1, 4, 4}, DType::bf16);
  EXPECT_EQ(message_of([&] { backend->conv2d(x, w, {}, nullptr, y, nullptr); }),
            "conv2d: plan 'onednn' has no rule for convolutions");
  EXPECT_THAT(message_of([] {
                make_emulated_backend("hopper", DType::f32, 1, FloatOverflow::infinity, {.plan = "mkl"});
              }),
              testing::HasSubstr("unknown plan 'mkl'"));
}

TEST(SumsInF16, OtherOperandsKeepTheirSums) {
  const auto f16 = make_emulated_backend(f16_row("hopper"), 1);
  const auto f32 = make_emulated_backend(tensor_core_model("hopper"), 1);
  const auto product = [](Backend& backend, const auto& a, const auto& b, std::optional<DType> format) {
    const Tensor ta = uploaded(backend, Shape{9, 65}, a), tb = uploaded(backend, Shape{65, 7}, b);
    Tensor out = backend.empty(Shape{9, 7}, DType::f32);
    backend.gemm({.a = ta, .b = tb, .out = out, .a_format = {format}, .b_format = {format}});
    return downloaded<float>(backend, out);
  };
  const auto expect_same = [&](auto tag, std::optional<DType> format, const char* what) {
    using T = decltype(tag);
    const auto a = random_of<T>(9 * 65, Kind::ordinary, 84), b = random_of<T>(65 * 7, Kind::ordinary, 85);
    expect_same_bits(product(*f16, a, b, format), product(*f32, a, b, format), what);
  };
  expect_same(BFloat16{}, std::nullopt, "BF16");
  expect_same(0.0f, std::nullopt, "FP32");
  expect_same(Float16{}, DType::e4m3, "FP8");
}

/// Products and convolutions of any shape are asked in verb_cases_test.cpp; here are so many positions that a
/// gradient of weights is summed in several blocks.
TEST(SumsInF16, LongWeightGradientsFollowTheRow) {
  const Shape shape{14, 1, 30, 30};
  for (const char* name : {"volta", "ampere", "hopper", "blackwell-tcgen05"})
    for (const Kind kind : {Kind::ordinary, Kind::wide, Kind::special, Kind::cancelling}) {
      const auto x = random_of<Float16>(shape.element_count(), kind, 86),
                 dy = random_of<Float16>(shape.element_count(), kind, 87);
      const auto backend = make_emulated_backend(f16_row(name), 2);
      Tensor dw = backend->empty(Shape{1, 1, 1, 1}, DType::f32);
      backend->conv2d_weight_gradient(uploaded(*backend, shape, x), uploaded(*backend, shape, dy), {}, dw);
      expect_same_bits(downloaded<float>(*backend, dw), {accumulate(f16_row(name), dy, x)}, name);
    }
}

}  // namespace
}  // namespace fp16lab::engine::test
