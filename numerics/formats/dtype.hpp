// The one list of formats: element types of tensors and files, operands and accumulators of tensor cores.
//
// A format is one row below. The rows make the enum, the names, the maps between ids and C++ types, the
// dispatch from a dtype to its type (visit_dtype), the type lists, and, through the macros, explicit
// instantiations. What a format may be used for is a predicate of its row, not another enum. To add a format,
// add a row; the hardware that multiplies it is a row of numerics/tensor_core/tensor_core_model.cpp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

#include "numerics/formats/small_float.hpp"

// A row is X(name, id, name in safetensors files, element type). Ids are stored in files: append, never
// renumber. No file holds a format with the name "": TF32 exists in registers only. No tensor is stored in
// formats of a byte: they name casts inside products. Of those, tensor cores of the table multiply FP8, FP6
// and FP4; the others are stored and converted. A format of fewer than 8 bits has a byte in memory.
#ifndef FP16LAB_MORE_FP8_FORMATS  // a test has rows of its own (tests/numerics/formats/e3m4_test.cpp)
#define FP16LAB_MORE_FP8_FORMATS(X)
#endif
#define FP16LAB_HALF_FORMATS(X) \
  X(f16, 1, "F16", Float16)     \
  X(bf16, 2, "BF16", BFloat16)  \
  X(tf32, 8, "", SmallFloat<TensorFloat32>)
#define FP16LAB_WIDE_FORMATS(X) \
  X(f32, 0, "F32", float)       \
  X(f64, 3, "F64", double)
#define FP16LAB_FP8_FORMATS(X)      \
  X(e4m3, 6, "F8_E4M3", Float8E4M3) \
  X(e5m2, 7, "F8_E5M2", Float8E5M2) \
  FP16LAB_MORE_FP8_FORMATS(X)
#define FP16LAB_FP6_AND_FP4_FORMATS(X) \
  X(e3m2, 16, "", SmallFloat<Fp6E3M2>) \
  X(e2m3, 17, "", SmallFloat<Fp6E2M3>) \
  X(e2m1, 18, "F4", SmallFloat<Fp4E2M1>)
#define FP16LAB_STORED_FORMATS(X)                         \
  X(e4m3fnuz, 19, "F8_E4M3FNUZ", SmallFloat<Fp8E4M3Fnuz>) \
  X(e5m2fnuz, 20, "F8_E5M2FNUZ", SmallFloat<Fp8E5M2Fnuz>) \
  X(e8m0, 21, "F8_E8M0", SmallFloat<ScaleE8M0>)           \
  X(ue4m3, 22, "", SmallFloat<ScaleUE4M3>)
#define FP16LAB_INTEGERS(X)        \
  X(i64, 9, "I64", std::int64_t)   \
  X(i32, 4, "I32", std::int32_t)   \
  X(i16, 10, "I16", std::int16_t)  \
  X(i8, 11, "I8", std::int8_t)     \
  X(u64, 12, "U64", std::uint64_t) \
  X(u32, 13, "U32", std::uint32_t) \
  X(u16, 14, "U16", std::uint16_t) \
  X(u8, 5, "U8", std::uint8_t)     \
  X(boolean, 15, "BOOL", bool)

/// What tensor cores multiply, formats narrower than FP32, all floating-point formats, and all rows.
#define FP16LAB_OPERAND_FORMATS(X) \
  FP16LAB_HALF_FORMATS(X) FP16LAB_FP8_FORMATS(X) FP16LAB_FP6_AND_FP4_FORMATS(X)
#define FP16LAB_LOW_FORMATS(X) FP16LAB_OPERAND_FORMATS(X) FP16LAB_STORED_FORMATS(X)
#define FP16LAB_FLOAT_FORMATS(X) \
  FP16LAB_HALF_FORMATS(X)        \
  FP16LAB_WIDE_FORMATS(X) FP16LAB_FP8_FORMATS(X) FP16LAB_FP6_AND_FP4_FORMATS(X) FP16LAB_STORED_FORMATS(X)
#define FP16LAB_DTYPES(X) FP16LAB_FLOAT_FORMATS(X) FP16LAB_INTEGERS(X)

namespace fp16lab {

#define FP16LAB_ENUMERATOR(name, id, ...) name = (id),
enum class DType : std::uint8_t { FP16LAB_DTYPES(FP16LAB_ENUMERATOR) };
#undef FP16LAB_ENUMERATOR

/// The format of an element type (numerics/formats/format.hpp); void for integers.
template <class T>
struct FormatOf {
  using type = void;
};
template <class F>
struct FormatOf<SmallFloat<F>> {
  using type = F;
};
template <>
struct FormatOf<float> {
  using type = Binary32;
};
template <>
struct FormatOf<double> {
  using type = Binary64;
};

namespace dtype_detail {
template <class T>
struct Types {
  using Element = T;
  using Format = typename FormatOf<T>::type;
};
}  // namespace dtype_detail

/// A row as a type: Element, Format, name, file_name.
template <DType>
struct DTypeRow;
/// DTypeOf<T>::value is the id of element type T.
template <class T>
struct DTypeOf;
#define FP16LAB_ROW(name_, id_, file_name_, ...)                     \
  template <>                                                        \
  struct DTypeRow<DType::name_> : dtype_detail::Types<__VA_ARGS__> { \
    static constexpr std::string_view name = #name_;                 \
    static constexpr std::string_view file_name = file_name_;        \
  };                                                                 \
  template <>                                                        \
  struct DTypeOf<__VA_ARGS__> : std::integral_constant<DType, DType::name_> {};
FP16LAB_DTYPES(FP16LAB_ROW)
#undef FP16LAB_ROW

/// All of them, in the order of the rows.
#define FP16LAB_ID(name, ...) DType::name,
inline constexpr DType all_dtypes[] = {FP16LAB_DTYPES(FP16LAB_ID)};
#undef FP16LAB_ID

constexpr std::string_view name_of(DType dtype) {
  switch (dtype) {
#define FP16LAB_NAME(name, ...) \
  case DType::name:             \
    return #name;
    FP16LAB_DTYPES(FP16LAB_NAME)
#undef FP16LAB_NAME
  }
  return "?";
}

/// "FP16", "BF16", "E4M3": the name in sentences.
inline std::string title_of(DType dtype) {
  std::string title(name_of(dtype));
  for (char& letter : title)
    if (letter >= 'a' && letter <= 'z') letter = static_cast<char>(letter - 'a' + 'A');
  return title[0] == 'F' ? "FP" + title.substr(1) : title;
}

// Predicates: the roles of a format.
#define FP16LAB_TRUE(name, ...) \
  case DType::name:             \
    return true;
/// E4M3, E5M2: what casts inside of products may round to.
constexpr bool is_fp8(DType dtype) {
  switch (dtype) {
    FP16LAB_FP8_FORMATS(FP16LAB_TRUE)
    default:
      return false;
  }
}
/// What tensor cores multiply.
constexpr bool is_operand(DType dtype) {
  switch (dtype) {
    FP16LAB_OPERAND_FORMATS(FP16LAB_TRUE)
    default:
      return false;
  }
}
/// Narrower than FP32.
constexpr bool is_low_precision(DType dtype) {
  switch (dtype) {
    FP16LAB_LOW_FORMATS(FP16LAB_TRUE)
    default:
      return false;
  }
}
constexpr bool is_floating(DType dtype) {
  switch (dtype) {
    FP16LAB_FLOAT_FORMATS(FP16LAB_TRUE)
    default:
      return false;
  }
}
#undef FP16LAB_TRUE
constexpr bool is_any(DType /*dtype*/) { return true; }

/// Those that a predicate holds for, in the order of the rows.
template <bool (*is)(DType)>
inline constexpr auto dtypes = [] {
  constexpr std::size_t count = [] {
    std::size_t n = 0;
    for (const DType dtype : all_dtypes) n += is(dtype) ? 1 : 0;
    return n;
  }();
  std::array<DType, count> found{};
  std::size_t n = 0;
  for (const DType dtype : all_dtypes)
    if (is(dtype)) found[n++] = dtype;
  return found;
}();
/// Their names.
template <bool (*is)(DType)>
inline constexpr auto dtype_names = [] {
  std::array<std::string_view, dtypes<is>.size()> names{};
  for (std::size_t i = 0; i < names.size(); ++i) names[i] = name_of(dtypes<is>[i]);
  return names;
}();
/// The one of this name.
template <bool (*is)(DType)>
constexpr std::optional<DType> dtype_called(std::string_view name) {
  for (const DType dtype : dtypes<is>)
    if (name_of(dtype) == name) return dtype;
  return std::nullopt;
}

namespace dtype_detail {
/// Not in visit_dtype itself: libraries in which std::string is no type of constants, as Emscripten's is,
/// refuse one there.
template <bool (*is)(DType)>
[[noreturn]] void refuse(DType dtype) {
  std::string message = "dtype " + std::string(name_of(dtype)) + "; one of";
  for (const std::string_view name : dtype_names<is>) message += " " + std::string(name);
  throw std::invalid_argument(message + " is needed");
}
}  // namespace dtype_detail

/// Calls body(DTypeRow<dtype>()) and returns its result. Only rows that `is` holds for are compiled;
/// std::invalid_argument for the others.
template <bool (*is)(DType) = is_any, class Body>
constexpr decltype(auto) visit_dtype(DType dtype, const Body& body) {
  switch (dtype) {
#define FP16LAB_CASE(name, ...)                                          \
  case DType::name:                                                      \
    if constexpr (is(DType::name)) return body(DTypeRow<DType::name>{}); \
    break;
    FP16LAB_DTYPES(FP16LAB_CASE)
#undef FP16LAB_CASE
  }
  dtype_detail::refuse<is>(dtype);
}

/// As safetensors files spell it: "F32", "F8_E4M3", "BOOL". Empty where no file holds it.
constexpr std::string_view file_name_of(DType dtype) {
  return visit_dtype(dtype, [](auto row) { return row.file_name; });
}
/// Bytes of an element.
constexpr std::size_t size_of(DType dtype) {
  return visit_dtype(dtype, [](auto row) { return sizeof(typename decltype(row)::Element); });
}
/// Bits of an element in a .safetensors file, where F4 has two in a byte, the first one in the lower half.
constexpr unsigned file_bits_of(DType dtype) {
  return dtype == DType::e2m1 ? 4u : 8u * static_cast<unsigned>(size_of(dtype));
}
/// What arrays in files have; the floating-point formats of them; and those narrower than FP32, in which
/// gradients are judged.
constexpr bool is_file_type(DType dtype) { return !file_name_of(dtype).empty(); }
constexpr bool is_file_float(DType dtype) { return is_floating(dtype) && is_file_type(dtype); }
constexpr bool is_file_low_precision(DType dtype) { return is_low_precision(dtype) && is_file_type(dtype); }

/// What arrays of 16-bit words and of bytes may be the codes of, whoever wrote them; and those of them in
/// which numbers are judged, which have a sign.
constexpr bool is_stored(DType dtype) { return is_low_precision(dtype) && dtype != DType::tf32; }
constexpr bool is_judged(DType dtype) {
  return is_stored(dtype) &&
         visit_dtype<is_low_precision>(dtype, [](auto row) { return decltype(row)::Format::has_sign; });
}
/// A format of one byte, which names casts inside products.
constexpr bool is_byte_format(DType dtype) { return is_low_precision(dtype) && size_of(dtype) == 1; }
/// Floating-point elements of tensors, which every verb of a back end computes on (f16, bf16, f32); and those
/// of 16 bits.
constexpr bool is_tensor_half(DType dtype) { return is_file_low_precision(dtype) && !is_byte_format(dtype); }
constexpr bool is_tensor_float(DType dtype) { return dtype == DType::f32 || is_tensor_half(dtype); }

// The rows as type lists, for what has one type a format.
template <class... T>
struct TypeList {};
namespace dtype_detail {
template <class, class... T>
struct Rest {
  using type = TypeList<T...>;
};
}  // namespace dtype_detail
#define FP16LAB_COMMA_ELEMENT(name, id, file_name, ...) , __VA_ARGS__
#define FP16LAB_COMMA_FORMAT(name, id, file_name, ...) , typename FormatOf<__VA_ARGS__>::type
using FloatElements = typename dtype_detail::Rest<void FP16LAB_FLOAT_FORMATS(FP16LAB_COMMA_ELEMENT)>::type;
using LowFormats = typename dtype_detail::Rest<void FP16LAB_LOW_FORMATS(FP16LAB_COMMA_FORMAT)>::type;
#undef FP16LAB_COMMA_ELEMENT
#undef FP16LAB_COMMA_FORMAT

}  // namespace fp16lab
