#include "numerics/tensor_core/processor_dot.hpp"

#include <stdexcept>

#if defined(__x86_64__)
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

bool has_processor_dot() {
  return __builtin_cpu_supports("avx512bf16") != 0 && __builtin_cpu_supports("avx512vl") != 0;
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
