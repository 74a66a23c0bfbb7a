/* fp16lab for other languages: rounding, dot products and matrix products of tensor cores, exponent counts.
 *
 * For simulators and test benches: plain C, plain pointers, no state. The library is libfp16lab.so; it can
 * be linked or loaded with dlopen, by a hardware test bench's foreign-function interface too. All results
 * have the bits of the C++ library (numerics/convert/convert.hpp, numerics/gemm/gemm.hpp), whatever flags
 * the caller is compiled with, whatever floating-point mode its thread is in, and on any number of threads.
 * Several threads may call at once.
 *
 * Every function returns FP16LAB_OK, or an error whose sentence fp16lab_last_error() tells; then no output
 * was written. Strides count elements; those of inputs and of rounded or widened arrays may be 0 or
 * negative. Outputs must not overlap inputs (which is not checked), but c may be d. */
#ifndef FP16LAB_H
#define FP16LAB_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Functions are added and never changed; a caller may ask for at least this number of fp16lab_api(). */
#define FP16LAB_API 1

typedef enum fp16lab_status {
  FP16LAB_OK = 0,
  FP16LAB_INVALID = 1, /* an argument that cannot be */
  FP16LAB_FAILED = 2   /* memory or threads ran out */
} fp16lab_status;

/* Parameters are ints, as other languages have them: formats and roundings of these enumerations. Formats,
 * by the ids that files of fp16lab use. Elements are codes: 4 bytes of f32 and of tf32 (an FP32 register,
 * whose low 13 bits are ignored; as a result 19 bits, in a word), 2 of f16 and bf16, 8 of f64, 1 of all
 * others, in its low bits. */
typedef enum fp16lab_format {
  FP16LAB_F32 = 0,
  FP16LAB_F16 = 1,
  FP16LAB_BF16 = 2,
  FP16LAB_F64 = 3,
  FP16LAB_E4M3 = 6,
  FP16LAB_E5M2 = 7,
  FP16LAB_TF32 = 8,
  FP16LAB_E3M2 = 16,
  FP16LAB_E2M3 = 17,
  FP16LAB_E2M1 = 18,
  FP16LAB_E4M3FNUZ = 19,
  FP16LAB_E5M2FNUZ = 20,
  FP16LAB_E8M0 = 21, /* scales, without a sign */
  FP16LAB_UE4M3 = 22
} fp16lab_format;

typedef enum fp16lab_rounding {
  FP16LAB_NEAREST_EVEN = 0,
  FP16LAB_TOWARD_ZERO = 1,
  FP16LAB_UPWARD = 2,
  FP16LAB_DOWNWARD = 3,
  FP16LAB_NEAREST_AWAY = 4
} fp16lab_rounding;

int fp16lab_api(void);
const char* fp16lab_version(void);
/* What was wrong with this thread's last call that failed; "" before any. Valid until its next call. */
const char* fp16lab_last_error(void);

/* to[i * to_stride] = from[i * from_stride] rounded to a format narrower than f32. NaN becomes the canonical
 * NaN, and what overflows infinity (where there is none, NaN with the sign, and where there is no NaN, the largest
 * number for both), or the largest number where the rounding says so. Scales take the magnitude. */
int fp16lab_round(int to_format, int rounding, const float* from, ptrdiff_t from_stride, void* to,
                  ptrdiff_t to_stride, size_t count);
/* The same of FP64 numbers: one rounding. */
int fp16lab_round_f64(int to_format, int rounding, const double* from, ptrdiff_t from_stride, void* to,
                      ptrdiff_t to_stride, size_t count);
/* Codes of a format narrower than f32 as FP32, exactly. */
int fp16lab_widen(int from_format, const void* from, ptrdiff_t from_stride, float* to, ptrdiff_t to_stride,
                  size_t count);

/* d = *c (+) a[0] b[0] (+) a[1] b[1] ... as one row of a tensor core computes it, block by block ("hopper",
 * or a chip, "h100"; the error of an unknown name has all). c and d have the format `accumulator`, f32 or f16; c may be
 * null: +0. */
int fp16lab_dot(const char* tensor_core, int accumulator, int a_format, const void* a, ptrdiff_t a_stride,
                int b_format, const void* b, ptrdiff_t b_stride, size_t k, const void* c, void* d);

/* A matrix: element (i, j) is at data[i * row_stride + j * column_stride]. */
typedef struct fp16lab_matrix {
  const void* data;
  ptrdiff_t row_stride;
  ptrdiff_t column_stride;
} fp16lab_matrix;

/* d (m x n, row-major, `d_row_stride` apart) = c (+) a (m x k) b (k x n): every element as fp16lab_dot
 * gives it. c has d's layout; null: +0. d_row_stride >= n, threads >= 1. */
int fp16lab_gemm(const char* tensor_core, int accumulator, int64_t m, int64_t n, int64_t k, int a_format,
                 fp16lab_matrix a, int b_format, fp16lab_matrix b, const void* c, void* d,
                 ptrdiff_t d_row_stride, int threads);

/* Magnitudes by binary exponent: bins[i] counts those in (2^(i - 150), 2^(i - 149)]. What FP16 would lose
 * at loss scale 2^s is the sum of bins[0 .. 124 - s]. smallest and greatest are the extreme finite
 * magnitudes; 0 where there is none. */
#define FP16LAB_BINS 278
typedef struct fp16lab_histogram {
  uint64_t bins[FP16LAB_BINS];
  uint64_t zero, infinite, nan;
  float smallest, greatest;
} fp16lab_histogram;

/* Counts f32, f16 or bf16 codes; replaces what *histogram held. */
int fp16lab_count(int format, const void* values, ptrdiff_t stride, size_t count,
                  fp16lab_histogram* histogram, int threads);

#ifdef __cplusplus
}
#endif

#endif
