// Convolutions of the CUDA back end on the host machine whose products have several tiles of the large size,
// along both axes, against the emulated back end, which the conformance suite holds against the definition.
// That suite has the small ones, and all strides, paddings and dilations.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/backend/cuda/cpu_simt/host_machine.hpp"
#include "engine/backend/emulated/emulated_backend.hpp"
#include "tests/engine/backend/conformance.hpp"
#include "tests/engine/backend/on_backend.hpp"
#include "tests/support/message_of.hpp"

namespace fp16lab::engine::test {
namespace {

struct Shapes {
  std::int64_t images, channels, height, width, filters;  ///< 3 x 3, padding 1
  std::int64_t groups = 1;

  Shape image(std::int64_t depth, Layout layout) const {
    return layout == Layout::nchw ? Shape{images, depth, height, width} : Shape{images, height, width, depth};
  }
  Shape x(Layout layout) const { return image(channels, layout); }
  Shape y(Layout layout) const { return image(filters, layout); }
  Shape weight() const { return {filters, channels / groups, 3, 3}; }
};

template <class T>
Tensor random_tensor(Backend& backend, const Shape& shape, std::uint64_t seed) {
  return uploaded(backend, shape, random_of<T>(shape.element_count(), Kind::cancelling, seed));
}

/// y, dX and dW, one after the other.
template <class T>
std::vector<float> products(Backend& backend, const Shapes& shapes, Layout layout) {
  const Conv2dGeometry geometry{.padding = {1, 1}, .layout = layout, .groups = shapes.groups};
  const Tensor x = random_tensor<T>(backend, shapes.x(layout), 1),
               dy = random_tensor<T>(backend, shapes.y(layout), 2),
               weight = random_tensor<T>(backend, shapes.weight(), 3),
               bias = random_tensor<T>(backend, {shapes.filters}, 4),
               back_bias = random_tensor<T>(backend, {shapes.channels}, 5);
  Tensor y = backend.empty(shapes.y(layout), DType::f32), dx = backend.empty(shapes.x(layout), DType::f32),
         dw = backend.empty(shapes.weight(), DType::f32);
  backend.conv2d(x, weight, geometry, &bias, y);
  backend.conv2d_input_gradient(dy, weight, geometry, &back_bias, dx);
  backend.conv2d_weight_gradient(x, dy, geometry, dw);
  std::vector<float> all = downloaded<float>(backend, y);
  for (const Tensor& gradient : {dx, dw}) {
    const std::vector<float> values = downloaded<float>(backend, gradient);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

class CudaConvolutionTiles : public testing::TestWithParam<Shapes> {};

TEST_P(CudaConvolutionTiles, LargeTilesHoldTheSameChains) {
  const auto check = [&](auto tag, const std::string& model, cpu_simt::Schedule schedule) {
    using T = decltype(tag);
    const auto backend = cpu_simt::make_cuda_backend_on_cpu({.tensor_core = model}, schedule);
    const auto emulated = make_emulated_backend(tensor_core_model(model), 1);
    for (const Layout layout : {Layout::nchw, Layout::nhwc})
      expect_same_bits(products<T>(*backend, GetParam(), layout), products<T>(*emulated, GetParam(), layout),
                       fmt::format("{}, {}, {}", model, name_of(DTypeOf<T>::value),
                                   layout == Layout::nchw ? "NCHW" : "NHWC"));
  };
  check(Float16{}, "hopper", cpu_simt::Schedule::scrambled);
  check(BFloat16{}, "ampere", cpu_simt::Schedule::descending);
  check(0.0f, "hopper", cpu_simt::Schedule::warp_by_warp);
}

TEST(CudaConvolution, TheLargeTileCannotBeLaunchedByARuleThatForgetsStaticSharedMemory) {
  // 48 KiB of slices and the counters of the probe: both together are what CUDA limits.
  cpu_simt::replace_opt_in([](std::size_t, std::size_t dynamic_bytes) { return dynamic_bytes > 48 * 1024; });
  const auto backend = cpu_simt::make_cuda_backend_on_cpu();
  for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
    const std::string message = testing_support::message_of([&] {
      products<Float16>(*backend, {2, 1, 12, 12, 130}, layout);
    });
    EXPECT_TRUE(
        message.starts_with("kernel conv2d on the host machine: 49152 bytes of dynamic and 2272 of static "
                            "shared memory; without cudaFuncSetAttribute a block may have 49152 of both"))
        << message;
  }
  cpu_simt::replace_opt_in(nullptr);
  EXPECT_NO_THROW(products<Float16>(*backend, {2, 1, 12, 12, 130}, Layout::nchw));
}

// The host machine says that it has 4 multiprocessors: 8 tiles of 128 x 64 are enough for the large size.
// More than 128 filters by 5 x 64 positions for y, as many channels for dX, and 22 * 9 columns for dW. The
// same in two groups.
INSTANTIATE_TEST_SUITE_P(All, CudaConvolutionTiles,
                         testing::Values(Shapes{2, 1, 12, 12, 130}, Shapes{2, 130, 12, 12, 1},
                                         Shapes{1, 22, 6, 5, 130}, Shapes{1, 4, 12, 12, 260, 2},
                                         Shapes{1, 260, 12, 12, 2, 2}, Shapes{1, 28, 6, 5, 260, 2}),
                         [](const auto& shapes) {
                           return fmt::format("channels{}filters{}groups{}", shapes.param.channels,
                                              shapes.param.filters, shapes.param.groups);
                         });

}  // namespace
}  // namespace fp16lab::engine::test
