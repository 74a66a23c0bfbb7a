#include "engine/backend/backend.hpp"

#include <chrono>
#include <stdexcept>
#include <string>

namespace fp16lab::engine {

std::unique_ptr<Recording> Backend::record(const std::function<void()>& /*work*/) {
  throw std::logic_error("record: the " + std::string(name()) + " back end does not record verbs");
}

double Backend::milliseconds(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

void Backend::count_update(const Tensor& before, const Tensor& weight, const Tensor& gradient,
                           UpdateProbes& probes) {
  Tensor change = empty(before.shape(), DType::f32), other = empty(before.shape(), DType::f32);
  binary(BinaryOp::subtract, widened(*this, weight), before, change);
  histogram(change, probes.change);
  binary(BinaryOp::divide, change, before, other);
  histogram(other, probes.relative);
  unary(UnaryOp::absolute, change, change);
  unary(UnaryOp::absolute, widened(*this, gradient), other);
  binary(BinaryOp::maximum, change, other, change);
  histogram(change, probes.quiet);
}

Tensor widened(Backend& backend, const Tensor& x) {
  if (x.dtype() == DType::f32) return x;
  Tensor wide = backend.empty(x.shape(), DType::f32);
  backend.cast(x, wide);
  return wide;
}

}  // namespace fp16lab::engine
