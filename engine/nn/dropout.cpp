#include "engine/nn/dropout.hpp"

#include <stdexcept>
#include <utility>

namespace fp16lab::engine::nn {

Dropout::Dropout(std::string path, float p) : path_(std::move(path)), p_(p) {
  if (!(p >= 0.0f && p < 1.0f)) {
    throw std::invalid_argument("Dropout " + path_ + ": p = " + std::to_string(p) + "; must be in [0, 1)");
  }
}

Variable Dropout::forward(Tape& tape, const Variable& x) {
  if (p_ == 0.0f || !tape.context().training) return x;
  return ops::dropout(x, p_, path_);
}

}  // namespace fp16lab::engine::nn
