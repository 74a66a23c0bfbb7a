// The device back end where no other one has the same: memory that ends, products that move their operands.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "engine/backend/cuda/runtime/device_errors.hpp"
#include "numerics/random/philox.hpp"
#include "tests/engine/backend/conformance.hpp"
#include "tests/engine/backend/cuda/on_device.hpp"
#include "tests/engine/backend/on_backend.hpp"
#include "tests/support/message_of.hpp"

namespace fp16lab::engine::test {
namespace {

using testing_support::message_of;

class DeviceBackend : public OnDevice {
 protected:
  void SetUp() override {
    OnDevice::SetUp();
    if (!IsSkipped()) backend_ = device_backend();
  }

  Tensor tensor(const std::vector<float>& values) {
    return uploaded(*backend_, {std::ssize(values)}, values);
  }
  std::vector<float> values_of(const Tensor& x) { return downloaded<float>(*backend_, x); }

  std::unique_ptr<Backend> backend_;
};

constexpr std::int64_t size = 1000;

std::vector<float> uniform(std::uint64_t seed) {
  const PhiloxStream words{.seed = seed};
  std::vector<float> values;
  for (std::uint64_t i = 0; i < size; ++i) values.push_back(uniform01(words.word(i)) - 0.25f);
  return values;
}

TEST_F(DeviceBackend, OutOfMemorySaysWhatWasAskedAndWhatIsFree) {
  const Tensor held = tensor(uniform(1));
  const auto ask = [&] { backend_->empty(Shape{std::int64_t{1} << 38, 1024}, DType::f16); };
  EXPECT_THROW(ask(), DeviceFailure);
  const std::string message = message_of(ask);
  for (const char* part : {"out of device memory: f16 (274877906944, 1024) needs 562949953421312 bytes",
                           "are free", "tensors hold "})
    EXPECT_NE(message.find(part), std::string::npos) << message;
  EXPECT_EQ(values_of(held), uniform(1)) << "what is there stays";
}

TEST_F(DeviceBackend, TheRowOfTheTensorCoresIsTheOneAskedFor) {
  EXPECT_EQ(make_cuda_backend({.tensor_core = device_row(), .gemm = GemmRoute::mma})->tensor_core(),
            device_row());
  const std::string other = device_row() == "ampere" ? "hopper" : "ampere";
  EXPECT_THROW(make_cuda_backend({.tensor_core = other, .gemm = GemmRoute::mma}), DeviceUnavailable);
  EXPECT_EQ(backend_->name(), "cuda");
}

/// -2^-75 * 2^-76 is less than half of the smallest FP32 number: BF16 accumulators truncate it to +0, fma
/// chains round it to -0. Blocks of zeros after the end of k would make +0 of that.
TEST_F(DeviceBackend, PaddingOfKKeepsANegativeZero) {
  for (std::int64_t k = 1; k <= 40; ++k) {
    const auto run = [&](auto tag) {
      using T = decltype(tag);
      std::vector<float> a(static_cast<std::size_t>(k), 0.0f), b(static_cast<std::size_t>(k), 1.0f);
      a.back() = -0x1p-75f;
      b.back() = 0x1p-76f;
      std::vector<T> low_a, low_b;
      for (const float x : a) low_a.push_back(stored_as(x, T{}));
      for (const float x : b) low_b.push_back(stored_as(x, T{}));
      Tensor out = backend_->empty(Shape{1, 1}, DType::f32);
      backend_->gemm(
          {.a = uploaded(*backend_, {1, k}, low_a), .b = uploaded(*backend_, {k, 1}, low_b), .out = out});
      return bits_of(downloaded<float>(*backend_, out)[0]);
    };
    if (device_multiplies_bf16_and_tf32()) {
      EXPECT_EQ(run(BFloat16{}), 0u) << k;
    }
    EXPECT_EQ(run(0.0f), 0x80000000u) << k;
  }
}

/// 250 x 255 is of medium size and its rows begin anywhere, so it is moved to scratch memory, within the
/// recording too.
TEST_F(DeviceBackend, ProductsOfMovedOperandsAreReplayed) {
  const std::unique_ptr<Backend> emulated = emulated_twin();
  const Shape of_a{250, 33}, of_b{33, 255};
  const auto product = [&](Backend& backend, Tensor& a, Tensor& b, Tensor& out) {
    backend.gemm({.a = a, .b = b, .out = out});
  };
  const std::vector<Float16> second = random_halves(33 * 255, Kind::ordinary, 62);
  Tensor a = backend_->empty(of_a, DType::f16), b = uploaded(*backend_, of_b, second),
         out = backend_->empty({250, 255}, DType::f32);
  const auto recording = backend_->record([&] { product(*backend_, a, b, out); });
  for (const std::uint64_t seed : {63u, 64u}) {
    const std::vector<Float16> first = random_halves(250 * 33, Kind::ordinary, seed);
    backend_->upload(std::as_bytes(std::span(first)), a);
    recording->replay();
    Tensor there = uploaded(*emulated, of_a, first), with = uploaded(*emulated, of_b, second),
           expected = emulated->empty({250, 255}, DType::f32);
    product(*emulated, there, with, expected);
    EXPECT_TRUE(downloaded<float>(*backend_, out) == downloaded<float>(*emulated, expected)) << seed;
  }
}

TEST_F(DeviceBackend, SaysThatFp8OperandsAreEmulatedOnly) {
  const Tensor a = backend_->empty(Shape{2, 2}, DType::f16), b = backend_->empty(Shape{2, 2}, DType::f16);
  Tensor out = backend_->empty(Shape{2, 2}, DType::f32);
  EXPECT_EQ(message_of([&] {
              backend_->gemm({.a = a, .b = b, .out = out, .a_format = DType::e4m3, .b_format = DType::e5m2});
            }),
            "gemm: FP8 operands, and those with scales for blocks, are emulated only; use backend.device = "
            "\"emulated\"");
}

}  // namespace
}  // namespace fp16lab::engine::test
