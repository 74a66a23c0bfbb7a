// The error without a device, or with one that cannot be used.
#include <gtest/gtest.h>

#include "engine/backend/cuda/runtime/bf16_bits.hpp"
#include "engine/backend/cuda/runtime/no_device.hpp"
#include "numerics/convert/convert.hpp"
#include "numerics/formats/bits.hpp"

namespace fp16lab::engine::test {
namespace {

TEST(NoDevice, SaysWhatToDo) {
  EXPECT_EQ(no_device_text(0, 13000, "CUDA driver version is insufficient for CUDA runtime version"),
            "CUDA finds no NVIDIA driver on this machine");
  EXPECT_EQ(no_device_text(12020, 13000, "CUDA driver version is insufficient for CUDA runtime version"),
            "the NVIDIA driver runs CUDA 12.2 at most, and this program was built with CUDA 13.0; update the "
            "driver, or "
            "build with an older toolkit");
  EXPECT_EQ(no_device_text(13000, 13000, ""), "CUDA finds no GPU with the NVIDIA driver");
  EXPECT_EQ(no_device_text(13000, 12080, "all devices are busy"), "all devices are busy");
}

TEST(UnusableDevice, NamesTheMinimumOrHowToBuildForIt) {
  const CudaDevice volta{.name = "Tesla V100", .capability_major = 7, .capability_minor = 0};
  for (const bool has_code : {false, true})  // the kernels do not compile for it
    EXPECT_EQ(
        unusable_device_text(volta, has_code, "sm 80, 90"),
        "Tesla V100 has compute capability 7.0: V100 is emulated; this program runs on 7.5 and newer; use "
        "backend.device = \"emulated\"");
  const CudaDevice turing{.name = "Tesla T4", .capability_major = 7, .capability_minor = 5};
  EXPECT_EQ(unusable_device_text(turing, true, "sm 75, 80"), "");
  EXPECT_EQ(unusable_device_text(turing, false, "sm 80, 90"),
            "Tesla T4 has compute capability 7.5, but this program was built for sm 80, 90; configure with "
            "-DCMAKE_CUDA_ARCHITECTURES=75, or use backend.device = \"emulated\"");
  EXPECT_FALSE(multiplies_bf16_and_tf32(turing));
  const CudaDevice ada{.name = "L4", .capability_major = 8, .capability_minor = 9};
  EXPECT_TRUE(multiplies_bf16_and_tf32(ada));
  EXPECT_EQ(unusable_device_text(ada, true, "sm 80, 90"), "");
  EXPECT_EQ(lacking_text(volta, DType::bf16), unusable_device_text(volta, false, ""))
      << "one reason is enough";
  EXPECT_EQ(lacking_text(turing, DType::bf16),
            "Tesla T4 has compute capability 7.5, whose tensor cores multiply FP16 alone; BF16 products on a "
            "device "
            "need 8.0 (sm_80) or newer");
  for (const DType operands : {DType::f16, DType::f32}) EXPECT_EQ(lacking_text(turing, operands), "");
  for (const DType operands : {DType::f16, DType::bf16, DType::tf32})
    EXPECT_EQ(lacking_text(ada, operands), "");
  EXPECT_EQ(unusable_device_text(ada, false, "sm 90"),
            "L4 has compute capability 8.9, but this program was built for sm 90; configure with "
            "-DCMAKE_CUDA_ARCHITECTURES=89, or use backend.device = \"emulated\"");
}

TEST(OldDevice, RoundsToBf16WithIntegersOnce) {
  // For every upper half the ties, their neighbours and the ends; sm_75 has no conversion.
  for (std::uint32_t upper = 0; upper < 0x10000; ++upper)
    for (const std::uint32_t lower : {0x0000u, 0x0001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      const std::uint32_t bits = upper << 16 | lower;
      ASSERT_EQ(gpu::bf16_bits(bits), narrow<BrainFloat16>(float_from_bits(bits)).bits()) << std::hex << bits;
    }
}

}  // namespace
}  // namespace fp16lab::engine::test
