// The exact values of the elementary functions: the C library as a fast filter, MPFR as the judge.
#pragma once

#include "tests/numerics/elementary/elementary_functions.hpp"

namespace fp16lab::test {

/// The C library's answer at an x of the domain, good to better than a relative 2^-50: glibc's double
/// functions used here stay below 2 of their own ulps (glibc manual, "Known Maximum Errors in Math
/// Functions"); gelu and gelu_tanh, whose tails multiply the error of an argument, are computed in extended
/// precision.
double library_value(Elementary function, float x);

/// |y - f(x)| in ulps of FP32 at f(x), by MPFR with 256 bits. The ulp of subnormal results is 2^-149; an
/// infinite y counts as 2^128 (IEEE 754-2019, 4.3.1). x is finite, in the domain and not zero.
double error_by_mpfr(Elementary function, float x, float y);

}  // namespace fp16lab::test
