// Cases of pooling.
#include <fmt/format.h>

#include "experiments/device_acceptance/verb_cases.hpp"

namespace fp16lab::experiments::acceptance {
namespace {

using engine::Layout;
using engine::Pool2dGeometry;
using engine::Shape;
using engine::Tensor;

constexpr DType floats[] = {DType::f32, DType::f16, DType::bf16};

struct Pooling {
  Pool2dGeometry geometry;
  std::int64_t images, channels, height, width;
  std::int64_t out_extent(std::int64_t in, std::size_t axis) const {
    return (in + 2 * geometry.padding[axis] - geometry.kernel[axis]) / geometry.stride[axis] + 1;
  }
  Shape shape(std::int64_t rows, std::int64_t columns) const {
    return geometry.layout == Layout::nchw ? Shape{images, channels, rows, columns}
                                           : Shape{images, rows, columns, channels};
  }
  Shape large() const { return shape(height, width); }
  Shape small() const { return shape(out_extent(height, 0), out_extent(width, 1)); }
};

/// Windows side by side, overlapping, and with rows and columns that none covers.
template <class Body>
void for_each_pooling(CaseContext& c, const Body& body) {
  for (const Layout layout : {Layout::nchw, Layout::nhwc})
    for (const auto& [kernel, stride, padding] :
         {std::array{2, 2, 0}, std::array{3, 2, 1}, std::array{2, 3, 0}}) {
      const Pooling pooling{.geometry = {.kernel = {kernel, kernel + (padding > 0 ? 1 : 0)},
                                         .stride = {stride, 2},
                                         .padding = {padding, padding},
                                         .layout = layout},
                            .images = c.extent(16, 1),
                            .channels = c.extent(6, 3),
                            .height = c.extent(28, 9),
                            .width = c.extent(27, 8)};
      for (const DType dtype : floats)
        body(pooling, dtype,
             fmt::format("{} {} kernel {} stride {}", layout == Layout::nchw ? "nchw" : "nhwc",
                         name_of(dtype), kernel, stride));
    }
}

/// Places of the windows' maxima, and the maxima.
std::pair<Tensor, Tensor> maxima(CaseContext& c, const Pooling& pooling, DType dtype, Data data) {
  const Tensor x = c.random(pooling.large(), dtype, data);
  Tensor out = c.output(pooling.small(), dtype), index = c.output(pooling.small(), DType::i32);
  c.backend().max_pool2d(x, pooling.geometry, out, index);
  return {out, index};
}

}  // namespace

void add_pooling_cases(std::vector<VerbCase>& cases) {
  cases.push_back({"max_pool2d", "windows", [](CaseContext& c) {
                     for (const Data data : {Data::training, Data::special})
                       for_each_pooling(c, [&](const Pooling& pooling, DType dtype, const std::string& name) {
                         const auto [out, index] = maxima(c, pooling, dtype, data);
                         c.keep(name, out);
                         c.keep(name + " index", index);
                       });
                   }});
  cases.push_back({"pool_pick", "at the maxima's places", [](CaseContext& c) {
                     for_each_pooling(c, [&](const Pooling& pooling, DType dtype, const std::string& name) {
                       const Tensor index = maxima(c, pooling, dtype, Data::training).second;
                       const Tensor x = c.random(pooling.large(), dtype, Data::special);
                       Tensor out = c.output(pooling.small(), dtype);
                       c.backend().pool_pick(x, index, pooling.geometry.layout, out);
                       c.keep(name, out);
                     });
                   }});
  cases.push_back({"pool_place", "at the maxima's places", [](CaseContext& c) {
                     for (const Data data : {Data::cancelling, Data::special})
                       for_each_pooling(c, [&](const Pooling& pooling, DType dtype, const std::string& name) {
                         const Tensor index = maxima(c, pooling, dtype, Data::training).second;
                         const Tensor x = c.random(pooling.small(), dtype, data);
                         Tensor out = c.output(pooling.large(), dtype);
                         c.backend().pool_place(x, index, pooling.geometry.layout, out);
                         c.keep(name, out);
                       });
                   }});
  cases.push_back({"average_pool2d", "windows", [](CaseContext& c) {
                     for (const Data data : {Data::training, Data::special})
                       for_each_pooling(c, [&](const Pooling& pooling, DType dtype, const std::string& name) {
                         const Tensor x = c.random(pooling.large(), dtype, data);
                         Tensor out = c.output(pooling.small(), dtype);
                         c.backend().average_pool2d(x, pooling.geometry, out);
                         c.keep(name, out);
                       });
                   }});
  cases.push_back({"average_pool2d_transposed", "windows", [](CaseContext& c) {
                     for (const Data data : {Data::training, Data::special})
                       for_each_pooling(c, [&](const Pooling& pooling, DType dtype, const std::string& name) {
                         const Tensor x = c.random(pooling.small(), dtype, data);
                         Tensor out = c.output(pooling.large(), dtype);
                         c.backend().average_pool2d_transposed(x, pooling.geometry, out);
                         c.keep(name, out);
                       });
                   }});
}

}  // namespace fp16lab::experiments::acceptance
