// Element types of tensors and files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "numerics/formats/small_float.hpp"

namespace fp16lab {

/// Ids are stored in files: append, never renumber. No tensor is stored in the two FP8 formats: they name casts inside
/// products.
enum class DType : std::uint8_t { f32 = 0, f16 = 1, bf16 = 2, f64 = 3, i32 = 4, u8 = 5, e4m3 = 6, e5m2 = 7 };

constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::u8:
    case DType::e4m3:
    case DType::e5m2:
      return 1;
    case DType::f16:
    case DType::bf16:
      return 2;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::f64:
      return 8;
  }
  return 0;
}

constexpr std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "f32";
    case DType::f16:
      return "f16";
    case DType::bf16:
      return "bf16";
    case DType::f64:
      return "f64";
    case DType::i32:
      return "i32";
    case DType::u8:
      return "u8";
    case DType::e4m3:
      return "e4m3";
    case DType::e5m2:
      return "e5m2";
  }
  return "?";
}

/// DTypeOf<T>::value is the id of element type T.
template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> : std::integral_constant<DType, DType::f32> {};
template <>
struct DTypeOf<Float16> : std::integral_constant<DType, DType::f16> {};
template <>
struct DTypeOf<BFloat16> : std::integral_constant<DType, DType::bf16> {};
template <>
struct DTypeOf<double> : std::integral_constant<DType, DType::f64> {};
template <>
struct DTypeOf<std::int32_t> : std::integral_constant<DType, DType::i32> {};
template <>
struct DTypeOf<std::uint8_t> : std::integral_constant<DType, DType::u8> {};

}  // namespace fp16lab
