// What the tensor core of this GPU computes, as a text file that fp16lab judges on any machine.
//
//   nvcc -arch=native capture.cu -o capture && ./capture > capture.txt
//
// Needs nvcc (CUDA 11.8 or later), a GPU of compute capability 7.0 or more, and the two headers beside this
// file; takes seconds and writes 2 to 11 MB. README.md says how to run it in a notebook, and what is in it.
//
// Here are the kernels: every instruction of mma.sync and wmma, and the plain FP16 instructions. With
// FP16LAB_CAPTURE_KERNELS they are a part of exp_tensor_core_probe, which asks the same GPU more.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <mma.h>

#include <cstdio>
#include <iostream>
#include <utility>

#include "questions.hpp"

// FP8 came with PTX 8.4 (CUDA 12.4), with FP16 sums with PTX 8.7 (CUDA 12.8).
#define CAPTURE_CUDA_SINCE(MINOR) \
  (__CUDACC_VER_MAJOR__ > 12 || (__CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ >= MINOR))

namespace fp16lab::probe {
namespace {

using Word = std::uint32_t;

// Registers of the mma.m16n8k* instructions: A has 2 where k spans 16 bytes and 4 where it spans 32, B half
// as many, the accumulator 4 (FP32) or 2 (FP16).
#define CAPTURE_MMA_4(PTX)                                                             \
  asm volatile("mma.sync.aligned." PTX " {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};" \
               : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])                        \
               : "r"(a[0]), "r"(a[1]), "r"(b[0]))
#define CAPTURE_MMA_2(PTX)                                                 \
  asm volatile("mma.sync.aligned." PTX " {%0,%1}, {%2,%3}, {%4}, {%0,%1};" \
               : "+r"(d[0]), "+r"(d[1])                                    \
               : "r"(a[0]), "r"(a[1]), "r"(b[0]))
#define CAPTURE_MMA_WIDE_4(PTX)                                                                 \
  asm volatile("mma.sync.aligned." PTX " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
               : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])                                 \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
#define CAPTURE_MMA_WIDE_2(PTX)                                                     \
  asm volatile("mma.sync.aligned." PTX " {%0,%1}, {%2,%3,%4,%5}, {%6,%7}, {%0,%1};" \
               : "+r"(d[0]), "+r"(d[1])                                             \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))

/// The instruction of this number in `instructions`. One that the architecture lacks is not compiled, and
/// never asked.
template <std::size_t index>
__device__ void execute(Word* d, const Word* a, const Word* b) {
  (void)d, (void)a, (void)b;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 750
  if constexpr (index == 2) CAPTURE_MMA_4("m16n8k8.row.col.f32.f16.f16.f32");
  if constexpr (index == 3) CAPTURE_MMA_2("m16n8k8.row.col.f16.f16.f16.f16");
#endif
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  if constexpr (index == 4) CAPTURE_MMA_WIDE_4("m16n8k16.row.col.f32.f16.f16.f32");
  if constexpr (index == 5) CAPTURE_MMA_WIDE_2("m16n8k16.row.col.f16.f16.f16.f16");
  if constexpr (index == 6) CAPTURE_MMA_4("m16n8k8.row.col.f32.bf16.bf16.f32");
  if constexpr (index == 7) CAPTURE_MMA_WIDE_4("m16n8k16.row.col.f32.bf16.bf16.f32");
  if constexpr (index == 8) CAPTURE_MMA_4("m16n8k4.row.col.f32.tf32.tf32.f32");
  if constexpr (index == 9) CAPTURE_MMA_WIDE_4("m16n8k8.row.col.f32.tf32.tf32.f32");
#endif
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890 && CAPTURE_CUDA_SINCE(4)
  if constexpr (index == 10) CAPTURE_MMA_WIDE_4("m16n8k32.row.col.f32.e4m3.e4m3.f32");
  if constexpr (index == 11) CAPTURE_MMA_WIDE_4("m16n8k32.row.col.f32.e5m2.e5m2.f32");
#if CAPTURE_CUDA_SINCE(8)
  if constexpr (index == 12) CAPTURE_MMA_WIDE_2("m16n8k32.row.col.f16.e4m3.e4m3.f16");
  if constexpr (index == 13) CAPTURE_MMA_WIDE_2("m16n8k32.row.col.f16.e5m2.e5m2.f16");
#endif
#endif
}

/// One warp a tile.
template <std::size_t index>
__global__ void mma_kernel(DeviceTiles tiles) {
  constexpr int k = static_cast<int>(instructions[index].k), bytes = instructions[index].operands.bytes;
  constexpr bool half = instructions[index].accumulator.bytes == 2;
  constexpr int halves = k * bytes / 16;  // of 16 bytes along k: registers of B
  const int lane = static_cast<int>(threadIdx.x);
  const Word* a_tile = tiles.a + std::size_t(blockIdx.x) * 16 * k;
  const Word* b_tile = tiles.b + std::size_t(blockIdx.x) * 8 * k;
  Word a[4] = {}, b[2] = {}, d[4];
  for (int r = 0; r < 2 * halves; ++r) {
    const FragmentPlace place = a_register(lane, r);
    a[r] = packed_register(a_tile + place.line * k + place.offset / bytes, bytes);
  }
  for (int r = 0; r < halves; ++r) {
    const FragmentPlace place = b_register(lane, r);
    b[r] = packed_register(b_tile + place.line * k + place.offset / bytes, bytes);
  }
  const auto place = [&](int i) {
    const FragmentPlace element = accumulator_element(lane, i);
    return std::size_t(blockIdx.x) * 128 + element.line * 8 + element.offset;
  };
  for (int i = 0; i < 4; ++i) d[i] = tiles.c[place(i)];
  if constexpr (half) {
    Word pairs[2] = {(d[0] & 0xffff) | d[1] << 16, (d[2] & 0xffff) | d[3] << 16};
    execute<index>(pairs, a, b);
    for (int i = 0; i < 4; ++i) d[i] = pairs[i / 2] >> (16 * (i % 2)) & 0xffff;
  } else {
    execute<index>(d, a, b);
  }
  for (int i = 0; i < 4; ++i) tiles.d[place(i)] = d[i];
}

/// Volta's: four groups of eight lanes have a tile of 8 x 8 each, here all the same one (PTX ISA,
/// "mma.m8n8k4").
template <bool half>
__global__ void volta_kernel(DeviceTiles tiles) {
  const int lane = static_cast<int>(threadIdx.x), line = lane % 4 + (lane < 16 ? 0 : 4);
  const Word* a = tiles.a + std::size_t(blockIdx.x) * 32 + line * 4;
  const Word* b = tiles.b + std::size_t(blockIdx.x) * 32 + line * 4;
  const Word x[2] = {packed_register(a, 2), packed_register(a + 2, 2)};
  const Word y[2] = {packed_register(b, 2), packed_register(b + 2, 2)};
  const auto place = [&](int i) {
    const int row = half ? lane % 4 : (lane & 1) + (i & 2);
    const int column = half ? i : (i & 4) + (lane & 2) + (i & 1);
    return std::size_t(blockIdx.x) * 64 + (row + (lane < 16 ? 0 : 4)) * 8 + column;
  };
  Word sum[8];
  for (int i = 0; i < 8; ++i) sum[i] = tiles.c[place(i)];
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 750
  if constexpr (half) {
    Word s[4];
    for (int i = 0; i < 4; ++i) s[i] = (sum[2 * i] & 0xffff) | sum[2 * i + 1] << 16;
    asm volatile(
        "mma.sync.aligned.m8n8k4.row.col.f16.f16.f16.f16 {%0,%1,%2,%3}, {%4,%5}, {%6,%7}, {%0,%1,%2,%3};"
        : "+r"(s[0]), "+r"(s[1]), "+r"(s[2]), "+r"(s[3])
        : "r"(x[0]), "r"(x[1]), "r"(y[0]), "r"(y[1]));
    for (int i = 0; i < 8; ++i) sum[i] = s[i / 2] >> (16 * (i % 2)) & 0xffff;
  } else {
    asm volatile(
        "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%0,%1,%2,%3,%4,%5,%6,%7}, {%8,%9}, {%10,%11}, "
        "{%0,%1,%2,%3,%4,%5,%6,%7};"
        : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3]), "+r"(sum[4]), "+r"(sum[5]), "+r"(sum[6]),
          "+r"(sum[7])
        : "r"(x[0]), "r"(x[1]), "r"(y[0]), "r"(y[1]));
  }
#else
  (void)x, (void)y;
#endif
  if (lane % 16 < 4)
    for (int i = 0; i < 8; ++i) tiles.d[place(i)] = sum[i];
}

/// wmma through its C++ interface, one warp a tile: it hides the layout of its fragments.
/// `Element` is the operand type in memory, where operands are packed first, `Precision` the type in the
/// fragment.
template <class Element, class Precision, int k>
__device__ void wmma_tile(DeviceTiles tiles) {
  using namespace nvcuda;
  constexpr int bytes = sizeof(Element), per_word = 4 / bytes, words = 16 * k / per_word;
  __shared__ __align__(32) Word x[words], y[words];
  for (int i = static_cast<int>(threadIdx.x); i < words; i += 32) {
    x[i] = packed_register(tiles.a + std::size_t(blockIdx.x) * 16 * k + i * per_word, bytes);
    y[i] = packed_register(tiles.b + std::size_t(blockIdx.x) * 16 * k + i * per_word, bytes);
  }
  __syncwarp();
  wmma::fragment<wmma::matrix_a, 16, 16, k, Precision, wmma::row_major> left;
  wmma::fragment<wmma::matrix_b, 16, 16, k, Precision, wmma::col_major> right;
  wmma::fragment<wmma::accumulator, 16, 16, k, float> sum;
  wmma::load_matrix_sync(left, reinterpret_cast<const Element*>(x), k);
  wmma::load_matrix_sync(right, reinterpret_cast<const Element*>(y), k);
  const std::size_t place = std::size_t(blockIdx.x) * 256;
  wmma::load_matrix_sync(sum, reinterpret_cast<const float*>(tiles.c + place), 16, wmma::mem_row_major);
  wmma::mma_sync(sum, left, right, sum);
  wmma::store_matrix_sync(reinterpret_cast<float*>(tiles.d + place), sum, 16, wmma::mem_row_major);
}

template <std::size_t index>
__global__ void wmma_kernel(DeviceTiles tiles) {
  if constexpr (index == 14) wmma_tile<__half, __half, 16>(tiles);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  if constexpr (index == 15) wmma_tile<__nv_bfloat16, __nv_bfloat16, 16>(tiles);
  if constexpr (index == 16) wmma_tile<float, nvcuda::wmma::precision::tf32, 8>(tiles);
#endif
}

template <std::size_t index>
void launch(unsigned count, const DeviceTiles& tiles) {
  if constexpr (index < 2)
    volta_kernel<index == 1><<<count, 32>>>(tiles);
  else if constexpr (index < 14)
    mma_kernel<index><<<count, 32>>>(tiles);
  else
    wmma_kernel<index><<<count, 32>>>(tiles);
}
template <std::size_t... all>
void launch_number(std::size_t index, unsigned count, const DeviceTiles& tiles, std::index_sequence<all...>) {
  ((index == all ? launch<all>(count, tiles) : void()), ...);
}

// Every modifier of a plain FP16 instruction is an instruction of its own.
#define CAPTURE_CALL(PTX, RESULT, KIND, ...) asm volatile(PTX ";" : KIND(RESULT) : __VA_ARGS__)
#define CAPTURE_MODIFIED(OP, SUFFIX, RESULT, KIND, ...)            \
  if (in.ftz && in.sat)                                            \
    CAPTURE_CALL(OP ".ftz.sat" SUFFIX, RESULT, KIND, __VA_ARGS__); \
  else if (in.ftz)                                                 \
    CAPTURE_CALL(OP ".ftz" SUFFIX, RESULT, KIND, __VA_ARGS__);     \
  else if (in.sat)                                                 \
    CAPTURE_CALL(OP ".sat" SUFFIX, RESULT, KIND, __VA_ARGS__);     \
  else                                                             \
    CAPTURE_CALL(OP SUFFIX, RESULT, KIND, __VA_ARGS__)

__device__ Word half_result(const HalfInstruction& in, Word x, Word y, Word z) {
  Word wide = 0;
  unsigned short narrow = 0;
  float single = 0;
  const auto low = [](Word word) { return static_cast<unsigned short>(word); };
#define CAPTURE_TWO(OP)                                                              \
  if (in.packed) {                                                                   \
    CAPTURE_MODIFIED(OP, ".f16x2 %0, %1, %2", wide, "=r", "r"(x), "r"(y));           \
  } else {                                                                           \
    CAPTURE_MODIFIED(OP, ".f16 %0, %1, %2", narrow, "=h", "h"(low(x)), "h"(low(y))); \
  }
#define CAPTURE_NARROW(OP) CAPTURE_MODIFIED(OP, ".f16.f32 %0, %1", narrow, "=h", "f"(__uint_as_float(x)))
  if (in.operation == HalfOperation::add) {
    CAPTURE_TWO("add.rn")
  } else if (in.operation == HalfOperation::mul) {
    CAPTURE_TWO("mul.rn")
  } else if (in.operation == HalfOperation::fma && in.packed) {
    CAPTURE_MODIFIED("fma.rn", ".f16x2 %0, %1, %2, %3", wide, "=r", "r"(x), "r"(y), "r"(z));
  } else if (in.operation == HalfOperation::fma) {
    CAPTURE_MODIFIED("fma.rn", ".f16 %0, %1, %2, %3", narrow, "=h", "h"(low(x)), "h"(low(y)), "h"(low(z)));
  } else if (in.operation == HalfOperation::cvt_f32_f16) {
    CAPTURE_CALL("cvt.f32.f16 %0, %1", single, "=f", "h"(low(x)));
    return __float_as_uint(single);
  } else if (in.rounding == HalfRounding::rz) {
    CAPTURE_NARROW("cvt.rz");
  } else if (in.rounding == HalfRounding::rm) {
    CAPTURE_NARROW("cvt.rm");
  } else if (in.rounding == HalfRounding::rp) {
    CAPTURE_NARROW("cvt.rp");
  } else {
    CAPTURE_NARROW("cvt.rn");
  }
  return in.packed ? wide : narrow;
}

/// Operands that the instruction does not read may be null.
__global__ void half_kernel(HalfInstruction in, std::size_t count, const Word* x, const Word* y,
                            const Word* z, Word* d) {
  const std::size_t i = std::size_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) d[i] = half_result(in, x[i], y == nullptr ? 0 : y[i], z == nullptr ? 0 : z[i]);
}

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}

/// Words on the device; null for none.
class Buffer {
 public:
  explicit Buffer(const Words& from) {
    if (from.empty()) return;
    check(cudaMalloc(&words_, from.size() * sizeof(Word)), "cudaMalloc");
    check(cudaMemcpy(words_, from.data(), from.size() * sizeof(Word), cudaMemcpyHostToDevice),
          "copying to the device");
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { cudaFree(words_); }
  Word* words() const { return words_; }
  Words read(std::size_t count) const {
    Words result(count);
    check(cudaMemcpy(result.data(), words_, count * sizeof(Word), cudaMemcpyDeviceToHost),
          "a kernel, or copying from the device");
    return result;
  }

 private:
  Word* words_ = nullptr;
};

/// The first CUDA device. std::runtime_error where there is none for which this was compiled.
class Gpu : public Device {
 public:
  Gpu() {
    int count = 0;
    check(cudaDriverGetVersion(&info_.driver_version), "asking the driver");
    if (info_.driver_version == 0) throw std::runtime_error("looking for a GPU: there is no NVIDIA driver");
    check(cudaGetDeviceCount(&count), "looking for a GPU");
    check(count > 0 ? cudaSuccess : cudaErrorNoDevice, "looking for a GPU");
    cudaDeviceProp properties;
    check(cudaGetDeviceProperties(&properties, 0), "asking the GPU");
    check(cudaRuntimeGetVersion(&info_.runtime_version), "asking the runtime");
    cudaFuncAttributes attributes;
    check(cudaFuncGetAttributes(&attributes, mma_kernel<2>),
          "asking for a kernel, compiled for another GPU?");
    info_.name = properties.name;
    info_.capability = {properties.major, properties.minor};
    architecture_ = attributes.ptxVersion;
    // The driver's own version is no part of the CUDA API; Linux tells it here.
    if (std::FILE* file = std::fopen("/sys/module/nvidia/version", "r")) {
      char text[64] = "";
      if (std::fscanf(file, "%63s", text) == 1) info_.driver = text;
      std::fclose(file);
    }
    info_.kernels = "sm_" + std::to_string(architecture_);
    info_.compiler = "nvcc " + std::to_string(__CUDACC_VER_MAJOR__) + '.' +
                     std::to_string(__CUDACC_VER_MINOR__) + '.' + std::to_string(__CUDACC_VER_BUILD__);
  }

  const DeviceInfo& info() const override { return info_; }
  bool has(const Instruction& in) const override {
    if (in.unit == Unit::wgmma) return false;
    if (in.operands.bytes == 1 && !(in.accumulator == f16 ? CAPTURE_CUDA_SINCE(8) : CAPTURE_CUDA_SINCE(4)))
      return false;
    return architecture_ >= in.first && architecture_ <= in.last;
  }
  Words run(const Instruction& in, const Tiles& tiles, bool) override {
    return run_with(in, tiles, [&](unsigned count, const DeviceTiles& on_device) {
      launch_number(static_cast<std::size_t>(&in - instructions), count, on_device,
                    std::make_index_sequence<17>{});
    });
  }
  Words run(const HalfInstruction& in, const Words& x, const Words& y, const Words& z) override {
    const Buffer a(x), b(y), c(z), d(x);
    half_kernel<<<static_cast<unsigned>((x.size() + 255) / 256), 256>>>(in, x.size(), a.words(), b.words(),
                                                                        c.words(), d.words());
    check(cudaGetLastError(), "a plain FP16 instruction");
    return d.read(x.size());
  }

 protected:
  template <class Launch>
  Words run_with(const Instruction& in, const Tiles& tiles, const Launch& launch) {
    const Buffer a(tiles.a), b(tiles.b), c(tiles.c);
    const Buffer d(Words(tiles.c.size(), 0xdeadbeefU));  // what no kernel wrote shows
    launch(static_cast<unsigned>(tiles.count), DeviceTiles{a.words(), b.words(), c.words(), d.words()});
    check(cudaGetLastError(), in.name);
    return d.read(tiles.c.size());
  }

 private:
  DeviceInfo info_;
  int architecture_ = 0;
};

}  // namespace
}  // namespace fp16lab::probe

#ifndef FP16LAB_CAPTURE_KERNELS
int main() {
  try {
    fp16lab::probe::Gpu gpu;
    fp16lab::probe::write_capture(std::cout, gpu, 1, 100000);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "capture: %s\n", error.what());
    return 1;
  }
}
#endif
