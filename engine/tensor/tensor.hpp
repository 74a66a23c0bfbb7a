// Tensor: dtype, shape and a share of pooled memory. It knows nothing of arithmetic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>

#include "engine/tensor/shape.hpp"
#include "engine/tensor/storage.hpp"
#include "numerics/formats/dtype.hpp"

namespace fp16lab::engine {

/// A contiguous, row-major tensor. Copies share memory (reference counted); a Backend makes new ones.
class Tensor {
 public:
  Tensor() = default;  ///< undefined: no memory, `defined()` is false
  /// `storage` must hold at least shape.element_count() * size_of(dtype) bytes.
  Tensor(Storage storage, const Shape& shape, DType dtype);

  bool defined() const { return storage_.defined(); }
  const Shape& shape() const { return shape_; }
  DType dtype() const { return dtype_; }
  std::int64_t element_count() const { return shape_.element_count(); }
  std::size_t byte_count() const { return static_cast<std::size_t>(element_count()) * size_of(dtype_); }

  /// The same memory under another shape of equal element count (std::invalid_argument otherwise).
  Tensor reshaped(const Shape& shape) const;

  /// Has no other tensor a share of the memory? (Storage::sole_share)
  bool owns_memory_alone() const { return storage_.sole_share(); }
  /// May the host read and write the elements?
  bool on_host() const { return storage_.host_accessible(); }
  /// Raw address, in the back end's memory space.
  std::byte* data() const { return storage_.data(); }
  /// The elements, for host-resident tensors of element type T; throws std::invalid_argument on another dtype
  /// and std::logic_error on device memory.
  template <class T>
  std::span<T> host() const {
    require_host(DTypeOf<T>::value);
    return {reinterpret_cast<T*>(storage_.data()), static_cast<std::size_t>(element_count())};
  }

  /// "f16 (64, 784)", for error messages.
  std::string describe() const;

 private:
  void require_host(DType expected) const;

  Storage storage_;
  Shape shape_;
  DType dtype_ = DType::f32;
};

/// Calls body(an element) for the element type of a dtype that verbs compute on: f16, bf16 or f32.
template <class Body>
decltype(auto) with_element_type(DType dtype, const Body& body) {
  return visit_dtype<is_tensor_float>(
      dtype, [&](auto row) -> decltype(auto) { return body(typename decltype(row)::Element{}); });
}
/// The same for f16 and bf16.
template <class Body>
decltype(auto) with_half_type(DType dtype, const Body& body) {
  return visit_dtype<is_tensor_half>(
      dtype, [&](auto row) -> decltype(auto) { return body(typename decltype(row)::Element{}); });
}

}  // namespace fp16lab::engine
