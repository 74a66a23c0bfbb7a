// Cases of pooling.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tests/engine/backend/cases/verb_cases.hpp"

namespace fp16lab::engine::cases {
namespace {

using engine::Layout;
using engine::Pool2dGeometry;
using engine::Shape;
using engine::Tensor;

struct Pooling {
  std::int64_t images, channels, height, width;
  Pool2dGeometry geometry = {};
  std::int64_t out_extent(std::size_t axis) const {
    return ((axis == 0 ? height : width) + 2 * geometry.padding[axis] - geometry.kernel[axis]) /
               geometry.stride[axis] +
           1;
  }
  Shape shape(std::int64_t rows, std::int64_t columns) const {
    return geometry.layout == Layout::nchw ? Shape{images, channels, rows, columns}
                                           : Shape{images, rows, columns, channels};
  }
  Shape large() const { return shape(height, width); }
  Shape small() const { return shape(out_extent(0), out_extent(1)); }
};

/// Windows side by side, overlapping, and with rows and columns that none covers.
std::vector<Pooling> poolings(CaseContext& c) {
  std::vector<Pooling> all;
  for (const auto& [kernel, stride, padding] :
       {std::array{2, 2, 0}, std::array{3, 2, 1}, std::array{2, 3, 0}})
    all.push_back({c.extent(16, 1),
                   c.extent(6, 3),
                   c.extent(28, 9),
                   c.extent(27, 8),
                   {.kernel = {kernel, kernel + (padding > 0 ? 1 : 0)},
                    .stride = {stride, 2},
                    .padding = {padding, padding}}});
  return all;
}

/// Windows side by side, overlapping and apart; padding; 1 x 1; the whole image; rows longer than any strip;
/// remainders that no window reaches; channels that make whole 16-byte packs.
std::vector<Pooling> odd_poolings() {
  return {{1, 1, 1, 1, {{1, 1}, {1, 1}}},
          {2, 3, 4, 6},
          {2, 3, 5, 7},
          {2, 2, 7, 6, {{3, 3}, {2, 2}, {1, 1}}},
          {1, 3, 5, 9, {{3, 2}, {1, 1}, {1, 1}}},
          {3, 2, 9, 8, {{2, 3}, {3, 4}, {1, 0}}},
          {2, 5, 6, 7, {{6, 7}, {1, 1}}},
          {1, 70, 3, 4, {{2, 2}, {1, 2}}},
          {1, 2, 6, 301},
          {1, 1, 5, 700, {{3, 3}, {1, 1}, {1, 1}}},
          {32, 6, 12, 12},
          {1, 2, 8, 9, {{1, 2}, {3, 3}}},
          {1, 1, 4, 2, {{4, 4}, {1, 1}, {2, 2}}},
          {2, 16, 5, 6, {{3, 2}, {2, 1}, {1, 0}}},
          {0, 2, 4, 4}};
}

/// run(context, pooling, dtype, data, name) for every layout, dtype and kind of data; on the odd extents for
/// those kinds that all verbs have.
template <class Run>
void add_case(std::vector<VerbCase>& cases, const char* verb, const char* name, std::vector<Data> kinds,
              Run run) {
  const auto each = [run](CaseContext& c, std::vector<Pooling> all, const std::vector<Data>& data) {
    for (const Data kind : data)
      for (const Layout layout : {Layout::nchw, Layout::nhwc})
        for (Pooling& pooling : all) {
          pooling.geometry.layout = layout;
          for (const DType dtype : floats)
            run(c, pooling, dtype, kind,
                fmt::format("{} {} {} kernel {} stride {}", layout == Layout::nchw ? "nchw" : "nhwc",
                            name_of(dtype), name_of(kind), pooling.geometry.kernel[0],
                            pooling.geometry.stride[0]));
        }
  };
  cases.push_back({verb, name, [each, kinds](CaseContext& c) {
                     each(c, poolings(c), kinds);
                     if (c.odd())
                       each(c, odd_poolings(), {Data::ordinary, Data::special, Data::cancelling, Data::few});
                   }});
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
  add_case(cases, "max_pool2d", "windows", {Data::training, Data::special},
           [](CaseContext& c, const Pooling& pooling, DType dtype, Data data, const std::string& name) {
             const auto [out, index] = maxima(c, pooling, dtype, data);
             c.keep(name, out);
             c.keep(name + " index", index);
           });
  add_case(cases, "pool_pick", "at the maxima's places", {Data::special},
           [](CaseContext& c, const Pooling& pooling, DType dtype, Data data, const std::string& name) {
             std::vector<Tensor> indices{maxima(c, pooling, dtype, Data::training).second};
             if (c.odd()) indices.push_back(c.indices(pooling.small(), pooling.height * pooling.width));
             const Tensor x = c.random(pooling.large(), dtype, data);
             for (const Tensor& index : indices) {
               Tensor out = c.output(pooling.small(), dtype);
               c.backend().pool_pick(x, index, pooling.geometry.layout, out);
               c.keep(name, out);
             }
           });
  add_case(cases, "pool_place", "at the maxima's places", {Data::cancelling, Data::special},
           [](CaseContext& c, const Pooling& pooling, DType dtype, Data data, const std::string& name) {
             std::vector<Tensor> indices{maxima(c, pooling, dtype, Data::training).second};
             const std::int64_t plane = pooling.height * pooling.width;
             if (c.odd())  // many to a place, and few
               for (const std::int64_t places : {std::min<std::int64_t>(3, plane), plane})
                 indices.push_back(c.indices(pooling.small(), places));
             const Tensor x = c.random(pooling.small(), dtype, data);
             for (const Tensor& index : indices) {
               Tensor out = c.output(pooling.large(), dtype);
               c.backend().pool_place(x, index, pooling.geometry.layout, out);
               c.keep(name, out);
             }
           });
  add_case(cases, "average_pool2d", "windows", {Data::training, Data::special},
           [](CaseContext& c, const Pooling& pooling, DType dtype, Data data, const std::string& name) {
             const Tensor x = c.random(pooling.large(), dtype, data);
             Tensor out = c.output(pooling.small(), dtype);
             c.backend().average_pool2d(x, pooling.geometry, out);
             c.keep(name, out);
           });
  add_case(cases, "average_pool2d_transposed", "windows", {Data::training, Data::special},
           [](CaseContext& c, const Pooling& pooling, DType dtype, Data data, const std::string& name) {
             const Tensor x = c.random(pooling.small(), dtype, data);
             Tensor out = c.output(pooling.large(), dtype);
             c.backend().average_pool2d_transposed(x, pooling.geometry, out);
             c.keep(name, out);
           });
}

}  // namespace fp16lab::engine::cases
