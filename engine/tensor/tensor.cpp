#include "engine/tensor/tensor.hpp"

#include <fmt/format.h>

#include <utility>

namespace fp16lab::engine {

Tensor::Tensor(Storage storage, const Shape& shape, DType dtype)
    : storage_(std::move(storage)), shape_(shape), dtype_(dtype) {
  if (!storage_.defined())
    throw std::invalid_argument(fmt::format("tensor {}: undefined storage", describe()));
  if (storage_.size() < byte_count()) {
    throw std::invalid_argument(fmt::format("tensor {}: needs {} bytes, its storage has {}", describe(),
                                            byte_count(), storage_.size()));
  }
}

Tensor Tensor::reshaped(const Shape& shape) const {
  if (shape.element_count() != element_count()) {
    throw std::invalid_argument(fmt::format("reshape of {} to {}: {} elements do not fit {}", describe(),
                                            shape.to_string(), element_count(), shape.element_count()));
  }
  Tensor result = *this;
  result.shape_ = shape;
  return result;
}

std::string Tensor::describe() const {
  return defined() || shape_.rank() > 0 ? fmt::format("{} {}", name_of(dtype_), shape_.to_string())
                                        : "undefined";
}

void Tensor::require_host(DType expected) const {
  if (!defined()) throw std::logic_error("host access to an undefined tensor");
  if (dtype_ != expected) {
    throw std::invalid_argument(fmt::format("host access to {} as {}", describe(), name_of(expected)));
  }
  if (!storage_.host_accessible()) {
    throw std::logic_error(
        fmt::format("host access to {}, which lives in device memory: use Backend::download", describe()));
  }
}

}  // namespace fp16lab::engine
