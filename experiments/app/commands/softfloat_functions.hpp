// The operations of numerics/ under the names that Berkeley TestFloat gives them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "numerics/formats/rounding.hpp"

namespace fp16lab::experiments {

/// One operand or result on a line of hexadecimal numbers.
struct SoftfloatType {
  std::string_view name{};  ///< "f16", "ui32", "bool"
  int bits = 0;
};

/// How functions compute that TestFloat selects by options and not by name.
struct SoftfloatOptions {
  ArithmeticOptions arithmetic;
  bool exact = false;  ///< roundings to integers raise inexact
};

struct SoftfloatFunction {
  std::string name;  ///< "f16_mulAdd"
  std::vector<SoftfloatType> operands;
  SoftfloatType result;
  /// Operands and result as bits, integers in two's complement of their width.
  std::uint64_t (*evaluate)(const std::uint64_t* operands, const SoftfloatOptions& options,
                            ExceptionFlags& flags) = nullptr;
};

/// For every floating-point dtype, those of IEEE 754 first: F_add, _sub, _mul, _mulAdd, _div, _rem, _sqrt,
/// _roundToInt, _eq, _le, _lt, _eq_signaling, _le_quiet, _lt_quiet, and conversions between any two of them
/// and to and from ui32, ui64, i32 and i64. Beyond what TestFloat lists, the same for formats that it does
/// not have.
const std::vector<SoftfloatFunction>& softfloat_functions();

}  // namespace fp16lab::experiments
