// One wgmma instruction for each tile of operands: A and D in registers, B in shared memory. sm_90a only.
#include <utility>

#include "experiments/tensor_core_probe/device.hpp"

namespace fp16lab::probe {
namespace {

// After the descriptor of B come: whether D counts at all (scale-d), +1 for A and B, and for 16-bit formats
// that B is not transposed, which means k contiguous.
#define FP16LAB_WGMMA_F32(PTX, TRANSPOSE_B)                                                                 \
  asm volatile(                                                                                             \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %9, 0;\n"                                                           \
      "wgmma.mma_async.sync.aligned." PTX " {%0,%1,%2,%3}, {%4,%5,%6,%7}, %8, p, 1, 1" TRANSPOSE_B ";\n}\n" \
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])                                                      \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(scale_d))
#define FP16LAB_WGMMA_F16(PTX, TRANSPOSE_B)                                                           \
  asm volatile(                                                                                       \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %7, 0;\n"                                                     \
      "wgmma.mma_async.sync.aligned." PTX " {%0,%1}, {%2,%3,%4,%5}, %6, p, 1, 1" TRANSPOSE_B ";\n}\n" \
      : "+r"(d[0]), "+r"(d[1])                                                                        \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(scale_d))

constexpr std::size_t first_index = 17;  // of wgmma in `instructions`
static_assert(instructions[first_index - 1].unit != Unit::wgmma &&
              instructions[first_index].unit == Unit::wgmma);

/// The instruction of this number among wgmma's.
template <std::size_t number>
__device__ void execute(std::uint32_t* d, const std::uint32_t* a, std::uint64_t b, int scale_d) {
  if constexpr (number == 0) FP16LAB_WGMMA_F32("m64n8k16.f32.f16.f16", ", 0");
  if constexpr (number == 1) FP16LAB_WGMMA_F16("m64n8k16.f16.f16.f16", ", 0");
  if constexpr (number == 2) FP16LAB_WGMMA_F32("m64n8k16.f32.bf16.bf16", ", 0");
  if constexpr (number == 3) FP16LAB_WGMMA_F32("m64n8k8.f32.tf32.tf32", "");
  if constexpr (number == 4) FP16LAB_WGMMA_F32("m64n8k32.f32.e4m3.e4m3", "");
  if constexpr (number == 5) FP16LAB_WGMMA_F32("m64n8k32.f32.e5m2.e5m2", "");
  if constexpr (number == 6) FP16LAB_WGMMA_F16("m64n8k32.f16.e4m3.e4m3", "");
  if constexpr (number == 7) FP16LAB_WGMMA_F16("m64n8k32.f16.e5m2.e5m2", "");
}

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
template <std::size_t number>
__global__ void __launch_bounds__(warpgroup) wgmma_kernel(DeviceTiles tiles, int scale_d) {
  constexpr int bytes = instructions[first_index + number].operands.bytes, k = 32 / bytes;
  constexpr bool half = instructions[first_index + number].accumulator.bytes == 2;
  __shared__ alignas(128) std::uint32_t shared_b[2 * core_words];
  const std::size_t tile = blockIdx.x;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int first_row = static_cast<int>(threadIdx.x / 32) * 16;
  const std::uint32_t* a_tile = tiles.a + tile * rows * k;
  const std::uint32_t* b_tile = tiles.b + tile * columns * k;

  if (threadIdx.x < columns * words) {
    const int column = static_cast<int>(threadIdx.x) / words;
    const int word = static_cast<int>(threadIdx.x) % words;
    shared_b[word / 4 * core_words + column * 4 + word % 4] =
        packed_register(b_tile + column * k + word * 4 / bytes, bytes);
  }
  asm volatile("fence.proxy.async.shared::cta;" ::
                   : "memory");  // wgmma reads through another proxy than st.shared
  __syncthreads();

  std::uint32_t a[4], d[4];
  for (int r = 0; r < 4; ++r) {
    const FragmentPlace place = a_register(lane, r);
    a[r] = packed_register(a_tile + (first_row + place.line) * k + place.offset / bytes, bytes);
  }
  const auto element = [&](int i) {
    const FragmentPlace place = accumulator_element(lane, i);
    return tile * rows * columns +
           static_cast<std::size_t>((first_row + place.line) * columns + place.offset);
  };
  for (int i = 0; i < 4; ++i) d[i] = tiles.c[element(i)];
  if constexpr (half) {
    d[0] = (d[0] & 0xffff) | d[1] << 16;
    d[1] = (d[2] & 0xffff) | d[3] << 16;
  }
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  execute<number>(d, a, descriptor_of(shared_b), scale_d);
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  // The registers belong to the instruction until the wait: the constraint says that it writes them.
  asm volatile("wgmma.wait_group.sync.aligned 0;" : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])::"memory");
  for (int i = 0; i < 4; ++i) tiles.d[element(i)] = half ? d[i / 2] >> 16 * (i % 2) & 0xffff : d[i];
}

template <std::size_t... all>
void launch_number(std::size_t number, unsigned count, const DeviceTiles& tiles, bool scale_d,
                   std::index_sequence<all...>) {
  ((number == all ? wgmma_kernel<all><<<count, warpgroup>>>(tiles, scale_d ? 1 : 0) : void()), ...);
}

}  // namespace

void launch_wgmma(const Instruction& in, unsigned count, const DeviceTiles& tiles, bool scale_d) {
  const auto number = static_cast<std::size_t>(&in - instructions) - first_index;
  launch_number(number, count, tiles, scale_d, std::make_index_sequence<8>{});
}

}  // namespace fp16lab::probe
