// FP16 and BF16 arithmetic on arrays: the bits of add, sub, mul and fma of
// numerics/arithmetic/arithmetic.hpp, round to nearest even, at the speed of converting.
//
// Each operation is one FP32 operation between exact widening and rounding. For + - x the second rounding is
// harmless, because 24 >= 2 p + 2 for p = 11 and 8 (Figueroa, "When is double rounding innocuous?", SIGNUM
// Newsletter 30(3), 1995). For fma it is not: "FP32 fma, then convert" is wrong about once in 10^5. There the
// product is exact and the sum is rounded to odd (Boldo and Melquiond, "Emulation of FMA and correctly
// rounded sums: proved algorithms using rounding to odd", IEEE Trans. Computers 57(4), 2008) before the one
// that counts.
#pragma once

#include <span>

#include "numerics/formats/small_float.hpp"

namespace fp16lab {

// F is Binary16 or BrainFloat16; name it: add<Binary16>(a, b, out). Sizes must agree and threads be at least
// 1 (std::invalid_argument). `out` may be one of the operands, but not overlap it otherwise. Vectorised for
// the current CPU; `threads` changes speed, never bits.

/// out[i] = a[i] + b[i]
template <class F>
void add(std::span<const SmallFloat<F>> a, std::span<const SmallFloat<F>> b, std::span<SmallFloat<F>> out,
         int threads = 1);

/// out[i] = a[i] - b[i]
template <class F>
void sub(std::span<const SmallFloat<F>> a, std::span<const SmallFloat<F>> b, std::span<SmallFloat<F>> out,
         int threads = 1);

/// out[i] = a[i] * b[i]
template <class F>
void mul(std::span<const SmallFloat<F>> a, std::span<const SmallFloat<F>> b, std::span<SmallFloat<F>> out,
         int threads = 1);

/// out[i] = a[i] * b[i] + c[i], rounded once
template <class F>
void fma(std::span<const SmallFloat<F>> a, std::span<const SmallFloat<F>> b, std::span<const SmallFloat<F>> c,
         std::span<SmallFloat<F>> out, int threads = 1);

}  // namespace fp16lab
