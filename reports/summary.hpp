// What came out: final quality of each configuration against FP32, with the verdict, as rows, as text and in
// plain words.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "analysis/comparison.hpp"
#include "analysis/paired_interval.hpp"
#include "numerics/cast_counts.hpp"
#include "reports/quantity.hpp"
#include "reports/run_set.hpp"

namespace fp16lab::reports {

/// The number by which a workload is judged.
struct Metric {
  std::string name;  ///< "test loss", "test accuracy", "test bits per character", "final training loss"
  analysis::Better better = analysis::Better::lower;
  Quantity quantity = Quantity::loss;
};

/// One configuration of one workload.
struct SummaryRow {
  std::string label;
  int runs = 0;                      ///< all of them, also unfinished and missing ones
  std::vector<std::string> missing;  ///< names of runs that a sweep planned and that are not there
  std::vector<double> final_values;  ///< of the metric, one a judged seed; NaN for a run that diverged
  std::vector<double> final_losses;  ///< the same on the loss; equal where the metric is one
  std::vector<std::uint64_t> seeds;  ///< of final_values
  bool is_reference = false;
  std::optional<analysis::Comparison>
      against_reference;  ///< absent for the reference and where there is none
  /// Of the metric, candidate minus reference of the same seed; absent unless two seeds or more are in both and every
  /// value is finite.
  std::optional<analysis::PairedInterval> paired;
  /// What the casts of its gradients did, counted over all observed steps and runs, each at the scale that its step had.
  /// Absent where nothing was observed or rounded: FP32 has no rate.
  std::optional<CastCounts> casts;
  std::uint64_t steps = 0, skipped = 0;  ///< over all runs
  double last_scale = 1;                 ///< of the first run
  double seconds_per_step = 0;           ///< mean over all runs
};

struct WorkloadSummary {
  std::string name;
  Metric metric;
  std::vector<SummaryRow> rows;  ///< as the workload's configurations
  std::string words;             ///< the findings in a few plain sentences
};

/// The metric is the accuracy or the bits per character of the last evaluation (on "test" if there is such a
/// split) where every judged run has them, else its loss; without evaluations the mean training loss of the last
/// twentieth of the steps.
/// Judged are finished runs, and diverged ones as NaN.
WorkloadSummary summarise(const RunSet& set, const Workload& workload);

/// A metric's value for people: "0.0583", "87.41 %", "diverged".
std::string value_text(const Metric& metric, double value);
/// The recorded underflow rate, "70.5 %"; "" where there is none.
std::string underflow_text(const SummaryRow& row);

/// Candidate against reference with its sign: "+16.8 %" of a loss, "-0.10 pp" (percentage points) of an
/// accuracy; "-" if there is no finite difference.
std::string difference_text(const Metric& metric, const analysis::Comparison& comparison);

/// The paired interval in the unit of difference_text, "[+0.2, +1.4] %" of the reference's mean or "[-0.3, +0.1] pp";
/// "-" if there is none.
std::string paired_text(const Metric& metric, const SummaryRow& row);

/// The spread that the verdict used, in the metric's unit: "0.0003", "0.40 pp"; "-" if there is none.
std::string spread_text(const Metric& metric, const analysis::Comparison& comparison);

}  // namespace fp16lab::reports
