// One wgmma instruction for each tile of operands: A and D in registers, B in shared memory. sm_90a only.
#include "experiments/tensor_core_probe/fragment_layout.hpp"
#include "experiments/tensor_core_probe/kernels.hpp"

namespace fp16lab::probe {
namespace {

// Operands behind the descriptor of B: whether D counts at all (scale-d), +1 for A and B, and for 16-bit
// formats that B is not transposed, which means k contiguous.
#define FP16LAB_WGMMA_F32(NAME, PTX, TRANSPOSE_B)                                                        \
  struct NAME {                                                                                          \
    static constexpr bool half_accumulator = false;                                                      \
    static __device__ void run(std::uint32_t* d, const std::uint32_t* a, std::uint64_t b, int scale_d) { \
      asm volatile(                                                                                      \
          "{\n.reg .pred p;\nsetp.ne.b32 p, %9, 0;\n"                                                    \
          "wgmma.mma_async.sync.aligned." PTX " {%0,%1,%2,%3}, {%4,%5,%6,%7}, %8, p, 1, 1" TRANSPOSE_B   \
          ";\n}\n"                                                                                       \
          : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])                                               \
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(scale_d));                           \
    }                                                                                                    \
  }
#define FP16LAB_WGMMA_F16(NAME, PTX, TRANSPOSE_B)                                                         \
  struct NAME {                                                                                           \
    static constexpr bool half_accumulator = true;                                                        \
    static __device__ void run(std::uint32_t* d, const std::uint32_t* a, std::uint64_t b, int scale_d) {  \
      asm volatile(                                                                                       \
          "{\n.reg .pred p;\nsetp.ne.b32 p, %7, 0;\n"                                                     \
          "wgmma.mma_async.sync.aligned." PTX " {%0,%1}, {%2,%3,%4,%5}, %6, p, 1, 1" TRANSPOSE_B ";\n}\n" \
          : "+r"(d[0]), "+r"(d[1])                                                                        \
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(scale_d));                            \
    }                                                                                                     \
  }

FP16LAB_WGMMA_F32(M64N8K16F16F32, "m64n8k16.f32.f16.f16", ", 0");
FP16LAB_WGMMA_F16(M64N8K16F16F16, "m64n8k16.f16.f16.f16", ", 0");
FP16LAB_WGMMA_F32(M64N8K16BF16F32, "m64n8k16.f32.bf16.bf16", ", 0");
FP16LAB_WGMMA_F32(M64N8K8TF32F32, "m64n8k8.f32.tf32.tf32", "");
FP16LAB_WGMMA_F32(M64N8K32E4M3F32, "m64n8k32.f32.e4m3.e4m3", "");
FP16LAB_WGMMA_F32(M64N8K32E5M2F32, "m64n8k32.f32.e5m2.e5m2", "");
FP16LAB_WGMMA_F16(M64N8K32E4M3F16, "m64n8k32.f16.e4m3.e4m3", "");
FP16LAB_WGMMA_F16(M64N8K32E5M2F16, "m64n8k32.f16.e5m2.e5m2", "");

constexpr int warpgroup = 128;
constexpr int rows = 64;
constexpr int columns = 8;
constexpr int words = 8;           // k spans 32 bytes in every format
constexpr int core_words = 8 * 4;  // a core matrix: 8 columns of B, 16 bytes of each
constexpr int core_bytes = 4 * core_words;

/// Descriptor of B, K-major without swizzle (PTX ISA, "Matrix Descriptor Format"): address in bits 0-13,
/// distance of core matrices along k in bits 16-29, along n in bits 32-45, all in units of 16 bytes. With 8
/// columns there is no second core matrix along n; its distance is set alike.
__device__ std::uint64_t descriptor_of(const std::uint32_t* shared) {
  const auto address = static_cast<std::uint64_t>(__cvta_generic_to_shared(shared));
  constexpr std::uint64_t distance = core_bytes / 16;
  return (address >> 4 & 0x3fff) | distance << 16 | distance << 32;
}

/// One warpgroup a tile.
template <class Wgmma>
__global__ void __launch_bounds__(warpgroup) wgmma_kernel(DeviceTiles tiles, int scale_d) {
  __shared__ alignas(128) std::uint32_t shared_b[2 * core_words];
  const std::size_t tile = blockIdx.x;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int first_row = static_cast<int>(threadIdx.x / 32) * 16;
  const std::uint32_t* a_tile = tiles.a + tile * rows * words;
  const std::uint32_t* b_tile = tiles.b + tile * columns * words;
  const std::size_t cd_tile = tile * rows * columns;

  if (threadIdx.x < columns * words) {
    const int column = static_cast<int>(threadIdx.x) / words;
    const int word = static_cast<int>(threadIdx.x) % words;
    shared_b[word / 4 * core_words + column * 4 + word % 4] = b_tile[threadIdx.x];
  }
  asm volatile("fence.proxy.async.shared::cta;" ::
                   : "memory");  // wgmma reads through another proxy than st.shared
  __syncthreads();

  std::uint32_t a[4], d[4];
  for (int r = 0; r < 4; ++r) {
    const RegisterPlace place = a_register(lane, r);
    a[r] = a_tile[(first_row + place.line) * words + place.bytes / 4];
  }
  for (int i = 0; i < 4; ++i) {
    const ElementPlace place = accumulator_element(lane, i);
    d[i] = tiles.c[cd_tile + (first_row + place.row) * columns + place.column];
  }
  if constexpr (Wgmma::half_accumulator) {
    d[0] = (d[0] & 0xffff) | d[1] << 16;
    d[1] = (d[2] & 0xffff) | d[3] << 16;
  }
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  Wgmma::run(d, a, descriptor_of(shared_b), scale_d);
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  // The registers belong to the instruction until the wait: it is told that it writes them.
  asm volatile("wgmma.wait_group.sync.aligned 0;" : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])::"memory");
  for (int i = 0; i < 4; ++i) {
    const ElementPlace place = accumulator_element(lane, i);
    const std::uint32_t word = Wgmma::half_accumulator ? d[i / 2] >> 16 * (i % 2) & 0xffff : d[i];
    tiles.d[cd_tile + (first_row + place.row) * columns + place.column] = word;
  }
}

template <class Wgmma>
void launch(const DeviceTiles& tiles, bool scale_d) {
  wgmma_kernel<Wgmma><<<tiles.count, warpgroup>>>(tiles, scale_d ? 1 : 0);
}

}  // namespace

void launch_wgmma(Opcode opcode, const DeviceTiles& tiles, bool scale_d) {
  switch (opcode) {
    case Opcode::wgmma_m64n8k16_f16_f32:
      return launch<M64N8K16F16F32>(tiles, scale_d);
    case Opcode::wgmma_m64n8k16_f16_f16:
      return launch<M64N8K16F16F16>(tiles, scale_d);
    case Opcode::wgmma_m64n8k16_bf16_f32:
      return launch<M64N8K16BF16F32>(tiles, scale_d);
    case Opcode::wgmma_m64n8k8_tf32_f32:
      return launch<M64N8K8TF32F32>(tiles, scale_d);
    case Opcode::wgmma_m64n8k32_e4m3_f32:
      return launch<M64N8K32E4M3F32>(tiles, scale_d);
    case Opcode::wgmma_m64n8k32_e5m2_f32:
      return launch<M64N8K32E5M2F32>(tiles, scale_d);
    case Opcode::wgmma_m64n8k32_e4m3_f16:
      return launch<M64N8K32E4M3F16>(tiles, scale_d);
    case Opcode::wgmma_m64n8k32_e5m2_f16:
      return launch<M64N8K32E5M2F16>(tiles, scale_d);
    default:
      return;
  }
}

}  // namespace fp16lab::probe
