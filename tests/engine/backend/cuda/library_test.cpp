// Backend::gemm by cuBLAS (backend.gemm = cublas): on a GPU the library itself, on the PTX machine
// (tests/machines/ptx/cudart/api_cublas.cpp) one that refuses what the documentation forbids. Sums of small
// integers are exact, so that their bits are those of the emulated back end in whatever order they are added.
#include <cstdint>
#include <memory>
#include <vector>

#include "tests/engine/backend/cuda/on_device.hpp"

namespace fp16lab::engine::test {
namespace {

class CudaLibrary : public OnDevice {
 protected:
  void SetUp() override {
    OnDevice::SetUp();
    if (!IsSkipped()) device = make(GemmRoute::cublas);
  }
  std::unique_ptr<Backend> make(GemmRoute route, bool tf32 = false) {
    return make_cuda_backend({.gemm = route, .tf32 = tf32, .library_products = products});
  }
  std::shared_ptr<std::uint64_t> products = std::make_shared<std::uint64_t>(0);
  std::unique_ptr<Backend> device;
};

template <class T>
Tensor rounded_tensor(Backend& backend, const Shape& shape, const std::vector<float>& values) {
  Tensor wide = backend.empty(shape, DType::f32), result = backend.empty(shape, DTypeOf<T>::value);
  backend.upload(std::as_bytes(std::span(values)), wide);
  backend.cast(wide, result);
  return result;
}
/// From -2 to 2.
template <class T>
Tensor integers(Backend& backend, const Shape& shape, std::uint32_t seed) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < shape.element_count(); ++i) {
    seed = seed * 1664525u + 1013904223u;
    values.push_back(static_cast<float>((seed >> 24) % 5) - 2.0f);
  }
  return rounded_tensor<T>(backend, shape, values);
}
std::vector<std::byte> bytes_of(Backend& backend, const Tensor& x) {
  std::vector<std::byte> bytes(x.byte_count());
  backend.download(x, bytes);
  return bytes;
}

struct Product {
  std::int64_t m = 9, n = 24, k = 40;
  std::int64_t batch = 0;  ///< 0: matrices
  bool transpose_a = false, transpose_b = false;
  bool bias = false, addend = false, probe = false;
  bool f32_out = false;

  Shape shape(std::int64_t rows, std::int64_t columns, bool transposed = false) const {
    if (transposed) std::swap(rows, columns);
    return batch == 0 ? Shape{rows, columns} : Shape{batch, rows, columns};
  }
};
struct Result {
  std::vector<std::byte> bytes;
  CastProbe probe;
};

template <class T>
Result compute(Backend& backend, const Product& p) {
  const Tensor a = integers<T>(backend, p.shape(p.m, p.k, p.transpose_a), 1),
               b = integers<T>(backend, p.shape(p.k, p.n, p.transpose_b), 2),
               bias = integers<T>(backend, {p.n}, 3), addend = integers<float>(backend, p.shape(p.m, p.n), 4);
  Tensor out = backend.empty(p.shape(p.m, p.n), p.f32_out ? DType::f32 : DTypeOf<T>::value);
  backend.fill(out, 99);
  Result result;
  backend.gemm({.a = a,
                .b = b,
                .out = out,
                .transpose_a = p.transpose_a,
                .transpose_b = p.transpose_b,
                .bias = p.bias ? &bias : nullptr,
                .addend = p.addend ? &addend : nullptr,
                .probe = p.probe ? &result.probe : nullptr});
  if (p.probe) {
    CastProbe* const probes[] = {&result.probe};
    backend.settle(probes);
  }
  result.bytes = bytes_of(backend, out);
  return result;
}

TEST_F(CudaLibrary, ExactSumsHaveTheEmulatorsBitsInEveryLayoutAndEpilogue) {
  const std::unique_ptr<Backend> twin = emulated_twin();
  std::uint64_t calls = 0;
  const auto expect_equal = [&]<class T>(T, const Product& p) {
    const Result here = compute<T>(*device, p), there = compute<T>(*twin, p);
    EXPECT_EQ(*products, ++calls);
    EXPECT_EQ(here.bytes, there.bytes)
        << name_of(DTypeOf<T>::value) << ", " << p.m << " x " << p.n << " x " << p.k << ", " << p.transpose_a
        << p.transpose_b << p.bias << p.addend << p.probe;
    EXPECT_EQ(here.probe.before, there.probe.before);
    EXPECT_EQ(here.probe.after, there.probe.after);
    EXPECT_EQ(here.probe.counted, there.probe.counted);
  };
  const auto all_of = [&](auto type) {
    for (const bool f32_out : {false, true}) {
      for (const bool transpose_a : {false, true})
        for (const bool transpose_b : {false, true})
          for (const std::int64_t batch : {0, 3})
            expect_equal(
                type,
                {.batch = batch, .transpose_a = transpose_a, .transpose_b = transpose_b, .f32_out = f32_out});
      expect_equal(type, {.m = 1, .n = 1, .k = 1, .f32_out = f32_out});
      expect_equal(type, {.bias = true, .f32_out = f32_out});
      expect_equal(type, {.n = 21, .transpose_b = true, .addend = true, .probe = true, .f32_out = f32_out});
      expect_equal(
          type,
          {.batch = 3, .transpose_a = true, .bias = true, .addend = true, .probe = true, .f32_out = f32_out});
    }
  };
  all_of(Float16{});
  if (device_multiplies_bf16_and_tf32()) all_of(BFloat16{});
  all_of(float{});
}

/// 4095 is no number of FP16.
TEST_F(CudaLibrary, SumsOfHalvesAreFp32) {
  constexpr std::int64_t k = 4095;
  const std::vector<float> ones(k, 1.0f);
  Tensor out = device->empty({1, 1}, DType::f32);
  device->gemm({.a = rounded_tensor<Float16>(*device, {1, k}, ones),
                .b = rounded_tensor<Float16>(*device, {k, 1}, ones),
                .out = out});
  float sum = 0;
  device->download(out, std::as_writable_bytes(std::span(&sum, 1)));
  EXPECT_EQ(sum, 4095.0f);
}

TEST_F(CudaLibrary, FloatsKeepTheirBitsUnlessTf32IsAskedFor) {
  for (const bool tf32 : {false, true}) {
    if (tf32 && !device_multiplies_bf16_and_tf32()) continue;
    const std::unique_ptr<Backend> backend = make(GemmRoute::cublas, tf32);
    const Tensor a = rounded_tensor<float>(*backend, {1, 1}, {1 + 0x1p-12f}),
                 b = rounded_tensor<float>(*backend, {1, 1}, {1});
    Tensor out = backend->empty({1, 1}, DType::f32);
    backend->gemm({.a = a, .b = b, .out = out});
    float product = 0;
    backend->download(out, std::as_writable_bytes(std::span(&product, 1)));
    EXPECT_EQ(product, tf32 ? 1 : 1 + 0x1p-12f);
  }
}

TEST_F(CudaLibrary, ARecordedProductIsDoneAndCountedAtEachReplay) {
  const Tensor a = integers<Float16>(*device, {8, 32}, 1), b = integers<Float16>(*device, {32, 16}, 2);
  Tensor recorded = device->empty({8, 16}, DType::f16), eager = device->empty({8, 16}, DType::f16);
  device->gemm({.a = a, .b = b, .out = eager});
  device->fill(recorded, 99);
  const std::unique_ptr<Recording> recording =
      device->record([&] { device->gemm({.a = a, .b = b, .out = recorded}); });
  EXPECT_EQ(*products, 1u) << "recorded, not done";
  for (int replays = 1; replays <= 2; ++replays) {
    recording->replay();
    EXPECT_EQ(*products, 1u + static_cast<unsigned>(replays));
    EXPECT_EQ(bytes_of(*device, recorded), bytes_of(*device, eager));
  }
  EXPECT_THROW(device->record([&] {
    device->gemm({.a = a, .b = b, .out = recorded});
    throw std::runtime_error("a test");
  }),
               std::runtime_error);
  EXPECT_EQ(*products, 3u);
}

TEST_F(CudaLibrary, WhatOurOwnKernelsComputeIsNotCounted) {
  const std::unique_ptr<Backend> twin = emulated_twin(), mma = make(GemmRoute::mma);
  compute<Float16>(*mma, {});
  EXPECT_EQ(*products, 0u);
  for (const Product& empty : {Product{.k = 0, .bias = true}, Product{.m = 0}})
    EXPECT_EQ(compute<Float16>(*device, empty).bytes, compute<Float16>(*twin, empty).bytes);
  if (device_multiplies_bf16_and_tf32()) {
    Tensor out = device->empty({8, 8}, DType::f32);
    device->gemm({.a = integers<float>(*device, {8, 8}, 1),
                  .b = integers<float>(*device, {8, 8}, 2),
                  .out = out,
                  .tf32 = true});
  }
  EXPECT_EQ(*products, 0u);
}

}  // namespace
}  // namespace fp16lab::engine::test
