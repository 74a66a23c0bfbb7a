// What the runs of a plan came to, found by the plan's own names of workloads and variants: for experiments,
// which need no code of their own for final values, skipped steps, recorded underflow and verdicts.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/app/sweep/sweep.hpp"
#include "experiments/study/study.hpp"
#include "reports/data/summary.hpp"

namespace fp16lab::experiments {

/// One variant of one workload, with what its values are differences of.
struct JudgedRow {
  reports::Metric metric{};
  reports::SummaryRow row{};
};

class JudgedSweep {
 public:
  /// Reads what is on disk. Workloads and rows are those of the plan, in its order and with its names
  /// (whatever else tells their configurations apart); all pairs of the plan are one family. Runs that are
  /// not there or have not finished are counted in a row's `runs` only. CommandError(run_failed) where no run
  /// is there at all.
  explicit JudgedSweep(const SweepPlan& plan);

  const std::vector<reports::WorkloadSummary>& workloads() const { return summaries_; }
  /// std::out_of_range for names that the plan does not have.
  JudgedRow row(std::string_view workload, std::string_view variant) const;
  /// By seed; also those that are missing.
  std::vector<const reports::Run*> runs_of(std::string_view workload, std::string_view variant) const;
  /// For stdout: the table of every workload, with the notes.
  std::string table() const { return reports::summary_table(set_, summaries_); }

 private:
  std::size_t index_of(std::string_view workload) const;
  std::size_t index_of(std::size_t workload, std::string_view variant) const;

  reports::RunSet set_;
  std::vector<reports::WorkloadSummary> summaries_;  ///< as set_.workloads
};

// From the four words of a sweep's pairs to the verdict of a claim.

/// What is_worse and is_as_good ask, for criteria.
inline constexpr const char* worse_criterion =
    "worse than FP32 and than its one-ulp twin (final test value, paired over "
    "seeds, all pairs of the sweep one family)";
inline constexpr const char* as_good_criterion =
    "equal to FP32 within the margin, or better (final test value, paired "
    "over seeds, all pairs of the sweep one family)";

/// Holds where it is worse than FP32 and than FP32's twin; fails where it is equal to FP32 or better; else,
/// also where it is worse than FP32 only, inconclusive. Not run without a pair.
Verdict is_worse(const JudgedRow& judged);
/// Its opposite: fails where it is worse than both, holds where it is equal to FP32 or better.
Verdict is_as_good(const JudgedRow& judged);
/// Judges a claim with several conditions: fails where one does, not run where one was not, holds where all
/// hold.
Verdict all_of(std::span<const Verdict> verdicts);

/// "+20.50 % [+19.02, +22.00], worse; than the twin: worse".
std::string words_of(const JudgedRow& judged);

}  // namespace fp16lab::experiments
