#include "engine/backend/counting/counting_backend.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "engine/backend/checks.hpp"
#include "engine/backend/emulated/patches.hpp"

namespace fp16lab::engine {

namespace {

/// So that sums of bytes, and addresses, fit.
constexpr std::size_t most_bytes = std::size_t{1} << 60;

/// Addresses without memory behind them, but for small blocks: scalar programs are given those of numbers
/// that belong to a step.
class NoMemory final : public MemoryResource {
 public:
  std::byte* allocate(std::size_t bytes) noexcept override {
    if (bytes <= most_kept) return host_->allocate(bytes);
    std::byte* const address = reinterpret_cast<std::byte*>(next_);  // NOLINT: nobody reads it
    next_ += (bytes + 63) / 64 * 64;
    return address;
  }
  void deallocate(std::byte* address, std::size_t bytes) noexcept override {
    if (bytes <= most_kept) host_->deallocate(address, bytes);
  }
  bool host_accessible() const override { return false; }

 private:
  static constexpr std::size_t most_kept = 4096;

  std::unique_ptr<MemoryResource> host_ = make_host_memory();
  std::uintptr_t next_ = 64;
};

}  // namespace

double CountedProduct::multiply_adds() const {
  return static_cast<double>(batch) * static_cast<double>(m) * static_cast<double>(n) *
         static_cast<double>(k);
}

CountingBackend::CountingBackend(std::string_view tensor_core)
    : tensor_core_(tensor_core), pool_(std::make_unique<NoMemory>()) {}

double CountingBackend::multiply_adds() const {
  double sum = 0;
  for (const CountedProduct& product : products_) sum += product.multiply_adds();
  return sum;
}

Tensor CountingBackend::empty(const Shape& shape, DType dtype) {
  const std::size_t bytes = static_cast<std::size_t>(shape.element_count()) * size_of(dtype);
  if (pool_.statistics().bytes_reserved + bytes > most_bytes)
    throw std::invalid_argument(
        fmt::format("tensor {} {}: with it all tensors would take more than 2^60 bytes", name_of(dtype),
                    shape.to_string()));
  return {pool_.allocate(bytes), shape, dtype};
}

void CountingBackend::download(const Tensor&, std::span<std::byte> host) {
  std::ranges::fill(host, std::byte{0});
}

void CountingBackend::gemm(const GemmCall& call) {
  const Shape out = call.out.shape(), a = call.a.shape();
  products_.push_back({.verb = "gemm",
                       .operands = call.a.dtype(),
                       .batch = out.rank() == 3 ? out[0] : 1,
                       .m = out[-2],
                       .n = out[-1],
                       .k = call.transpose_a ? a[-2] : a[-1]});
}

void CountingBackend::count_convolution(std::string_view verb, const Tensor& x, const Tensor& weight,
                                        const Tensor& y, const Conv2dGeometry& geometry) {
  const Shape in = x.shape(), taps = weight.shape(), out = y.shape();
  const bool channels_first = geometry.layout == Layout::nchw;
  const std::int64_t filters = taps[0] / geometry.groups, depth = taps[1] * taps[2] * taps[3];
  const std::int64_t places = channels_first ? out[0] * out[2] * out[3] : out[0] * out[1] * out[2];
  const std::int64_t pixels = channels_first ? in[0] * in[2] * in[3] : in[0] * in[1] * in[2];
  CountedProduct product{.verb = verb, .operands = x.dtype(), .batch = geometry.groups};
  if (verb == "conv2d")
    product.m = places, product.n = filters, product.k = depth;
  else if (verb == "conv2d_weight_gradient")
    product.m = filters, product.n = depth, product.k = places;
  else  // stride holes are products with zero: (k_out, r, s) for every pixel
    product.m = pixels, product.n = taps[1], product.k = filters * taps[2] * taps[3];
  products_.push_back(product);
}

void CountingBackend::count_planes(const functions::Conv2dPlan& plan, bool of_gradient, DType dtype,
                                   Layout layout) {
  const Patches patches(plan, of_gradient ? Gather::outputs : Gather::inputs);
  if (patches.in_place(layout)) return;
  const std::size_t bytes = static_cast<std::size_t>(patches.planes().element_count()) * size_of(dtype);
  most_scratch_ = std::max(most_scratch_, bytes);
}

void CountingBackend::conv2d(const Tensor& x, const Tensor& weight, const Conv2dGeometry& geometry,
                             const Tensor* bias, Tensor& out, CastProbe*) {
  count_planes(checks::conv2d(x, weight, geometry, bias, out), false, x.dtype(), geometry.layout);
  count_convolution("conv2d", x, weight, out, geometry);
}

void CountingBackend::conv2d_input_gradient(const Tensor& gradient, const Tensor& weight,
                                            const Conv2dGeometry& geometry, const Tensor* bias, Tensor& out,
                                            CastProbe*) {
  count_planes(checks::conv2d_input_gradient(gradient, weight, geometry, bias, out), true, gradient.dtype(),
               geometry.layout);
  count_convolution("conv2d_input_gradient", out, weight, gradient, geometry);
}

void CountingBackend::conv2d_weight_gradient(const Tensor& x, const Tensor& gradient,
                                             const Conv2dGeometry& geometry, Tensor& out, CastProbe*) {
  count_planes(checks::conv2d_weight_gradient(x, gradient, geometry, out), false, x.dtype(), geometry.layout);
  count_convolution("conv2d_weight_gradient", x, out, gradient, geometry);
}

Tensor CountingBackend::make_step_state(const StepState& initial) {
  Tensor state = empty({static_cast<std::int64_t>(sizeof(StepState))}, DType::u8);
  states_[state.data()] = initial;
  return state;
}

void CountingBackend::run(const ScalarProgram& program, Tensor& step) {
  program.function(states_.at(step.data()), program.parameters.data());
}

}  // namespace fp16lab::engine
