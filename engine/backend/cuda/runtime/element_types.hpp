// From a tensor's dtype to the element type that kernels are compiled for.
#pragma once

#include <cstddef>

#include "engine/backend/cuda/runtime/machine.hpp"
#include "engine/tensor/tensor.hpp"
#include "numerics/formats/small_float.hpp"

namespace fp16lab::engine::FP16LAB_MACHINE {

/// The elements of a tensor in device memory; only kernels may look at them.
template <class T>
T* elements(const Tensor& x) {
  return reinterpret_cast<T*>(x.data());
}

/// visitor(an element of the type) for the 16-bit dtypes.
template <class Visitor>
void with_half_type(DType dtype, const Visitor& visitor) {
  if (dtype == DType::f16)
    visitor(Float16{});
  else
    visitor(BFloat16{});
}
/// The same for all dtypes that verbs call f.
template <class Visitor>
void with_element_type(DType dtype, const Visitor& visitor) {
  if (dtype == DType::f32)
    visitor(0.0f);
  else
    with_half_type(dtype, visitor);
}

}  // namespace fp16lab::engine::FP16LAB_MACHINE
