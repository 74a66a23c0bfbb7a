// Generates reports/where_we_differ.md section by section and compares it with the committed page, so that
// the page cannot go stale. FP16LAB_UPDATE=1 rewrites the sections that this machine can measure.
//
// Counted are all 2^24 - 2 NaNs, all 2^16 halves, and the numbers at which an FP16 result can change
// (cases::half_corners). Where a peer differs on none of those numbers, every 2039th FP32 pattern must agree
// too; FP16LAB_SWEEP_STRIDE=1 makes that all of them. No count depends on the stride.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "numerics/arithmetic/arithmetic.hpp"
#include "numerics/convert/convert.hpp"
#include "tests/numerics/arithmetic/difference_page.hpp"
#include "tests/numerics/arithmetic/peer_rules.hpp"
#include "tests/support/cases.hpp"
#if FP16LAB_CUDA_HEADERS
#include "tests/numerics/arithmetic/cuda_host_paths.hpp"
#endif
#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace fp16lab {
namespace {

using page::check_section;
using page::committed_section;
using page::grouped;
using page::row;
using page::table_head;
using page::Tally;
using page::updating;

const char* const preamble = R"(# Where we differ

Written by `tests/numerics/arithmetic/where_we_differ_test.cpp`, which fails when what it measures is not what stands here
(`FP16LAB_UPDATE=1 build/tests/numerics_where_we_differ` rewrites the page).

fp16lab rounds numbers as IEEE 754 says. What the standard leaves open it decides so: every NaN that is stored is the
canonical one, positive with all fraction bits set (0x7fff in FP16 and BF16, 0x7fffffff in FP32, 0x7f in FP8), as
NVIDIA's conversions give it; FP8 E4M3, which has no infinities, overflows to NaN with the sign unless asked to
saturate. The differences below follow from that, or are roundings that are not the standard's.

Inputs: *NaNs* are all 16,777,214 of FP32; *numbers* are the {} FP32 values at which an FP16 result can change
(every finite half, every midpoint, two neighbours on each side, both signs; the infinities and zeros). A row that
says *none* also held for a stride through all FP32 patterns. *Pairs* and *triples* are 2^20 fixed ones, spread over
all halves (no pair of two NaNs) and over the stated ranges.

)";

/// FP32 bits in, the code of some format out, zero-extended. A plain function, so that sweeps stay fast.
using Conversion = std::uint32_t (*)(std::uint32_t);

const std::vector<std::uint32_t>& corners() {
  static const std::vector<std::uint32_t> inputs = [] {
    std::vector<std::uint32_t> bits{0, 0x80000000u, 0x7f800000u, 0xff800000u};
    for (const float x : cases::half_corners())
      if (x != 0)
        for (const float y : {x, -x}) bits.push_back(bits_of(y));
    return bits;
  }();
  return inputs;
}

std::uint64_t sweep_stride() {
  const char* text = std::getenv("FP16LAB_SWEEP_STRIDE");
  return (text == nullptr ? 2039 : std::stoull(text)) | 1;
}

/// Two rows, NaNs and numbers, of one peer. `digits` is the width of a code in hexadecimal digits.
std::string compare(const std::string& peer, Conversion ours, Conversion theirs, int digits = 4) {
  const auto count = [&](Tally& tally, std::uint32_t input) {
    const std::uint32_t here = ours(input);
    const std::uint32_t there = theirs(input);
    tally.count(here != there, [&] {
      return fmt::format("{:#010x}: 0x{:0{}x} here, 0x{:0{}x} there", input, here, digits, there, digits);
    });
  };
  Tally nans, numbers;
  for (const std::uint32_t sign : {0u, 0x80000000u})
    for (std::uint32_t magnitude = 0x7f800001u; magnitude < 0x80000000u; ++magnitude)
      count(nans, sign | magnitude);
  for (const std::uint32_t input : corners()) count(numbers, input);
  if (numbers.different == 0) {
    Tally strided;
    for (std::uint64_t input = 0; input < std::uint64_t{1} << 32; input += sweep_stride())
      if (!peers::is_nan(static_cast<std::uint32_t>(input)))
        count(strided, static_cast<std::uint32_t>(input));
    EXPECT_EQ(strided.different, 0u) << peer << ": " << strided.example;
  }
  return row(peer, "NaNs", nans) + row(peer, "numbers", numbers);
}

template <class F, Rounding rounding, bool saturate = false>
std::uint32_t here(std::uint32_t bits) {
  ArithmeticOptions options = rounding;
  options.saturate = saturate;
  return convert<F>(SmallFloat<Binary32>::from_bits(bits), options).bits();
}
constexpr Conversion half_here = here<Binary16, Rounding::nearest_even>;

Float16 half(std::uint32_t bits) { return Float16::from_bits(static_cast<std::uint16_t>(bits)); }

/// FP16 to FP32 over all halves.
template <class Theirs>
std::string compare_widening(const std::string& peer, const Theirs& theirs) {
  Tally nans, numbers;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const std::uint32_t ours = bits_of(widen(half(bits)));
    const std::uint32_t there = theirs(static_cast<std::uint16_t>(bits));
    (half(bits).is_nan() ? nans : numbers).count(ours != there, [&] {
      return fmt::format("{:#06x}: {:#010x} here, {:#010x} there", bits, ours, there);
    });
  }
  return row(peer, "NaNs", nans) + row(peer, "numbers", numbers);
}

/// An operation on 2^20 pairs of halves that do not depend on anything: a Weyl sequence over all pairs. Pairs
/// of two NaNs are left out: which one's payload x86 keeps depends on how the compiler orders the operands.
template <class Ours, class Theirs>
std::string compare_pairs(const std::string& peer, const Ours& ours, const Theirs& theirs) {
  Tally nans, numbers;
  for (std::uint64_t i = 0; i < std::uint64_t{1} << 20; ++i) {
    const auto pair = static_cast<std::uint32_t>(i * 0x9e3779b97f4a7c15u >> 32);
    const auto a = static_cast<std::uint16_t>(pair >> 16);
    const auto b = static_cast<std::uint16_t>(pair);
    if (half(a).is_nan() && half(b).is_nan()) continue;
    const Float16 result = ours(half(a), half(b));
    const std::uint16_t there = theirs(a, b);
    (result.is_nan() ? nans : numbers).count(result.bits() != there, [&] {
      return fmt::format("{:#06x}, {:#06x}: {:#06x} here, {:#06x} there", a, b, result.bits(), there);
    });
  }
  return row(peer, "pairs with result NaN", nans) + row(peer, "pairs with a number", numbers);
}

struct Triple {
  std::uint16_t a, b, c;
};
/// a and b in [1, 2), c of either sign from 2^-14 to 2^6.
Triple triple(std::uint64_t i) {
  const std::uint64_t word = (i + 1) * 0x9e3779b97f4a7c15u;
  const auto exponent = static_cast<std::uint32_t>(1 + (word >> 34) % 20);
  return {static_cast<std::uint16_t>(0x3c00 | (word >> 54)),
          static_cast<std::uint16_t>(0x3c00 | (word >> 44 & 0x3ff)),
          static_cast<std::uint16_t>((word >> 33 & 1) << 15 | exponent << 10 | (word >> 20 & 0x3ff))};
}

template <class Ours, class Theirs>
std::string compare_triples(const std::string& peer, const Ours& ours, const Theirs& theirs) {
  Tally tally;
  for (std::uint64_t i = 0; i < std::uint64_t{1} << 20; ++i) {
    const auto [a, b, c] = triple(i);
    const std::uint16_t result = ours(half(a), half(b), half(c)).bits();
    const std::uint16_t there = theirs(a, b, c);
    const Triple operands{a, b, c};
    tally.count(result != there, [&] {
      return fmt::format("{:#06x}, {:#06x}, {:#06x}: {:#06x} here, {:#06x} there", operands.a, operands.b,
                         operands.c, result, there);
    });
  }
  return row(peer, "triples, a and b in [1, 2), c from 2^-14 to 2^6", tally);
}

const auto fused = [](Float16 a, Float16 b, Float16 c) { return fma(a, b, c); };
const auto separate = [](Float16 a, Float16 b, Float16 c) { return add(mul(a, b), c); };

TEST(WhereWeDiffer, Preamble) {
  check_section("", fmt::format(fmt::runtime(preamble), grouped(corners().size())));
}

#if defined(__x86_64__)
template <int immediate>
__attribute__((target("avx,f16c"))) std::uint32_t f16c(std::uint32_t bits) {
  const __m128i words = _mm_cvtps_ph(_mm_castsi128_ps(_mm_cvtsi32_si128(static_cast<int>(bits))), immediate);
  return static_cast<std::uint32_t>(_mm_cvtsi128_si32(words)) & 0xffffu;
}
__attribute__((target("avx,f16c"))) std::uint32_t f16c_widen(std::uint16_t bits) {
  return static_cast<std::uint32_t>(
      _mm_cvtsi128_si32(_mm_castps_si128(_mm_cvtph_ps(_mm_cvtsi32_si128(bits)))));
}
bool cpu_has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0 &&
         __builtin_cpu_supports("avx");
}

TEST(WhereWeDiffer, F16c) {
  if (!cpu_has_f16c()) GTEST_SKIP() << "this CPU has no F16C";
  check_section(
      "F16C and x86 arithmetic",
      "\nF16C keeps the sign and the ten leading payload bits of a NaN and makes it quiet; x86 arithmetic "
      "creates the\n"
      "negative NaN 0xffc00000 where no operand is one. Numbers agree in every direction.\n" +
          std::string(table_head) +
          compare("vcvtps2ph, nearest even", half_here, f16c<_MM_FROUND_TO_NEAREST_INT>) +
          compare("vcvtps2ph, toward zero", here<Binary16, Rounding::toward_zero>, f16c<_MM_FROUND_TO_ZERO>) +
          compare("vcvtps2ph, upward", here<Binary16, Rounding::upward>, f16c<_MM_FROUND_TO_POS_INF>) +
          compare("vcvtps2ph, downward", here<Binary16, Rounding::downward>, f16c<_MM_FROUND_TO_NEG_INF>) +
          compare_widening("vcvtph2ps", f16c_widen) +
          [] {
            const volatile float infinity = std::numeric_limits<float>::infinity();
            const volatile float zero = 0;
            const float created = infinity * zero;
            Tally tally;
            const std::uint32_t ours =
                mul(SmallFloat<Binary32>::from_bits(bits_of(infinity)), SmallFloat<Binary32>::from_bits(0))
                    .bits();
            tally.count(ours != bits_of(created), [&] {
              return fmt::format("inf * 0: {:#x} here, {:#x} there", ours, bits_of(created));
            });
            return row("mulss", "infinity * 0", tally);
          }() +
          "\n");
}
#endif

#if defined(__FLT16_MAX__) && defined(__GNUC__) && !defined(__clang__)
_Float16 compiler_half(std::uint16_t bits) { return std::bit_cast<_Float16>(bits); }
std::uint16_t bits_of_half(_Float16 x) { return std::bit_cast<std::uint16_t>(x); }

TEST(WhereWeDiffer, CompilersFloat16) {
  const std::string title = fmt::format("_Float16 of GCC {} on x86 without AVX512-FP16", __GNUC__);
  if (committed_section(title).empty() && !updating()) GTEST_SKIP() << "the page speaks of another compiler";
  const auto conversion = [](std::uint32_t bits) -> std::uint32_t {
    return bits_of_half(static_cast<_Float16>(float_from_bits(bits)));
  };
  const auto f = [](std::uint16_t bits) { return compiler_half(bits); };
  check_section(
      title,
      "\nEvery operation goes through FP32 and is rounded to FP16 at once, which is harmless; NaNs keep "
      "their sign\n"
      "and payload, created ones are negative. a * b + c is two roundings (with -ffp-contract=off), so not "
      "fma.\n" +
          std::string(table_head) + compare("(_Float16)float", half_here, conversion) +
          compare_widening("(float)_Float16",
                           [&](std::uint16_t x) { return bits_of(static_cast<float>(f(x))); }) +
          compare_pairs(
              "a + b", [](Float16 a, Float16 b) { return add(a, b); },
              [&](auto a, auto b) { return bits_of_half(f(a) + f(b)); }) +
          compare_pairs(
              "a - b", [](Float16 a, Float16 b) { return sub(a, b); },
              [&](auto a, auto b) { return bits_of_half(f(a) - f(b)); }) +
          compare_pairs(
              "a * b", [](Float16 a, Float16 b) { return mul(a, b); },
              [&](auto a, auto b) { return bits_of_half(f(a) * f(b)); }) +
          compare_pairs(
              "a / b", [](Float16 a, Float16 b) { return div(a, b); },
              [&](auto a, auto b) { return bits_of_half(f(a) / f(b)); }) +
          compare_triples("a * b + c, against add(mul(a, b), c)", separate,
                          [&](auto a, auto b, auto c) { return bits_of_half(f(a) * f(b) + f(c)); }) +
          compare_triples("a * b + c, against fma(a, b, c)", fused,
                          [&](auto a, auto b, auto c) { return bits_of_half(f(a) * f(b) + f(c)); }) +
          "\n");
}
#endif

#if FP16LAB_CUDA_HEADERS
template <auto function>
std::uint32_t cuda(std::uint32_t bits) {
  return function(float_from_bits(bits));
}

Tally doubles_to_half() {
  Tally tally;
  for (const std::uint32_t bits : corners()) {
    const double x = float_from_bits(bits);
    for (const double y : {std::nextafter(x, -INFINITY), x, std::nextafter(x, +INFINITY)}) {
      const std::uint16_t ours = convert<Binary16>(SmallFloat<Binary64>::from_bits(bits_of(y))).bits();
      const std::uint16_t there = cuda_host::half_from_double(y);
      tally.count(ours != there,
                  [&] { return fmt::format("{:a}: {:#06x} here, {:#06x} there", y, ours, there); });
    }
  }
  return tally;
}

TEST(WhereWeDiffer, CudaHostCode) {
  const std::string title = "Host code of cuda_fp16.h, cuda_bf16.h, cuda_fp8.h, CUDA " + cuda_host::version();
  if (committed_section(title).empty() && !updating())
    GTEST_SKIP() << "the page speaks of another CUDA than " << cuda_host::version();
  namespace host = cuda_host;
  check_section(
      title,
      "\nConversions give the canonical NaN and round as here; arithmetic goes through FP32. __hfma has no "
      "host code.\n" +
          std::string(table_head) + compare("__float2half_rn", half_here, cuda<host::half_rn>) +
          compare("__float2half_rz", here<Binary16, Rounding::toward_zero>, cuda<host::half_rz>) +
          compare("__float2half_ru", here<Binary16, Rounding::upward>, cuda<host::half_ru>) +
          compare("__float2half_rd", here<Binary16, Rounding::downward>, cuda<host::half_rd>) +
          row("__double2half", "numbers, and their FP64 neighbours", doubles_to_half()) +
          compare_widening("__half2float",
                           [](std::uint16_t x) { return bits_of(host::float_from_half(x)); }) +
          compare_pairs(
              "__hadd", [](Float16 a, Float16 b) { return add(a, b); }, host::add) +
          compare_pairs(
              "__hsub", [](Float16 a, Float16 b) { return sub(a, b); }, host::sub) +
          compare_pairs(
              "__hmul", [](Float16 a, Float16 b) { return mul(a, b); }, host::mul) +
          compare_pairs(
              "__hdiv", [](Float16 a, Float16 b) { return div(a, b); }, host::div) +
          compare("__float2bfloat16_rn", here<BrainFloat16, Rounding::nearest_even>,
                  cuda<host::bfloat16_rn>) +
          compare("__float2bfloat16_rz", here<BrainFloat16, Rounding::toward_zero>, cuda<host::bfloat16_rz>) +
          compare("E4M3", here<Fp8E4M3, Rounding::nearest_even>, cuda<host::e4m3>, 2) +
          compare("E4M3, saturating", here<Fp8E4M3, Rounding::nearest_even, true>,
                  cuda<host::e4m3_saturating>, 2) +
          compare("E5M2", here<Fp8E5M2, Rounding::nearest_even>, cuda<host::e5m2>, 2) +
          compare("E5M2, saturating", here<Fp8E5M2, Rounding::nearest_even, true>,
                  cuda<host::e5m2_saturating>, 2) +
          "\n");
}
#else
TEST(WhereWeDiffer, CudaHostCode) { GTEST_SKIP() << "built without CUDA's headers"; }
#endif

template <auto rule>
std::uint32_t peer(std::uint32_t bits) {
  return rule(bits);
}

/// QPyTorch's values, from 2^-14 up: its releases differ below.
std::string compare_qpytorch() {
  Tally below, above, nans;
  for (std::uint32_t bits : corners()) {
    const std::uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude < bits_of(0x1p-14f)) continue;
    const std::uint32_t ours = bits_of(widen(narrow<Binary16>(float_from_bits(bits))));
    const std::uint32_t there = bits_of(peers::qpytorch(bits));
    (magnitude < bits_of(65520.0f) ? below : above).count(ours != there, [&] {
      return fmt::format("{}: {} here, {} there", float_from_bits(bits), float_from_bits(ours),
                         float_from_bits(there));
    });
  }
  nans.count(true, [] { return fmt::format("nan: nan here, {} there", peers::qpytorch(0x7fc00000u)); });
  const std::string name = "QPyTorch (5, 10): ties away, numbers up to 131008";
  return row(name, "numbers from 2^-14 to below 65520", below) + row(name, "from 65520 to infinity", above) +
         row(name, "NaN", nans);
}

std::uint16_t through_single_fma(std::uint16_t a, std::uint16_t b, std::uint16_t c) {
  return peers::payload_kept_quiet(bits_of(std::fma(widen(half(a)), widen(half(b)), widen(half(c)))));
}

TEST(WhereWeDiffer, DocumentedRulesOfPeers) {
  check_section(
      "Rules of other software",
      "\nRules restated in tests/numerics/arithmetic/peer_rules.hpp from the software's documents or "
      "sources, or from "
      "what it was\n"
      "seen to do; the software itself does not run here. FP32 to FP16, nearest even, unless the row says "
      "otherwise.\n"
      "MPFR has one NaN without payload or code, so its numbers can be compared and its NaNs cannot.\n" +
          std::string(table_head) +
          compare("SoftFloat 8086-SSE, libgcc, compiler-rt: quiet NaN with payload", half_here,
                  peer<peers::payload_kept_quiet>) +
          compare("SoftFloat ARM-VFPv2-defaultNaN, RISCV: one NaN 0x7e00", half_here,
                  peer<peers::default_nan>) +
          compare("NumPy, portable code: payload kept, signalling NaNs stay so", half_here,
                  peer<peers::numpy>) +
          compare("PyTorch, Eigen, portable code: 0x7e00 with the sign", half_here, peer<peers::pytorch>) +
          compare("CPFloat: NaNs cut to 10 payload bits, low payloads become infinity", half_here,
                  peer<peers::cpfloat>) +
          compare_qpytorch() +
          compare("PyTorch BF16, portable code: one NaN 0x7fc0", here<BrainFloat16, Rounding::nearest_even>,
                  peer<peers::pytorch_bfloat16>) +
          compare_triples("fma as an FP32 fma, then FP16: CPFloat", fused, through_single_fma) +
          "\nCPFloat's E4M3 goes on to 480 where OFP8 has its NaN: 465 becomes 480 there and " +
          fmt::format("{:#04x} (NaN) here, or {:#04x} (448) saturated.\n",
                      here<Fp8E4M3, Rounding::nearest_even>(bits_of(465.0f)),
                      here<Fp8E4M3, Rounding::nearest_even, true>(bits_of(465.0f))));
}

}  // namespace
}  // namespace fp16lab
