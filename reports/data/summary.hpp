// What came out: final quality of each configuration against FP32 and against FP32's twin, judged by the four
// words of analysis::judge, as rows, as text and in plain words.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/account.hpp"
#include "analysis/paired_verdict.hpp"
#include "numerics/histogram/cast_counts.hpp"
#include "reports/data/quantity.hpp"
#include "reports/data/run_set.hpp"

namespace fp16lab::reports {

/// The number by which a workload is judged.
struct Metric {
  std::string name;  ///< "test loss", "test accuracy", "test bits per character", "final training loss"
  Quantity quantity = Quantity::loss;
  double margin = 1;  ///< within which a difference counts as equal, in unit(): report.margin.*

  bool higher_is_better() const { return quantity == Quantity::accuracy; }
  std::string_view unit() const { return higher_is_better() ? "points" : "%"; }  ///< the differences' unit
  /// In the metric's own sign: analysis::accuracy_difference, or loss_difference, in the unit of percent_of.
  double difference(double variant, double reference) const;
  double badness(double difference) const { return higher_is_better() ? -difference : difference; }
};

/// One configuration of one workload.
struct SummaryRow {
  std::string label;
  int runs = 0;                      ///< all of them, also unfinished and missing ones
  std::vector<std::string> missing;  ///< names of runs that a sweep planned and that are not there
  int untold = 0;                    ///< finished runs for which lab.watch got no loss
  std::vector<double> final_values;  ///< the metric's, one a judged seed; NaN for a run that diverged
  std::vector<double> final_losses;  ///< the same on the loss; equal where the metric is one
  std::vector<std::uint64_t> seeds;  ///< those of final_values
  std::size_t different_seeds = 0, planned_seeds = 0;  ///< in final_values, and in all runs; each once
  /// Digest of the judged runs' seeds, state hashes and final values: equal for runs that are the same bit
  /// for bit. 0 where no state was recorded.
  std::uint64_t bits = 0;
  bool is_reference = false;
  bool is_twin = false;
  /// Absent for the reference, where there is none, and without a judged run; against the twin for the twin,
  /// too.
  std::optional<analysis::Judgement> against_reference, against_twin;
  /// What happened in the run of these with the worst problem; nothing if no run has made a step.
  std::optional<analysis::Account> account;
  std::uint64_t account_seed = 0;
  /// What the casts of its gradients did, counted over all observed steps and runs, each at the scale that
  /// its step had. Absent where nothing was observed or rounded: FP32 has no rate.
  std::optional<CastCounts> casts;
  std::uint64_t steps = 0, skipped = 0;  ///< over all runs
  double last_scale = 1;                 ///< the first run's
  double seconds_per_step = 0;           ///< median of the runs' medians
  std::optional<RunMemory> memory;       ///< from the first run that has it: shapes make it, not seeds

  /// Worse than FP32's own noise: worse against FP32 and against its twin. False where one of the two is
  /// equal or better; nothing where that is undecided, and where there is no twin to judge by.
  std::optional<bool> worse_than_noise() const;
};

/// The configurations beside FP32 and its twin that did not diverge, the best mean first, and the first
/// judged against the second: only one that is "better" leads.
struct Ranking {
  std::vector<std::size_t> order;
  analysis::Judgement against_next;
  bool leads() const { return against_next.word == analysis::Word::better; }
};

struct WorkloadSummary {
  std::string name;
  Metric metric;
  std::vector<SummaryRow> rows;  ///< as the workload's configurations
  /// Where one more FP32 run whose weights were moved by one ulp would end with 95 %, as a difference to FP32
  /// (analysis::single_run_band): all that a single run can be compared with.
  std::optional<analysis::Interval> twin_band;
  std::optional<Ranking> ranking;  ///< absent with fewer than two to rank
  std::vector<std::string> notes;  ///< seeds that are left out, margins that disagree
  std::string words;               ///< the findings in a few plain sentences
};

/// The summaries of every workload of the set. The metric is the accuracy or the bits per character of the
/// last evaluation (on "test" if there is such a split) where every judged run has them, else its loss;
/// without evaluations the mean training loss of the last twentieth of the steps. Judged are finished runs,
/// and diverged ones as NaN.
///
/// All pairs of the set are one family of tests; those against the twins are a second one. The margin is that
/// of the runs' own configurations (1 % and 0.5 points in those that have none), the smallest where they
/// disagree. std::runtime_error for a margin that is not above 0.
std::vector<WorkloadSummary> summarise(const RunSet& set);

/// The pairs of two rows: seeds that both have, each once. A seed without a usable reference is counted as
/// dropped.
analysis::PairedSample pairs_of(const Metric& metric, const SummaryRow& variant, const SummaryRow& reference);

/// A metric's value for people: "0.0583", "87.41 %", "diverged".
std::string value_text(const Metric& metric, double value);
/// Why a row has no value: "no loss was told" (to lab.watch), "no finished run". Empty: it has one.
std::string unjudged_words(const SummaryRow& row);
/// The recorded underflow rate, "70.5 %"; "" where there is none.
std::string underflow_text(const SummaryRow& row);

/// The mean difference in the metric's own sign, and which way that is: "+16.80 % (worse)", "-0.10 points
/// (worse)", "0.00 %"; "-" without a pair.
std::string difference_text(const Metric& metric, const analysis::Judgement& judgement);
/// The text of a row whose mean, or whose reference's, includes seeds without a pair: "+0.30 % (worse), 3
/// pairs".
std::string difference_text(const WorkloadSummary& summary, const SummaryRow& row);
/// With the interval, where there is one: "-0.10 points (worse) [-0.30, +0.10]".
std::string measured_text(const Metric& metric, const analysis::Judgement& judgement);
/// "3", "2 of 3": seeds that have ended, of those that were begun or planned.
std::string seeds_text(const SummaryRow& row);

/// The four words for people (analysis::words_of). For a single run with a twin's band it adds the side of
/// the band: "one seed: three are needed for a verdict; inside FP32's twin band".
std::string verdict_text(const WorkloadSummary& summary, const analysis::Judgement& judgement);

/// "Best by test loss: FP16 torch (0.2375), then megatron (0.2501)."; and whether a verdict separates the
/// first from the second: "No verdict tells FP16 torch from megatron: -0.10 % (better), equal within 1 %.".
/// Empty without a ranking.
std::string ranking_text(const WorkloadSummary& summary);
std::string leader_text(const WorkloadSummary& summary);
/// "megatron skipped 46 of 200 steps, torch 3 of 200.", the largest share first; empty where none did.
std::string skips_text(const WorkloadSummary& summary);

/// What is wrong with the configurations, the worst first: the first finding that needs mending of each, of
/// three at most, and the names of the others.
std::vector<std::string> troubles_of(const WorkloadSummary& summary);

/// The findings in a few plain sentences: WorkloadSummary::words.
std::string plain_words(const WorkloadSummary& summary);

/// One aligned text table of final quality against FP32 for each workload, with the notes below: what a
/// terminal shows.
std::string summary_table(const RunSet& set, const std::vector<WorkloadSummary>& summaries);

}  // namespace fp16lab::reports
