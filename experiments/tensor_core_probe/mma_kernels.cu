// One mma.sync or wmma instruction for each tile of operands.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

#include "experiments/tensor_core_probe/fragment_layout.hpp"
#include "experiments/tensor_core_probe/kernels.hpp"

// FP8 came with PTX 8.4 (CUDA 12.4), with FP16 accumulation with PTX 8.7 (CUDA 12.8).
#define FP16LAB_HAVE_FP8 \
  (__CUDACC_VER_MAJOR__ > 12 || (__CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ >= 4))
#define FP16LAB_HAVE_FP8_F16 \
  (__CUDACC_VER_MAJOR__ > 12 || (__CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ >= 8))

namespace fp16lab::probe {
namespace {

// The operand registers by their number, so that one kernel serves all: k spans 16 bytes (A 2, B 1 registers)
// or 32 (A 4, B 2); the accumulator is FP32 (4 registers) or FP16 (2).
#define FP16LAB_MMA_16_BYTES_F32(NAME, PTX)                                                        \
  struct NAME {                                                                                    \
    static constexpr int a_registers = 2, b_registers = 1;                                         \
    static constexpr bool half_accumulator = false;                                                \
    static __device__ void run(std::uint32_t* d, const std::uint32_t* a, const std::uint32_t* b) { \
      asm volatile(PTX " {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"                             \
                   : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])                                \
                   : "r"(a[0]), "r"(a[1]), "r"(b[0]));                                             \
    }                                                                                              \
  }
#define FP16LAB_MMA_16_BYTES_F16(NAME, PTX)                                                        \
  struct NAME {                                                                                    \
    static constexpr int a_registers = 2, b_registers = 1;                                         \
    static constexpr bool half_accumulator = true;                                                 \
    static __device__ void run(std::uint32_t* d, const std::uint32_t* a, const std::uint32_t* b) { \
      asm volatile(PTX " {%0,%1}, {%2,%3}, {%4}, {%0,%1};"                                         \
                   : "+r"(d[0]), "+r"(d[1])                                                        \
                   : "r"(a[0]), "r"(a[1]), "r"(b[0]));                                             \
    }                                                                                              \
  }
#define FP16LAB_MMA_32_BYTES_F32(NAME, PTX)                                                        \
  struct NAME {                                                                                    \
    static constexpr int a_registers = 4, b_registers = 2;                                         \
    static constexpr bool half_accumulator = false;                                                \
    static __device__ void run(std::uint32_t* d, const std::uint32_t* a, const std::uint32_t* b) { \
      asm volatile(PTX " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"                    \
                   : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])                                \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));            \
    }                                                                                              \
  }
#define FP16LAB_MMA_32_BYTES_F16(NAME, PTX)                                                        \
  struct NAME {                                                                                    \
    static constexpr int a_registers = 4, b_registers = 2;                                         \
    static constexpr bool half_accumulator = true;                                                 \
    static __device__ void run(std::uint32_t* d, const std::uint32_t* a, const std::uint32_t* b) { \
      asm volatile(PTX " {%0,%1}, {%2,%3,%4,%5}, {%6,%7}, {%0,%1};"                                \
                   : "+r"(d[0]), "+r"(d[1])                                                        \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));            \
    }                                                                                              \
  }

FP16LAB_MMA_16_BYTES_F32(M16N8K8F16F32, "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32");
FP16LAB_MMA_16_BYTES_F16(M16N8K8F16F16, "mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16");

// Below sm_80 these, and below sm_89 those with FP8, compile to nothing, and Device::has keeps callers away.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
#define FP16LAB_FROM_80(PTX) PTX
#else
#define FP16LAB_FROM_80(PTX) "// "
#endif
FP16LAB_MMA_32_BYTES_F32(M16N8K16F16F32,
                         FP16LAB_FROM_80("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"));
FP16LAB_MMA_32_BYTES_F16(M16N8K16F16F16,
                         FP16LAB_FROM_80("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16"));
FP16LAB_MMA_16_BYTES_F32(M16N8K8BF16F32,
                         FP16LAB_FROM_80("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32"));
FP16LAB_MMA_32_BYTES_F32(M16N8K16BF16F32,
                         FP16LAB_FROM_80("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"));
FP16LAB_MMA_16_BYTES_F32(M16N8K4TF32F32,
                         FP16LAB_FROM_80("mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32"));
FP16LAB_MMA_32_BYTES_F32(M16N8K8TF32F32,
                         FP16LAB_FROM_80("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"));

#if (!defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890) && FP16LAB_HAVE_FP8
#define FP16LAB_FP8(PTX) PTX
#else
#define FP16LAB_FP8(PTX) "// "
#endif
FP16LAB_MMA_32_BYTES_F32(M16N8K32E4M3F32, FP16LAB_FP8("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32"));
FP16LAB_MMA_32_BYTES_F32(M16N8K32E5M2F32, FP16LAB_FP8("mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e5m2.f32"));
#if FP16LAB_HAVE_FP8_F16
FP16LAB_MMA_32_BYTES_F16(M16N8K32E4M3F16, FP16LAB_FP8("mma.sync.aligned.m16n8k32.row.col.f16.e4m3.e4m3.f16"));
FP16LAB_MMA_32_BYTES_F16(M16N8K32E5M2F16, FP16LAB_FP8("mma.sync.aligned.m16n8k32.row.col.f16.e5m2.e5m2.f16"));
#endif

constexpr int warps_per_block = 4;
constexpr int mma_rows = 16;
constexpr int mma_columns = 8;

/// One warp a tile.
template <class Mma>
__global__ void mma_kernel(DeviceTiles tiles) {
  const int tile = static_cast<int>(blockIdx.x * warps_per_block + threadIdx.x / 32);
  if (tile >= tiles.count) return;  // the whole warp
  const int lane = static_cast<int>(threadIdx.x % 32);
  constexpr int words = 4 * Mma::b_registers;  // of a row of A or a column of B
  const std::uint32_t* a_tile = tiles.a + std::size_t(tile) * mma_rows * words;
  const std::uint32_t* b_tile = tiles.b + std::size_t(tile) * mma_columns * words;
  const std::size_t cd_tile = std::size_t(tile) * mma_rows * mma_columns;

  std::uint32_t a[Mma::a_registers], b[Mma::b_registers], d[4];
  for (int r = 0; r < Mma::a_registers; ++r) {
    const RegisterPlace place = a_register(lane, r);
    a[r] = a_tile[place.line * words + place.bytes / 4];
  }
  for (int r = 0; r < Mma::b_registers; ++r) {
    const RegisterPlace place = b_register(lane, r);
    b[r] = b_tile[place.line * words + place.bytes / 4];
  }
  for (int i = 0; i < 4; ++i) {
    const ElementPlace place = accumulator_element(lane, i);
    d[i] = tiles.c[cd_tile + place.row * mma_columns + place.column];
  }
  if constexpr (Mma::half_accumulator) {
    std::uint32_t packed[2] = {(d[0] & 0xffff) | d[1] << 16, (d[2] & 0xffff) | d[3] << 16};
    Mma::run(packed, a, b);
    for (int i = 0; i < 4; ++i) d[i] = packed[i / 2] >> 16 * (i % 2) & 0xffff;
  } else {
    Mma::run(d, a, b);
  }
  for (int i = 0; i < 4; ++i) {
    const ElementPlace place = accumulator_element(lane, i);
    tiles.d[cd_tile + place.row * mma_columns + place.column] = d[i];
  }
}

/// wmma through its C++ interface: the layout of its fragments is nobody's business. `Element` is the operand
/// type in memory, `Precision` the type in the fragment.
template <class Element, class Precision, int k>
__device__ void run_wmma(DeviceTiles tiles) {
  using namespace nvcuda;
  const int tile = static_cast<int>(blockIdx.x * warps_per_block + threadIdx.x / 32);
  if (tile >= tiles.count) return;
  wmma::fragment<wmma::matrix_a, 16, 16, k, Precision, wmma::row_major> a;
  wmma::fragment<wmma::matrix_b, 16, 16, k, Precision, wmma::col_major> b;
  wmma::fragment<wmma::accumulator, 16, 16, k, float> c;
  wmma::load_matrix_sync(a, reinterpret_cast<const Element*>(tiles.a) + std::size_t(tile) * 16 * k, k);
  wmma::load_matrix_sync(b, reinterpret_cast<const Element*>(tiles.b) + std::size_t(tile) * 16 * k, k);
  wmma::load_matrix_sync(c, reinterpret_cast<const float*>(tiles.c) + std::size_t(tile) * 256, 16,
                         wmma::mem_row_major);
  wmma::mma_sync(c, a, b, c);
  wmma::store_matrix_sync(reinterpret_cast<float*>(tiles.d) + std::size_t(tile) * 256, c, 16,
                          wmma::mem_row_major);
}

/// The formats, as wmma has their types from sm_80 on only.
template <DType format>
__global__ void wmma_kernel(DeviceTiles tiles) {
  if constexpr (format == DType::f16) run_wmma<__half, __half, 16>(tiles);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  if constexpr (format == DType::bf16) run_wmma<__nv_bfloat16, __nv_bfloat16, 16>(tiles);
  if constexpr (format == DType::tf32) run_wmma<float, nvcuda::wmma::precision::tf32, 8>(tiles);
#endif
}

template <class Mma>
void launch(const DeviceTiles& tiles) {
  mma_kernel<Mma><<<(tiles.count + warps_per_block - 1) / warps_per_block, 32 * warps_per_block>>>(tiles);
}

template <DType format>
void launch_wmma_kernel(const DeviceTiles& tiles) {
  wmma_kernel<format><<<(tiles.count + warps_per_block - 1) / warps_per_block, 32 * warps_per_block>>>(tiles);
}

}  // namespace

int mma_kernel_architecture() {
  cudaFuncAttributes attributes;
  if (cudaFuncGetAttributes(&attributes, mma_kernel<M16N8K8F16F32>) != cudaSuccess) {
    cudaGetLastError();  // the runtime keeps the error until it is asked for
    return 0;
  }
  return attributes.ptxVersion;
}

bool mma_kernels_have_fp8() { return FP16LAB_HAVE_FP8; }
bool mma_kernels_have_fp8_f16() { return FP16LAB_HAVE_FP8_F16; }

void launch_mma(Opcode opcode, const DeviceTiles& tiles) {
  switch (opcode) {
    case Opcode::mma_m16n8k8_f16_f32:
      return launch<M16N8K8F16F32>(tiles);
    case Opcode::mma_m16n8k8_f16_f16:
      return launch<M16N8K8F16F16>(tiles);
    case Opcode::mma_m16n8k16_f16_f32:
      return launch<M16N8K16F16F32>(tiles);
    case Opcode::mma_m16n8k16_f16_f16:
      return launch<M16N8K16F16F16>(tiles);
    case Opcode::mma_m16n8k8_bf16_f32:
      return launch<M16N8K8BF16F32>(tiles);
    case Opcode::mma_m16n8k16_bf16_f32:
      return launch<M16N8K16BF16F32>(tiles);
    case Opcode::mma_m16n8k4_tf32_f32:
      return launch<M16N8K4TF32F32>(tiles);
    case Opcode::mma_m16n8k8_tf32_f32:
      return launch<M16N8K8TF32F32>(tiles);
    case Opcode::mma_m16n8k32_e4m3_f32:
      return launch<M16N8K32E4M3F32>(tiles);
    case Opcode::mma_m16n8k32_e5m2_f32:
      return launch<M16N8K32E5M2F32>(tiles);
#if FP16LAB_HAVE_FP8_F16
    case Opcode::mma_m16n8k32_e4m3_f16:
      return launch<M16N8K32E4M3F16>(tiles);
    case Opcode::mma_m16n8k32_e5m2_f16:
      return launch<M16N8K32E5M2F16>(tiles);
#endif
    default:
      return;
  }
}

void launch_wmma(Opcode opcode, const DeviceTiles& tiles) {
  switch (opcode) {
    case Opcode::wmma_m16n16k16_f16_f32:
      return launch_wmma_kernel<DType::f16>(tiles);
    case Opcode::wmma_m16n16k16_bf16_f32:
      return launch_wmma_kernel<DType::bf16>(tiles);
    case Opcode::wmma_m16n16k8_tf32_f32:
      return launch_wmma_kernel<DType::tf32>(tiles);
    default:
      return;
  }
}

}  // namespace fp16lab::probe
