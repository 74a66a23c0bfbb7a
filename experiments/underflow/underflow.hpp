// A regression whose loss is a mean over millions of elements: what FP16 does to its gradients, and what
// becomes of the training with and without loss scaling.
#pragma once

#include <string>
#include <vector>

#include "experiments/app/sweep/sweep.hpp"
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

/// FP32 and its twin, no scaling and two fixed scales of autoencoder.toml, five seeds; names as in the
/// demonstration's sweep, so that -o results/demo reuses its runs.
SweepPlan underflow_plan(const CommonOptions& common);
/// From what is on disk.
Underflow measure_underflow(const SweepPlan& plan);
/// Criteria fixed before anything was measured.
std::vector<Question<Underflow>> underflow_questions();

/// The sweep's table, and how much of dL/dy rounds to zero.
std::string underflow_text(const Underflow& underflow);
/// variant, loss_gradient_underflow (of the casts), loss_gradient_underflow_in_fp16 (of the values, whatever
/// took them).
std::string loss_gradients_csv(const Underflow& underflow);

}  // namespace fp16lab::experiments
