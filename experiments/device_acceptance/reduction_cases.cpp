// Cases of reductions and indexing.
#include <fmt/format.h>

#include "experiments/device_acceptance/verb_cases.hpp"

namespace fp16lab::experiments::acceptance {
namespace {

using engine::CastProbe;
using engine::ReduceOp;
using engine::Shape;
using engine::Tensor;

constexpr DType floats[] = {DType::f32, DType::f16, DType::bf16};

/// The shape without `axis`.
Shape dropped(const Shape& shape, int axis) {
  std::vector<std::int64_t> extents;
  for (int i = 0; i < shape.rank(); ++i)
    if (i != axis) extents.push_back(shape[i]);
  return Shape(extents);
}

void reduced(CaseContext& c, ReduceOp op, const Shape& shape, int axis, DType dtype, Data data) {
  const Tensor x = c.random(shape, dtype, data);
  Tensor out = c.output(dropped(shape, axis), dtype);
  CastProbe probe;
  c.backend().reduce(op, x, axis, out, &probe);
  const std::string name =
      fmt::format("{} {} axis {} {}", name_of(dtype), shape.to_string(), axis, name_of(data));
  c.keep(name, out);
  c.keep(name + " counts", probe);
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
                         }
                         if (op == ReduceOp::sum) reduced(c, op, {3, 0, 5}, 1, dtype, Data::ordinary);
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
                     for (const DType dtype : floats)
                       for (const std::int64_t width : {1, 33, 64}) {
                         const Tensor table = c.random({83, width}, dtype, Data::special);
                         const Tensor index = c.indices({c.extent(37, 5), 64}, 83);
                         Tensor out = c.output({index.element_count(), width}, dtype);
                         c.backend().gather_rows(table, index, out);
                         c.keep(fmt::format("width {}", width), out);
                       }
                   }});
  cases.push_back(
      {"scatter_rows", "stable segments", [](CaseContext& c) {
         for (const DType dtype : floats)
           for (const Data data : {Data::cancelling, Data::special})
             for (const std::int64_t symbols : {3, 83}) {  // long segments, and short or empty ones
               const std::int64_t rows = c.extent(5003, 403);
               const Tensor x = c.random({rows, 33}, dtype, data), index = c.indices({rows}, symbols);
               Tensor out = c.output({symbols + 2, 33}, dtype);
               CastProbe probe;
               c.backend().scatter_rows(x, index, out, &probe);
               c.keep(fmt::format("{} symbols {}", symbols, name_of(data)), out);
               c.keep("counts", probe);
             }
       }});
}

}  // namespace fp16lab::experiments::acceptance
