// The plain FP16 instructions, one for each element. Every modifier is an instruction of its own.
#include "experiments/tensor_core_probe/kernels.hpp"

namespace fp16lab::probe {
namespace {

#define FP16LAB_CALL(PTX, TYPE, ...)                        \
  {                                                         \
    asm volatile(PTX ";" : "=" TYPE(result) : __VA_ARGS__); \
    return result;                                          \
  }
#define FP16LAB_MODIFIED(OP, SUFFIX, TYPE, ...)                         \
  if (ftz && sat) FP16LAB_CALL(OP ".ftz.sat" SUFFIX, TYPE, __VA_ARGS__) \
  if (ftz) FP16LAB_CALL(OP ".ftz" SUFFIX, TYPE, __VA_ARGS__)            \
  if (sat) FP16LAB_CALL(OP ".sat" SUFFIX, TYPE, __VA_ARGS__)            \
  FP16LAB_CALL(OP SUFFIX, TYPE, __VA_ARGS__)

__device__ std::uint16_t one_half(HalfOperation operation, bool ftz, bool sat, std::uint16_t x,
                                  std::uint16_t y, std::uint16_t z) {
  std::uint16_t result = 0;
  switch (operation) {
    case HalfOperation::add:
      FP16LAB_MODIFIED("add.rn", ".f16 %0, %1, %2", "h", "h"(x), "h"(y))
    case HalfOperation::mul:
      FP16LAB_MODIFIED("mul.rn", ".f16 %0, %1, %2", "h", "h"(x), "h"(y))
    default:
      FP16LAB_MODIFIED("fma.rn", ".f16 %0, %1, %2, %3", "h", "h"(x), "h"(y), "h"(z))
  }
}

__device__ std::uint32_t two_halves(HalfOperation operation, bool ftz, bool sat, std::uint32_t x,
                                    std::uint32_t y, std::uint32_t z) {
  std::uint32_t result = 0;
  switch (operation) {
    case HalfOperation::add:
      FP16LAB_MODIFIED("add.rn", ".f16x2 %0, %1, %2", "r", "r"(x), "r"(y))
    case HalfOperation::mul:
      FP16LAB_MODIFIED("mul.rn", ".f16x2 %0, %1, %2", "r", "r"(x), "r"(y))
    default:
      FP16LAB_MODIFIED("fma.rn", ".f16x2 %0, %1, %2, %3", "r", "r"(x), "r"(y), "r"(z))
  }
}

__device__ std::uint16_t narrowed(Rounding rounding, bool ftz, bool sat, std::uint32_t bits) {
  const float x = __uint_as_float(bits);
  std::uint16_t result = 0;
  switch (rounding) {
    case Rounding::toward_zero:
      FP16LAB_MODIFIED("cvt.rz", ".f16.f32 %0, %1", "h", "f"(x))
    case Rounding::downward:
      FP16LAB_MODIFIED("cvt.rm", ".f16.f32 %0, %1", "h", "f"(x))
    case Rounding::upward:
      FP16LAB_MODIFIED("cvt.rp", ".f16.f32 %0, %1", "h", "f"(x))
    default:
      FP16LAB_MODIFIED("cvt.rn", ".f16.f32 %0, %1", "h", "f"(x))
  }
}

__device__ std::uint32_t widened(std::uint16_t bits) {
  float result = 0;
  asm volatile("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(bits));
  return __float_as_uint(result);
}

__global__ void half_kernel(HalfInstruction instruction, const std::uint32_t* x, const std::uint32_t* y,
                            const std::uint32_t* z, std::uint32_t* result, std::uint32_t count) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const auto [ftz, sat] = instruction.modifiers;
  const std::uint32_t xi = x[i];
  const std::uint32_t yi = y == nullptr ? 0 : y[i];
  const std::uint32_t zi = z == nullptr ? 0 : z[i];
  const auto low = [](std::uint32_t word) { return static_cast<std::uint16_t>(word); };
  switch (instruction.operation) {
    case HalfOperation::cvt_f16_f32:
      result[i] = narrowed(instruction.rounding, ftz, sat, xi);
      return;
    case HalfOperation::cvt_f32_f16:
      result[i] = widened(low(xi));
      return;
    default:
      result[i] = instruction.packed ? two_halves(instruction.operation, ftz, sat, xi, yi, zi)
                                     : one_half(instruction.operation, ftz, sat, low(xi), low(yi), low(zi));
  }
}

}  // namespace

void launch_half(const HalfInstruction& instruction, const std::uint32_t* x, const std::uint32_t* y,
                 const std::uint32_t* z, std::uint32_t* result, std::uint32_t count) {
  half_kernel<<<(count + 255) / 256, 256>>>(instruction, x, y, z, result, count);
}

}  // namespace fp16lab::probe
