// Kernels over lists of tensors, on a device beside the emulated back end: more tensors than one
// launch takes, tensors without elements, and memory that is not aligned for 16-byte accesses.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <memory>
#include <vector>

#include "numerics/random/philox.hpp"
#include "tests/engine/backend/cuda/on_device.hpp"

namespace fp16lab::engine::test {
namespace {

using CudaGradientLists = OnDevice;

/// Tensors of a launch (GradientTable in engine/backend/cuda/verbs/gradient_table.hpp).
constexpr std::size_t capacity = 144;

/// Memory of another resource, `offset` bytes after its beginning.
class ShiftedMemory final : public MemoryResource {
 public:
  ShiftedMemory(std::unique_ptr<MemoryResource> resource, std::size_t offset)
      : resource_(std::move(resource)), offset_(offset) {}
  std::byte* allocate(std::size_t bytes) noexcept override {
    return resource_->allocate(bytes + offset_) + offset_;
  }
  void deallocate(std::byte* address, std::size_t bytes) noexcept override {
    resource_->deallocate(address - offset_, bytes + offset_);
  }
  bool host_accessible() const override { return resource_->host_accessible(); }

 private:
  std::unique_ptr<MemoryResource> resource_;
  std::size_t offset_;
};

/// The same tensors on both sides; the device's in memory of `pool`.
struct Twins {
  std::unique_ptr<Backend> emulated = emulated_twin();
  std::unique_ptr<Backend> device = device_backend();
  std::unique_ptr<StoragePool> pool;
  std::vector<Tensor> here, there;
  Tensor step_here, step_there;

  explicit Twins(std::size_t offset = 0)
      : pool(std::make_unique<StoragePool>(std::make_unique<ShiftedMemory>(make_cuda_memory(), offset))) {
    StepState state;
    state.set_scale(1536.0);
    state.learning_rate.fill(0.125f);
    state.taken_steps.fill(2);
    state.beta1_power.fill(0.81);
    state.beta2_power.fill(0.998001);
    step_here = emulated->make_step_state(state);
    step_there = device->make_step_state(state);
  }
  Tensor on_device(const Shape& shape, DType dtype) const {
    return {pool->allocate(static_cast<std::size_t>(shape.element_count()) * size_of(dtype)), shape, dtype};
  }
  std::vector<std::byte> bytes(Backend& backend, const Tensor& tensor) const {
    std::vector<std::byte> all(tensor.byte_count());
    backend.download(tensor, all);
    return all;
  }
  /// `count` elements of magnitude below 64, no two of them alike.
  void add(std::int64_t count, DType dtype) {
    const auto stream = static_cast<std::uint32_t>(here.size());
    Tensor wide = emulated->empty({count}, DType::f32);
    emulated->fill_uniform(wide, {.seed = 5, .stream = stream, .iteration = 0, .micro_batch = 0}, -64.0f,
                           64.0f);
    here.push_back(emulated->empty({count}, dtype));
    emulated->cast(wide, here.back());
    there.push_back(on_device({count}, dtype));
    device->upload(bytes(*emulated, here.back()), there.back());
  }
  void expect_equal(const char* what) const {
    for (std::size_t i = 0; i < here.size(); ++i)
      EXPECT_EQ(bytes(*emulated, here[i]), bytes(*device, there[i])) << what << ", " << here[i].describe();
    const StepState a = emulated->read_step_state(step_here), b = device->read_step_state(step_there);
    using Bytes = std::array<std::byte, sizeof(StepState)>;  // no padding (step_state.hpp)
    EXPECT_EQ(std::bit_cast<Bytes>(a), std::bit_cast<Bytes>(b))
        << what << ": norms " << a.grad_norm << ", " << b.grad_norm;
  }
  void expect_equal_passes() {
    emulated->unscale(here, 1, step_here), device->unscale(there, 1, step_there);
    expect_equal("unscale");
    emulated->global_norm(here, step_here), device->global_norm(there, step_there);
    expect_equal("global_norm");
    const double norm = emulated->read_step_state(step_here).grad_norm;
    emulated->clip_by_norm(here, norm / 3, step_here), device->clip_by_norm(there, norm / 3, step_there);
    expect_equal("clip_by_norm");
    emulated->clip_by_value(here, 0.005f), device->clip_by_value(there, 0.005f);
    expect_equal("clip_by_value");
  }
};

constexpr DType dtypes[] = {DType::f32, DType::f16, DType::bf16};

TEST_F(CudaGradientLists, AnOverflowInAnyTensorOfAnyLaunchIsFound) {
  constexpr std::size_t count = capacity + 3;
  for (const std::size_t bad : {std::size_t{0}, std::size_t{1}, count - 4, count - 3, count - 1}) {
    Twins twins;
    for (std::size_t i = 0; i < count; ++i) twins.add(3, DType::f32);
    const std::vector<float> values{1.0f, -2.0f, -float_from_bits(0x7f800000u)};
    twins.emulated->upload(std::as_bytes(std::span(values)), twins.here[bad]);
    twins.device->upload(std::as_bytes(std::span(values)), twins.there[bad]);
    twins.emulated->unscale(twins.here, 7, twins.step_here);
    twins.device->unscale(twins.there, 7, twins.step_there);
    EXPECT_EQ(twins.device->read_step_state(twins.step_there).found_inf[7], 1.0f) << bad;
    twins.expect_equal("unscale");
  }
}

TEST_F(CudaGradientLists, MemoryOffTheGridOf16Bytes) {
  for (const std::size_t offset : {std::size_t{4}, std::size_t{8}, std::size_t{12}}) {
    Twins twins(offset);
    for (const DType dtype : dtypes)
      for (const std::int64_t count : {1, 33, 4099}) twins.add(count, dtype);
    ASSERT_NE(reinterpret_cast<std::uintptr_t>(twins.there[0].data()) % 16, 0u);
    twins.expect_equal_passes();
  }
}

TEST_F(CudaGradientLists, OptimizersOffTheGridOf16Bytes) {
  for (const std::size_t offset : {std::size_t{4}, std::size_t{8}})
    for (const DType weight : dtypes)
      for (const DType gradient : dtypes) {
        Twins twins(offset);
        constexpr std::int64_t count = 1031;
        twins.add(count, weight);
        twins.add(count, gradient);
        twins.add(count, DType::f32);
        twins.add(count, DType::f32);  // as a second moment; where it is negative, weights become NaN
        for (const auto& [backend, tensors, step] :
             {std::tuple{twins.emulated.get(), &twins.here, &twins.step_here},
              std::tuple{twins.device.get(), &twins.there, &twins.step_there}}) {
          std::vector<Tensor>& x = *tensors;
          backend->update({.rule = UpdateRule::sgd,
                           .options = {.momentum = 0.75f, .dampening = 0.25f, .weight_decay = 0.01f},
                           .weight = x[0],
                           .gradient = x[1],
                           .states = {&x[2]},
                           .optimizer = 0,
                           .step = *step});
          backend->update({.rule = UpdateRule::adamw,
                           .options = {.weight_decay = 0.01f, .gradient_factor = 0.3f},
                           .weight = x[0],
                           .gradient = x[1],
                           .states = {&x[2], &x[3]},
                           .optimizer = 0,
                           .step = *step});
        }
        twins.expect_equal("optimizers");
      }
}

}  // namespace
}  // namespace fp16lab::engine::test
