// Cases of memory, random numbers and moving bytes.
#include <fmt/format.h>

#include <array>
#include <numeric>

#include "experiments/device_acceptance/cases/verb_cases.hpp"

namespace fp16lab::experiments::acceptance {
namespace {

using engine::Shape;
using engine::Tensor;

constexpr DType floats[] = {DType::f32, DType::f16, DType::bf16};

PhiloxStream dropout_stream() {
  return {.seed = 11, .stream = stream_id("fc1.dropout"), .iteration = 0, .micro_batch = 2};
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
  cases.push_back({"fill", "rounded once", [](CaseContext& c) {
                     for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f64})
                       for (const double value : {0.0, -0.0, 1.0 / 3, 65519.999, 65520.0, 0x1p-25, 1e300}) {
                         Tensor out = c.output({c.extent(4099, 259)}, dtype);
                         c.backend().fill(out, value);
                         c.keep(fmt::format("{} {}", name_of(dtype), value), out);
                       }
                     Tensor integers = c.output({1001}, DType::i32), bytes = c.output({1001}, DType::u8);
                     c.backend().fill(integers, -7);
                     c.backend().fill(bytes, 200);
                     c.keep("i32", integers);
                     c.keep("u8", bytes);
                   }});
  for (const bool uniform : {true, false})
    cases.push_back({uniform ? "fill_uniform" : "fill_normal", "two ranges", [uniform](CaseContext& c) {
                       for (const float width : {1.0f, 0.03f}) {
                         Tensor out = c.output({c.extent(200003, 1003)}, DType::f32);
                         const PhiloxStream stream{.seed = 5, .stream = stream_id("fc1.weight")};
                         if (uniform)
                           c.backend().fill_uniform(out, stream, -width, width);
                         else
                           c.backend().fill_normal(out, stream, 0.25f, width);
                         c.keep(fmt::format("width {}", width), out);
                       }
                     }});
  cases.push_back({"fill_bernoulli", "the iteration comes from the step state", [](CaseContext& c) {
                     for (const std::uint64_t iteration : {0U, 7U}) {
                       engine::StepState state = c.state_in_training();
                       state.iteration = iteration;
                       const Tensor step = c.backend().make_step_state(state);
                       for (const DType dtype : floats) {
                         Tensor out = c.output({c.extent(100003, 1003)}, dtype);
                         c.backend().fill_bernoulli(out, dropout_stream(), 0.8f, step);
                         c.keep(fmt::format("iteration {}", iteration), out);
                       }
                     }
                   }});
  cases.push_back({"permute", "ranks 2 to 5", [](CaseContext& c) {
                     const auto permuted = [&c](const Shape& shape, std::vector<int> axes, DType dtype) {
                       const Tensor x = c.random(shape, dtype, Data::special);
                       std::vector<std::int64_t> extents;
                       for (const int axis : axes) extents.push_back(shape[axis]);
                       Tensor out = c.output(Shape(extents), dtype);
                       c.backend().permute(x, axes, out);
                       c.keep(shape.to_string(), out);
                     };
                     const std::int64_t n = c.extent(33, 3);
                     for (const DType dtype : floats) {
                       permuted({c.extent(257, 37), c.extent(509, 41)}, {1, 0}, dtype);
                       permuted({n, 17, 65}, {2, 0, 1}, dtype);
                       permuted({n, 5, 8, 12}, {0, 2, 1, 3}, dtype);
                       permuted({n, 3, 15, 16}, {0, 2, 3, 1}, dtype);
                       permuted({2, n, 3, 4, 5}, {4, 3, 2, 1, 0}, dtype);
                     }
                   }});
  cases.push_back(
      {"slice", "every axis", [](CaseContext& c) {
         for (const DType dtype : floats)
           for (const int axis : {0, 1, 2}) {
             const Tensor x = c.random({c.extent(37, 7), c.extent(101, 11), 33}, dtype, Data::special);
             std::array<std::int64_t, 3> extents{x.shape()[0], x.shape()[1], x.shape()[2]};
             extents[static_cast<std::size_t>(axis)] = 5;
             Tensor out = c.output(Shape(extents), dtype);
             c.backend().slice(x, axis, 2, out);
             c.keep(fmt::format("axis {}", axis), out);
           }
       }});
  cases.push_back({"insert", "the rest stays", [](CaseContext& c) {
                     for (const DType dtype : floats)
                       for (const int axis : {0, 1, 2}) {
                         std::array<std::int64_t, 3> extents{c.extent(37, 7), c.extent(101, 11), 33};
                         Tensor out = c.random(Shape(extents), dtype, Data::wide);
                         extents[static_cast<std::size_t>(axis)] = 5;
                         const Tensor x = c.random(Shape(extents), dtype, Data::special);
                         c.backend().insert(x, axis, 1, out);
                         c.keep(fmt::format("axis {}", axis), out);
                       }
                   }});
}

}  // namespace fp16lab::experiments::acceptance
