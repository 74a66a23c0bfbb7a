// Cases of reductions and indexing.
#include <fmt/format.h>

#include <cmath>

#include "tests/engine/backend/cases/verb_cases.hpp"

namespace fp16lab::engine::cases {
namespace {

using engine::CastProbe;
using engine::ReduceOp;
using engine::Shape;
using engine::Tensor;

/// `axis`, which may be negative, is dropped or kept with an extent of 1.
void reduced(CaseContext& c, ReduceOp op, const Shape& shape, int axis, DType dtype, Data data,
             bool keep = false) {
  const Tensor x = c.random(shape, dtype, data);
  std::vector<std::int64_t> extents(shape.extents().begin(), shape.extents().end());
  const auto at = extents.begin() + (axis < 0 ? axis + shape.rank() : axis);
  if (keep)
    *at = 1;
  else
    extents.erase(at);
  Tensor out = c.output(Shape(extents), dtype);
  CastProbe probe;
  c.backend().reduce(op, x, axis, out, &probe);
  const std::string name =
      fmt::format("{} {} axis {} {}", name_of(dtype), shape.to_string(), axis, name_of(data));
  c.keep(name, out);
  c.keep(name + " counts", probe);
}

/// Around chunks, lanes and blocks of columns; rows, columns and planes; one element, and none.
void reduced_odd(CaseContext& c, ReduceOp op, DType dtype, Data data) {
  struct Odd {
    Shape shape;
    int axis;
    bool keep = false;
  };
  for (const Odd& one :
       {Odd{{32}, 0, true},  Odd{{33}, -1},     Odd{{1024}, 0},           Odd{{1025}, 0},
        Odd{{33797}, 0},     Odd{{5, 1025}, 1}, Odd{{5, 1025}, -1, true}, Odd{{1025, 5}, 0},
        Odd{{1025, 130}, 0}, Odd{{64, 512}, 0}, Odd{{3, 40, 7}, 1},       Odd{{2, 3, 4, 5}, 2, true},
        Odd{{40000, 3}, 0},  Odd{{6000, 3}, 1}, Odd{{2, 2100, 65}, 1},    Odd{{1, 1}, 0},
        Odd{{7, 1}, 0},      Odd{{0, 3}, 1},    Odd{{31, 1, 1000}, 0},    Odd{{9, 34000}, 1}})
    reduced(c, op, one.shape, one.axis, dtype, data, one.keep);
}

/// A missing element would be a +0: it would win over negative numbers, and turn a -0. The first of equal
/// zeros is the maximum.
void reduced_zeros(CaseContext& c, ReduceOp op, DType dtype) {
  for (const std::int64_t extent : {1, 40, 1023, 1024, 1025, 2047, 2048, 2049, 3072})
    for (const double value : {-1.0, -0.0, 0.0}) {
      Tensor x = c.random({extent}, dtype, Data::ordinary), out = c.output({}, dtype);
      if (value == 0.0 && !std::signbit(value))
        c.backend().scale(x, 0.0f, x);  // zeros of either sign
      else
        c.backend().fill(x, value);
      c.backend().reduce(op, x, 0, out);
      c.keep(fmt::format("{} times {}", extent, value), out);
    }
}

struct Lookup {
  std::int64_t symbols, features;
  std::vector<std::int32_t> index;
};

/// Absent and single symbols, repeated ones in mixed order, one symbol more than 1024 times (two chunks of
/// TREE) and more than 64 columns (two blocks of columns).
std::vector<Lookup> odd_lookups() {
  std::vector<Lookup> all{
      {5, 3, {4}}, {5, 3, {}}, {1, 7, {0, 0, 0}}, {6, 1, {3, 3, 5, 0, 3, 5}}, {4, 0, {1, 1}}};
  const auto mixed = [](std::int64_t symbols, std::int64_t features, std::int64_t count) {
    std::vector<std::int32_t> index;
    for (std::int64_t i = 0; i < count; ++i)  // squares are half of all residues: the others stay absent
      index.push_back(static_cast<std::int32_t>(i * i % symbols));
    return Lookup{symbols, features, index};
  };
  all.push_back(mixed(67, 130, 3000));
  all.push_back(mixed(2003, 33, 2500));
  Lookup skewed = mixed(11, 65, 2300);
  for (std::size_t i = 0; i < skewed.index.size(); ++i)
    if (i % 7 != 0) skewed.index[i] = 6;
  all.push_back(skewed);
  Lookup around{12, 5, {}};  // fewer entries than TREE has lanes, as many, more, and whole rounds of lanes
  const std::int64_t entries[] = {31, 32, 33, 63, 64, 65, 127, 128, 129, 160, 1024, 1025};
  for (std::int64_t i = 0; i < 1025; ++i)
    for (std::int32_t symbol = 0; symbol < 12; ++symbol)
      if (i < entries[symbol]) around.index.push_back(symbol);
  all.push_back(around);
  return all;
}

/// body(symbols, features, index tensor of the lookup) for all odd ones.
template <class Body>
void for_each_odd_lookup(CaseContext& c, const Body& body) {
  if (!c.odd()) return;
  for (const Lookup& one : odd_lookups()) {
    Tensor index = c.backend().empty({static_cast<std::int64_t>(one.index.size())}, DType::i32);
    c.backend().upload(std::as_bytes(std::span(one.index)), index);
    body(one.symbols, one.features, index);
  }
}

void gathered(CaseContext& c, DType dtype, std::int64_t symbols, std::int64_t width, const Tensor& index) {
  const Tensor table = c.random({symbols, width}, dtype, Data::special);
  Tensor out = c.output({index.element_count(), width}, dtype);
  c.backend().gather_rows(table, index, out);
  c.keep(fmt::format("width {}", width), out);
}

void scattered(CaseContext& c, DType dtype, Data data, std::int64_t symbols, std::int64_t width,
               const Tensor& index) {
  const Tensor x = c.random({index.element_count(), width}, dtype, data);
  Tensor out = c.output({symbols, width}, dtype);
  CastProbe probe;
  c.backend().scatter_rows(x, index, out, &probe);
  c.keep(fmt::format("{} symbols {}", symbols, name_of(data)), out);
  c.keep("counts", probe);
}

}  // namespace

void add_reduction_cases(std::vector<VerbCase>& cases) {
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max})
    for (const DType dtype : floats)
      cases.push_back({"reduce", fmt::format("{} {}", op == ReduceOp::sum ? "sum" : "max", name_of(dtype)),
                       [op, dtype](CaseContext& c) {
                         for (const Data data : {Data::ordinary, Data::cancelling, Data::special}) {
                           reduced(c, op, {c.extent(1, 1)}, 0, dtype, data);
                           reduced(c, op, {31}, 0, dtype, data);
                           reduced(c, op, {c.extent((1 << 20) + 1025, 2051)}, 0, dtype,
                                   data);                                             // three levels of TREE
                           reduced(c, op, {c.extent(2048, 33), 65}, 0, dtype, data);  // columns
                           reduced(c, op, {c.extent(129, 5), c.extent(3000, 1100)}, 1, dtype, data);  // rows
                           reduced(c, op, {7, c.extent(1025, 1025), c.extent(33, 3)}, 1, dtype, data);
                           if (c.odd()) reduced_odd(c, op, dtype, data);
                         }
                         if (op == ReduceOp::sum) reduced(c, op, {3, 0, 5}, 1, dtype, Data::ordinary);
                         if (!c.odd()) return;
                         reduced_zeros(c, op, dtype);
                         if (op == ReduceOp::max || dtype != DType::f32) return;
                         for (const Shape& shape : {Shape{1024 * 1024 + 33}, Shape{1024 * 1024 + 33, 2}})
                           reduced(c, op, shape, 0, dtype, Data::cancelling);  // three levels of TREE
                       }});
  cases.push_back(
      {"pick", "rows of logits", [](CaseContext& c) {
         for (const DType dtype : floats) {
           const std::int64_t rows = c.extent(3001, 131);
           const Tensor x = c.random({rows, 83}, dtype, Data::special), index = c.indices({rows}, 83);
           Tensor out = c.output({rows}, dtype);
           c.backend().pick(x, index, out);
           c.keep("picked", out);
         }
       }});
  cases.push_back({"place", "rows of logits", [](CaseContext& c) {
                     for (const DType dtype : floats) {
                       const std::int64_t rows = c.extent(3001, 131);
                       const Tensor x = c.random({rows}, dtype, Data::special), index = c.indices({rows}, 83);
                       Tensor out = c.output({rows, 83}, dtype);
                       c.backend().place(x, index, out);
                       c.keep("placed", out);
                     }
                   }});
  cases.push_back({"gather_rows", "embedding", [](CaseContext& c) {
                     for (const DType dtype : floats) {
                       for (const std::int64_t width : {1, 33, 64})
                         gathered(c, dtype, 83, width, c.indices({c.extent(37, 5), 64}, 83));
                       for_each_odd_lookup(
                           c, [&](std::int64_t symbols, std::int64_t width, const Tensor& index) {
                             gathered(c, dtype, symbols, width, index);
                           });
                     }
                   }});
  cases.push_back(
      {"scatter_rows", "stable segments", [](CaseContext& c) {
         for (const DType dtype : floats)
           for (const Data data : {Data::cancelling, Data::special}) {
             for (const std::int64_t symbols : {3, 83})  // long segments, and short or empty ones
               scattered(c, dtype, data, symbols + 2, 33, c.indices({c.extent(5003, 403)}, symbols));
             for_each_odd_lookup(c, [&](std::int64_t symbols, std::int64_t width, const Tensor& index) {
               scattered(c, dtype, data, symbols, width, index);
             });
           }
       }});
}

}  // namespace fp16lab::engine::cases
