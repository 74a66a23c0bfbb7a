// Cases of the elementwise verbs.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <utility>

#include "numerics/formats/bits.hpp"
#include "tests/engine/backend/cases/verb_cases.hpp"

namespace fp16lab::engine::cases {
namespace {

using engine::BinaryOp;
using engine::CastProbe;
using engine::Shape;
using engine::Tensor;
using engine::UnaryOp;

Tensor of_words(CaseContext& c, const std::vector<std::uint16_t>& words, DType dtype) {
  Tensor tensor = c.backend().empty({static_cast<std::int64_t>(words.size())}, dtype);
  c.backend().upload(std::as_bytes(std::span(words)), tensor);
  return tensor;
}

/// Every word of a 16-bit type, or FP32 numbers of every exponent.
Tensor all_values(CaseContext& c, DType dtype) {
  if (dtype == DType::f32 || !c.odd()) return c.random({c.extent(1 << 20, 2003)}, dtype, Data::special);
  std::vector<std::uint16_t> words(1 << 16);
  std::iota(words.begin(), words.end(), std::uint16_t{0});
  return of_words(c, words, dtype);
}

/// FP32 numbers on, just below and just above every number of a 16-bit type and every middle between two.
Tensor around_ties(CaseContext& c, DType to) {
  const auto number = [to](std::uint32_t code) {
    if (to == DType::bf16) return static_cast<double>(float_from_bits(code << 16));
    const int field = static_cast<int>(code >> 10), fraction = static_cast<int>(code & 1023);
    return field == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, field - 25);
  };
  std::vector<std::uint32_t> words;
  for (std::uint32_t code = 0; code < (to == DType::f16 ? 0x7c00U : 0x7f7fU); ++code)
    for (const double x : {number(code), (number(code) + number(code + 1)) / 2})
      for (const std::uint32_t sign : {0U, 0x80000000U})
        for (const std::uint32_t beside : {0U, 1U, 2U})
          words.push_back(sign | (std::max(bits_of(static_cast<float>(x)) + beside, 1U) - 1));
  Tensor tensor = c.backend().empty({static_cast<std::int64_t>(words.size())}, DType::f32);
  c.backend().upload(std::as_bytes(std::span(words)), tensor);
  return tensor;
}

/// body(dtype, data, shape): one element, less and more than a vector or block, and enough to be shared by
/// threads.
template <class Body>
void for_each_odd_size(CaseContext& c, const Body& body) {
  if (!c.odd()) return;
  for (const DType dtype : floats)
    for (const Data data : {Data::ordinary, Data::wide, Data::special})
      for (const std::int64_t size : {1, 31, 1025, 40000, 131073}) body(dtype, data, Shape{size});
}

/// Pairs of 16-bit numbers: exponents x significands, both signs, crossed.
std::pair<Tensor, Tensor> interesting_pairs(CaseContext& c, DType dtype) {
  // BF16: the products of exponents around 63 and 190 are subnormals, which FP32 holds with fewer than 24
  // bits, and just below and above 2^128.
  const bool f16 = dtype == DType::f16;
  const std::vector<std::uint32_t> fields =
      f16 ? std::vector<std::uint32_t>{0, 1, 2, 10, 14, 15, 16, 25, 29, 30, 31}
          : std::vector<std::uint32_t>{0,   1,   2,   56,  59,  60,  61,  62,  63, 64,
                                       118, 127, 128, 189, 190, 191, 253, 254, 255};
  const std::vector<std::uint32_t> fractions =
      f16 ? std::vector<std::uint32_t>{0x000, 0x001, 0x002, 0x155, 0x200, 0x3fe, 0x3ff}
          : std::vector<std::uint32_t>{0x00, 0x01, 0x02, 0x2a, 0x40, 0x7e, 0x7f};
  std::vector<std::uint16_t> words, a, b;
  for (const std::uint32_t field : fields)
    for (const std::uint32_t fraction : fractions)
      for (const std::uint32_t sign : {0x0000u, 0x8000u})
        words.push_back(static_cast<std::uint16_t>(sign | field << (f16 ? 10 : 7) | fraction));
  for (const std::uint16_t x : words)
    for (const std::uint16_t y : words) a.push_back(x), b.push_back(y);
  return {of_words(c, a, dtype), of_words(c, b, dtype)};
}

void broadcast(CaseContext& c, BinaryOp op, DType dtype, const Shape& a, const Shape& b,
               const Shape& out_shape) {
  const Tensor x = c.random(a, dtype, Data::special), y = c.random(b, dtype, Data::special);
  Tensor out = c.output(out_shape, dtype);
  c.backend().binary(op, x, y, out);
  c.keep(fmt::format("{} {} {}", name_of(dtype), a.to_string(), b.to_string()), out);
}

void odd_broadcasts(CaseContext& c, BinaryOp op, DType dtype) {
  broadcast(c, op, dtype, {}, {}, {});
  broadcast(c, op, dtype, {1}, {31}, {31});
  broadcast(c, op, dtype, {3, 4}, {4}, {3, 4});
  broadcast(c, op, dtype, {3, 4}, {3, 1}, {3, 4});
  broadcast(c, op, dtype, {3, 1}, {1, 4}, {3, 4});
  broadcast(c, op, dtype, {}, {2, 3}, {2, 3});
  broadcast(c, op, dtype, {1}, {1, 1}, {5, 7});
  broadcast(c, op, dtype, {2, 3, 4}, {3, 1}, {2, 3, 4});
  broadcast(c, op, dtype, {2, 1, 4}, {1, 3, 1}, {2, 3, 4});
  broadcast(c, op, dtype, {2, 1, 4, 1, 3}, {5, 1, 2, 3}, {2, 5, 4, 2, 3});
  broadcast(c, op, dtype, {2, 3, 1, 2, 1, 2}, {1, 3, 2, 1, 3, 1}, {2, 3, 2, 2, 3, 2});
  // Rows of whole vectors of 16 bytes, of 16-bit elements too.
  broadcast(c, op, dtype, {6, 16}, {16}, {6, 16});
  broadcast(c, op, dtype, {6, 16}, {6, 1}, {6, 16});
  broadcast(c, op, dtype, {6, 1}, {1, 16}, {6, 16});
  broadcast(c, op, dtype, {2, 3, 1, 24}, {2, 1, 5, 24}, {2, 3, 5, 24});
  broadcast(c, op, dtype, {7, 1025}, {1025}, {7, 1025});
  broadcast(c, op, dtype, {300, 257}, {300, 1}, {300, 257});
  broadcast(c, op, dtype, {40000, 3}, {3}, {40000, 3});
  broadcast(c, op, dtype, {40000, 1}, {40000, 3}, {40000, 3});
  broadcast(c, op, dtype, {0, 3}, {3}, {0, 3});
}

void with_number(CaseContext& c, BinaryOp op, float number, Tensor& x) {
  const std::string name = fmt::format("{} {}", x.describe(), number);
  Tensor out = c.output(x.shape(), x.dtype());
  c.backend().binary(op, x, number, out);
  c.keep(name, out);
  c.backend().binary(op, x, number, x);
  c.keep(name + " in place", x);
}

}  // namespace

void add_elementwise_cases(std::vector<VerbCase>& cases) {
  for (const DType from : floats)
    for (const DType to : floats)
      cases.push_back(
          {"cast", fmt::format("{} to {}", name_of(from), name_of(to)), [from, to](CaseContext& c) {
             std::vector<Tensor> all{all_values(c, from), c.random({1}, from, Data::ordinary),
                                     c.random({c.extent(100003, 1003)}, from, Data::training)};
             if (c.odd() && from == DType::f32 && to != from) all.push_back(around_ties(c, to));
             for_each_odd_size(c, [&](DType dtype, Data data, const Shape& shape) {
               if (dtype == from) all.push_back(c.random(shape, from, data));
             });
             for (const Tensor& x : all) {
               Tensor out = c.output(x.shape(), to);
               CastProbe probe;
               c.backend().cast(x, out, &probe);
               c.keep("values", out);
               c.keep("counts", probe);
             }
           }});
  for (const DType to : {DType::f16, DType::bf16})
    cases.push_back({"cast_stochastic", std::string(name_of(to)), [to](CaseContext& c) {
                       const Tensor step = c.backend().make_step_state(state_in_training());
                       std::vector<Tensor> all{all_values(c, DType::f32)};
                       for_each_odd_size(c, [&](DType dtype, Data data, const Shape& shape) {
                         if (dtype == DType::f32) all.push_back(c.random(shape, dtype, data));
                       });
                       PhiloxStream stream{.seed = 7, .stream = stream_id("fc1.linear.0.1.0/gradient")};
                       for (const Tensor& x : all) {
                         ++stream.micro_batch;
                         Tensor out = c.output(x.shape(), to), uncounted = c.output(x.shape(), to);
                         CastProbe probe;
                         c.backend().cast_stochastic(x, out, stream, step, &probe);
                         c.keep("values", out);
                         c.keep("counts", probe);
                         c.backend().cast_stochastic(x, uncounted, stream, step);
                         c.keep("without a probe", uncounted);
                       }
                     }});
  for (const UnaryOp op : all_kernels<UnaryOp>())
    cases.push_back({"unary", kernel_name(op), [op](CaseContext& c) {
                       const auto apply = [&](Tensor x, const std::string& what) {
                         Tensor out = c.output(x.shape(), x.dtype());
                         c.backend().unary(op, x, out);
                         c.keep(what, out);
                         c.backend().unary(op, x, x);
                         c.keep(what + " in place", x);
                       };
                       for (const DType dtype : floats) {
                         apply(all_values(c, dtype), fmt::format("{} special", name_of(dtype)));
                         apply(c.random({c.extent(100003, 1003)}, dtype, Data::ordinary),
                               fmt::format("{} ordinary", name_of(dtype)));
                       }
                       for_each_odd_size(c, [&](DType dtype, Data data, const Shape& shape) {
                         if (dtype == DType::f32) apply(c.random(shape, dtype, data), name_of(data));
                       });
                     }});
  for (const BinaryOp op : all_kernels<BinaryOp>())
    cases.push_back({"binary", kernel_name(op), [op](CaseContext& c) {
                       const std::int64_t n = c.extent(513, 33);
                       for (const DType dtype : floats) {
                         broadcast(c, op, dtype, {n, 67}, {n, 67}, {n, 67});
                         broadcast(c, op, dtype, {n, 64}, {64}, {n, 64});
                         broadcast(c, op, dtype, {n, 1}, {1, 65}, {n, 65});
                         broadcast(c, op, dtype, {}, {n, 7}, {n, 7});
                         broadcast(c, op, dtype, {3, 1, n, 1}, {5, 1, 6}, {3, 5, n, 6});
                         Tensor x = c.random({n, 67}, dtype, Data::wide);
                         const Tensor y = c.random({n, 67}, dtype, Data::wide);
                         c.backend().binary(op, x, y, x);
                         c.keep("in place", x);
                         if (!c.odd()) continue;
                         odd_broadcasts(c, op, dtype);
                         if (dtype == DType::f32) continue;
                         const auto [a, b] = interesting_pairs(c, dtype);
                         Tensor out = c.output(a.shape(), dtype);
                         c.backend().binary(op, a, b, out);
                         c.keep("interesting pairs", out);
                       }
                       for_each_odd_size(c, [&](DType dtype, Data data, const Shape& shape) {
                         Tensor x = c.random(shape, dtype, data), y = c.random(shape, dtype, data);
                         Tensor out = c.output(shape, dtype), into_a = c.output(shape, dtype);
                         c.backend().binary(op, x, y, out);
                         c.keep(out.describe(), out);
                         c.backend().copy(x, into_a);
                         c.backend().binary(op, into_a, y, into_a);
                         c.keep("into a", into_a);
                         c.backend().binary(op, x, y, y);
                         c.keep("into b", y);
                       });
                     }});
  for (const BinaryOp op : all_kernels<BinaryOp>())
    cases.push_back(
        {"binary", fmt::format("{} a number", kernel_name(op)), [op](CaseContext& c) {
           for (const DType dtype : floats)
             for (const float number : {3.0f, 0x1p-16f, 1.0f / 3, 0.0f, -0x1p120f}) {
               Tensor x = c.random({c.extent(100003, 1003)}, dtype, Data::special);
               with_number(c, op, number, x);
             }
           for_each_odd_size(c, [&](DType dtype, Data data, const Shape& shape) {
             if (data != Data::special) return;
             for (const float number : {1.0f / 3, 0x1p-11f, 65536.0f, 0.0f, -7.0f, HUGE_VALF, 0x1p-149f}) {
               Tensor x = c.random(shape, dtype, data);
               with_number(c, op, number, x);
             }
           });
         }});
}

}  // namespace fp16lab::engine::cases
