#include "experiments/bench/yardsticks.hpp"

#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

// The C interface of BLAS, declared here because its header has a different name in every distribution.
// OpenBLAS's own calls are weak: another BLAS may be linked.
extern "C" {
void cblas_sgemm(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha,
                 const float* a, int lda, const float* b, int ldb, float beta, float* c, int ldc);
void openblas_set_num_threads(int threads) __attribute__((weak));
char* openblas_get_corename(void) __attribute__((weak));
}

namespace fp16lab::bench {

void sgemm(GemmShape shape, MatrixView<float> a, MatrixView<float> b, float* d, std::int64_t ldd) {
  constexpr int row_major = 101, plain = 111, transposed = 112;
  cblas_sgemm(row_major, a.transposed ? transposed : plain, b.transposed ? transposed : plain,
              static_cast<int>(shape.m), static_cast<int>(shape.n), static_cast<int>(shape.k), 1.0f, a.data,
              static_cast<int>(a.leading_dimension), b.data, static_cast<int>(b.leading_dimension), 0.0f, d,
              static_cast<int>(ldd));
}

void set_sgemm_threads(int threads) {
  if (openblas_set_num_threads != nullptr) openblas_set_num_threads(threads);
}

const char* sgemm_core() {
  return openblas_get_corename != nullptr ? openblas_get_corename() : "not OpenBLAS";
}

namespace {

std::uint64_t read_loop(std::span<const float> from) {
  std::uint64_t words = 0;
  for (std::size_t i = 0; i + 2 <= from.size(); i += 2) {
    std::uint64_t word = 0;
    std::memcpy(&word, from.data() + i, sizeof word);
    words ^= word;
  }
  return words;
}

}  // namespace

#if defined(__x86_64__)

namespace {

__attribute__((target("avx,f16c"))) void narrow_loop(const float* from, std::uint16_t* to,
                                                     std::size_t count) {
  for (std::size_t i = 0; i + 8 <= count; i += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
}

__attribute__((target("avx,f16c"))) void widen_loop(const std::uint16_t* from, float* to, std::size_t count) {
  for (std::size_t i = 0; i + 8 <= count; i += 8)
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12's AVX-512 header, GCC bug 105593

template <HalfOperation operation>
__attribute__((target("avx512f"))) void naive_loop_avx512(const std::uint16_t* a, const std::uint16_t* b,
                                                          const std::uint16_t* c, std::uint16_t* out,
                                                          std::size_t count) {
  for (std::size_t i = 0; i + 16 <= count; i += 16) {
    __m512 x = _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(a + i)));
    const __m512 y = _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(b + i)));
    if constexpr (operation == HalfOperation::add) x = _mm512_add_ps(x, y);
    if constexpr (operation == HalfOperation::mul) x = _mm512_mul_ps(x, y);
    if constexpr (operation == HalfOperation::fma)
      x = _mm512_fmadd_ps(x, y, _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(c + i))));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
  }
}

#pragma GCC diagnostic pop

template <HalfOperation operation>
__attribute__((target("avx2,f16c,fma"))) void naive_loop_avx2(const std::uint16_t* a, const std::uint16_t* b,
                                                              const std::uint16_t* c, std::uint16_t* out,
                                                              std::size_t count) {
  for (std::size_t i = 0; i + 8 <= count; i += 8) {
    __m256 x = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(a + i)));
    const __m256 y = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(b + i)));
    if constexpr (operation == HalfOperation::add) x = _mm256_add_ps(x, y);
    if constexpr (operation == HalfOperation::mul) x = _mm256_mul_ps(x, y);
    if constexpr (operation == HalfOperation::fma)
      x = _mm256_fmadd_ps(x, y, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(c + i))));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
  }
}

bool has_f16c() { return __builtin_cpu_supports("avx2") != 0; }  // every CPU with AVX2 has F16C

__attribute__((target("avx2"))) std::uint64_t read_loop_avx2(std::span<const float> from) {
  __m256i sums[4] = {};
  for (std::size_t i = 0; i + 32 <= from.size(); i += 32)
    for (std::size_t v = 0; v < 4; ++v)
      sums[v] = _mm256_xor_si256(
          sums[v], _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from.data() + i + 8 * v)));
  const __m256i all =
      _mm256_xor_si256(_mm256_xor_si256(sums[0], sums[1]), _mm256_xor_si256(sums[2], sums[3]));
  std::uint64_t words[4];
  std::memcpy(words, &all, sizeof words);
  return words[0] ^ words[1] ^ words[2] ^ words[3];
}

}  // namespace

bool f16c_narrow(std::span<const float> from, std::span<std::uint16_t> to) {
  if (!has_f16c()) return false;
  narrow_loop(from.data(), to.data(), from.size());
  return true;
}

bool f16c_widen(std::span<const std::uint16_t> from, std::span<float> to) {
  if (!has_f16c()) return false;
  widen_loop(from.data(), to.data(), from.size());
  return true;
}

bool naive_half_arithmetic(HalfOperation operation, const std::uint16_t* a, const std::uint16_t* b,
                           const std::uint16_t* c, std::uint16_t* out, std::size_t count) {
  const bool avx512 = __builtin_cpu_supports("avx512f") != 0;
  if (!avx512 && !has_f16c()) return false;
  switch (operation) {
    case HalfOperation::add:
      (avx512 ? naive_loop_avx512<HalfOperation::add> : naive_loop_avx2<HalfOperation::add>)(a, b, c, out,
                                                                                             count);
      break;
    case HalfOperation::mul:
      (avx512 ? naive_loop_avx512<HalfOperation::mul> : naive_loop_avx2<HalfOperation::mul>)(a, b, c, out,
                                                                                             count);
      break;
    case HalfOperation::fma:
      (avx512 ? naive_loop_avx512<HalfOperation::fma> : naive_loop_avx2<HalfOperation::fma>)(a, b, c, out,
                                                                                             count);
      break;
  }
  return true;
}

std::uint64_t read_all(std::span<const float> from) {
  return __builtin_cpu_supports("avx2") != 0 ? read_loop_avx2(from) : read_loop(from);
}

#else

bool f16c_narrow(std::span<const float>, std::span<std::uint16_t>) { return false; }
bool f16c_widen(std::span<const std::uint16_t>, std::span<float>) { return false; }
bool naive_half_arithmetic(HalfOperation, const std::uint16_t*, const std::uint16_t*, const std::uint16_t*,
                           std::uint16_t*, std::size_t) {
  return false;
}
std::uint64_t read_all(std::span<const float> from) { return read_loop(from); }

#endif

}  // namespace fp16lab::bench
