// A regression whose loss is a mean over millions of elements: what FP16 does to its gradients, and what
// becomes of the training with and without loss scaling.
#pragma once

#include <string>
#include <vector>

#include "experiments/study/judged_sweep.hpp"
#include "numerics/histogram/cast_counts.hpp"
#include "numerics/histogram/exponent_histogram.hpp"

namespace fp16lab::experiments {

/// All seeds of one variant.
struct UnderflowVariant {
  std::string name;
  JudgedRow judged{};
  CastCounts casts{};                  ///< what the runs' own casts did to dL/dy; nothing in FP32
  ExponentHistogram loss_gradients{};  ///< dL/dy before them, scale included
};

struct Underflow {
  std::vector<UnderflowVariant> variants{};
  std::string table{}, csv{};  ///< of the sweep
  /// std::out_of_range without one.
  const UnderflowVariant& variant(std::string_view name) const;
};

/// Criteria fixed before anything was measured.
std::vector<Question<Underflow>> underflow_questions();

}  // namespace fp16lab::experiments
