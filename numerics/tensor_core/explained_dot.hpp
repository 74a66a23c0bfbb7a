// A tensor core's dot product taken apart: every term, what its alignment drops, every rounding, and the
// error of the result, in exact rational numbers.
//
// The steps are those of numerics/tensor_core/tensor_core_model.hpp, computed a second time: no integer of
// fixed width, no shift and no round_pack. Only the value of a word (decode_bits) comes from the same place.
// So the result can be compared with fused_dot_add, and must be equal.
// A program that includes this needs Boost.Multiprecision's headers (Debian: libboost-dev).
#pragma once

#include <array>
#include <boost/multiprecision/cpp_int.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "numerics/arithmetic/round_pack.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"

namespace fp16lab {

/// An exact number. Every one in an explanation but a quotient is an integer times a power of two.
using Rational = boost::multiprecision::cpp_rational;

/// What a word, a product or a sum is worth.
struct ExplainedNumber {
  Exact::Kind kind = Exact::Kind::zero;
  bool negative = false;  ///< also of a zero and of an infinity
  Rational value = 0;     ///< with its sign; 0 where the number is not finite

  bool is_finite() const { return kind == Exact::Kind::zero || kind == Exact::Kind::finite; }
};

struct ExplainedTerm {
  enum class Source : std::uint8_t {
    product,      ///< a[k] * b[k]
    accumulator,  ///< c, or the result of the step before
    blocks,       ///< for an addition: the result of the two blocks before it
    padding,      ///< +0 * +0, in the place of a product after the end of K
    partial,      ///< for a step between the chains of a plan: what a step before it made
    group,        ///< products [k, k + count) and their scales, added exactly
  };
  Source source = Source::product;
  /// For a product, its element; for an accumulator the step that made it, counted from 1, where 0 is c; so
  /// also for a partial sum.
  std::size_t k = 0;
  std::size_t count = 1;  ///< of products
  static constexpr std::size_t zero =
      ~std::size_t{};  ///< for an accumulator and a partial sum: +0, from no step
  ExplainedNumber number;
  int exponent = 0;  ///< for a finite number other than zero: the one with which it enters the alignment
  /// number.value = kept + dropped, where the step's sum is finite. In a fused block `kept` is a multiple of
  /// 2^unit_exponent, and `dropped` is smaller than that; an addition drops nothing, and an fma what it
  /// flushes.
  Rational kept = 0, dropped = 0;
};

constexpr std::array<std::string_view, 6> names_of(ExplainedTerm::Source) {
  return {"product", "accumulator", "blocks", "padding", "partial", "group"};
}

struct ExplainedStep {
  Sum kind = Sum::aligned;           ///< a fused block; one ordinary addition; or one fma
  std::size_t chain = 0;             ///< in a plan: the chain's number, from 1; 0: between chains
  DType format = DType::f32;         ///< between chains: what `sum` is rounded to, before `word` has it
  std::uint32_t c = 0;               ///< the accumulator with which it begins
  std::vector<ExplainedTerm> terms;  ///< the accumulator, then products by ascending k; or two summands
  int max_exponent = 0;              ///< for a fused block with a finite sum
  int unit_exponent = 0;             ///< max_exponent - fraction_bits
  ExplainedNumber sum;               ///< sum of what the terms keep
  std::uint32_t word = 0;            ///< the sum in the accumulator's format
  ExplainedNumber result;            ///< the value of `word`
};

struct ExplainedDot {
  std::vector<ExplainedNumber> a, b;  ///< as the tensor core reads them
  std::vector<ExplainedNumber> a_given,
      b_given;  ///< as the words say: of TF32 with the low 13 bits, which it drops
  std::vector<ExplainedNumber> a_scales, b_scales;  ///< one for each block
  ExplainedNumber c;
  std::vector<ExplainedStep> steps;  ///< none where there are no products
  std::uint32_t word = 0;            ///< the result: the last step's, or c
  ExplainedNumber result;            ///< its value
  ExplainedNumber exact;           ///< c + sum_k a_given[k] * b_given[k], each times its scales; not rounded
  std::uint32_t nearest_word = 0;  ///< `exact` rounded once to the accumulator's format, to nearest even
  ExplainedNumber nearest;         ///< its value
  /// 2^ulp_exponent is the spacing of the accumulator's format at `exact`: in its binade, but not below that
  /// of the subnormals and not above that of the largest numbers. Meaningless where `exact` is not finite.
  int ulp_exponent = 0;
  std::optional<Rational> error;  ///< result - exact, where both are finite
  Rational operand_error =
      0;  ///< sum_k a[k] * b[k] - a_given[k] * b_given[k]: its part from bits of operands
};

/// The dot product of these words, step by step. Arguments and errors are those of fused_dot_add.
///
/// With finite numbers throughout, error = operand_error + (sum over steps of result - sum) - (sum over all
/// terms of dropped). The sign of a zero: `exact` is -0 only if every term is, as in IEEE 754 addition; a
/// fused block that cancels or has zeros only gives +0.
ExplainedDot explained_dot(const TensorCoreModel& model, DType a_format, std::span<const std::uint32_t> a,
                           DType b_format, std::span<const std::uint32_t> b, std::uint32_t c,
                           const DotScales& scales = {});

/// The exact sum of these terms, rounded once to `format`, to nearest even; `word` is of FP32.
ExplainedStep explained_addition(std::vector<ExplainedTerm> terms, DType format);

}  // namespace fp16lab
