// The parts of the verbs' checks: one condition each, the words of its error in one place.
#pragma once

#include <fmt/format.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>

#include "engine/tensor/tensor.hpp"

namespace fp16lab::engine::checks::requirements {

struct Argument {
  std::string_view name;
  const Tensor& tensor;
};

[[noreturn]] inline void fail(std::string_view verb, const std::string& what) {
  throw std::invalid_argument(fmt::format("{}: {}", verb, what));
}

inline std::string text(const Argument& argument) {
  return fmt::format("{} is {}", argument.name, argument.tensor.describe());
}

inline void require_defined(std::string_view verb, const Argument& x) {
  if (!x.tensor.defined()) fail(verb, fmt::format("{} is an undefined tensor", x.name));
}

inline void require_dtype(std::string_view verb, const Argument& x, DType dtype) {
  require_defined(verb, x);
  if (x.tensor.dtype() != dtype) fail(verb, fmt::format("{}; {} is needed", text(x), name_of(dtype)));
}

/// f of the verbs' comments.
inline void require_f(std::string_view verb, const Argument& x) {
  require_defined(verb, x);
  const DType dtype = x.tensor.dtype();
  if (dtype != DType::f32 && dtype != DType::f16 && dtype != DType::bf16)
    fail(verb, fmt::format("{}; f32, f16 or bf16 is needed", text(x)));
}

inline void require_same_dtype(std::string_view verb, const Argument& x, const Argument& y) {
  if (x.tensor.dtype() != y.tensor.dtype())
    fail(verb, fmt::format("{}, {}: their dtypes differ", text(x), text(y)));
}

/// f32, or the dtype of y: 16-bit formats do not mix.
inline void require_f32_or_dtype_of(std::string_view verb, const Argument& x, const Argument& y) {
  if (x.tensor.dtype() != DType::f32) require_same_dtype(verb, x, y);
}

/// out, the result of a product with operands like a: f32 operands give f32, 16-bit ones f32 or their own
/// format.
inline void require_result_dtype(std::string_view verb, const Argument& a, const Argument& out) {
  if (a.tensor.dtype() == DType::f32 && out.tensor.dtype() != DType::f32)
    fail(verb, fmt::format("{}, {}: f32 operands give f32", text(a), text(out)));
  if (a.tensor.dtype() != DType::f32) require_f32_or_dtype_of(verb, out, a);
}

/// An operand of a product that rounds its operands to TF32, if it does.
inline void require_tf32_operand(std::string_view verb, const Argument& a, bool tf32) {
  if (tf32 && a.tensor.dtype() != DType::f32)
    fail(verb, fmt::format("{}, rounded to TF32; f32 operands are needed", text(a)));
}

inline void require_same_shape(std::string_view verb, const Argument& x, const Argument& y) {
  if (!(x.tensor.shape() == y.tensor.shape()))
    fail(verb, fmt::format("{}, {}: their shapes differ", text(x), text(y)));
}

inline void require_count(std::string_view verb, const Argument& x, std::int64_t count,
                          std::string_view why) {
  if (x.tensor.element_count() != count)
    fail(verb, fmt::format("{}; it must have {} elements, {}", text(x), count, why));
}
/// The same with words that are made only for the error: a valid call costs no heap memory.
template <std::invocable Words>
void require_count(std::string_view verb, const Argument& x, std::int64_t count, const Words& why) {
  if (x.tensor.element_count() != count) require_count(verb, x, count, why());
}

inline bool overlap(const Tensor& x, const Tensor& y) {
  const std::less<const std::byte*> before;
  return before(x.data(), y.data() + y.byte_count()) && before(y.data(), x.data() + x.byte_count());
}

inline void require_apart(std::string_view verb, const Argument& x, const Argument& out) {
  if (overlap(x.tensor, out.tensor))
    fail(verb, fmt::format("{} and {} overlap in memory: {}, {}", x.name, out.name, text(x), text(out)));
}

/// In place is allowed: the same elements, or no common byte.
inline void require_apart_or_same(std::string_view verb, const Argument& x, const Argument& out) {
  const bool same =
      x.tensor.data() == out.tensor.data() && x.tensor.element_count() == out.tensor.element_count();
  if (!same) require_apart(verb, x, out);
}

// ---- the signature of a verb ----

/// The verb's requirement on an operand's dtype.
enum class Takes : std::uint8_t {
  f,            ///< f32, f16 or bf16
  same,         ///< f, and the dtype of the first operand
  f32_or_same,  ///< f32, or the dtype of the first operand
  f32,
  i32,
  any,
};
/// A written operand has no byte in common with any other; `in_place`: or is the same elements.
enum class Access : std::uint8_t { read, written, in_place };

struct Operand {
  std::string_view name;
  const Tensor* tensor;  ///< null: an operand that this call leaves out
  Takes takes;
  Access access = Access::read;

  Argument argument() const { return {name, *tensor}; }
};

/// The first operand must be there, and is that to which `same` refers.
inline void require_operands(std::string_view verb, std::initializer_list<Operand> operands) {
  const Operand& first = *operands.begin();
  for (const Operand& x : operands) {
    if (x.tensor == nullptr) continue;
    if (x.takes == Takes::f32 || x.takes == Takes::i32)
      require_dtype(verb, x.argument(), x.takes == Takes::f32 ? DType::f32 : DType::i32);
    else if (x.takes == Takes::any)
      require_defined(verb, x.argument());
    else
      require_f(verb, x.argument());
  }
  for (const Operand& x : operands) {
    if (x.tensor == nullptr) continue;
    if (x.takes == Takes::same) require_same_dtype(verb, first.argument(), x.argument());
    if (x.takes == Takes::f32_or_same) require_f32_or_dtype_of(verb, x.argument(), first.argument());
    if (x.access == Access::read) continue;
    for (const Operand& other : operands) {
      if (other.tensor == nullptr || &other == &x) continue;
      if (x.access == Access::in_place)
        require_apart_or_same(verb, other.argument(), x.argument());
      else
        require_apart(verb, other.argument(), x.argument());
    }
  }
}

}  // namespace fp16lab::engine::checks::requirements
