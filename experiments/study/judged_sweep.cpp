#include "experiments/study/judged_sweep.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <stdexcept>

#include "experiments/app/config/run_identity.hpp"

namespace fp16lab::experiments {
namespace {

/// The element called `name`, added after the others where there is none.
template <class Named>
Named& named(std::vector<Named>& all, std::string Named::*member, const std::string& name) {
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Named& one) { return one.*member == name; });
  if (found != all.end()) return *found;
  all.emplace_back().*member = name;
  return all.back();
}

/// The set's runs under the plan's own names.
std::vector<reports::Workload> grouped(const SweepPlan& plan, const std::vector<reports::Run>& runs) {
  std::map<std::string, std::size_t> places;
  for (std::size_t i = 0; i < runs.size(); ++i) places.emplace(runs[i].name, i);
  std::vector<reports::Workload> workloads;
  for (const PlannedRun& planned : plan.runs) {
    const std::size_t place = places.at(planned.name);
    reports::Workload& workload = named(workloads, &reports::Workload::name, planned.workload);
    reports::Configuration& configuration =
        named(workload.configurations, &reports::Configuration::label, planned.variant);
    if (configuration.runs.empty()) configuration.id = runs[place].id();
    configuration.runs.push_back(place);
  }
  for (reports::Workload& workload : workloads)
    for (reports::Configuration& configuration : workload.configurations)
      std::stable_sort(configuration.runs.begin(), configuration.runs.end(),
                       [&](std::size_t a, std::size_t b) { return runs[a].seed < runs[b].seed; });
  return workloads;
}

}  // namespace

JudgedSweep::JudgedSweep(const SweepPlan& plan) {
  const auto& [folders, missing] = experiments::runs_of(plan);
  if (folders.empty())
    throw CommandError(ExitCode::run_failed, fmt::format("{}: none of its {} runs is there",
                                                         plan.folder.string(), plan.runs.size()));
  set_ = reports::load_runs(folders, missing, told);
  if (!set_.unreadable.empty()) throw CommandError(ExitCode::run_failed, set_.unreadable.front());
  set_.workloads = grouped(plan, set_.runs);
  // The plan's names tell apart what settings alone do not, so none of its seeds is there twice.
  std::erase_if(set_.notes, [](const std::string& note) { return note.ends_with(" occurs more than once"); });
  summaries_ = reports::summarise(set_);
}

JudgedRow JudgedSweep::row(std::string_view workload, std::string_view variant) const {
  const std::size_t w = index_of(workload);
  return {summaries_[w].metric, summaries_[w].rows[index_of(w, variant)]};
}

std::vector<const reports::Run*> JudgedSweep::runs_of(std::string_view workload,
                                                      std::string_view variant) const {
  const std::size_t w = index_of(workload);
  std::vector<const reports::Run*> runs;
  for (const std::size_t run : set_.workloads[w].configurations[index_of(w, variant)].runs)
    runs.push_back(&set_.runs[run]);
  return runs;
}

std::size_t JudgedSweep::index_of(std::string_view workload) const {
  for (std::size_t w = 0; w < set_.workloads.size(); ++w)
    if (set_.workloads[w].name == workload) return w;
  throw std::out_of_range(fmt::format("the sweep has no workload '{}'", workload));
}

std::size_t JudgedSweep::index_of(std::size_t workload, std::string_view variant) const {
  const std::vector<reports::Configuration>& all = set_.workloads[workload].configurations;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i].label == variant) return i;
  throw std::out_of_range(
      fmt::format("workload '{}' of the sweep has no variant '{}'", set_.workloads[workload].name, variant));
}

using analysis::Word;

Verdict is_worse(const JudgedRow& judged) {
  if (!judged.row.against_reference) return Verdict::not_run;
  switch (judged.row.against_reference->word) {
    case Word::equal:
    case Word::better:
      return Verdict::fails;
    case Word::worse:
      return judged.row.worse_than_noise().value_or(false) ? Verdict::holds : Verdict::cannot_tell;
    case Word::cannot_tell:
      break;
  }
  return Verdict::cannot_tell;
}

Verdict is_as_good(const JudgedRow& judged) {
  const Verdict worse = is_worse(judged);
  return worse == Verdict::holds ? Verdict::fails : worse == Verdict::fails ? Verdict::holds : worse;
}

Verdict all_of(std::span<const Verdict> verdicts) {
  const auto any = [verdicts](Verdict verdict) {
    return std::find(verdicts.begin(), verdicts.end(), verdict) != verdicts.end();
  };
  for (const Verdict decisive : {Verdict::fails, Verdict::not_run, Verdict::cannot_tell})
    if (any(decisive)) return decisive;
  return verdicts.empty() ? Verdict::not_run : Verdict::holds;
}

std::string words_of(const JudgedRow& judged) {
  const reports::SummaryRow& row = judged.row;
  if (!row.against_reference) return "no pair with FP32";
  return fmt::format("{}, {}; {}", reports::measured_text(judged.metric, *row.against_reference),
                     analysis::words_of(*row.against_reference, judged.metric.unit()),
                     row.against_twin
                         ? fmt::format("than the twin: {}", analysis::name_of(row.against_twin->word))
                         : "no twin to compare with");
}

}  // namespace fp16lab::experiments
