// Cases of matrix products and convolutions.
#include <fmt/format.h>

#include <optional>

#include "tests/engine/backend/cases/verb_cases.hpp"

namespace fp16lab::engine::cases {
namespace {

using engine::CastProbe;
using engine::Conv2dGeometry;
using engine::GemmCall;
using engine::Layout;
using engine::Shape;
using engine::Tensor;

constexpr DType operands[] = {DType::f32, DType::f16, DType::bf16, DType::tf32};

struct ProductExtents {
  std::int64_t m, n, k;
};

/// What else a product has.
struct Epilogue {
  std::optional<DType> bias = {}, addend = {};
  bool probe = false;
  DType out = DType::f16;
};

/// Operands of `format`, and the dtype in which they are stored: FP32 holds TF32.
constexpr DType stored_dtype(DType format) { return format == DType::tf32 ? DType::f32 : format; }

void product(CaseContext& c, DType format, const ProductExtents& x, bool transpose_a, bool transpose_b,
             Data data, const Epilogue& epilogue, std::int64_t batch = 0) {
  const DType dtype = stored_dtype(format);
  const auto matrix = [&](std::int64_t rows, std::int64_t columns) {
    return batch > 0 ? Shape{batch, rows, columns} : Shape{rows, columns};
  };
  const Tensor a = c.random(transpose_a ? matrix(x.k, x.m) : matrix(x.m, x.k), dtype, data);
  const Tensor b = c.random(transpose_b ? matrix(x.n, x.k) : matrix(x.k, x.n), dtype, data);
  const Tensor bias = c.random({x.n}, epilogue.bias.value_or(dtype), data);
  const Tensor addend = c.random(matrix(x.m, x.n), epilogue.addend.value_or(DType::f32), data);
  Tensor out = c.output(matrix(x.m, x.n), epilogue.out);
  CastProbe probe;
  GemmCall call{.a = a,
                .b = b,
                .out = out,
                .transpose_a = transpose_a,
                .transpose_b = transpose_b,
                .bias = epilogue.bias ? &bias : nullptr,
                .addend = epilogue.addend ? &addend : nullptr,
                .probe = epilogue.probe ? &probe : nullptr,
                .tf32 = format == DType::tf32};
  const Tensor packed = epilogue.bias ? c.backend().pack_b(call) : Tensor();
  call.packed_b = &packed;
  c.backend().gemm(call);
  const std::string name = fmt::format("{}x{}x{} {}{} {} -> {}", x.m, x.n, x.k, transpose_a ? 'T' : 'N',
                                       transpose_b ? 'T' : 'N', name_of(data), name_of(epilogue.out));
  c.keep(name, out);
  if (epilogue.probe) c.keep(name + " counts", probe);
}

/// Every kind of bias and addend, of both types of output, at extents around tiles, runs and slices of k; one
/// product and many.
void odd_products(CaseContext& c, DType format) {
  const DType dtype = stored_dtype(format);
  struct Odd {
    ProductExtents x;
    bool transpose_a, transpose_b;
    std::int64_t batch = 0;
  };
  const Odd odd[] = {
      {{1, 1, 1}, false, false},      {{3, 5, 7}, true, true},      {{17, 33, 31}, false, true},
      {{33, 9, 64}, true, false},     {{64, 10, 128}, false, true}, {{5, 9, 0}, false, false},
      {{4, 17, 1025}, false, false},  {{0, 3, 4}, false, false},    {{3, 5, 7}, true, false, 1},
      {{9, 33, 17}, false, true, 2},  {{5, 8, 40}, true, true, 13}, {{1, 1, 3}, false, false, 300},
      {{70, 66, 36}, false, true, 4}, {{3, 2, 0}, false, false, 2}};
  const std::optional<DType> none, f32 = DType::f32, own = dtype;
  const std::vector<Epilogue> epilogues =
      dtype == DType::f32 ? std::vector<Epilogue>{{.out = dtype},
                                                  {.bias = f32, .out = dtype},
                                                  {.addend = f32, .out = dtype},
                                                  {.bias = f32, .addend = f32, .out = dtype}}
                          : std::vector<Epilogue>{{.out = dtype},
                                                  {.bias = own, .out = dtype},
                                                  {.bias = f32, .addend = own, .out = dtype},
                                                  {.bias = own, .addend = f32, .out = dtype},
                                                  {.out = DType::f32},
                                                  {.bias = own, .addend = f32, .out = DType::f32}};
  for (const Odd& one : odd)
    for (const Data data : {Data::ordinary, Data::wide, Data::special})
      for (Epilogue epilogue : epilogues) {
        epilogue.probe = true;
        product(c, format, one.x, one.transpose_a, one.transpose_b, data, epilogue, one.batch);
      }
}

void add_gemm_cases(std::vector<VerbCase>& cases, DType format) {
  const DType dtype = stored_dtype(format);
  const bool low = dtype != DType::f32;
  const auto add = [&](const std::string& name, auto run) {
    cases.push_back({"gemm", fmt::format("{} {}", name_of(format), name), run, format});
  };
  for (const bool transpose_a : {false, true})
    for (const bool transpose_b : {false, true})
      add(fmt::format("{}{}", transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N'), [=](CaseContext& c) {
        for (const Data data : all_data) {
          product(c, format, {c.extent(256, 16), c.extent(192, 16), c.extent(320, 32)}, transpose_a,
                  transpose_b, data, {.out = dtype});
          product(c, format, {c.extent(129, 17), c.extent(67, 9), c.extent(131, 19)}, transpose_a,
                  transpose_b, data, {.bias = dtype, .out = dtype});
        }
        if (c.odd())
          product(c, format, {50, 41, 77}, transpose_a, transpose_b, Data::wide, {.out = DType::f32});
      });
  add("epilogues", [=](CaseContext& c) {
    const std::optional<DType> none;
    for (const DType out : low ? std::vector{dtype, DType::f32} : std::vector{dtype})
      for (const bool bias : {false, true})
        for (const bool addend : {false, true})
          product(c, format, {c.extent(130, 18), c.extent(136, 24), c.extent(72, 24)}, false, true,
                  Data::special,
                  {.bias = bias ? std::optional(addend ? DType::f32 : dtype) : none,
                   .addend = addend ? std::optional(DType::f32) : none,
                   .probe = true,
                   .out = out});
    if (c.odd()) odd_products(c, format);
  });
  add("edges", [=](CaseContext& c) {
    for (const ProductExtents& x : {ProductExtents{1, 1, 1}, ProductExtents{1, c.extent(1000, 40), 1},
                                    ProductExtents{c.extent(1000, 40), 1, 3}, ProductExtents{16, 8, 0},
                                    ProductExtents{3, 5, c.extent(4096, 200)}})
      product(c, format, x, false, false, Data::cancelling, {.bias = dtype, .probe = true, .out = dtype});
  });
  add("batched", [=](CaseContext& c) {
    for (const bool transpose_b : {false, true})
      product(c, format, {c.extent(64, 8), c.extent(64, 9), c.extent(16, 16)}, false, transpose_b,
              Data::special, {.addend = DType::f32, .probe = true, .out = dtype}, c.extent(37, 3));
  });
}

struct Convolution {
  std::int64_t images, channels, height, width, filters, rows, columns;
  Conv2dGeometry geometry;
  std::int64_t out_extent(std::size_t axis) const {
    const std::int64_t in = axis == 0 ? height : width, taps = axis == 0 ? rows : columns;
    return (in + 2 * geometry.padding[axis] - geometry.dilation[axis] * (taps - 1) - 1) /
               geometry.stride[axis] +
           1;
  }
  Shape shape(std::int64_t depth, std::int64_t down, std::int64_t across) const {
    return geometry.layout == Layout::nchw ? Shape{images, depth, down, across}
                                           : Shape{images, down, across, depth};
  }
  Shape x() const { return shape(channels, height, width); }
  Shape y() const { return shape(filters, out_extent(0), out_extent(1)); }
  Shape weight() const { return {filters, channels / geometry.groups, rows, columns}; }
  std::int64_t multiply_adds() const { return y().element_count() * weight().element_count() / filters; }
};

std::vector<Convolution> convolutions(CaseContext& c, Layout layout) {
  const std::int64_t images = c.extent(16, 1);
  return {{images, 1, c.extent(32, 9), c.extent(32, 9), 6, 5, 5, {.layout = layout}},
          {images, 6, c.extent(14, 7), c.extent(14, 7), 16, 5, 5, {.layout = layout}},
          {images, 3, 13, 11, 8, 3, 3, {.stride = {2, 1}, .padding = {1, 1}, .layout = layout}},
          {images,
           c.extent(32, 8),
           9,
           8,
           16,
           3,
           3,
           {.stride = {2, 3}, .padding = {2, 0}, .dilation = {1, 2}, .layout = layout}},
          {images,
           c.extent(32, 8),
           9,
           8,
           c.extent(64, 16),
           3,
           3,
           {.padding = {1, 2}, .dilation = {1, 2}, .layout = layout, .groups = c.extent(4, 2)}}};
}

/// Every stride, padding and dilation on odd sizes; 1 x 1; the kernel as large as the image; more padding
/// than kernel; several blocks of positions that end inside images; a stride that skips places altogether;
/// channels and planes that make whole 16-byte runs; more rows of taps than a word has bits. Groups: of odd
/// numbers of channels, with all else at once; depthwise, with one filter a channel and with two; whole runs
/// a group; pointwise, also with a stride; too many taps for bits; several tiles a group; many groups.
std::vector<Convolution> odd_convolutions(Layout layout) {
  std::vector<Convolution> all{
      {1, 1, 1, 1, 1, 1, 1, {}},
      {2, 3, 5, 7, 4, 3, 3, {}},
      {2, 3, 5, 7, 4, 3, 3, {.padding = {1, 1}}},
      {1, 2, 9, 8, 3, 3, 2, {.stride = {2, 3}, .padding = {1, 0}}},
      {3, 2, 7, 9, 5, 2, 3, {.stride = {1, 2}, .padding = {2, 1}, .dilation = {2, 3}}},
      {2, 2, 8, 8, 3, 2, 2, {.stride = {3, 3}}},
      {2, 4, 6, 5, 70, 1, 1, {}},
      {2, 4, 6, 5, 3, 1, 1, {.stride = {2, 2}}},
      {3, 2, 6, 5, 4, 6, 5, {}},
      {2, 1, 3, 3, 2, 2, 2, {.padding = {3, 2}}},
      {1, 2, 4, 4, 2, 2, 2, {.stride = {5, 4}, .padding = {1, 2}}},
      {1, 6, 14, 14, 5, 5, 5, {}},
      {4, 1, 28, 31, 3, 3, 3, {.padding = {1, 1}}},
      {130, 2, 5, 5, 2, 3, 3, {.padding = {1, 1}}},
      {2, 40, 6, 6, 5, 3, 3, {.padding = {1, 1}}},
      {3, 1, 53, 59, 2, 2, 2, {.padding = {1, 0}}},
      {2, 8, 6, 4, 16, 3, 3, {.padding = {1, 1}}},
      {1, 16, 4, 6, 8, 1, 1, {}},
      {2, 8, 5, 5, 8, 1, 1, {.stride = {2, 2}, .padding = {1, 0}}},
      {1, 2, 34, 4, 2, 33, 2, {.stride = {1, 2}, .padding = {1, 0}}},
      {2, 6, 7, 9, 9, 2, 3, {.stride = {1, 2}, .padding = {2, 1}, .dilation = {2, 3}, .groups = 3}},
      {2, 5, 6, 7, 5, 3, 3, {.padding = {1, 1}, .groups = 5}},
      {1, 3, 8, 7, 6, 3, 2, {.stride = {2, 3}, .padding = {1, 0}, .groups = 3}},
      {2, 16, 6, 4, 32, 3, 3, {.padding = {1, 1}, .groups = 2}},
      {1, 16, 4, 6, 16, 1, 1, {.groups = 2}},
      {2, 6, 5, 5, 4, 1, 1, {.stride = {2, 2}, .padding = {1, 0}, .groups = 2}},
      {1, 4, 34, 4, 2, 33, 2, {.stride = {1, 2}, .padding = {1, 0}, .groups = 2}},
      {1, 2, 13, 11, 140, 2, 2, {.dilation = {2, 1}, .groups = 2}},
      {1, 20, 3, 2, 20, 2, 1, {.groups = 20}},
      {0, 2, 4, 4, 4, 3, 3, {.groups = 2}},
      {0, 2, 4, 4, 3, 3, 3, {}},
      {2, 0, 4, 4, 3, 3, 3, {}}};
  for (Convolution& one : all) one.geometry.layout = layout;
  return all;
}

/// Large enough to be worth sharing among threads: by positions; with few positions and many channels, the
/// inside of each product; by groups; by the filters of a single channel.
std::vector<Convolution> large_convolutions(DType dtype, Layout layout, bool weight_gradient) {
  const Conv2dGeometry geometry{.padding = {1, 1}, .layout = layout};
  std::vector<Convolution> all;
  if (dtype == (layout == Layout::nchw ? DType::f16 : DType::f32))
    all = {{3, 5, 23, 21, 30, 3, 3, geometry},
           {1, 160, 5, 6, 40, 3, 3, geometry},
           {3, 16, 23, 21, 24, 3, 3, {.padding = {1, 1}, .layout = layout, .groups = 4}}};
  if (weight_gradient && (dtype == DType::f16) == (layout == Layout::nhwc))
    all.push_back({40, 1, 29, 27, 7, 3, 3, geometry});
  return all;
}

/// body(convolution, data, output type) for all that a case of this operand type and layout is.
template <class Body>
void for_each_convolution(CaseContext& c, DType format, Layout layout, bool weight_gradient,
                          const Body& body) {
  const DType dtype = stored_dtype(format);
  const bool short_only = format == DType::bf16 || format == DType::tf32;
  const auto each_output = [&](const Convolution& one, Data data) {
    body(one, data, dtype);
    if (dtype != DType::f32) body(one, data, DType::f32);  // all bits of the accumulators
  };
  for (const Convolution& one : convolutions(c, layout))
    for (const Data data : {Data::training, Data::wide, Data::special}) each_output(one, data);
  if (!c.odd()) return;
  for (const Convolution& one : odd_convolutions(layout)) {
    // The paths of tensor cores differ in how they load and convert: the short cases suffice for two of them.
    if (short_only && one.multiply_adds() > 10000) continue;
    for (const Data data : {Data::sprinkled, Data::wide, Data::special, Data::ordinary}) {
      if (one.geometry.groups > 1 && (data == Data::special || data == Data::ordinary)) continue;
      if (one.multiply_adds() <= 50000 || data == Data::sprinkled || data == Data::wide)
        each_output(one, data);
    }
  }
  if (format == DType::tf32) return;
  for (const Convolution& one : large_convolutions(dtype, layout, weight_gradient))
    body(one, dtype == DType::f32 ? Data::ordinary : Data::wide, DType::f32);
}

void add_convolution_cases(std::vector<VerbCase>& cases, DType format) {
  const DType dtype = stored_dtype(format);
  for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
    const auto add = [&](const std::string& verb, auto body) {
      cases.push_back({verb, fmt::format("{} {}", name_of(format), layout == Layout::nchw ? "nchw" : "nhwc"),
                       [=](CaseContext& c) {
                         for_each_convolution(c, format, layout, verb == "conv2d_weight_gradient",
                                              [&](Convolution one, Data data, DType out_type) {
                                                one.geometry.tf32 = format == DType::tf32;
                                                body(c, one, data, out_type);
                                              });
                       },
                       format});
    };
    const auto keep = [](CaseContext& c, const Convolution& one, const Tensor& out, const CastProbe& probe) {
      c.keep(one.x().to_string(), out);
      c.keep("counts", probe);
    };
    add("conv2d", [=](CaseContext& c, const Convolution& one, Data data, DType out_type) {
      const Tensor x = c.random(one.x(), dtype, data), weight = c.random(one.weight(), dtype, data);
      const Tensor bias = c.random({one.filters}, dtype, data),
                   wide = c.random({one.filters}, DType::f32, data);
      std::vector<const Tensor*> biases{data == Data::wide ? nullptr : &bias};
      if (c.odd() && one.multiply_adds() < 1000000) biases = {nullptr, &wide, &bias};
      for (const Tensor* const added : biases) {
        Tensor out = c.output(one.y(), out_type);
        CastProbe probe;
        c.backend().conv2d(x, weight, one.geometry, added, out, &probe);
        keep(c, one, out, probe);
      }
      if (!c.odd() || data != Data::ordinary) return;
      Tensor out = c.output(one.y(), out_type);
      c.backend().conv2d(x, weight, one.geometry, nullptr, out);
      c.keep("without a probe", out);
    });
    add("conv2d_input_gradient", [=](CaseContext& c, const Convolution& one, Data data, DType out_type) {
      const Tensor y = c.random(one.y(), dtype, data), weight = c.random(one.weight(), dtype, data);
      // Sometimes none, as in backward passes.
      const bool narrow = data == Data::special;
      const Tensor bias = c.random({one.channels}, narrow ? dtype : DType::f32, data);
      const Tensor* const added = narrow || data == Data::sprinkled ? &bias : nullptr;
      Tensor out = c.output(one.x(), out_type);
      CastProbe probe;
      c.backend().conv2d_input_gradient(y, weight, one.geometry, added, out, &probe);
      keep(c, one, out, probe);
    });
    add("conv2d_weight_gradient", [=](CaseContext& c, const Convolution& one, Data data, DType out_type) {
      const Tensor x = c.random(one.x(), dtype, data), y = c.random(one.y(), dtype, data);
      Tensor out = c.output(one.weight(), out_type);
      CastProbe probe;
      c.backend().conv2d_weight_gradient(x, y, one.geometry, out, &probe);
      keep(c, one, out, probe);
    });
  }
}

}  // namespace

void add_product_cases(std::vector<VerbCase>& cases) {
  for (const DType format : operands) add_gemm_cases(cases, format);
  for (const DType format : operands) add_convolution_cases(cases, format);
}

}  // namespace fp16lab::engine::cases
