// The functions that host and device share give the same bits on both. Compiled wherever nvcc is; runs on a
// GPU, and says SKIPPED without one. One kernel: result[i] = function(i); the host computes the same and bits
// are compared.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/backend/cuda/runtime/devices.hpp"
#include "engine/backend/elementwise_functions.hpp"
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
struct Exp {
  FP16LAB_HD std::uint32_t operator()(std::uint32_t bits) const {
    return bits_of(exp_f32(float_from_bits(bits)));
  }
};
struct Log {
  FP16LAB_HD std::uint32_t operator()(std::uint32_t bits) const {
    return bits_of(log_f32(float_from_bits(bits)));
  }
};
struct Log1p {
  FP16LAB_HD std::uint32_t operator()(std::uint32_t bits) const {
    return bits_of(log1p_f32(float_from_bits(bits)));
  }
};
struct Tanh {
  FP16LAB_HD std::uint32_t operator()(std::uint32_t bits) const {
    return bits_of(tanh_f32(float_from_bits(bits)));
  }
};
struct Sigmoid {
  FP16LAB_HD std::uint32_t operator()(std::uint32_t bits) const {
    return bits_of(sigmoid_f32(float_from_bits(bits)));
  }
};
struct ReciprocalSquareRoot {
  FP16LAB_HD std::uint32_t operator()(std::uint32_t bits) const {
    return bits_of(rsqrt_f32(float_from_bits(bits)));
  }
};
struct Erf {
  FP16LAB_HD std::uint32_t operator()(std::uint32_t bits) const {
    return bits_of(erf_f32(float_from_bits(bits)));
  }
};
struct Gelu {
  FP16LAB_HD std::uint32_t operator()(std::uint32_t bits) const {
    return bits_of(gelu_f32(float_from_bits(bits)));
  }
};
struct GeluTanh {
  FP16LAB_HD std::uint32_t operator()(std::uint32_t bits) const {
    return bits_of(gelu_tanh_f32(float_from_bits(bits)));
  }
};
struct Sin {
  FP16LAB_HD std::uint32_t operator()(std::uint32_t bits) const {
    return bits_of(sin_f32(float_from_bits(bits)));
  }
};
struct Cos {
  FP16LAB_HD std::uint32_t operator()(std::uint32_t bits) const {
    return bits_of(cos_f32(float_from_bits(bits)));
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
    return bits_of(engine::functions::limited(float_from_bits(bits), 0.5f));
  }
};
struct NormalFrom {
  FP16LAB_HD std::uint32_t operator()(std::uint32_t word) const {
    return bits_of(engine::functions::normal_from(0.25f, 0.02f, word, word * 0x9e3779b9u));
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
TEST(SharedFunctionsOnDevice, Exp) { expect_equal_bits(Exp{}, stride, strided_count); }
TEST(SharedFunctionsOnDevice, Log) { expect_equal_bits(Log{}, stride, strided_count); }
TEST(SharedFunctionsOnDevice, Log1p) { expect_equal_bits(Log1p{}, stride, strided_count); }
TEST(SharedFunctionsOnDevice, Tanh) { expect_equal_bits(Tanh{}, stride, strided_count); }
TEST(SharedFunctionsOnDevice, Sigmoid) { expect_equal_bits(Sigmoid{}, stride, strided_count); }
TEST(SharedFunctionsOnDevice, ReciprocalSquareRoot) {
  expect_equal_bits(ReciprocalSquareRoot{}, stride, strided_count);
}
TEST(SharedFunctionsOnDevice, Erf) { expect_equal_bits(Erf{}, stride, strided_count); }
TEST(SharedFunctionsOnDevice, Gelu) { expect_equal_bits(Gelu{}, stride, strided_count); }
TEST(SharedFunctionsOnDevice, GeluTanh) { expect_equal_bits(GeluTanh{}, stride, strided_count); }
TEST(SharedFunctionsOnDevice, Sin) { expect_equal_bits(Sin{}, stride, strided_count); }
TEST(SharedFunctionsOnDevice, Cos) { expect_equal_bits(Cos{}, stride, strided_count); }
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
