// Cases of memory, random numbers and moving bytes.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "tests/engine/backend/cases/verb_cases.hpp"

namespace fp16lab::engine::cases {
namespace {

using engine::Shape;
using engine::Tensor;

PhiloxStream dropout_stream() {
  return {.seed = 11, .stream = stream_id("fc1.dropout"), .iteration = 0, .micro_batch = 2};
}

/// One element, less and more than a vector or block, and enough to be shared by threads.
std::vector<std::int64_t> drawn_sizes(CaseContext& c, std::int64_t full) {
  if (!c.odd()) return {c.extent(full, 1003)};
  return {1, 31, 1025, 70001};
}

/// One of every element size, and both of two bytes.
constexpr DType element_types[] = {DType::u8, DType::f16, DType::bf16, DType::f32, DType::f64};

void permuted(CaseContext& c, const Shape& shape, const std::vector<int>& axes, DType dtype) {
  const Tensor x = c.random(shape, dtype, Data::special);
  std::vector<std::int64_t> extents;
  for (const int axis : axes) extents.push_back(shape[axis]);
  Tensor out = c.output(Shape(extents), dtype);
  c.backend().permute(x, axes, out);
  c.keep(shape.to_string(), out);
}

/// Every order of the axes of small tensors of every rank. Large tensors have whole and cut tiles, also of
/// pairs (even extents), few rows or columns, runs, and enough elements for threads.
void odd_permutations(CaseContext& c, DType dtype) {
  for (const Shape& shape :
       {Shape{}, Shape{7}, Shape{3, 5}, Shape{4, 1}, Shape{2, 3, 4}, Shape{5, 1, 17}, Shape{2, 3, 4, 5},
        Shape{1, 2, 1, 9}, Shape{2, 3, 1, 4, 3}, Shape{3, 2, 2, 3, 2, 2}, Shape{0, 3}, Shape{2, 0, 3}}) {
    std::vector<int> axes(static_cast<std::size_t>(shape.rank()));
    std::iota(axes.begin(), axes.end(), 0);
    do permuted(c, shape, axes, dtype);
    while (std::next_permutation(axes.begin(), axes.end()));
  }
  const std::pair<Shape, std::vector<int>> large[] = {{{300, 257}, {1, 0}},
                                                      {{16, 64}, {1, 0}},
                                                      {{134, 70}, {1, 0}},
                                                      {{3, 66, 100}, {0, 2, 1}},
                                                      {{34, 5, 66}, {2, 1, 0}},
                                                      {{3, 34, 2, 40}, {1, 3, 0, 2}},
                                                      {{3, 20000}, {1, 0}},
                                                      {{20000, 3}, {1, 0}},
                                                      {{65, 17, 63}, {2, 0, 1}},
                                                      {{65, 17, 63}, {2, 1, 0}},
                                                      {{65, 17, 63}, {0, 2, 1}},
                                                      {{65, 17, 63}, {1, 0, 2}},
                                                      {{65, 17, 63}, {1, 2, 0}},
                                                      {{8, 3, 33, 31}, {0, 2, 3, 1}},
                                                      {{8, 33, 31, 3}, {0, 3, 1, 2}},
                                                      {{4, 50, 6, 40}, {0, 2, 1, 3}},
                                                      {{4, 50, 6, 40}, {3, 1, 2, 0}}};
  for (const auto& [shape, axes] : large) permuted(c, shape, axes, dtype);
}

Shape with_extent(const Shape& shape, int axis, std::int64_t extent) {
  std::vector<std::int64_t> extents(shape.extents().begin(), shape.extents().end());
  extents[static_cast<std::size_t>(axis < 0 ? axis + shape.rank() : axis)] = extent;
  return Shape(extents);
}

/// body(shape, axis, extent, begin, dtype): nothing, one, most and all of every axis, counted from either
/// end.
template <class Body>
void for_each_odd_part(CaseContext& c, const Body& body) {
  if (!c.odd()) return;
  for (const Shape& shape :
       {Shape{6}, Shape{4, 5}, Shape{3, 4, 5}, Shape{2, 3, 2, 3, 1, 4}, Shape{200, 9, 40}})
    for (int axis = -shape.rank(); axis < shape.rank(); ++axis) {
      const std::int64_t whole = shape[axis];
      for (const std::int64_t extent : {std::int64_t{0}, std::int64_t{1}, whole - whole / 3, whole})
        for (const std::int64_t begin : {std::int64_t{0}, (whole - extent) / 2, whole - extent})
          for (const DType dtype : {DType::f32, DType::f16}) body(shape, axis, extent, begin, dtype);
    }
}

void sliced(CaseContext& c, const Shape& shape, int axis, std::int64_t extent, std::int64_t begin,
            DType dtype) {
  const Tensor x = c.random(shape, dtype, Data::special);
  Tensor out = c.output(with_extent(shape, axis, extent), dtype);
  c.backend().slice(x, axis, begin, out);
  c.keep(fmt::format("axis {}", axis), out);
}

void inserted(CaseContext& c, const Shape& shape, int axis, std::int64_t extent, std::int64_t begin,
              DType dtype) {
  Tensor out = c.random(shape, dtype, Data::wide);
  const Tensor x = c.random(with_extent(shape, axis, extent), dtype, Data::special);
  c.backend().insert(x, axis, begin, out);
  c.keep(fmt::format("axis {}", axis), out);
}

}  // namespace

void add_memory_cases(std::vector<VerbCase>& cases) {
  cases.push_back({"empty", "every byte can be written", [](CaseContext& c) {
                     for (const DType dtype : {DType::u8, DType::f16, DType::f64})
                       c.keep("zeros", [&] {
                         Tensor tensor = c.backend().empty({c.extent(100003, 1003)}, dtype);
                         const std::vector<std::byte> zeros(tensor.byte_count());
                         c.backend().upload(zeros, tensor);
                         return tensor;
                       }());
                   }});
  for (const char* verb : {"upload", "download"})
    cases.push_back({verb, "any bits there and back", [](CaseContext& c) {
                       for (const DType dtype : floats)
                         c.keep("words", c.random({c.extent(300007, 3007)}, dtype, Data::special));
                       c.keep("integers", c.indices({c.extent(70001, 701)}, 1 << 30));
                       c.keep("nothing", c.random({0}, DType::f32, Data::wide));
                     }});
  cases.push_back({"copy", "NaN payloads stay", [](CaseContext& c) {
                     for (const DType dtype : floats) {
                       const Tensor x = c.random({c.extent(100003, 1003)}, dtype, Data::special);
                       Tensor out = c.output(x.shape(), dtype);
                       c.backend().copy(x, out);
                       c.keep("copy", out);
                     }
                   }});
  cases.push_back(
      {"fill", "rounded once", [](CaseContext& c) {
         std::vector<double> values{0.0, -0.0, 1.0 / 3, 65519.999, 65520.0, 0x1p-25, 1e300};
         // Just above a tie of FP16 and of BF16, on which it would fall through FP32; that tie; the
         // tie between BF16's largest number and 2^128, and what is below it; its smallest numbers.
         if (c.odd())
           values.insert(values.end(), {1 + 0x1p-11 + 0x1p-40, 1 + 0x1p-8 + 0x1p-40, 1 + 0x1p-8, 0x1.ffp127,
                                        -0x1.feffffffp127, 0x1p-134, 0x1.8p-133});
         const auto filled = [&](DType dtype, std::int64_t size, double value) {
           Tensor out = c.output({size}, dtype);
           c.backend().fill(out, value);
           c.keep(fmt::format("{} {}", name_of(dtype), value), out);
         };
         for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f64})
           for (const double value : values) filled(dtype, c.extent(4099, 259), value);
         for (const DType dtype : floats) filled(dtype, c.odd() ? 70001 : 31, -std::nan(""));
         filled(DType::i32, 7, -2147483648.0);
         Tensor integers = c.output({1001}, DType::i32), bytes = c.output({1001}, DType::u8);
         c.backend().fill(integers, -7);
         c.backend().fill(bytes, 200);
         c.keep("i32", integers);
         c.keep("u8", bytes);
       }});
  for (const bool uniform : {true, false})
    cases.push_back({uniform ? "fill_uniform" : "fill_normal", "two ranges", [uniform](CaseContext& c) {
                       for (const float width : {1.0f, 0.03f, 0.0f})
                         for (const std::int64_t size : drawn_sizes(c, 200003)) {
                           Tensor out = c.output({size}, DType::f32);
                           const PhiloxStream stream{.seed = 5, .stream = stream_id("fc1.weight")};
                           if (uniform)
                             c.backend().fill_uniform(out, stream, -width, width * 0.75f);
                           else
                             c.backend().fill_normal(out, stream, 0.25f, width);
                           c.keep(fmt::format("width {}", width), out);
                         }
                     }});
  cases.push_back(
      {"fill_bernoulli", "the iteration comes from the step state", [](CaseContext& c) {
         for (const std::uint64_t iteration : {0UL, 7UL, (9UL << 32) + 77}) {  // its low 32 bits count
           engine::StepState state = state_in_training();
           state.iteration = iteration;
           const Tensor step = c.backend().make_step_state(state);
           std::vector<float> probabilities{0.8f};
           if (c.odd() && iteration > 7) probabilities = {0.0f, 0x1p-24f, 0.1f, 0.5f, 1.0f - 0x1p-24f, 1.0f};
           for (const float keep : probabilities)
             for (const DType dtype : floats)
               for (const std::int64_t size : drawn_sizes(c, 100003)) {
                 Tensor out = c.output({size}, dtype);
                 c.backend().fill_bernoulli(out, dropout_stream(), keep, step);
                 c.keep(fmt::format("iteration {}, keep {}", iteration, keep), out);
               }
           c.keep("the state is only read", c.backend().read_step_state(step));
         }
       }});
  cases.push_back({"permute", "ranks 2 to 5", [](CaseContext& c) {
                     const std::int64_t n = c.extent(33, 3);
                     for (const DType dtype : floats) {
                       permuted(c, {c.extent(257, 37), c.extent(509, 41)}, {1, 0}, dtype);
                       permuted(c, {n, 17, 65}, {2, 0, 1}, dtype);
                       permuted(c, {n, 5, 8, 12}, {0, 2, 1, 3}, dtype);
                       permuted(c, {n, 3, 15, 16}, {0, 2, 3, 1}, dtype);
                       permuted(c, {2, n, 3, 4, 5}, {4, 3, 2, 1, 0}, dtype);
                     }
                     if (!c.odd()) return;
                     for (const DType dtype : element_types) odd_permutations(c, dtype);
                   }});
  for (const bool slices : {true, false})
    cases.push_back({slices ? "slice" : "insert", slices ? "every axis" : "the rest stays",
                     [part = slices ? &sliced : &inserted, begin = slices ? 2 : 1](CaseContext& c) {
                       for (const DType dtype : floats)
                         for (const int axis : {0, 1, 2})
                           part(c, {c.extent(37, 7), c.extent(101, 11), 33}, axis, 5, begin, dtype);
                       for_each_odd_part(
                           c, [&](const Shape& shape, int axis, std::int64_t extent, std::int64_t first,
                                  DType dtype) { part(c, shape, axis, extent, first, dtype); });
                     }});
}

}  // namespace fp16lab::engine::cases
