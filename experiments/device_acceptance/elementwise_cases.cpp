// Cases of the elementwise verbs.
#include <fmt/format.h>

#include <utility>

#include "experiments/device_acceptance/verb_cases.hpp"

namespace fp16lab::experiments::acceptance {
namespace {

using engine::BinaryOp;
using engine::CastProbe;
using engine::Shape;
using engine::Tensor;
using engine::UnaryOp;

constexpr DType floats[] = {DType::f32, DType::f16, DType::bf16};

/// The enumerators in their order; a test counts them.
constexpr std::pair<UnaryOp, const char*> unary_ops[] = {
    {UnaryOp::negate, "negate"},
    {UnaryOp::relu, "relu"},
    {UnaryOp::exp, "exp"},
    {UnaryOp::log, "log"},
    {UnaryOp::log1p, "log1p"},
    {UnaryOp::square_root, "square_root"},
    {UnaryOp::reciprocal_square_root, "reciprocal_square_root"},
    {UnaryOp::absolute, "absolute"},
    {UnaryOp::sign, "sign"},
    {UnaryOp::sigmoid, "sigmoid"},
    {UnaryOp::tanh, "tanh"},
    {UnaryOp::erf, "erf"},
    {UnaryOp::gelu, "gelu"},
    {UnaryOp::gelu_tanh, "gelu_tanh"},
};
constexpr std::pair<BinaryOp, const char*> binary_ops[] = {
    {BinaryOp::add, "add"},
    {BinaryOp::subtract, "subtract"},
    {BinaryOp::multiply, "multiply"},
    {BinaryOp::divide, "divide"},
    {BinaryOp::select_positive, "select_positive"},
    {BinaryOp::maximum, "maximum"},
    {BinaryOp::minimum, "minimum"},
};

/// Every word of a 16-bit type; of FP32, numbers of every exponent.
Tensor all_values(CaseContext& c, DType dtype) {
  if (dtype == DType::f32 || c.small()) return c.random({c.extent(1 << 20, 2003)}, dtype, Data::special);
  std::vector<std::uint16_t> words(1 << 16);
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = static_cast<std::uint16_t>(i);
  Tensor tensor = c.backend().empty({1 << 16}, dtype);
  c.backend().upload(std::as_bytes(std::span(words)), tensor);
  return tensor;
}

void broadcast(CaseContext& c, BinaryOp op, DType dtype, const Shape& a, const Shape& b,
               const Shape& out_shape) {
  const Tensor x = c.random(a, dtype, Data::special), y = c.random(b, dtype, Data::special);
  Tensor out = c.output(out_shape, dtype);
  c.backend().binary(op, x, y, out);
  c.keep(fmt::format("{} {} {}", name_of(dtype), a.to_string(), b.to_string()), out);
}

}  // namespace

void add_elementwise_cases(std::vector<VerbCase>& cases) {
  for (const DType from : floats)
    for (const DType to : floats)
      cases.push_back(
          {"cast", fmt::format("{} to {}", name_of(from), name_of(to)), [from, to](CaseContext& c) {
             for (const Tensor& x : {all_values(c, from), c.random({1}, from, Data::ordinary),
                                     c.random({c.extent(100003, 1003)}, from, Data::training)}) {
               Tensor out = c.output(x.shape(), to);
               CastProbe probe;
               c.backend().cast(x, out, &probe);
               c.keep("values", out);
               c.keep("counts", probe);
             }
           }});
  for (const auto& [op, name] : unary_ops)
    cases.push_back({"unary", name, [op = op](CaseContext& c) {
                       for (const DType dtype : floats)
                         for (const Data data : {Data::special, Data::ordinary}) {
                           Tensor x = data == Data::special ? all_values(c, dtype)
                                                            : c.random({c.extent(100003, 1003)}, dtype, data);
                           Tensor out = c.output(x.shape(), dtype);
                           c.backend().unary(op, x, out);
                           c.keep(fmt::format("{} {}", name_of(dtype), name_of(data)), out);
                           c.backend().unary(op, x, x);
                           c.keep(fmt::format("{} {} in place", name_of(dtype), name_of(data)), x);
                         }
                     }});
  for (const auto& [op, name] : binary_ops)
    cases.push_back({"binary", name, [op = op](CaseContext& c) {
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
                       }
                     }});
  for (const bool divides : {false, true})
    cases.push_back({divides ? "divide" : "scale", "factors", [divides](CaseContext& c) {
                       for (const DType dtype : floats)
                         for (const float factor : {3.0f, 0x1p-16f, 1.0f / 3, 0.0f, -0x1p120f}) {
                           Tensor x = c.random({c.extent(100003, 1003)}, dtype, Data::special);
                           Tensor out = c.output(x.shape(), dtype);
                           const auto apply = [&](const Tensor& from, Tensor& to) {
                             if (divides)
                               c.backend().divide(from, factor, to);
                             else
                               c.backend().scale(from, factor, to);
                           };
                           apply(x, out);
                           c.keep(fmt::format("{} {}", name_of(dtype), factor), out);
                           apply(x, x);
                           c.keep(fmt::format("{} {} in place", name_of(dtype), factor), x);
                         }
                     }});
}

}  // namespace fp16lab::experiments::acceptance
