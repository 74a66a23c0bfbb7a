// Products of FP8 operands: rounded from 16 bits, then the row's FP8 definition.
#include <fmt/format.h>

#include "engine/backend/emulated/emulated_backend.hpp"
#include "tests/engine/backend/conformance.hpp"
#include "tests/engine/backend/on_backend.hpp"
#include "tests/support/message_of.hpp"

namespace fp16lab::engine::test {
namespace {

using testing_support::message_of;

constexpr std::array formats{DType::e4m3, DType::e5m2};

/// One conversion of the exact value, saturating.
template <class Half>
std::uint32_t fp8_code(Half x, DType format) {
  ArithmeticOptions saturating;
  saturating.saturate = true;
  return format == DType::e4m3 ? std::uint32_t{convert<Fp8E4M3>(x, saturating).bits()}
                               : std::uint32_t{convert<Fp8E5M2>(x, saturating).bits()};
}

/// The operands of A (m x k) and B (n x k, used transposed).
template <class Half>
struct Operands {
  std::int64_t m, n, k;
  std::vector<Half> a, b;

  /// By the row's definition, from the codes of each row of A and of B.
  std::vector<float> accumulators(const TensorCoreModel& row, DType a_format, DType b_format) const {
    std::vector<float> result;
    const auto codes = [this](const std::vector<Half>& x, std::int64_t at, DType format) {
      std::vector<std::uint32_t> words;
      for (std::int64_t i = 0; i < k; ++i)
        words.push_back(fp8_code(x[static_cast<std::size_t>(at * k + i)], format));
      return words;
    };
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j)
        result.push_back(float_from_bits(
            fused_dot_add(row, a_format, codes(a, i, a_format), b_format, codes(b, j, b_format), 0)));
    return result;
  }
};

/// Every generation with FP8: the three dataflows and block sizes.
std::vector<const TensorCoreModel*> fp8_rows() {
  std::vector<const TensorCoreModel*> rows;
  for (const TensorCoreModel& row : tensor_core_models())
    if (row.operands.contains(DType::e4m3) && row.accumulator() == DType::f32) rows.push_back(&row);
  return rows;
}

TEST(Fp8Gemm, FollowsEveryRowForAllPairsOfFormats) {
  const std::vector<const TensorCoreModel*> rows = fp8_rows();
  ASSERT_EQ(rows.size(), 5u) << "ada, hopper, hopper-wgmma, blackwell, blackwell-tcgen05";
  for (const TensorCoreModel* fp8_row : rows)
    for (const int threads : {1, 2}) {
      const auto backend = make_emulated_backend(tensor_core_model(fp8_row->name), threads);
      for (const Kind kind : {Kind::ordinary, Kind::wide, Kind::special, Kind::cancelling})
        for_each_half_type([&](auto tag) {
          using Half = decltype(tag);
          const std::int64_t m = 9, n = 5, k = 101;  // no multiple of any block
          const Operands<Half> operands{m, n, k, random_of<Half>(m * k, kind, 71),
                                        random_of<Half>(n * k, kind, 72)};
          const Tensor a = uploaded(*backend, Shape{m, k}, operands.a),
                       b = uploaded(*backend, Shape{n, k}, operands.b);
          for (const DType a_format : formats)
            for (const DType b_format : formats) {
              const std::vector<float> t = operands.accumulators(*fp8_row, a_format, b_format);
              const auto run = [&](auto out_tag) {
                using Out = decltype(out_tag);
                Tensor out = backend->empty(Shape{m, n}, DTypeOf<Out>::value);
                CastProbe probe;
                backend->gemm({.a = a,
                               .b = b,
                               .out = out,
                               .transpose_b = true,
                               .probe = &probe,
                               .a_format = {a_format},
                               .b_format = {b_format}});
                const std::vector<Out> expected = mapped(t, [](float x) { return stored_as(x, Out{}); });
                expect_same_bits(downloaded<Out>(*backend, out), expected,
                                 fmt::format("{} {} x {} of {}", fp8_row->name, name_of(a_format),
                                             name_of(b_format), a.describe()));
                EXPECT_EQ(settled(*backend, probe).before, naive_histogram(t));
                EXPECT_EQ(probe.after, naive_histogram(expected));
              };
              run(Half{});
              run(0.0f);
            }
        });
    }
}

TEST(Fp8Gemm, OperandsAreRoundedOnceToNearestEvenAndSaturate) {
  // Every 16-bit word times 1: with K = 1 the product is the rounded operand itself. Twice, so that threads
  // share them.
  const auto backend = make_emulated_backend(tensor_core_model("blackwell-tcgen05"), 2);
  for_each_half_type([&](auto tag) {
    using Half = decltype(tag);
    std::vector<Half> words = all_words<Half>();
    words.resize(2 * words.size());
    std::copy_n(words.begin(), words.size() / 2, words.begin() + 65536);
    const Tensor a = uploaded(*backend, Shape{131072, 1}, words);
    const Tensor one = uploaded(*backend, Shape{1, 1}, std::vector{low_of<Half>(1.0f)});
    Tensor out = backend->empty(Shape{131072, 1}, DType::f32);
    for (const DType format : formats) {
      backend->gemm({.a = a, .b = one, .out = out, .a_format = {format}, .b_format = {DType::e5m2}});
      const std::vector<float> expected = mapped(words, [&](Half x) {
        const auto code = static_cast<std::uint8_t>(fp8_code(x, format));
        const float value =
            format == DType::e4m3 ? widen(Float8E4M3::from_bits(code)) : widen(Float8E5M2::from_bits(code));
        return value == 0.0f ? 0.0f : value;  // a sum of zeros is +0
      });
      expect_same_bits(downloaded<float>(*backend, out), expected, a.describe());
    }
  });
}

TEST(Fp8Gemm, BatchesBiasAndAddendAreAsInEveryProduct) {
  const auto backend = make_emulated_backend(tensor_core_model("hopper"), 2);
  const TensorCoreModel& row = tensor_core_model("hopper", DType::e4m3);
  const std::int64_t batch = 3, m = 4, n = 6, k = 40;
  const std::vector<BFloat16> a = random_brains(batch * m * k, Kind::ordinary, 73),
                              b = random_brains(batch * n * k, Kind::ordinary, 74);
  const std::vector<BFloat16> bias = random_brains(n, Kind::ordinary, 75);
  const std::vector<float> addend = random_floats(batch * m * n, Kind::ordinary, 76);
  const Tensor bias_tensor = uploaded(*backend, Shape{n}, bias);
  const Tensor addend_tensor = uploaded(*backend, Shape{batch, m, n}, addend);
  Tensor out = backend->empty(Shape{batch, m, n}, DType::bf16);
  backend->gemm({.a = uploaded(*backend, Shape{batch, m, k}, a),
                 .b = uploaded(*backend, Shape{batch, n, k}, b),
                 .out = out,
                 .transpose_b = true,
                 .bias = &bias_tensor,
                 .addend = &addend_tensor,
                 .a_format = {DType::e4m3},
                 .b_format = {DType::e5m2}});
  std::vector<BFloat16> expected;
  for (std::int64_t i = 0; i < batch; ++i) {
    const auto part = [&](const std::vector<BFloat16>& x, std::int64_t rows) {
      return std::vector<BFloat16>(x.begin() + i * rows * k, x.begin() + (i + 1) * rows * k);
    };
    const Operands<BFloat16> operands{m, n, k, part(a, m), part(b, n)};
    for (const float t : operands.accumulators(row, DType::e4m3, DType::e5m2)) {
      const std::size_t at = expected.size();
      const float with_bias = t + wide(bias[at % static_cast<std::size_t>(n)]);
      expected.push_back(low_of<BFloat16>(with_bias + addend[at]));
    }
  }
  expect_same_bits(downloaded<BFloat16>(*backend, out), expected, "batched");
}

TEST(Fp8Gemm, RowsWithoutTheOperandsAreNamed) {
  const auto error_of = [](const char* name, DType dtype, std::optional<DType> format) {
    const auto backend = make_emulated_backend(tensor_core_model(name), 1);
    const Tensor a = backend->empty(Shape{2, 2}, dtype), b = backend->empty(Shape{2, 2}, dtype);
    Tensor out = backend->empty(Shape{2, 2}, DType::f32);
    return message_of(
        [&] { backend->gemm({.a = a, .b = b, .out = out, .a_format = {format}, .b_format = {format}}); });
  };
  EXPECT_EQ(error_of("ampere", DType::f16, DType::e4m3),
            "gemm: tensor-core model 'ampere' has no e4m3 operands with f32 accumulators; it has f16 with "
            "f32, bf16 with f32, f16 with f16, tf32 with f32, f64 with f64");
  EXPECT_EQ(error_of("volta", DType::bf16, std::nullopt),
            "gemm: tensor-core model 'volta' has no bf16 operands with f32 accumulators; it has f16 with "
            "f32, f16 with f16");
  EXPECT_EQ(error_of("hopper", DType::f32, DType::e5m2),
            "gemm: a is f32 (2, 2), rounded to e5m2; f16 or bf16 operands are needed");
  const auto backend = make_emulated_backend(tensor_core_model("hopper"), 1);
  const Tensor a = backend->empty(Shape{2, 2}, DType::f16), b = backend->empty(Shape{2, 2}, DType::f16);
  Tensor out = backend->empty(Shape{2, 2}, DType::f32);
  EXPECT_EQ(message_of([&] { backend->gemm({.a = a, .b = b, .out = out, .b_format = {DType::e4m3}}); }),
            "gemm: a_format is none and b_format e4m3; both operands are rounded to FP8, or neither");
}

TEST(Bf16Products, OldTensorCoresSayThatTheyHaveNone) {
  const auto backend = make_emulated_backend(tensor_core_model("turing"), 1);
  const Tensor x = backend->empty(Shape{1, 1, 3, 3}, DType::bf16),
               weight = backend->empty(Shape{1, 1, 3, 3}, DType::bf16);
  Tensor out = backend->empty(Shape{1, 1, 1, 1}, DType::bf16),
         dx = backend->empty(Shape{1, 1, 3, 3}, DType::bf16);
  const std::string rest =
      ": tensor-core model 'turing' has no bf16 operands with f32 accumulators; it has f16 with f32, f16 "
      "with f16";
  EXPECT_REFUSED("conv2d" + rest, backend->conv2d(x, weight, {}, nullptr, out));
  EXPECT_REFUSED("conv2d_input_gradient" + rest,
                 backend->conv2d_input_gradient(out, weight, {}, nullptr, dx));
  EXPECT_REFUSED("conv2d_weight_gradient" + rest, backend->conv2d_weight_gradient(x, out, {}, dx));
}

}  // namespace
}  // namespace fp16lab::engine::test
