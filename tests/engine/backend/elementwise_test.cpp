// Conformance: elementwise functions by the C library, and truth tables.
#include <cmath>
#include <limits>

#include "numerics/elementary/elementary.hpp"
#include "tests/engine/backend/conformance.hpp"

namespace fp16lab::engine::test {
namespace {

TEST_P(BackendConformance, UnaryFunctionsAreTheOnesOfTheirNames) {
  // By the C library in FP64, to one unit of the 16-bit result's last place: 2^-10 (2^-7) of a normal one,
  // 2^-24 (2^-133) below.
  struct Row {
    UnaryOp op;
    double (*exact)(double);
  };
  const std::vector<Row> rows{
      {UnaryOp::exp, [](double x) { return std::exp(x); }},
      {UnaryOp::log, [](double x) { return std::log(x); }},
      {UnaryOp::log1p, [](double x) { return std::log1p(x); }},
      {UnaryOp::reciprocal_square_root, [](double x) { return 1.0 / std::sqrt(x); }},
      {UnaryOp::sigmoid, [](double x) { return 1.0 / (1.0 + std::exp(-x)); }},
      {UnaryOp::tanh, [](double x) { return std::tanh(x); }},
      {UnaryOp::erf, [](double x) { return std::erf(x); }},
      {UnaryOp::gelu, [](double x) { return x * std::erfc(-x / std::sqrt(2.0)) / 2; }},
      {UnaryOp::gelu_tanh, [](double x) {
         const double t = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
         return x /
                (1 + std::exp(-2 * t));  // (1 + tanh t) / 2 without the cancellation that BF16's range sees
       }}};
  for_each_half_type([&](auto tag) {
    using Half = decltype(tag);
    const std::vector<Half> words = all_words<Half>();
    const double ulp_of_1 = std::ldexp(1.0, -Half::Format::fraction_bits);
    const double smallest = std::ldexp(1.0, Half::Format::exponent_of_min_subnormal);
    for (const Row& row : rows) {
      Tensor out = output(Shape{65536}, DTypeOf<Half>::value);
      backend().unary(row.op, tensor(words), out);
      const std::vector<Half> results = values_of<Half>(out);
      for (std::size_t i = 0; i < words.size(); ++i) {
        const double exact = row.exact(static_cast<double>(float_of(words[i])));
        const auto actual = static_cast<double>(float_of(results[i]));
        if (!std::isfinite(exact) || !std::isfinite(actual)) continue;  // the tables below
        ASSERT_NEAR(actual, exact, std::max(std::fabs(exact) * ulp_of_1, smallest))
            << "op " << static_cast<int>(row.op) << " at " << float_of(words[i]);
      }
    }
  });
}

TEST_P(BackendConformance, TruthTables) {
  const float inf = HUGE_VALF, nan = std::nanf("");
  const float canonical_nan = float_from_bits(0x7fffffffu);
  const std::vector<float> x{nan, -0.0f, 0.0f, -inf, inf, float_from_bits(0xffc00001u), -1.0f, 2.0f};
  Tensor out = output(Shape{8}, DType::f32);
  const auto table = [&](UnaryOp op, const std::vector<float>& expected, const std::string& what) {
    backend().unary(op, tensor(x), out);
    expect_same_bits(values_of<float>(out), expected, what);
  };
  table(UnaryOp::relu, {canonical_nan, 0.0f, 0.0f, 0.0f, inf, canonical_nan, 0.0f, 2.0f}, "relu");
  table(UnaryOp::sign, {canonical_nan, 0.0f, 0.0f, -1.0f, 1.0f, canonical_nan, -1.0f, 1.0f}, "sign");
  table(UnaryOp::log1p,
        {canonical_nan, -0.0f, 0.0f, canonical_nan, inf, canonical_nan, -inf, log1p_f32(2.0f)}, "log1p");
  table(UnaryOp::reciprocal_square_root,
        {canonical_nan, -inf, inf, canonical_nan, 0.0f, canonical_nan, canonical_nan, rsqrt_f32(2.0f)},
        "reciprocal square root");
  table(UnaryOp::tanh,
        {canonical_nan, -0.0f, 0.0f, -1.0f, 1.0f, canonical_nan, tanh_f32(-1.0f), tanh_f32(2.0f)}, "tanh");

  const auto both = [&](BinaryOp op, float b, const std::vector<float>& expected, const std::string& what) {
    backend().binary(op, tensor(x), tensor(std::vector(8, b)), out);
    expect_same_bits(values_of<float>(out), expected, what);
  };
  both(BinaryOp::select_positive, -3.0f, {-3.0f, 0.0f, 0.0f, 0.0f, -3.0f, -3.0f, 0.0f, -3.0f},
       "select_positive");
  both(BinaryOp::select_positive, -nan,
       {canonical_nan, 0.0f, 0.0f, 0.0f, canonical_nan, canonical_nan, 0.0f, canonical_nan},
       "select_positive of NaN");
  const std::vector<float> all_nan(8, canonical_nan);
  both(BinaryOp::maximum, -nan, all_nan, "maximum with NaN");
  both(BinaryOp::minimum, -nan, all_nan, "minimum with NaN");
  both(BinaryOp::maximum, 0.0f, {canonical_nan, -0.0f, 0.0f, 0.0f, inf, canonical_nan, 0.0f, 2.0f},
       "maximum with +0");
  both(BinaryOp::maximum, -0.0f, {canonical_nan, -0.0f, 0.0f, -0.0f, inf, canonical_nan, -0.0f, 2.0f},
       "maximum with -0");
  both(BinaryOp::minimum, 0.0f, {canonical_nan, -0.0f, 0.0f, -inf, 0.0f, canonical_nan, -1.0f, 0.0f},
       "minimum with +0");
  both(BinaryOp::minimum, -0.0f, {canonical_nan, -0.0f, 0.0f, -inf, -0.0f, canonical_nan, -1.0f, -0.0f},
       "minimum with -0");
}

}  // namespace
}  // namespace fp16lab::engine::test
