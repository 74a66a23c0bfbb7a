// Instructions that CUDA C++ has no function for: tensor cores, matrix loads, asynchronous copies,
// conversions.
//
// Sources: PTX ISA 8.x, "mma", "ldmatrix", "cp.async", "cvt". A warp's instruction needs all 32 lanes.
// Fragment layout of m16n8k16, lane = 4 g + t (PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating
// point type"):
//   a[r], two elements each: row g (r even) or g + 8 (r odd), k = 2 t, 2 t + 1, plus 8 for r >= 2
//   b[r]: column g, k = 2 t, 2 t + 1, plus 8 for r = 1
//   d[i]: row g (i < 2) or g + 8, column 2 t + (i & 1)
//
// sm_75 has the FP16 part only: m16n8k16 is two m16n8k8 there, which are the two fused blocks of 8 that its
// row has, copies go through registers, and BF16 is rounded with integers. It has no BF16 and TF32 products:
// the back end refuses them before a launch (CudaBackend::require_products).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "engine/backend/cuda/runtime/bf16_bits.hpp"
#include "numerics/formats/bits.hpp"
#include "numerics/formats/dtype.hpp"
#include "numerics/formats/small_float.hpp"
#include "numerics/platform/portability.hpp"

namespace fp16lab::engine::gpu {

// ---- elements ----

/// An element of f as FP32; exact. A NaN may keep its payload: the functions of elementwise_functions.hpp
/// give canonical ones.
__device__ __forceinline__ float loaded(float x) { return x; }
__device__ __forceinline__ float loaded(BFloat16 x) {
  return float_from_bits(static_cast<std::uint32_t>(x.bits()) << 16);
}
__device__ __forceinline__ float loaded(Float16 x) {
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits()));
  return wide;
}

/// FP32 as an element of the type of T, rounded once to nearest even; a NaN becomes the canonical one of 16
/// bits (an FP32 one stays as it is).
template <class T>
__device__ __forceinline__ T stored(float x) {
  if constexpr (sizeof(T) == 4) {
    return x;
  } else {
    std::uint16_t bits;
    if constexpr (T::Format::exponent_bits == 5) {
      asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    } else {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
      bits = bf16_bits(__float_as_uint(x));
#else
      asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
#endif
    }
    return T::from_bits(bits);
  }
}

/// fma in FP32, rounded once to nearest even.
__device__ __forceinline__ float fused_multiply_add(float a, float b, float c) { return __fmaf_rn(a, b, c); }

// ---- shared memory ----

/// The block's dynamic shared memory, 128-byte aligned.
template <class T>
__device__ __forceinline__ T* dynamic_shared() {
  extern __shared__ __align__(128) unsigned char fp16lab_dynamic_shared[];
  return reinterpret_cast<T*>(fp16lab_dynamic_shared);
}

/// 16 bytes, moved as one.
struct alignas(16) SixteenBytes {
  std::uint16_t elements[8];
};

/// copy_16_bytes_async without cp.async: through registers, and there at once for this thread.
__device__ __forceinline__ void copy_16_bytes(void* shared, const void* global, int valid) {
  SixteenBytes bytes{};
  if (valid == 16) {
    bytes = *static_cast<const SixteenBytes*>(global);
  } else {
    const auto* const from = static_cast<const std::uint16_t*>(global);
    for (int i = 0; i < 8; ++i)
      if (2 * i < valid) bytes.elements[i] = from[i];
  }
  *static_cast<SixteenBytes*>(shared) = bytes;
}

/// Copies 16 bytes of global memory to shared memory, of which the last 16 - `valid` (even) become zero
/// without being read (valid = 0: nothing is read). Both addresses 16-byte aligned. Seen after
/// wait_for_copies, and a barrier for others.
__device__ __forceinline__ void copy_16_bytes_async(void* shared, const void* global, int valid = 16) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
  copy_16_bytes(shared, global, valid);
#else
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(global), "r"(valid)
               : "memory");
#endif
}
__device__ __forceinline__ void commit_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
/// All but the `pending` newest groups of this thread have arrived.
template <int pending>
__device__ __forceinline__ void wait_for_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
#endif
}

// ---- the warp ----

/// Four 8x8 matrices of 16-bit elements: lane 8 i + r gives the address of row r of matrix i (16 bytes,
/// aligned); registers[i] holds elements (row g, columns 2 t and 2 t + 1) of matrix i, transposed: (rows 2 t
/// and 2 t + 1, column g).
template <bool transposed>
__device__ __forceinline__ void load_matrices_x4(std::uint32_t (&registers)[4], const void* row) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  if constexpr (transposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
                 : "r"(address)
                 : "memory");
  }
}

/// The format that a tensor core reads elements of T as: TF32 numbers are floats in memory.
template <class T>
inline constexpr DType multiplied_as = std::is_same_v<T, float> ? DType::tf32 : DTypeOf<T>::value;

/// m16n8k8 of FP16.
__device__ __forceinline__ void multiply_8(float (&d)[4], std::uint32_t a0, std::uint32_t a1,
                                           std::uint32_t b0) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a0), "r"(a1), "r"(b0));
}

/// d = d (+) a * b on the tensor core: 16 x 8 outputs, products of 32 bytes of k each, FP32 accumulators. T:
/// Float16 or BFloat16, 16 of k; or float, low 13 bits ignored, 8 of k: k = t, plus 4 where 8 is added above.
template <class T>
__device__ __forceinline__ void multiply_step(float (&d)[4], const std::uint32_t (&a)[4],
                                              const std::uint32_t (&b)[2]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
  static_assert(multiplied_as<T> == DType::f16);
  multiply_8(d, a[0], a[1], b[0]);
  multiply_8(d, a[2], a[3], b[1]);
#else
  if constexpr (multiplied_as<T> == DType::tf32) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else if constexpr (multiplied_as<T> == DType::f16) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
#endif
}

/// The same of the first half of k: registers a[0..1] and b[0]. Tensor cores that take so many products at a
/// time would add a block of zeros otherwise, which makes +0 of an accumulator of -0.
template <class T>
__device__ __forceinline__ void multiply_half_step(float (&d)[4], const std::uint32_t (&a)[4],
                                                   const std::uint32_t (&b)[2]) {
  if constexpr (multiplied_as<T> == DType::f16)
    multiply_8(d, a[0], a[1], b[0]);
  else if constexpr (multiplied_as<T> == DType::tf32)
    asm volatile(
        "mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(b[0]));
  else
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(b[0]));
}

}  // namespace fp16lab::engine::gpu
