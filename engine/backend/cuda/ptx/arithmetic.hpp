// Floating-point instructions on something else than numbers.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "numerics/formats/dtype.hpp"

namespace fp16lab::engine::ptx {

/// A fundamental type of PTX (PTX ISA, "Fundamental Types").
struct Type {
  char kind = 'b';  ///< u, s, f, b; 'h' for bf16, 't' for tf32; p for a predicate
  int bits = 0;
  constexpr int bytes() const { return bits / 8; }
  constexpr bool is_float() const { return kind == 'f' || kind == 'h' || kind == 't'; }
};

enum class FloatOperation : std::uint8_t {
  none,
  add,
  sub,
  mul,
  fma,
  div,
  sqrt,
  rcp,
  min,
  max,
  neg,
  convert,  ///< from a floating-point type or an integer
  compare,  ///< the result is a predicate, 0 or 1
};

std::string_view name_of(FloatOperation operation);

/// Given to a Machine, it computes what floating-point instructions and mma.sync would, on bit patterns whose
/// meaning is its own. Everything else (moves, loads, shuffles, matrix loads, integers) carries the patterns
/// as they are.
class Arithmetic {
 public:
  virtual ~Arithmetic() = default;
  /// One lane of an instruction with results of type `to`. Unused operands are 0. std::invalid_argument where
  /// the operation has no meaning; the machine adds the place.
  virtual std::uint64_t operate(FloatOperation operation, Type to, Type from, std::uint64_t a,
                                std::uint64_t b, std::uint64_t c) = 0;
  /// One output of mma.sync: c and the products a[k] * b[k] in ascending k, of which the tensor core adds
  /// `block_size` at a time.
  virtual std::uint32_t multiply(DType operands, std::span<const std::uint32_t> a,
                                 std::span<const std::uint32_t> b, std::uint32_t c, int block_size) = 0;
};

}  // namespace fp16lab::engine::ptx
