// fp16lab mma --explain: one line's dot product, step by step.
#pragma once

#include <string>

#include "analysis/dot_explanation.hpp"

namespace fp16lab::experiments {

using MmaLine = analysis::DotLine;

/// As text, or with `json` as one line, one object (analysis/dot_explanation.hpp). CommandError with
/// ExitCode::mismatch where the steps do not end with `line.d`: the two ways to compute it must agree.
std::string explanation_of(const MmaLine& line, bool json);

}  // namespace fp16lab::experiments
