// One dot product of a tensor core, term by term, as text or as JSON: what `fp16lab mma --explain` and the
// playground show.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "numerics/gemm/library_plan.hpp"
#include "numerics/tensor_core/explained_dot.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"

namespace fp16lab::analysis {

/// A line of `fp16lab mma`, taken apart and answered.
struct DotLine {
  std::string_view text;     ///< as read
  std::uint64_t number = 0;  ///< from 1
  const TensorCoreModel* row = nullptr;
  DType a_format = DType::f16, b_format = DType::f16;
  std::span<const std::uint32_t> a, b;  ///< both have equal length
  DotScales scales = {};                ///< of a row with block scales
  std::uint32_t c = 0;
  std::uint32_t d = 0;                      ///< fused_dot_add's answer
  std::optional<std::uint32_t> captured;    ///< with --verify: the d-word of the line
  const PlannedProduct* product = nullptr;  ///< a library's plan, whose chains the line's products are in
  std::string_view plan = {};               ///< and its name
  std::string call = {};  ///< ", one output of mm of 1024 x 1024", where the plan asks for it
};

/// A word's number in the fewest digits that read back (shortest_text); of TF32 without the bits that are
/// dropped.
std::string number_text(DType format, std::uint64_t word);

/// Its steps (numerics/tensor_core/explained_dot.hpp).
ExplainedDot explained_dot(const DotLine& line);

/// Lines that begin with the text of the line.
std::string text_of(const DotLine& line, const ExplainedDot& dot);
/// One line, one object. A term's "aligned" is its bits in units of 2^max_exponent; those after "|" are
/// dropped, ".." abbreviates more of them.
std::string json_of(const DotLine& line, const ExplainedDot& dot);

}  // namespace fp16lab::analysis
