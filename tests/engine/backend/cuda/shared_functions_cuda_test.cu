// The functions that host and device share give the same bits on both. Compiled wherever nvcc is; runs on a
// GPU, and says SKIPPED without one. One kernel: result[i] = function(i); the host computes the same and bits
// are compared.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/backend/cuda/runtime/devices.hpp"
#include "engine/backend/elementwise_functions.hpp"
#include "engine/backend/gradient_passes.hpp"
#include "numerics/convert/convert.hpp"
#include "numerics/elementary/elementary.hpp"
#include "numerics/histogram/exponent_histogram.hpp"
#include "numerics/random/philox.hpp"

namespace fp16lab {
// Named, so that a kernel has the same name in the program and in its PTX, which are compiled apart.
namespace shared_functions_test {

template <class Function>
__global__ void tabulate(Function function, std::uint64_t stride, std::uint32_t* result,
                         std::uint32_t count) {
  const std::uint32_t index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index < count) result[index] = function(static_cast<std::uint32_t>(index * stride));
}

struct DeviceFree {
  void operator()(std::uint32_t* memory) const { cudaFree(memory); }
};

/// Compares function(0), function(stride), ... on host and device, bit for bit.
template <class Function>
void expect_equal_bits(Function function, std::uint64_t stride, std::uint32_t count) {
  if (const auto status = engine::cuda_status(); status.devices.empty()) GTEST_SKIP() << status.reason;
  std::uint32_t* raw = nullptr;
  ASSERT_EQ(cudaMalloc(&raw, std::size_t{count} * sizeof(std::uint32_t)), cudaSuccess);
  const std::unique_ptr<std::uint32_t, DeviceFree> memory(raw);
  tabulate<<<(count + 255) / 256, 256>>>(function, stride, raw, count);
  std::vector<std::uint32_t> device(count);
  ASSERT_EQ(
      cudaMemcpy(device.data(), raw, std::size_t{count} * sizeof(std::uint32_t), cudaMemcpyDeviceToHost),
      cudaSuccess);
  for (std::uint32_t index = 0; index < count; ++index) {
    const auto input = static_cast<std::uint32_t>(index * stride);
    ASSERT_EQ(device[index], function(input)) << "input bits " << std::hex << input;
  }
}

struct Narrow {
  Rounding rounding;
  FP16LAB_HD std::uint32_t operator()(std::uint32_t bits) const {
    return narrow<Binary16>(float_from_bits(bits), rounding).bits();
  }
};
struct Widen {
  FP16LAB_HD std::uint32_t operator()(std::uint32_t bits) const {
    return bits_of(widen(Float16::from_bits(static_cast<std::uint16_t>(bits))));
  }
};
/// An elementary function.
template <float (*function)(float)>
struct Of {
  FP16LAB_HD std::uint32_t operator()(std::uint32_t bits) const {
    return bits_of(function(float_from_bits(bits)));
  }
};
/// The elementwise functions of two arguments, here of x and of a scrambled x.
template <class Function>
struct OfTwo {
  FP16LAB_HD std::uint32_t operator()(std::uint32_t bits) const {
    return bits_of(Function{}(float_from_bits(bits), float_from_bits(bits * 0x9e3779b9u)));
  }
};
struct Sign {
  FP16LAB_HD std::uint32_t operator()(std::uint32_t bits) const {
    return bits_of(engine::functions::Sign{}(float_from_bits(bits)));
  }
};
struct Limited {
  FP16LAB_HD std::uint32_t operator()(std::uint32_t bits) const {
    return bits_of(engine::functions::passes::ClipByValue{0.5f}(float_from_bits(bits)));
  }
};
struct NormalFrom {
  FP16LAB_HD std::uint32_t operator()(std::uint32_t word) const {
    const std::uint32_t words[] = {word, word * 0x9e3779b9u};
    return bits_of(engine::functions::Normal{0.25f, 0.02f}(words));
  }
};
struct RandomWord {
  FP16LAB_HD std::uint32_t operator()(std::uint32_t index) const {
    return PhiloxStream{.seed = 7, .stream = 11, .iteration = 13, .micro_batch = 17}.word(index);
  }
};
struct HistogramBin {
  FP16LAB_HD std::uint32_t operator()(std::uint32_t bits) const {
    return static_cast<std::uint32_t>(ExponentHistogram::bin_of(bits & Binary32::magnitude_mask));
  }
};

constexpr std::uint64_t stride = 257;  // odd, so that the strided inputs visit every exponent and sign
constexpr auto strided_count = static_cast<std::uint32_t>((std::uint64_t{1} << 32) / stride);

TEST(SharedFunctionsOnDevice, Narrow) {
  for (const Rounding rounding : all_roundings) expect_equal_bits(Narrow{rounding}, stride, strided_count);
}
TEST(SharedFunctionsOnDevice, Widen) { expect_equal_bits(Widen{}, 1, 1u << 16); }
TEST(SharedFunctionsOnDevice, ElementaryFunctions) {
  const auto expect_strided = [](const char* name, auto function) {
    SCOPED_TRACE(name);
    expect_equal_bits(function, stride, strided_count);
  };
  expect_strided("exp", Of<exp_f32>{});
  expect_strided("log", Of<log_f32>{});
  expect_strided("log2", Of<log2_f32>{});
  expect_strided("log1p", Of<log1p_f32>{});
  expect_strided("tanh", Of<tanh_f32>{});
  expect_strided("sigmoid", Of<sigmoid_f32>{});
  expect_strided("rsqrt", Of<rsqrt_f32>{});
  expect_strided("erf", Of<erf_f32>{});
  expect_strided("gelu", Of<gelu_f32>{});
  expect_strided("gelu tanh", Of<gelu_tanh_f32>{});
  expect_strided("sin", Of<sin_f32>{});
  expect_strided("cos", Of<cos_f32>{});
}
TEST(SharedFunctionsOnDevice, Maximum) {
  expect_equal_bits(OfTwo<engine::functions::Maximum>{}, stride, strided_count);
}
TEST(SharedFunctionsOnDevice, Minimum) {
  expect_equal_bits(OfTwo<engine::functions::Minimum>{}, stride, strided_count);
}
TEST(SharedFunctionsOnDevice, Sign) { expect_equal_bits(Sign{}, stride, strided_count); }
TEST(SharedFunctionsOnDevice, Limited) { expect_equal_bits(Limited{}, stride, strided_count); }
TEST(SharedFunctionsOnDevice, NormalFrom) { expect_equal_bits(NormalFrom{}, stride, strided_count); }
TEST(SharedFunctionsOnDevice, Philox) { expect_equal_bits(RandomWord{}, 1, 1u << 20); }
TEST(SharedFunctionsOnDevice, HistogramBin) { expect_equal_bits(HistogramBin{}, stride, strided_count); }

}  // namespace shared_functions_test
}  // namespace fp16lab
