// One run folder of those that the ranks of a distributed training wrote: histograms are added.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "bindings.hpp"
#include "numerics/files/run/run_folder.hpp"

namespace fp16lab::python {

namespace nb = nanobind;

namespace {

/// Gradients and activations are of each rank's own part of the batch. Weights and optimizer state are the same
/// on every rank, and counted once, or parts of one tensor (tensor parallelism): what differs is added.
bool differs_between_ranks(Observed observed) {
  return observed == Observed::gradients || observed == Observed::activations;
}

using Key = std::tuple<std::string, Observed, std::string, DType, double>;
using Rows = std::vector<HistogramRow>;

/// Rows by step, in the order of the first folder that has them.
class MergedHistograms {
 public:
  void add(const HistogramRow& row) {
    Rows& rows = steps_[row.step];
    const auto [found, is_new] = index_[row.step].try_emplace(
        Key{row.tensor, row.observed, row.kind, row.dtype, row.loss_scale}, rows.size());
    std::vector<ExponentHistogram>& parts = parts_[row.step][found->second];
    const bool is_known = std::find(parts.begin(), parts.end(), row.before) != parts.end();
    if (is_new) {
      rows.push_back(row);
    } else if (differs_between_ranks(row.observed) || !is_known) {
      rows[found->second].before += row.before;
      rows[found->second].after += row.after;
    }
    if (!differs_between_ranks(row.observed) && !is_known) parts.push_back(row.before);
  }
  const Rows& of(std::uint64_t step) { return steps_[step]; }

 private:
  std::map<std::uint64_t, Rows> steps_;
  std::map<std::uint64_t, std::map<Key, std::size_t>> index_;
  /// What was added to a row of weights or optimizer state.
  std::map<std::uint64_t, std::map<std::size_t, std::vector<ExponentHistogram>>> parts_;
};

void require_same_steps(const RunFolder& run, const RunFolder& first) {
  const auto differ = [&](const std::string& what) {
    throw std::invalid_argument(run.path.string() + " and " + first.path.string() +
                                " are not ranks of one training: " + what);
  };
  if (run.steps.size() != first.steps.size())
    differ(std::to_string(run.steps.size()) + " and " + std::to_string(first.steps.size()) + " steps");
  for (std::size_t i = 0; i < run.steps.size(); ++i) {
    const std::string at = "step " + std::to_string(first.steps[i].step);
    if (run.steps[i].step != first.steps[i].step) differ("one has no " + at);
    if (run.steps[i].loss_scale != first.steps[i].loss_scale) differ(at + " has two loss scales");
  }
}

/// The loss is the mean over ranks, seconds the longest; what an all-reduce made equal is the first rank's.
StepRow merged(const std::vector<RunFolder>& runs, std::size_t index) {
  StepRow row = runs.front().steps[index];
  row.loss = 0;
  for (const RunFolder& run : runs) {
    const StepRow& own = run.steps[index];
    row.loss += own.loss / static_cast<double>(runs.size());
    row.found_inf = row.found_inf || own.found_inf;
    row.skipped = row.skipped || own.skipped;
    row.seconds = std::max(row.seconds, own.seconds);
  }
  return row;
}

/// The mean over the ranks that made an evaluation of a step on a split.
std::vector<EvaluationRow> merged_evaluations(const std::vector<RunFolder>& runs) {
  std::vector<EvaluationRow> merged;
  std::vector<double> ranks;
  for (const RunFolder& run : runs)
    for (const EvaluationRow& row : run.evaluations) {
      const auto found = std::ranges::find_if(merged, [&](const EvaluationRow& other) {
        return other.step == row.step && other.split == row.split;
      });
      if (found == merged.end()) {
        merged.push_back(row);
        ranks.push_back(1);
        continue;
      }
      const double count = ++ranks[static_cast<std::size_t>(found - merged.begin())];
      found->loss += (row.loss - found->loss) / count;
      if (found->accuracy && row.accuracy) *found->accuracy += (*row.accuracy - *found->accuracy) / count;
    }
  std::ranges::stable_sort(merged, {}, &EvaluationRow::step);
  return merged;
}

bool is_weight(const RecipeRow& row) { return row.tensor == "weight" || row.tensor.ends_with(".weight"); }

/// By step: what operands lost on all ranks together. Weights are the same on each, and counted once.
std::map<std::uint64_t, std::vector<RecipeRow>> merged_operands(const std::vector<RunFolder>& runs) {
  std::map<std::uint64_t, std::vector<RecipeRow>> steps;
  for (const RunFolder& run : runs)
    for (const RecipeRow& row : read_recipe(run.path)) {
      std::vector<RecipeRow>& rows = steps[row.step];
      const auto same = std::ranges::find_if(rows, [&](const RecipeRow& other) {
        return other.tensor == row.tensor && other.product == row.product;
      });
      if (same == rows.end())
        rows.push_back(row);
      else if (!is_weight(row))
        *same += row;
    }
  return steps;
}

void merge_runs(const std::vector<std::string>& folders, const std::string& folder) {
  std::vector<RunFolder> runs;
  MergedHistograms histograms;
  std::vector<OverflowRow> overflows;
  const ObservedSet all{Observed::gradients, Observed::activations, Observed::weights, Observed::updates,
                        Observed::optimizer_state};
  for (const std::string& name : folders) {
    runs.push_back(read_run_folder(name));
    if (const std::vector<std::string>& damage = runs.back().damage; !damage.empty())
      throw std::invalid_argument(name + " is damaged: " + damage.front());
    require_same_steps(runs.back(), runs.front());
    for_each_histogram(
        name, [&](const HistogramRow& row) { histograms.add(row); }, all);
    if (runs.size() == 1) overflows = read_overflows(name);
  }
  if (runs.empty()) throw std::invalid_argument("merge needs at least one run folder");
  Manifest manifest = runs.front().manifest;
  manifest.end.reset();
  manifest.rows.reset();
  RunWriter writer(folder, manifest);
  std::map<std::uint64_t, std::vector<RecipeRow>> operands = merged_operands(runs);
  for (std::size_t i = 0; i < runs.front().steps.size(); ++i) {
    const StepRow row = merged(runs, i);
    for (const HistogramRow& counted : histograms.of(row.step)) writer.append(counted);
    for (const OverflowRow& overflow : overflows)
      if (overflow.step == row.step) writer.append(overflow);
    for (const RecipeRow& operand : operands[row.step]) writer.append(operand);
    writer.append(row);
  }
  for (const EvaluationRow& row : merged_evaluations(runs)) writer.append(row);
  writer.finish(runs.front().manifest.state, runs.front().manifest.message);
}

}  // namespace

void bind_merged_runs(nb::module_& module) {
  module.def("merge_runs", &merge_runs, nb::arg("folders"), nb::arg("folder"),
             nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace fp16lab::python
