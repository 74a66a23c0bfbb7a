// A comparison of two runs as text, JSON and CSV.
#pragma once

#include <iosfwd>

#include "analysis/claim.hpp"
#include "analysis/run_comparison.hpp"

namespace fp16lab::analysis {

/// "A and B have the same bits": fails where anything differs or is missing, is not run where neither has a
/// step, and is inconclusive where states have hashes of two versions.
Claim claim_of(const RunComparison& comparison);

/// The claim first, then what differs: settings, columns of steps.csv, error growth, evaluations, tensors
/// (the `most_tensors` farthest ones; the rest is counted), notes.
void print_comparison(std::ostream& out, const RunComparison& comparison, std::size_t most_tensors = 20);

/// {"a", "b", "equal", "claims" (as in claims_json), "threshold", "settings": [{"key", "a", "b"}], "steps":
/// {"common", "only_a", "only_b", "first_state_difference", "state_differences", "states_of_two_versions",
/// "skips_a", "skips_b", "skip_differences", and of each column "loss": {"differing", "first", "largest",
/// "largest_step", "above", "first_above"}}, "growth": null or {"first_step", "last_step", "points", "log10_per_step",
/// "log10_at_first", "doubling_steps", "r_squared"}, "evaluations": {"common", "only_a", "only_b",
/// "first_difference", "last": [{"step", "split", and of each column "loss_a", "loss_b"}]}, "histograms":
/// {"rows_a", "rows_b", "unmatched_rows", "only_a", "only_b", "tensors": [{"tensor", "kind", "steps",
/// "equal", "first_difference", "mean_distance", "largest_distance", "largest_step", "zeros_a": {"before",
/// "after"}, "zeros_b"}]}, "notes"}. Absent and non-finite numbers are null and strings as in run folders.
void write_comparison_json(std::ostream& out, const RunComparison& comparison);

/// One row a common step: step, loss_a, loss_b, loss_difference (b - a), grad_norm_a, grad_norm_b,
/// loss_scale_a, loss_scale_b, skipped_a, skipped_b, same_state.
void write_comparison_csv(std::ostream& out, const RunComparison& comparison);

}  // namespace fp16lab::analysis
