#include "numerics/tensor_core/processor_dot.hpp"

#include <stdexcept>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

#include "numerics/formats/bits.hpp"

namespace fp16lab {

#if defined(__x86_64__)
namespace {

__attribute__((target("avx512f,avx512vl,avx512bf16"))) float dot_pair(std::uint32_t a, std::uint32_t b,
                                                                      float c) {
  const __m128i x = _mm_set1_epi32(static_cast<int>(a)), y = _mm_set1_epi32(static_cast<int>(b));
  return _mm_cvtss_f32(
      _mm_dpbf16_ps(_mm_set1_ps(c), reinterpret_cast<__m128bh>(x), reinterpret_cast<__m128bh>(y)));
}

}  // namespace

/// By CPUID (Intel SDM, volume 2), and not by __builtin_cpu_supports, which not every compiler's library answers.
bool has_processor_dot() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned os_saves_registers = 1U << 27, all_of_avx512 = 0xe6;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & os_saves_registers) == 0) return false;
  unsigned low = 0, high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  if ((low & all_of_avx512) != all_of_avx512) return false;
  constexpr unsigned avx512f = 1U << 16, avx512vl = 1U << 31, avx512_bf16 = 1U << 5;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (b & avx512f) == 0 || (b & avx512vl) == 0) return false;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & avx512_bf16) != 0;
}

std::uint32_t processor_dot(std::span<const std::uint32_t> a, std::span<const std::uint32_t> b,
                            std::uint32_t c) {
  if (!has_processor_dot()) throw std::logic_error("this processor has no AVX512_BF16");
  const auto pair = [](std::span<const std::uint32_t> words, std::size_t k) {
    return (words[k] & 0xffffU) | (k + 1 < words.size() ? words[k + 1] << 16U : 0U);
  };
  float sum = float_from_bits(c);
  for (std::size_t k = 0; k < a.size(); k += 2) sum = dot_pair(pair(a, k), pair(b, k), sum);
  return a.empty() ? c : bits_of(canonicalize(sum));
}
#else
bool has_processor_dot() { return false; }
std::uint32_t processor_dot(std::span<const std::uint32_t>, std::span<const std::uint32_t>, std::uint32_t) {
  throw std::logic_error("this processor has no AVX512_BF16");
}
#endif

}  // namespace fp16lab
