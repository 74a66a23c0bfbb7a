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

/// Addresses without memory, but for small blocks: scalar programs take those of numbers that belong to a
/// step.
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

bool is_step_state(const Tensor& x) { return x.dtype() == DType::u8 && x.byte_count() == sizeof(StepState); }

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

// It keeps the host's writes for step states alone.
void CountingBackend::do_upload(std::string_view, std::span<const std::byte> host, Tensor& out) {
  if (is_step_state(out)) std::ranges::copy(host, out.data());
}

void CountingBackend::do_download(std::string_view, const Tensor& x, std::span<std::byte> host) {
  if (is_step_state(x))
    std::copy_n(x.data(), host.size(), host.begin());
  else
    std::ranges::fill(host, std::byte{0});
}

void CountingBackend::do_gemm(const GemmCall& call, const checks::GemmPlan& plan) {
  products_.push_back({.verb = "gemm",
                       .operands = call.a.dtype(),
                       .batch = plan.batch,
                       .m = plan.shape.m,
                       .n = plan.shape.n,
                       .k = plan.shape.k});
}

void CountingBackend::do_conv2d(const Conv2dCall& call, const functions::Conv2dPlan& plan) {
  const std::int64_t filters = plan.outputs / plan.groups, channels = plan.inputs / plan.groups;
  const std::int64_t taps = plan.vertical.taps * plan.horizontal.taps;
  const std::int64_t places = plan.images * plan.vertical.output * plan.horizontal.output;
  const std::int64_t pixels = plan.images * plan.vertical.input * plan.horizontal.input;
  CountedProduct product{.verb = call.verb(), .operands = call.a.dtype(), .batch = plan.groups};
  if (call.product == Conv2dProduct::output)
    product.m = places, product.n = filters, product.k = channels * taps;
  else if (call.product == Conv2dProduct::weight_gradient)
    product.m = filters, product.n = channels * taps, product.k = places;
  else  // stride holes are products with zero: (k_out, r, s) for every pixel
    product.m = pixels, product.n = channels, product.k = filters * taps;
  products_.push_back(product);

  const bool of_gradient = call.product == Conv2dProduct::input_gradient;
  const Patches patches(plan, of_gradient ? Gather::outputs : Gather::inputs);
  if (patches.in_place(call.geometry.layout)) return;
  const std::size_t bytes =
      static_cast<std::size_t>(patches.planes().element_count()) * size_of(call.a.dtype());
  most_scratch_ = std::max(most_scratch_, bytes);
}

void CountingBackend::do_run(const ScalarProgram& program, Tensor& step) {
  program.function(*reinterpret_cast<StepState*>(step.data()), program.parameters.data());
}

}  // namespace fp16lab::engine
