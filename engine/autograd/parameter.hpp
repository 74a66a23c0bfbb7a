// Parameter: an FP32 master value, its FP32 gradient, and a version for caches of casts.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "engine/tensor/tensor.hpp"

namespace fp16lab::engine {

/// Owned by a module; tapes, scalers and optimizers refer to it by address, so it is neither copied nor
/// moved.
struct Parameter {
  Parameter(std::string parameter_name, Tensor initial)
      : name(std::move(parameter_name)), value(std::move(initial)) {}
  Parameter(const Parameter&) = delete;
  Parameter& operator=(const Parameter&) = delete;

  std::string
      name;         ///< "fc1.weight": also the key of its random stream, optimizer state and checkpoint entry
  Tensor value;     ///< f32, the master copy
  Tensor gradient;  ///< f32, shape of value; memory is kept between steps. Meaningful only if has_gradient
  bool has_gradient = false;  ///< a backward has reached this parameter since clear_gradient()
  std::uint64_t version = 0;  ///< grows whenever `value` may have changed

  void clear_gradient() { has_gradient = false; }
};

}  // namespace fp16lab::engine
