// Products of the engine's emulated back end on memory that Python owns (fp16lab/torch/tensor_products.py).
//
// Tensors come as addresses of dense memory, which Python has checked and keeps: a call of many small ones
// would otherwise cost more than its product.
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string_view.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "bindings.hpp"
#include "engine/backend/emulated/emulated_backend.hpp"
#include "engine/tensor/storage.hpp"
#include "numerics/platform/floating_point_scope.hpp"

namespace fp16lab::python {

namespace nb = nanobind;

namespace {

using engine::Shape;
using engine::Tensor;
using Address = std::uintptr_t;

/// One block of memory that another object owns.
class BorrowedMemory final : public engine::MemoryResource {
 public:
  explicit BorrowedMemory(Address address) : address_(address) {}
  std::byte* allocate(std::size_t) noexcept override {
    static std::byte nothing[64];  // what has no elements may have no address
    return address_ == 0 ? nothing : reinterpret_cast<std::byte*>(address_);
  }
  void deallocate(std::byte*, std::size_t) noexcept override {}
  bool host_accessible() const override { return true; }

 private:
  Address address_;
};

Tensor borrowed(Address address, const Shape& shape, DType dtype) {
  engine::StoragePool pool(std::make_unique<BorrowedMemory>(address));
  return {pool.allocate(static_cast<std::size_t>(shape.element_count()) * size_of(dtype)), shape, dtype};
}
/// The same of an optional one; 0: none.
struct Optional {
  Optional(Address address, const Shape& shape, DType dtype) {
    if (address != 0) tensor_ = borrowed(address, shape, dtype);
  }
  const Tensor* get() const { return tensor_ ? &*tensor_ : nullptr; }

 private:
  std::optional<Tensor> tensor_;
};

using Extents = std::array<std::int64_t, 4>;
Shape shape_of(const Extents& extents) { return {extents[0], extents[1], extents[2], extents[3]}; }

/// The sums of a product, in FP32, before they were rounded; nothing if the caller did not ask for them.
using Sums = std::optional<ExponentHistogram>;

/// The products of one generation of tensor cores, for as many threads.
class TensorProducts {
 public:
  TensorProducts(std::string_view model, std::string_view accumulator, int threads)
      : backend_(engine::make_emulated_backend(model, accumulator_format(accumulator), threads)) {}

  std::string_view tensor_core() const { return backend_->tensor_core(); }  ///< the row's own name

  /// out (batch, m, n) = op(a) op(b) + bias (n) + addend (batch, m, n), as engine::Backend::gemm has it.
  /// a, b, bias: of `format`; out, addend: of `out_format`. bias, addend: 0 for none.
  Sums gemm(Address a, Address b, Address out, const Extents& batch_m_n_k, bool transpose_a, bool transpose_b,
            Address bias, Address addend, std::string_view format, std::string_view out_format, bool tf32,
            bool counted) {
    const nb::gil_scoped_release unlocked;
    const auto& [batch, m, n, k] = batch_m_n_k;
    const DType dtype = format_of(format), out_dtype = format_of(out_format);
    const Tensor left = borrowed(a, transpose_a ? Shape{batch, k, m} : Shape{batch, m, k}, dtype);
    const Tensor right = borrowed(b, transpose_b ? Shape{batch, n, k} : Shape{batch, k, n}, dtype);
    Tensor result = borrowed(out, Shape{batch, m, n}, out_dtype);
    const Optional row(bias, Shape{n}, dtype), rows(addend, Shape{batch, m, n}, out_dtype);
    engine::CastProbe probe;
    backend_->gemm({.a = left,
                    .b = right,
                    .out = result,
                    .transpose_a = transpose_a,
                    .transpose_b = transpose_b,
                    .bias = row.get(),
                    .addend = rows.get(),
                    .probe = counted ? &probe : nullptr,
                    .tf32 = tf32});
    return sums_of(probe, counted);
  }

  /// One of the three products of a convolution, as engine::Backend has them. The tensors are x, weight and y
  /// of the forward direction, whichever of them is the result: `direction` is "forward" (y), "input" (x) or
  /// "weight". bias: one per channel of the result, or 0; a weight has none.
  Sums convolve(std::string_view direction, Address x, const Extents& x_shape, Address weight,
                const Extents& weight_shape, Address y, const Extents& y_shape, Address bias,
                std::array<std::int64_t, 2> stride, std::array<std::int64_t, 2> padding,
                std::array<std::int64_t, 2> dilation, std::int64_t groups, bool channels_last,
                std::string_view format, bool tf32, bool counted) {
    const nb::gil_scoped_release unlocked;
    const DType dtype = format_of(format);
    const engine::Conv2dGeometry geometry{
        .stride = stride,
        .padding = padding,
        .dilation = dilation,
        .layout = channels_last ? engine::Layout::nhwc : engine::Layout::nchw,
        .groups = groups,
        .tf32 = tf32};
    Tensor inputs = borrowed(x, shape_of(x_shape), dtype);
    Tensor filters = borrowed(weight, shape_of(weight_shape), dtype);
    Tensor outputs = borrowed(y, shape_of(y_shape), dtype);
    const bool forward = direction == "forward";
    const Optional shift(
        bias, Shape{channels_last ? (forward ? y_shape : x_shape)[3] : (forward ? y_shape : x_shape)[1]},
        dtype);
    engine::CastProbe probe;
    engine::CastProbe* const counts = counted ? &probe : nullptr;
    if (forward)
      backend_->conv2d(inputs, filters, geometry, shift.get(), outputs, counts);
    else if (direction == "input")
      backend_->conv2d_input_gradient(outputs, filters, geometry, shift.get(), inputs, counts);
    else
      backend_->conv2d_weight_gradient(inputs, outputs, geometry, filters, counts);
    return sums_of(probe, counted);
  }

  /// out (channels): the TREE sum in FP32 of a gradient (n, c, h, w), or (n, h, w, c), over all but its
  /// channels in the order (n, h, w), rounded once: the gradient of a convolution's bias.
  void sum_channels(Address gradient, const Extents& shape, bool channels_last, Address out,
                    std::string_view format) {
    const nb::gil_scoped_release unlocked;
    const FloatingPointScope scope;
    const DType dtype = format_of(format);
    const Tensor values = borrowed(gradient, shape_of(shape), dtype);
    const std::int64_t channels = channels_last ? shape[3] : shape[1];
    const std::int64_t terms = channels == 0 ? 0 : values.element_count() / channels;
    Tensor result = borrowed(out, Shape{channels}, dtype);
    if (channels_last)
      return backend_->reduce(engine::ReduceOp::sum, values.reshaped({terms, channels}), 0, result);
    Tensor by_channel = backend_->empty(Shape{channels, shape[0], shape[2], shape[3]}, dtype);
    backend_->permute(values, std::array{1, 0, 2, 3}, by_channel);
    backend_->reduce(engine::ReduceOp::sum, by_channel.reshaped({channels, terms}), 1, result);
  }

 private:
  Sums sums_of(engine::CastProbe& probe, bool counted) {
    if (!counted) return std::nullopt;
    backend_->settle(std::array{&probe});
    return probe.before;
  }

  std::unique_ptr<engine::Backend> backend_;
};

}  // namespace

void bind_tensor_products(nb::module_& module) {
  nb::class_<TensorProducts>(module, "TensorProducts")
      .def(nb::init<std::string_view, std::string_view, int>(), nb::arg("model"), nb::arg("accumulator"),
           nb::arg("threads"))
      .def_prop_ro("tensor_core", &TensorProducts::tensor_core)
      .def("gemm", &TensorProducts::gemm)
      .def("convolve", &TensorProducts::convolve)
      .def("sum_channels", &TensorProducts::sum_channels);
}

}  // namespace fp16lab::python
