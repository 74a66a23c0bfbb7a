// Markers for functions that one source serves to the host compiler, to nvcc, and to programs that use the library.
#pragma once

#if defined(__CUDACC__)
#define FP16LAB_HD __host__ __device__
#else
#define FP16LAB_HD
#endif

// Arithmetic in headers is compiled with the flags of the including file. Contraction of a * b + c, which GCC
// does wherever the machine has a fused multiply-add and no macro shows, is switched off between these two,
// which must be outside of namespaces. What -ffast-math and its parts, x87 and FP32 constants change cannot be undone
// so: such a file is refused (clang shows -ffast-math alone; the parts are switched off there). These functions compute
// in the mode of their caller's thread, which FloatingPointScope sets. nvcc has no such switch: pass it -fmad=false.
#if defined(FP16LAB_BUILDING) || defined(__CUDACC__)  // our own flags say it all (scripts/targets.cmake)
#define FP16LAB_NO_CONTRACTION_BEGIN
#define FP16LAB_NO_CONTRACTION_END
#else
#if __cplusplus < 202002L
#error "fp16lab: its headers need C++20 (-std=c++20)"
#endif
#if defined(__FAST_MATH__) || defined(__ASSOCIATIVE_MATH__) || defined(__RECIPROCAL_MATH__) || \
    (defined(__NO_SIGNED_ZEROS__) && !defined(__clang__)) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)
#error "fp16lab: C++ headers refuse -ffast-math and its parts, which change bits; use fp16lab.h in this file"
#endif
static_assert(0x1.00000001p0 > 1.0 && (__FLT_EVAL_METHOD__ == 0 || __FLT_EVAL_METHOD__ == 16),
              "fp16lab: C++ headers need numbers of their own precision; use fp16lab.h in this file");
#if defined(__clang__)
#define FP16LAB_NO_CONTRACTION_BEGIN \
  _Pragma("float_control(push)") _Pragma("float_control(precise, on)") _Pragma("clang fp contract(off)")
#define FP16LAB_NO_CONTRACTION_END _Pragma("float_control(pop)")
#else
#define FP16LAB_NO_CONTRACTION_BEGIN \
  _Pragma("GCC push_options") _Pragma("GCC optimize(\"-ffp-contract=off\")")
#define FP16LAB_NO_CONTRACTION_END _Pragma("GCC pop_options")
#endif
#endif
