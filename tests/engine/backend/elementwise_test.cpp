// Conformance: elementwise verbs.
#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include "numerics/elementary/elementary.hpp"
#include "tests/engine/backend/conformance.hpp"

namespace fp16lab::engine::test {
namespace {

constexpr std::array<std::int64_t, 5> sizes{1, 31, 1025, 40000,
                                            131073};  // the last two are shared by threads
constexpr std::array kinds{Kind::ordinary, Kind::wide, Kind::special};

// ---- unary ----

/// The shared function that the contract names (its own tests judge it); null for the exact ops.
float (*shared_function(UnaryOp op))(float) {
  switch (op) {
    case UnaryOp::exp:
      return exp_f32;
    case UnaryOp::log:
      return log_f32;
    case UnaryOp::log1p:
      return log1p_f32;
    case UnaryOp::reciprocal_square_root:
      return rsqrt_f32;
    case UnaryOp::sigmoid:
      return sigmoid_f32;
    case UnaryOp::tanh:
      return tanh_f32;
    case UnaryOp::erf:
      return erf_f32;
    case UnaryOp::gelu:
      return gelu_f32;
    case UnaryOp::gelu_tanh:
      return gelu_tanh_f32;
    case UnaryOp::negate:
    case UnaryOp::relu:
    case UnaryOp::square_root:
    case UnaryOp::absolute:
    case UnaryOp::sign:
      break;
  }
  return nullptr;
}

/// The others in FP64 on an FP32 argument: exact, or for the square root rounded far below the FP32 last place
/// (53 >= 2 * 24 + 2), so one more rounding gives the correctly rounded result.
double exact_unary(UnaryOp op, double x) {
  switch (op) {
    case UnaryOp::negate:
      return -x;
    case UnaryOp::relu:
      return std::isnan(x) ? x : (x > 0.0 ? x : 0.0);
    case UnaryOp::square_root:
      return std::sqrt(x);
    case UnaryOp::absolute:
      return std::fabs(x);
    case UnaryOp::sign:
      return std::isnan(x) ? x : static_cast<double>(x > 0.0) - static_cast<double>(x < 0.0);
    default:
      ADD_FAILURE() << "not an exact op";
      return 0.0;
  }
}

float expected_unary(UnaryOp op, float x) {
  if (const auto function = shared_function(op); function != nullptr) return function(x);
  return canonical(static_cast<float>(exact_unary(op, static_cast<double>(x))));
}
template <class F>
SmallFloat<F> expected_unary(UnaryOp op, SmallFloat<F> x) {
  using Half = SmallFloat<F>;
  if (const auto function = shared_function(op); function != nullptr)
    return low_of<Half>(function(float_of(x)));
  return low_of<Half>(exact_unary(op, static_cast<double>(float_of(x))));
}

constexpr std::array unary_ops{UnaryOp::negate,    UnaryOp::relu,
                               UnaryOp::exp,       UnaryOp::log,
                               UnaryOp::log1p,     UnaryOp::square_root,
                               UnaryOp::absolute,  UnaryOp::sign,
                               UnaryOp::sigmoid,   UnaryOp::tanh,
                               UnaryOp::erf,       UnaryOp::gelu,
                               UnaryOp::gelu_tanh, UnaryOp::reciprocal_square_root};

TEST_P(BackendConformance, UnaryOnFloats) {
  for (const UnaryOp op : unary_ops)
    for (const Kind kind : kinds)
      for (const std::int64_t size : sizes) {
        const std::vector<float> values = random_floats(size, kind, 5);
        const std::vector<float> expected = mapped(values, [op](float x) { return expected_unary(op, x); });
        Tensor x = tensor(values);
        Tensor out = output(Shape{size}, DType::f32);
        backend().unary(op, x, out);
        const std::string what = "unary " + std::to_string(static_cast<int>(op));
        expect_same_bits(values_of<float>(out), expected, what);
        backend().unary(op, x, x);
        expect_same_bits(values_of<float>(x), expected, what + " in place");
      }
}

TEST_P(BackendConformance, UnaryOnEvery16BitWord) {
  for_each_half_type([&](auto tag) {
    using Half = decltype(tag);
    const std::vector<Half> words = all_words<Half>();
    for (const UnaryOp op : unary_ops) {
      Tensor x = tensor(words);
      Tensor out = output(Shape{65536}, DTypeOf<Half>::value);
      const std::string what = "unary " + out.describe() + " " + std::to_string(static_cast<int>(op));
      const std::vector<Half> expected = mapped(words, [op](Half word) { return expected_unary(op, word); });
      backend().unary(op, x, out);
      expect_same_bits(values_of<Half>(out), expected, what);
      backend().unary(op, x, x);
      expect_same_bits(values_of<Half>(x), expected, what + " in place");
    }
  });
}

TEST_P(BackendConformance, UnaryFunctionsAreTheOnesOfTheirNames) {
  // By the C library in FP64, to one unit of the 16-bit result's last place: 2^-10 (2^-7) of a normal one, 2^-24 (2^-133)
  // below.
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

// ---- binary ----

constexpr std::array binary_ops{BinaryOp::add,    BinaryOp::subtract,        BinaryOp::multiply,
                                BinaryOp::divide, BinaryOp::select_positive, BinaryOp::maximum,
                                BinaryOp::minimum};

/// One operation in type T. In FP64 for 16-bit operands: products are exact, sums exact or like quotients harmlessly
/// rounded (53 >= 2 * 11 + 2).
template <class T>
T plain_binary(BinaryOp op, T a, T b) {
  switch (op) {
    case BinaryOp::add:
      return a + b;
    case BinaryOp::subtract:
      return a - b;
    case BinaryOp::multiply:
      return a * b;
    case BinaryOp::divide:
      return a / b;
    case BinaryOp::select_positive:
      return a > T{0} || std::isnan(a) ? b : T{0};
    case BinaryOp::maximum:
      return std::isnan(a) || std::isnan(b) ? a + b : b > a ? b : a;
    case BinaryOp::minimum:
      return std::isnan(a) || std::isnan(b) ? a + b : b < a ? b : a;
  }
  return a;
}
float expected_binary(BinaryOp op, float a, float b) { return canonical(plain_binary(op, a, b)); }
template <class F>
SmallFloat<F> expected_binary(BinaryOp op, SmallFloat<F> a, SmallFloat<F> b) {
  return low_of<SmallFloat<F>>(
      plain_binary(op, static_cast<double>(float_of(a)), static_cast<double>(float_of(b))));
}

TEST_P(BackendConformance, BinaryOfEverySize) {
  for (const BinaryOp op : binary_ops)
    for (const Kind kind : kinds)
      for (const std::int64_t size : sizes) {
        const std::string what = "binary " + std::to_string(static_cast<int>(op));
        for_each_float_type([&](auto tag) {
          using T = decltype(tag);
          const std::vector<T> a = random_of<T>(size, kind, 6), b = random_of<T>(size, kind, 7);
          std::vector<T> expected;
          for (std::size_t i = 0; i < a.size(); ++i) expected.push_back(expected_binary(op, a[i], b[i]));
          Tensor x = tensor(a), y = tensor(b), out = output(Shape{size}, DTypeOf<T>::value);
          backend().binary(op, x, y, out);
          expect_same_bits(values_of<T>(out), expected, what);
          Tensor in_place = tensor(a);
          backend().binary(op, in_place, y, in_place);
          expect_same_bits(values_of<T>(in_place), expected, what + " into a");
          backend().binary(op, x, y, y);
          expect_same_bits(values_of<T>(y), expected, what + " into b");
        });
      }
}

TEST_P(BackendConformance, BinaryOfInterestingWords) {
  // Exponents x significands, both signs, crossed.
  const auto check = [&](auto tag, const std::vector<std::uint32_t>& fields,
                         const std::vector<std::uint32_t>& fractions) {
    using Half = decltype(tag);
    std::vector<Half> a, b, interesting;
    for (const std::uint32_t field : fields)
      for (const std::uint32_t fraction : fractions)
        for (const std::uint32_t sign : {0x0000u, 0x8000u})
          interesting.push_back(Half::from_bits(
              static_cast<std::uint16_t>(sign | field << Half::Format::fraction_bits | fraction)));
    for (const Half x : interesting)
      for (const Half y : interesting) a.push_back(x), b.push_back(y);
    for (const BinaryOp op : binary_ops) {
      std::vector<Half> expected;
      for (std::size_t i = 0; i < a.size(); ++i) expected.push_back(expected_binary(op, a[i], b[i]));
      Tensor out = output(Shape{static_cast<std::int64_t>(a.size())}, DTypeOf<Half>::value);
      backend().binary(op, tensor(a), tensor(b), out);
      expect_same_bits(values_of<Half>(out), expected,
                       "binary " + out.describe() + " " + std::to_string(static_cast<int>(op)));
    }
  };
  check(Float16{}, {0, 1, 2, 10, 14, 15, 16, 25, 29, 30, 31},
        {0x000, 0x001, 0x002, 0x155, 0x200, 0x3fe, 0x3ff});
  // The exponents around 63 and 190: their products are BF16 subnormals, which FP32 holds with fewer than 24 bits, and
  // just below and above 2^128.
  check(BFloat16{}, {0, 1, 2, 56, 59, 60, 61, 62, 63, 64, 118, 127, 128, 189, 190, 191, 253, 254, 255},
        {0x00, 0x01, 0x02, 0x2a, 0x40, 0x7e, 0x7f});
}

/// Offset in a tensor of shape `from` of what element `at` of a tensor of shape `to` reads, by NumPy's rule.
std::size_t broadcast_offset(const Shape& from, const Shape& to, std::int64_t at) {
  std::int64_t offset = 0, stride = 1;
  for (int axis = 1; axis <= to.rank(); ++axis) {
    const std::int64_t index = at % to[-axis];
    at /= to[-axis];
    if (axis > from.rank()) continue;
    if (from[-axis] != 1) offset += index * stride;
    stride *= from[-axis];
  }
  return static_cast<std::size_t>(offset);
}

TEST_P(BackendConformance, BinaryBroadcasts) {
  struct Case {
    Shape a, b, out;
  };
  const std::vector<Case> cases{{{}, {}, {}},
                                {{1}, {31}, {31}},
                                {{3, 4}, {4}, {3, 4}},
                                {{3, 4}, {3, 1}, {3, 4}},
                                {{3, 1}, {1, 4}, {3, 4}},
                                {{}, {2, 3}, {2, 3}},
                                {{1}, {1, 1}, {5, 7}},
                                {{2, 3, 4}, {3, 1}, {2, 3, 4}},
                                {{2, 1, 4}, {1, 3, 1}, {2, 3, 4}},
                                {{2, 1, 4, 1, 3}, {5, 1, 2, 3}, {2, 5, 4, 2, 3}},
                                {{2, 3, 1, 2, 1, 2}, {1, 3, 2, 1, 3, 1}, {2, 3, 2, 2, 3, 2}},
                                // Rows of whole vectors of 16 bytes, of 16-bit elements too.
                                {{6, 16}, {16}, {6, 16}},
                                {{6, 16}, {6, 1}, {6, 16}},
                                {{6, 1}, {1, 16}, {6, 16}},
                                {{2, 3, 1, 24}, {2, 1, 5, 24}, {2, 3, 5, 24}},
                                {{7, 1025}, {1025}, {7, 1025}},
                                {{300, 257}, {300, 1}, {300, 257}},
                                {{40000, 3}, {3}, {40000, 3}},
                                {{40000, 1}, {40000, 3}, {40000, 3}},
                                {{0, 3}, {3}, {0, 3}}};
  for (const Case& c : cases)
    for (const BinaryOp op :
         {BinaryOp::subtract, BinaryOp::divide, BinaryOp::select_positive, BinaryOp::maximum}) {
      for_each_float_type([&](auto tag) {
        using T = decltype(tag);
        const std::vector<T> a = random_of<T>(c.a.element_count(), Kind::special, 10),
                             b = random_of<T>(c.b.element_count(), Kind::special, 11);
        std::vector<T> expected;
        for (std::int64_t i = 0; i < c.out.element_count(); ++i)
          expected.push_back(
              expected_binary(op, a[broadcast_offset(c.a, c.out, i)], b[broadcast_offset(c.b, c.out, i)]));
        Tensor out = output(c.out, DTypeOf<T>::value);
        backend().binary(op, tensor(c.a, a), tensor(c.b, b), out);
        expect_same_bits(values_of<T>(out), expected, c.a.to_string() + " op " + c.b.to_string());
      });
    }
}

TEST_P(BackendConformance, ScaleAndDivideByAScalar) {
  for (const std::int64_t size : sizes)
    for (const float scalar : {1.0f / 3.0f, 0x1p-11f, 65536.0f, 0.0f, -7.0f, HUGE_VALF, 0x1p-149f}) {
      for_each_float_type([&](auto tag) {
        using T = decltype(tag);
        const std::vector<T> values = random_of<T>(size, Kind::special, 14);
        std::vector<T> products, quotients;
        for (const T x : values) {
          const float product = wide(x) * scalar, quotient = wide(x) / scalar;  // rounded to FP32 first
          products.push_back(stored_as(canonical(product), T{}));
          quotients.push_back(stored_as(canonical(quotient), T{}));
        }
        Tensor out = output(Shape{size}, DTypeOf<T>::value);
        backend().scale(tensor(values), scalar, out);
        expect_same_bits(values_of<T>(out), products, "scale " + out.describe());
        backend().divide(tensor(values), scalar, out);
        expect_same_bits(values_of<T>(out), quotients, "divide " + out.describe());
        Tensor in_place = tensor(values);
        backend().divide(in_place, scalar, in_place);
        expect_same_bits(values_of<T>(in_place), quotients, "divide in place " + out.describe());
      });
    }
}

}  // namespace
}  // namespace fp16lab::engine::test
