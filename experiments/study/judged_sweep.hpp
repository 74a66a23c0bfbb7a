// What the runs of a plan came to, found by the plan's own names of workloads and variants: for experiments,
// which need no code of their own for final values, skipped steps, recorded underflow and verdicts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "experiments/app/sweep/sweep.hpp"
#include "reports/data/summary.hpp"

namespace fp16lab::experiments {

class JudgedSweep {
 public:
  /// Reads what is on disk. Workloads and rows are those of the plan, in its order and with its names
  /// (whatever else tells their configurations apart); all pairs of the plan are one family. Runs that are
  /// not there or have not finished are counted in a row's `runs` only. CommandError(run_failed) where no run
  /// is there at all.
  explicit JudgedSweep(const SweepPlan& plan);

  const std::vector<reports::WorkloadSummary>& workloads() const { return summaries_; }
  /// std::out_of_range for names that the plan does not have.
  const reports::WorkloadSummary& workload(std::string_view name) const;
  const reports::SummaryRow& row(std::string_view workload, std::string_view variant) const;
  /// By seed; also those that are missing.
  std::vector<const reports::Run*> runs_of(std::string_view workload, std::string_view variant) const;
  /// Are all of the plan's runs of this variant judged?
  bool is_complete(std::string_view workload, std::string_view variant) const;

  /// For stdout: the table of every workload, with the notes.
  std::string table() const { return reports::summary_table(set_, summaries_); }
  const reports::RunSet& set() const { return set_; }

 private:
  std::size_t index_of(std::string_view workload) const;
  std::size_t index_of(std::size_t workload, std::string_view variant) const;

  reports::RunSet set_;
  std::vector<reports::WorkloadSummary> summaries_;  ///< as set_.workloads
};

}  // namespace fp16lab::experiments
