#include "analysis/rounding_edges.hpp"

#include <fmt/format.h>

#include <initializer_list>
#include <string>
#include <utility>

#include "analysis/inspection.hpp"
#include "numerics/arithmetic/arithmetic.hpp"
#include "numerics/arithmetic/comparison.hpp"
#include "numerics/arithmetic/integer_conversion.hpp"
#include "numerics/convert/convert.hpp"
#include "numerics/formats/decimal.hpp"

namespace fp16lab::analysis {
namespace {

using Float32 = SmallFloat<Binary32>;

template <class F>
std::string text_of(SmallFloat<F> x) {
  return fmt::format("0x{:0{}x}", x.bits(), (F::width + 3) / 4);
}
std::string text_of(const std::string& text) { return text; }
std::string text_of(std::uint64_t count) { return fmt::format("{}", count); }
std::string text_of(const ExceptionFlags& flags) {
  const std::string text = fmt::format("{}", fmt::join(raised(flags), " "));
  return text.empty() ? "none" : text;
}

struct Ledger {
  std::vector<Claim> claims;
  std::string heading;

  /// Heads the claims that follow; `source` is where their expected values come from.
  void topic(const char* title, const char* source) { heading = fmt::format("{} [{}]", title, source); }
  template <class Computed>
  void claim(const char* words, const char* expected, const Computed& computed) {
    const std::string text = text_of(computed);
    claims.push_back({words, expected, text, verdict_of(text == expected), heading});
  }
};

/// A typed number, rounded once.
template <class F>
SmallFloat<F> to(const char* number, const ArithmeticOptions& options = {}, ExceptionFlags* flags = nullptr) {
  return round_pack<F>(parse_number(number).value.to_exact(), options, flags);
}
Float16 half(const char* number, const ArithmeticOptions& options = {}) {
  return to<Binary16>(number, options);
}
Float16 code(std::uint16_t bits) { return Float16::from_bits(bits); }

ArithmeticOptions stochastic(std::uint32_t random_bits) {
  ArithmeticOptions options = Rounding::stochastic;
  options.random_bits = random_bits;
  return options;
}
ArithmeticOptions saturating() {
  ArithmeticOptions options;
  options.saturate = true;
  return options;
}

std::string flags_of(const char* number, ArithmeticOptions options = {},
                     Tininess tininess = Tininess::after_rounding) {
  options.tininess = tininess;
  ExceptionFlags flags;
  to<Binary16>(number, options, &flags);
  return text_of(flags);
}

void ties(Ledger& ledger) {
  ledger.topic("Ties to even", "IEEE 754-2019, 4.3.1");
  ledger.claim("1 + 2^-11, half way from 1 to the next number, goes to the even 1", "0x3c00",
               half("0x1.002p0"));
  ledger.claim("1 + 3*2^-11, half way between 1 + 2^-10 and 1 + 2^-9, goes up to even", "0x3c02",
               half("0x1.006p0"));
  ledger.claim("1 + 2^-11 + 2^-40 is not a tie and goes up", "0x3c01", half("0x1.0020000001p0"));
  ledger.claim("1 + 2^-11 with ties away from zero goes up", "0x3c01",
               half("0x1.002p0", Rounding::nearest_away));
  ledger.claim("2048 is a number", "0x6800", half("2048"));
  ledger.claim("2049 lies half way from 2048 to 2050 and becomes 2048", "0x6800", half("2049"));
  ledger.claim("2051 lies half way from 2050 to 2052 and becomes 2052", "0x6802", half("2051"));
  ledger.claim("2049 with ties away becomes 2050", "0x6801", half("2049", Rounding::nearest_away));
  ledger.claim("2049.0001 is not a tie: 2050", "0x6801", half("2049.0001"));
}

void overflow(Ledger& ledger) {
  ledger.topic("Overflow", "IEEE 754-2019, 4.3.1 and 7.4");
  ledger.claim("65504 = (2 - 2^-10) 2^15 is the largest number", "0x7bff", half("65504"));
  ledger.claim("65519.99 is nearer to 65504 than to 65536", "0x7bff", half("65519.99"));
  ledger.claim("65520 is the tie; 65536 would be even, so infinity", "0x7c00", half("65520"));
  ledger.claim("65520 to nearest, ties away: infinity", "0x7c00", half("65520", Rounding::nearest_away));
  ledger.claim("65520 toward zero stays 65504", "0x7bff", half("65520", Rounding::toward_zero));
  ledger.claim("65520 downward stays 65504", "0x7bff", half("65520", Rounding::downward));
  ledger.claim("65504.01 upward is infinity", "0x7c00", half("65504.01", Rounding::upward));
  ledger.claim("-65504.01 upward is -65504", "0xfbff", half("-65504.01", Rounding::upward));
  ledger.claim("-65504.01 downward is -infinity", "0xfc00", half("-65504.01", Rounding::downward));
  ledger.claim("10^10 toward zero is 65504", "0x7bff", half("1e10", Rounding::toward_zero));
  ledger.claim("10^10 saturated is 65504", "0x7bff", half("1e10", saturating()));
  ledger.claim("65520 to nearest raises", "overflow inexact", flags_of("65520"));
  ledger.claim("65520 toward zero is inexact, but no overflow: with more exponents also 65504", "inexact",
               flags_of("65520", Rounding::toward_zero));
  ledger.claim("65536 toward zero does overflow, to 65504", "overflow inexact",
               flags_of("65536", Rounding::toward_zero));
  ledger.claim("65504 + 15.99 = 65504", "0x7bff", add(half("65504"), half("15.99")));
  ledger.claim("65504 + 16 = infinity", "0x7c00", add(half("65504"), half("16")));
  ledger.claim("256 * 256 = infinity", "0x7c00", mul(half("256"), half("256")));
}

void underflow(Ledger& ledger) {
  ledger.topic("Underflow to zero", "IEEE 754-2019, 3.4, 4.3.1 and 7.5");
  ledger.claim("2^-24 is the smallest number", "0x0001", half("2^-24"));
  ledger.claim("2^-25 is the tie between 0 and 2^-24: lost", "0x0000", half("2^-25"));
  ledger.claim("the next FP32 number above 2^-25 is kept", "0x0001",
               convert<Binary16>(Float32::from_bits(0x33000001)));
  ledger.claim("the next FP32 number below 2^-25 is lost", "0x0000",
               convert<Binary16>(Float32::from_bits(0x32ffffff)));
  ledger.claim("3*2^-25 is the tie between 2^-24 and 2^-23: up to even", "0x0002", half("0x1.8p-24"));
  ledger.claim("-2^-25 is lost, its sign is not", "0x8000", half("-2^-25"));
  ledger.claim("2^-25 with ties away is kept", "0x0001", half("2^-25", Rounding::nearest_away));
  ledger.claim("10^-30 upward is kept as 2^-24", "0x0001", half("1e-30", Rounding::upward));
  ledger.claim("2^-27 stochastic: random words from 7/8 of 2^32 on keep it", "0x0001",
               half("2^-27", stochastic(0xe0000000)));
  ledger.claim("2^-27 stochastic: the word before loses it (probability 1/8 to survive)", "0x0000",
               half("2^-27", stochastic(0xdfffffff)));
  ledger.claim("2^-24 is exact and raises", "none", flags_of("2^-24"));
  ledger.claim("2^-25 raises", "underflow inexact", flags_of("2^-25"));
  ledger.claim("2^-12 * 2^-13 is lost", "0x0000", mul(half("2^-12"), half("2^-13")));
  ledger.claim("2^-12 * 2^-12 is kept", "0x0001", mul(half("2^-12"), half("2^-12")));
}

/// The error of (m + 1/2) 2^-24 as a fraction of it; both are multiples of 2^-25.
std::string relative_error(std::uint64_t m) {
  const Exact exact{Exact::Kind::finite, false, 2 * m + 1, -25, false};
  const Decimal error = Decimal(decode(round_pack<Binary16>(exact, {}))) - Decimal(exact);
  return fmt::format("{}/{}", error.magnitude().scaled_by_two(25).to_string(),
                     Decimal(exact).scaled_by_two(25).to_string());
}

std::uint64_t spacings_of_subnormals() {
  std::uint64_t right = 0;
  for (std::uint16_t bits = 0; bits < Binary16::min_normal; ++bits) {
    const Decimal gap = Decimal(decode(next_up(code(bits)))) - Decimal(decode(code(bits)));
    right += gap.scaled_by_two(24).to_string() == "1" ? 1 : 0;
  }
  return right;
}

void subnormals(Ledger& ledger) {
  ledger.topic("Precision of subnormals", "IEEE 754-2019, 3.3 and 3.4");
  ledger.claim("2^-14 is the smallest normal number", "0x0400", half("2^-14"));
  ledger.claim("nextDown of it is the largest subnormal, 1023*2^-24", "0x03ff", next_down(half("2^-14")));
  ledger.claim("all 1024 gaps from 0 to 2^-14 are 2^-24", "1024", spacings_of_subnormals());
  ledger.claim("relative error of rounding 512.5*2^-24: about 2^-10", "1/1025", relative_error(512));
  ledger.claim("of 10.5*2^-24: 5 %", "1/21", relative_error(10));
  ledger.claim("of 1.5*2^-24: 33 %", "1/3", relative_error(1));
  ledger.claim("of 0.5*2^-24: all of it", "1/1", relative_error(0));
  ledger.claim("flushed results (PTX .ftz): 2^-15 becomes 0", "0x0000", [] {
    ArithmeticOptions options;
    options.flush_results = true;
    return half("2^-15", options);
  }());
}

void tininess(Ledger& ledger) {
  ledger.topic("At 2^-14: tiny before or after rounding", "IEEE 754-2019, 7.5");
  ledger.claim("2^-14 - 2^-25, a tie, becomes 2^-14", "0x0400", half("0x1.ffcp-15"));
  ledger.claim("and is tiny after rounding too: eleven bits below 2^-14 hold it", "underflow inexact",
               flags_of("0x1.ffcp-15"));
  ledger.claim("2^-14 - 2^-26 becomes 2^-14", "0x0400", half("0x1.ffep-15"));
  ledger.claim("after rounding (x86, RISC-V) it is not tiny: eleven bits round it to 2^-14", "inexact",
               flags_of("0x1.ffep-15"));
  ledger.claim("before rounding (ARM) it is", "underflow inexact",
               flags_of("0x1.ffep-15", {}, Tininess::before_rounding));
}

void double_rounding(Ledger& ledger) {
  ledger.topic("Double rounding", "Figueroa, SIGNUM Newsletter 30(3), 1995; Boldo and Melquiond, 2008");
  const auto through_single = [](const char* number) { return convert<Binary16>(to<Binary32>(number)); };
  ledger.claim("1 + 2^-11 + 2^-40 directly", "0x3c01", convert<Binary16>(to<Binary64>("0x1.0020000001p0")));
  ledger.claim("through FP32 it lands on the tie first", "0x3c00", through_single("0x1.0020000001p0"));
  ledger.claim("65519.9999 directly is 65504", "0x7bff", half("65519.9999"));
  ledger.claim("through FP32 it is 65520 first, then infinity", "0x7c00", through_single("65519.9999"));
  ledger.claim("2^-25 + 2^-60 directly is kept", "0x0001", half("0x1.000000002p-25"));
  ledger.claim("through FP32 it is lost", "0x0000", through_single("0x1.000000002p-25"));
  ledger.claim("1.00048828125000000000000000001 directly", "0x3c01", half("1.00048828125000000000000000001"));
  ledger.claim("through FP64, as most languages read it", "0x3c00",
               convert<Binary16>(to<Binary64>("1.00048828125000000000000000001")));

  const Float16 a = half("1.5"), b = half("0x1.004p0"), c = half("-2^-24");
  const auto single = [](Float16 x) { return convert<Binary32>(x); };
  ledger.claim("fma(1.5, 1 + 2^-10, -2^-24) is just below a tie", "0x3e01", fma(a, b, c));
  ledger.claim("an FP32 fma rounds it to the tie: FP16 fma needs more than FP32", "0x3e02",
               convert<Binary16>(fma(single(a), single(b), single(c))));
  ledger.claim("so do a product and a sum, each rounded to FP16", "0x3e02", add(mul(a, b), c));
}

/// Differences between the FP16 result and the one computed in format Wide, then rounded to FP16, over a
/// strided enumeration of all 2^32 pairs (all 2^16 operands for sqrt).
template <class Wide>
struct ThroughWider {
  static constexpr std::uint64_t stride = 4099;  // prime: every pair of exponents and signs occurs

  template <class Narrow, class Broad>
  static std::uint64_t pairs(const Narrow& narrow_op, const Broad& wide_op) {
    std::uint64_t different = 0;
    for (std::uint64_t pair = 0; pair < std::uint64_t{1} << 32; pair += stride) {
      const Float16 a = code(static_cast<std::uint16_t>(pair >> 16));
      const Float16 b = code(static_cast<std::uint16_t>(pair));
      const auto wide = wide_op(convert<Wide>(a), convert<Wide>(b));
      different += convert<Binary16>(wide).bits() != narrow_op(a, b).bits() ? 1 : 0;
    }
    return different;
  }
  static std::uint64_t additions() {
    return pairs([](auto a, auto b) { return add(a, b); }, [](auto a, auto b) { return add(a, b); });
  }
  static std::uint64_t products() {
    return pairs([](auto a, auto b) { return mul(a, b); }, [](auto a, auto b) { return mul(a, b); });
  }
  static std::uint64_t quotients() {
    return pairs([](auto a, auto b) { return div(a, b); }, [](auto a, auto b) { return div(a, b); });
  }
  static std::uint64_t roots() {
    std::uint64_t different = 0;
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
      const Float16 x = code(static_cast<std::uint16_t>(bits));
      different += convert<Binary16>(sqrt(convert<Wide>(x))).bits() != sqrt(x).bits() ? 1 : 0;
    }
    return different;
  }
};

void harmless_double_rounding(Ledger& ledger) {
  ledger.topic("FP16 operations through FP32 are harmless: 24 >= 2*11 + 2", "Figueroa, 1995");
  using Single = ThroughWider<Binary32>;
  ledger.claim("differences in 1,047,809 sums of FP16 pairs (every 4099th pair)", "0", Single::additions());
  ledger.claim("in as many products", "0", Single::products());
  ledger.claim("in as many quotients", "0", Single::quotients());
  ledger.claim("in all 65,536 square roots", "0", Single::roots());
  ledger.claim("with 16 bits of precision between, products do differ", "yes",
               std::string(ThroughWider<Format<8, 16>>::products() > 0 ? "yes" : "no"));
}

bool is_half(std::int32_t n) {
  ExceptionFlags flags;
  from_integer<Binary16>(n, {}, &flags);
  return !flags.inexact;
}
std::uint64_t representable_integers() {
  std::uint64_t count = 0;
  for (std::int32_t n = 0; n <= 65504; ++n) count += is_half(n) ? 1 : 0;
  return count;
}
std::uint64_t first_missing_integer() {
  std::int32_t n = 0;
  while (is_half(n)) ++n;
  return static_cast<std::uint64_t>(n);
}

void integers_and_decimals(Ledger& ledger) {
  ledger.topic("Integers and decimal fractions", "11 significant bits: 2^11 = 2048");
  ledger.claim("the first integer that is not an FP16 number", "2049", first_missing_integer());
  ledger.claim("integers from 0 to 65504 that are: 2049 + 4*1024 + 1023", "7168", representable_integers());
  ledger.claim("0.1", "0x2e66", half("0.1"));
  ledger.claim("is worth", "0.0999755859375", Decimal(decode(half("0.1"))).to_string());
  ledger.claim("1/3", "0x3555", div(half("1"), half("3")));
  ledger.claim("0.1 + 0.2 is a tie, resolved downwards", "0x34cc", add(half("0.1"), half("0.2")));
  ledger.claim("0.3 is the next number", "0x34cd", half("0.3"));
  ledger.claim("3 * (1/3) = 1, as 1 - 2^-12 is a tie", "0x3c00", mul(half("3"), half("0.3333333")));
}

template <class F>
SmallFloat<F> sum_of_many(SmallFloat<F> x, int count) {
  auto sum = SmallFloat<F>::from_bits(0);
  for (int i = 0; i < count; ++i) sum = add(sum, x);
  return sum;
}

void swamping(Ledger& ledger) {
  ledger.topic("Swamping: x + y = x", "half an ulp of x or less is lost: IEEE 754-2019, 4.3.1");
  ledger.claim("2048 + 1 = 2048", "0x6800", add(half("2048"), half("1")));
  ledger.claim("2048 + 1.001 = 2050", "0x6801", add(half("2048"), half("1.001")));
  ledger.claim("0.5 + 0.0001 = 0.5: half an ulp is 2^-12 = 0.00024", "0x3800",
               add(half("0.5"), half("0.0001")));
  ledger.claim("10,000 times 0.0001 in FP16 stops at 0.25", "0x3400", sum_of_many(half("0.0001"), 10000));
  ledger.claim("accumulated in FP32 and rounded once, it is 1", "0x3c00",
               convert<Binary16>(sum_of_many(convert<Binary32>(half("0.0001")), 10000)));
}

Float16 weight_in_half(int steps) {
  Float16 weight = half("1");
  for (int i = 0; i < steps; ++i) weight = sub(weight, half("2^-12"));
  return weight;
}
Float16 weight_with_master(int steps) {
  Float32 weight = to<Binary32>("1");
  for (int i = 0; i < steps; ++i) weight = sub(weight, to<Binary32>("2^-12"));
  return convert<Binary16>(weight);
}

void training(Ledger& ledger) {
  ledger.topic("Training: loss scaling and master weights",
               "Micikevicius et al., ICLR 2018, sections 3.1 and 3.2");
  ledger.claim("a gradient of 2^-27 is lost", "0x0000", half("2^-27"));
  ledger.claim("scaled by 2^10 it is 2^-17, kept exactly", "0x0080", half("2^-17"));
  ledger.claim("unscaled in FP32 it is 2^-27 again", "0x32000000",
               mul(convert<Binary32>(half("2^-17")), to<Binary32>("2^-10")));
  ledger.claim("too large a scale: a gradient of 1 times 2^16 is infinite", "0x7c00", half("65536"));
  ledger.claim("the FP16 weight 1 minus an update of 2^-12 is 1", "0x3c00", weight_in_half(1));
  ledger.claim("and after 100 such updates still", "0x3c00", weight_in_half(100));
  ledger.claim("with an FP32 master weight: 1 - 100*2^-12", "0x3bce", weight_with_master(100));
  ledger.claim("a slightly larger update than 2^-12 does arrive, doubled", "0x3bff",
               sub(half("1"), code(0x0c01)));
  ledger.claim("upwards even 2^-11 is lost", "0x3c00", add(half("1"), half("2^-11")));
  ledger.claim("stochastic rounding: 1 + 2^-12 goes up for random words from 3/4 of 2^32 on", "0x3c01",
               half("0x1.001p0", stochastic(0xc0000000)));
  ledger.claim("and stays for the word before", "0x3c00", half("0x1.001p0", stochastic(0xbfffffff)));
}

void nans_and_zeros(Ledger& ledger) {
  ledger.topic("NaN", "IEEE 754-2019, 6.2 and 7.2; the code as __float2half_rn of cuda_fp16.h gives it");
  for (const std::uint32_t bits : {0x7f800001u, 0x7fc00000u, 0xffc00000u, 0x7f802000u})
    ledger.claim(fmt::format("FP32 NaN {:#x} becomes the canonical NaN", bits).c_str(), "0x7fff",
                 convert<Binary16>(Float32::from_bits(bits)));
  ledger.claim("FP16 NaN 0xfe01 widens to the canonical FP32 NaN", "0x7fffffff",
               convert<Binary32>(code(0xfe01)));
  const Float16 zero = code(0), infinity = code(0x7c00), minus_infinity = code(0xfc00);
  const auto flags_from = [](auto operation) {
    ExceptionFlags flags;
    const Float16 result = operation(&flags);
    return text_of(result) + " " + text_of(flags);
  };
  ledger.claim("0 * infinity", "0x7fff invalid",
               flags_from([&](auto* f) { return mul(zero, infinity, {}, f); }));
  ledger.claim("infinity - infinity", "0x7fff invalid",
               flags_from([&](auto* f) { return add(infinity, minus_infinity, {}, f); }));
  ledger.claim("0 / 0", "0x7fff invalid", flags_from([&](auto* f) { return div(zero, zero, {}, f); }));
  ledger.claim("sqrt(-1)", "0x7fff invalid", flags_from([](auto* f) { return sqrt(code(0xbc00), {}, f); }));
  ledger.claim("signalling NaN + 1", "0x7fff invalid",
               flags_from([](auto* f) { return add(code(0x7d00), code(0x3c00), {}, f); }));
  ledger.claim("quiet NaN + 1 raises nothing", "0x7fff none",
               flags_from([](auto* f) { return add(code(0x7e00), code(0x3c00), {}, f); }));
  ledger.claim("NaN = NaN", "false", std::string(equal(code(0x7fff), code(0x7fff)) ? "true" : "false"));

  ledger.topic("Signed zeros", "IEEE 754-2019, 6.3 and 7.3");
  const Float16 one = half("1"), minus_zero = code(0x8000);
  ledger.claim("(-0) + (-0) = -0", "0x8000", add(minus_zero, minus_zero));
  ledger.claim("(-0) + (+0) = +0", "0x0000", add(minus_zero, zero));
  ledger.claim("1 - 1 = +0", "0x0000", sub(one, one));
  ledger.claim("1 - 1 downward = -0", "0x8000", sub(one, one, Rounding::downward));
  ledger.claim("0 * (-1) = -0", "0x8000", mul(zero, half("-1")));
  ledger.claim("sqrt(-0) = -0", "0x8000", sqrt(minus_zero));
  ledger.claim("1 / -0 = -infinity", "0xfc00 divide_by_zero",
               flags_from([&](auto* f) { return div(one, minus_zero, {}, f); }));
  ledger.claim("-0 = +0", "true", std::string(equal(minus_zero, zero) ? "true" : "false"));
}

void other_formats(Ledger& ledger) {
  ledger.topic("FP8 E4M3: no infinity", "OCP 8-bit Floating Point Specification 1.0, table 1");
  ledger.claim("448 is the largest number", "0x7e", to<Fp8E4M3>("448"));
  ledger.claim("464 is the tie with 480, which is not a number: 448 is even", "0x7e", to<Fp8E4M3>("464"));
  ledger.claim("465 overflows to NaN", "0x7f", to<Fp8E4M3>("465"));
  ledger.claim("-465 overflows to NaN with the sign", "0xff", to<Fp8E4M3>("-465"));
  ledger.claim("465 saturated is 448", "0x7e", to<Fp8E4M3>("465", saturating()));
  ledger.claim("infinity becomes NaN", "0x7f", convert<Fp8E4M3>(code(0x7c00)));
  ledger.claim("infinity saturated is 448", "0x7e", convert<Fp8E4M3>(code(0x7c00), saturating()));
  ledger.claim("2^-9 is the smallest number", "0x01", to<Fp8E4M3>("2^-9"));
  ledger.claim("2^-10 is lost", "0x00", to<Fp8E4M3>("2^-10"));

  ledger.topic("FP8 E5M2", "OCP 8-bit Floating Point Specification 1.0, table 1");
  ledger.claim("57344 is the largest number", "0x7b", to<Fp8E5M2>("57344"));
  ledger.claim("61439.99 is nearer to it than to 65536", "0x7b", to<Fp8E5M2>("61439.99"));
  ledger.claim("61440 is the tie: infinity", "0x7c", to<Fp8E5M2>("61440"));
  ledger.claim("61440 saturated is 57344", "0x7b", to<Fp8E5M2>("61440", saturating()));
  ledger.claim("2^-16 is the smallest number", "0x01", to<Fp8E5M2>("2^-16"));
  ledger.claim("2^-17 is lost", "0x00", to<Fp8E5M2>("2^-17"));

  ledger.topic("BF16 keeps FP32's exponents and gives up precision", "8 exponent bits, 8 significant bits");
  ledger.claim("2^-27, lost in FP16, is a normal number", "0x3200", to<BrainFloat16>("2^-27"));
  ledger.claim("2^-126 still is", "0x0080", to<BrainFloat16>("2^-126"));
  ledger.claim("65520, infinite in FP16, is 65536", "0x4780", to<BrainFloat16>("65520"));
  ledger.claim("257 is not a number: 256", "0x4380", to<BrainFloat16>("257"));
  ledger.claim("1 + 2^-8 is a tie: 1", "0x3f80", to<BrainFloat16>("0x1.01p0"));
  ledger.claim("1 - 2^-9, which is 0x3bfc in FP16, is 1: BF16 loses larger updates", "0x3f80",
               sub(to<BrainFloat16>("1"), to<BrainFloat16>("2^-9")));
}

}  // namespace

std::vector<Claim> rounding_edges() {
  Ledger ledger;
  for (const auto topic :
       {ties, overflow, underflow, subnormals, tininess, double_rounding, harmless_double_rounding,
        integers_and_decimals, swamping, training, nans_and_zeros, other_formats})
    topic(ledger);
  return std::move(ledger.claims);
}

}  // namespace fp16lab::analysis
