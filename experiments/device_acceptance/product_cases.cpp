// Cases of matrix products and convolutions.
#include <fmt/format.h>

#include "experiments/device_acceptance/verb_cases.hpp"

namespace fp16lab::experiments::acceptance {
namespace {

using engine::CastProbe;
using engine::Conv2dGeometry;
using engine::GemmCall;
using engine::Layout;
using engine::Shape;
using engine::Tensor;

constexpr DType floats[] = {DType::f32, DType::f16, DType::bf16};

struct Extents {
  std::int64_t m, n, k;
};

/// What else a product has.
struct Epilogue {
  bool bias = false, addend = false, probe = false;
  DType out = DType::f16;
};

void product(CaseContext& c, DType dtype, const Extents& x, bool transpose_a, bool transpose_b, Data data,
             const Epilogue& epilogue, std::int64_t batch = 0) {
  const auto matrix = [&](std::int64_t rows, std::int64_t columns) {
    return batch > 0 ? Shape{batch, rows, columns} : Shape{rows, columns};
  };
  const Tensor a = c.random(transpose_a ? matrix(x.k, x.m) : matrix(x.m, x.k), dtype, data);
  const Tensor b = c.random(transpose_b ? matrix(x.n, x.k) : matrix(x.k, x.n), dtype, data);
  const Tensor bias = c.random({x.n}, epilogue.addend ? DType::f32 : dtype, data);
  const Tensor addend = c.random(matrix(x.m, x.n), DType::f32, data);
  Tensor out = c.output(matrix(x.m, x.n), epilogue.out);
  CastProbe probe;
  c.backend().gemm({.a = a,
                    .b = b,
                    .out = out,
                    .transpose_a = transpose_a,
                    .transpose_b = transpose_b,
                    .bias = epilogue.bias ? &bias : nullptr,
                    .addend = epilogue.addend ? &addend : nullptr,
                    .probe = epilogue.probe ? &probe : nullptr});
  const std::string name = fmt::format("{}x{}x{} {}{} {} -> {}", x.m, x.n, x.k, transpose_a ? 'T' : 'N',
                                       transpose_b ? 'T' : 'N', name_of(data), name_of(epilogue.out));
  c.keep(name, out);
  if (epilogue.probe) c.keep(name + " counts", probe);
}

void add_gemm_cases(std::vector<VerbCase>& cases, DType dtype) {
  const bool low = dtype != DType::f32;
  const auto add = [&](const std::string& name, auto run) {
    cases.push_back({"gemm", fmt::format("{} {}", name_of(dtype), name), run, dtype == DType::bf16});
  };
  for (const bool transpose_a : {false, true})
    for (const bool transpose_b : {false, true})
      add(fmt::format("{}{}", transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N'), [=](CaseContext& c) {
        for (const Data data : all_data) {
          product(c, dtype, {c.extent(256, 16), c.extent(192, 16), c.extent(320, 32)}, transpose_a,
                  transpose_b, data, {.out = dtype});
          product(c, dtype, {c.extent(129, 17), c.extent(67, 9), c.extent(131, 19)}, transpose_a, transpose_b,
                  data, {.bias = true, .out = dtype});
        }
      });
  add("epilogues", [=](CaseContext& c) {
    for (const DType out : low ? std::vector{dtype, DType::f32} : std::vector{dtype})
      for (const bool bias : {false, true})
        for (const bool addend : {false, true})
          product(c, dtype, {c.extent(130, 18), c.extent(136, 24), c.extent(72, 24)}, false, true,
                  Data::special, {.bias = bias, .addend = addend, .probe = true, .out = out});
  });
  add("edges", [=](CaseContext& c) {
    for (const Extents& x :
         {Extents{1, 1, 1}, Extents{1, c.extent(1000, 40), 1}, Extents{c.extent(1000, 40), 1, 3},
          Extents{16, 8, 0}, Extents{3, 5, c.extent(4096, 200)}})
      product(c, dtype, x, false, false, Data::cancelling, {.bias = true, .probe = true, .out = dtype});
  });
  add("batched", [=](CaseContext& c) {
    for (const bool transpose_b : {false, true})
      product(c, dtype, {c.extent(64, 8), c.extent(64, 9), c.extent(16, 16)}, false, transpose_b,
              Data::special, {.addend = true, .probe = true, .out = dtype}, c.extent(37, 3));
  });
}

struct Convolution {
  std::int64_t images, channels, height, width, filters, kernel;
  Conv2dGeometry geometry;
  std::int64_t out_extent(std::int64_t in, std::size_t axis) const {
    return (in + 2 * geometry.padding[axis] - geometry.dilation[axis] * (kernel - 1) - 1) /
               geometry.stride[axis] +
           1;
  }
  Shape shape(std::int64_t depth, std::int64_t rows, std::int64_t columns) const {
    return geometry.layout == Layout::nchw ? Shape{images, depth, rows, columns}
                                           : Shape{images, rows, columns, depth};
  }
  Shape x() const { return shape(channels, height, width); }
  Shape y() const { return shape(filters, out_extent(height, 0), out_extent(width, 1)); }
  Shape weight() const { return {filters, channels, kernel, kernel}; }
};

std::vector<Convolution> convolutions(CaseContext& c, Layout layout) {
  const std::int64_t images = c.extent(16, 1);
  return {{images, 1, c.extent(32, 9), c.extent(32, 9), 6, 5, {.layout = layout}},
          {images, 6, c.extent(14, 7), c.extent(14, 7), 16, 5, {.layout = layout}},
          {images, 3, 13, 11, 8, 3, {.stride = {2, 1}, .padding = {1, 1}, .layout = layout}},
          {images,
           c.extent(32, 8),
           9,
           8,
           16,
           3,
           {.stride = {2, 3}, .padding = {2, 0}, .dilation = {1, 2}, .layout = layout}}};
}

void add_convolution_cases(std::vector<VerbCase>& cases, DType dtype) {
  for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
    const std::string name = fmt::format("{} {}", name_of(dtype), layout == Layout::nchw ? "nchw" : "nhwc");
    const bool bf16 = dtype == DType::bf16;
    const auto each = [layout, dtype](CaseContext& c, auto body) {
      for (const Convolution& one : convolutions(c, layout))
        for (const Data data : {Data::training, Data::wide, Data::special}) {
          body(one, data, dtype);
          if (dtype != DType::f32) body(one, data, DType::f32);  // all bits of the accumulators
        }
    };
    cases.push_back(
        {"conv2d", name,
         [=](CaseContext& c) {
           each(c, [&](const Convolution& one, Data data, DType out_type) {
             const Tensor x = c.random(one.x(), dtype, data), weight = c.random(one.weight(), dtype, data);
             const Tensor bias = c.random({one.filters}, dtype, data);
             Tensor out = c.output(one.y(), out_type);
             CastProbe probe;
             c.backend().conv2d(x, weight, one.geometry, data == Data::wide ? nullptr : &bias, out, &probe);
             c.keep(one.x().to_string(), out);
             c.keep("counts", probe);
           });
         },
         bf16});
    cases.push_back({"conv2d_input_gradient", name,
                     [=](CaseContext& c) {
                       each(c, [&](const Convolution& one, Data data, DType out_type) {
                         const Tensor y = c.random(one.y(), dtype, data),
                                      weight = c.random(one.weight(), dtype, data);
                         Tensor out = c.output(one.x(), out_type);
                         CastProbe probe;
                         c.backend().conv2d_input_gradient(y, weight, one.geometry, out, &probe);
                         c.keep(one.x().to_string(), out);
                         c.keep("counts", probe);
                       });
                     },
                     bf16});
    cases.push_back({"conv2d_weight_gradient", name,
                     [=](CaseContext& c) {
                       each(c, [&](const Convolution& one, Data data, DType out_type) {
                         const Tensor x = c.random(one.x(), dtype, data), y = c.random(one.y(), dtype, data);
                         Tensor out = c.output(one.weight(), out_type);
                         CastProbe probe;
                         c.backend().conv2d_weight_gradient(x, y, one.geometry, out, &probe);
                         c.keep(one.x().to_string(), out);
                         c.keep("counts", probe);
                       });
                     },
                     bf16});
  }
}

}  // namespace

void add_product_cases(std::vector<VerbCase>& cases) {
  for (const DType dtype : floats) add_gemm_cases(cases, dtype);
  for (const DType dtype : floats) add_convolution_cases(cases, dtype);
}

}  // namespace fp16lab::experiments::acceptance
