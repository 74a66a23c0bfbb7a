// fp16lab mma --explain: one line's dot product, term by term, as text or as JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "numerics/tensor_core/tensor_core_model.hpp"

namespace fp16lab::experiments {

/// A line of mma's input, taken apart and answered.
struct MmaLine {
  std::string_view text;     ///< as read
  std::uint64_t number = 0;  ///< from 1
  const TensorCoreModel* row = nullptr;
  DType a_format = DType::f16, b_format = DType::f16;
  std::span<const std::uint32_t> a, b;  ///< of equal length
  std::uint32_t c = 0;
  std::uint32_t d = 0;                    ///< fused_dot_add's answer
  std::optional<std::uint32_t> captured;  ///< with --verify: the d-word of the line
};

/// The steps of explained_dot (numerics/tensor_core/explained_dot.hpp): lines that begin with the text of the
/// line, or with `json` one line, one object. CommandError with ExitCode::mismatch where the steps do not end
/// with `line.d`: the two ways to compute it must agree.
std::string explanation_of(const MmaLine& line, bool json);

}  // namespace fp16lab::experiments
