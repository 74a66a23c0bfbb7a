// Kernels with faults, for device_code_test.py: each line `//= FLAGS | KERNEL | COMPLAINT` says what the test
// has to answer where this file is compiled so; "house" are the flags of scripts/targets.cmake.
//
//= house | innocent |
//= house | left_open | PTX: mul.f32: not rounded once to nearest
//= house | spills | local memory: a stack of
//= house | keeps_an_array | local memory: a stack of
//= house | reads_constant | PTX: ld.global.nc.f32: the same launch may write what it reads
//= house | adds_halves | PTX: add.rn.f16: arithmetic in 16 bits
//= house | adds_halves | SASS: HADD2
//= house | adds_in_no_order | PTX: atom.global.add.f32: a sum in no order
//= house | adds_in_no_order | SASS: REDG.E.ADD.F32.FTZ.RN.STRONG.GPU: a sum in no order
//= house | rounds_down | PTX: add.rm.f32: not rounded once to nearest
//= house | rounds_down | SASS: FADD.RM: rounds another way than to nearest
//= house | looks_up | PTX: sin.approx.f32: not rounded once to nearest
//= house | looks_up | SASS: 1 times MUFU.SIN; divisions and roots explain 0
//= house | calls | PTX: call.uni: a function that is not inlined
//= house | multiplies | PTX: m16n8k16.row.col.f32.f16.f16.f32: not a product of this kernel's format
//= house | multiplies | SASS: HMMA.16816.F32: not a product of this kernel's format
//= house | multiply_tiles FP16 | SASS: HMMA.16816.F32.BF16: not a product of this kernel's format
//= house | multiply_tiles FP16 | SASS: no HMMA.1688.F32: this kernel's products
//= house | multiply_tiles FP16 | PTX: no m16n8k8.row.col.f32.f16.f16.f32
//= house | multiply_tiles FP16 | PTX: no ldmatrix.sync: operands or products come another way
//= house | multiply_tiles FP16 | PTX: no cp.async: operands or products come another way
//= house | multiply_tiles FP16 | 4096 bytes of static shared memory beside its tiles; the plan leaves 3072
//= house | multiply_tiles FP16 | launch bounds of 0 threads; the launcher gives it 128
//= house | multiply_tiles BF16 | mma_shapes have no such tile
//= house | product_plan.hpp | mma_shapes: no kernel on sm_90 has the tile (128, 128, 64, 64, 4)
//= house | planted_kernels.cu | .threads = 512 of looks_up: no such launch bounds
//= -fmad=true | innocent | PTX: fma.rn.f32: a contraction, or WRITES_FMA lacks this kernel
//= -fmad=true | left_open | SASS: 1 times FFMA; divisions and roots explain 0
//= -fmad=true | library | drivers get its PTX with
//= -use_fast_math | innocent | PTX: div.approx.ftz.f32: not rounded once to nearest
//= -use_fast_math | innocent | PTX: sqrt.approx.ftz.f32: not rounded once to nearest
//= -use_fast_math | innocent | MUFU.RCP; divisions and roots explain 0
//= sm_75 | innocent |
//= sm_75 | multiply_tiles FP16 | PTX: no m16n8k8.row.col.f32.f16.f16.f32
//= sm_75 | multiply_tiles FP16 | SASS: no HMMA.1688.F32: this kernel's products
//= sm_75 | multiply_tiles BF16 | SASS: HMMA.1688.F32: not a product of this kernel's format
//= sm_75 | multiply_tiles BF16 | SASS: no BPT.TRAP
//= probe | innocent | no HGMMA or QGMMA: the probe does not ask wgmma
#include <cstdint>

namespace fp16lab {
template <int exponent_bits, int precision>
struct Format {};
template <class Format>
struct SmallFloat {};
template <class T, int m, int n, int warp_m, int warp_n, int stages>
struct MmaTile {};

// As product_plan.hpp and tile_layout.hpp say it.
inline constexpr int static_shared_bytes = 3 * 1024;
inline constexpr int slice_bytes = 64;
struct Shape {
  int m, n, warp_m, warp_n, stages;
};
inline constexpr Shape mma_shapes[2]{{64, 64, 32, 32, 4}, {128, 128, 64, 64, 4}};
inline constexpr Shape fma_shapes[1]{{64, 64, 32, 64, 4}};
inline constexpr Shape gather_shapes[1]{{64, 64, 32, 32, 4}};

__global__ void innocent(float* x) { x[0] = x[1] * x[2] + x[3] / x[4] + __builtin_sqrtf(x[5]); }

__global__ void left_open(float* x) {
  asm volatile("{ .reg .f32 t; mul.f32 t, %1, %2; add.f32 %0, t, %0; }" : "+f"(x[0]) : "f"(x[1]), "f"(x[2]));
}

__global__ void __launch_bounds__(1024) spills(float* x) {
  float kept[96];
#pragma unroll
  for (int i = 0; i < 96; ++i) kept[i] = x[i * 1024 + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 96; ++i) x[i * 1024 + threadIdx.x] = kept[(i * 5 + 7) % 96] + kept[i] * 3.0f;
}

__global__ void keeps_an_array(float* x, const int* index) {
  float kept[64];
#pragma unroll
  for (int i = 0; i < 64; ++i) kept[i] = x[i];
  for (int i = 0; i < 64; ++i) x[i] = kept[index[i]];
}

__global__ void reads_constant(float* x, const float* y) { x[0] = __ldg(y); }

__global__ void adds_halves(std::uint16_t* x) {
  asm volatile("add.rn.f16 %0, %0, %1;" : "+h"(x[0]) : "h"(x[1]));
}

__global__ void adds_in_no_order(float* x) { atomicAdd(x, x[1]); }

__global__ void rounds_down(float* x) { x[0] = __fadd_rd(x[1], x[2]); }

__global__ void looks_up(float* x) { x[0] = __sinf(x[1]); }

__device__ __noinline__ float twice(float x) { return x + x; }
__global__ void calls(float* x) { x[0] = twice(x[1]); }

template <bool bf16>
__device__ void multiply(float* d, const std::uint32_t* a) {
#if __CUDA_ARCH__ >= 800
  if constexpr (bf16)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(a[4]), "r"(a[5]));
  else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(a[4]), "r"(a[5]));
#endif
}

__global__ void multiplies(float* d, const std::uint32_t* a) { multiply<false>(d, a); }

template <class Tile>
__global__ void multiply_tiles(float* d, const std::uint32_t* a) {
  __shared__ float sums[1024];
  sums[threadIdx.x] = d[threadIdx.x];
  __syncthreads();
#if __CUDA_ARCH__ >= 800
  multiply<true>(&sums[threadIdx.x / 32 * 4], a);
#endif
  __syncthreads();
  d[threadIdx.x] = sums[threadIdx.x];
}
template __global__ void multiply_tiles<MmaTile<SmallFloat<Format<5, 11>>, 64, 64, 32, 32, 4>>(
    float*, const std::uint32_t*);

template <class Tile>
__global__ void multiply_tiles(float* d) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(1), "r"(2), "r"(3));
}
template __global__ void multiply_tiles<MmaTile<SmallFloat<Format<8, 8>>, 96, 64, 32, 32, 4>>(float*);

struct LaunchShape {
  std::uint32_t x = 1, threads = 256;
};
template <class... Parameters>
void launch(void (*kernel)(Parameters...), const LaunchShape& shape);
inline void launch_planted() {
  launch(&spills, {.x = 1, .threads = 512});
  launch(&looks_up, {.x = 1, .threads = 512});
}

}  // namespace fp16lab
