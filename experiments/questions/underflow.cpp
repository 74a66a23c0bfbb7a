#include "experiments/questions/underflow.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "experiments/app/config/run_plan.hpp"
#include "experiments/app/sweep/summary_output.hpp"
#include "experiments/questions/questions.hpp"
#include "numerics/files/run/run_folder.hpp"
#include "numerics/histogram/zones.hpp"

namespace fp16lab::experiments {
namespace {

constexpr const char* workload = "autoencoder";
/// The tensor that the loss hands to the network: dL/dy.
constexpr std::string_view loss_gradient = "loss.prediction";

const std::vector<SweepVariant>& variants() {
  static const std::vector<SweepVariant> list{
      {"fp32", {"amp.level=O0", "scaler.policy=none"}},
      {"none", {"amp.level=O1", "scaler.policy=none"}},
      {"fixed-2p3", {"amp.level=O1", "scaler.policy=fixed", "scaler.initial_scale=2^3"}},
      {"fixed-2p7", {"amp.level=O1", "scaler.policy=fixed", "scaler.initial_scale=2^7"}},
  };
  return list;
}

/// Five seeds; names as in the demonstration's sweep, so that -o results/demo reuses its runs.
SweepPlan underflow_plan(const CommonOptions& common) {
  CommonOptions base = common;
  base.set.clear();  // make_plan applies them last
  base.seed.reset();
  SweepPlan plan = make_plan({{workload, resolve_run(base).config, {1, 2, 3, 4, 5}}}, variants(), common);
  add_twins(plan);
  return plan;
}

/// From what is on disk.
Underflow measure_underflow(const SweepPlan& plan) {
  const JudgedSweep sweep(plan);
  Underflow underflow{.table = sweep.table(), .csv = summary_csv(sweep.workloads())};
  for (const SweepVariant& described : variants()) {
    UnderflowVariant variant{.name = described.name, .judged = sweep.row(workload, described.name)};
    for (const PlannedRun& planned : plan.runs) {
      if (planned.variant != described.name || !is_done(planned)) continue;
      for_each_histogram(planned.folder, [&variant](const HistogramRow& row) {
        if (row.tensor != loss_gradient) return;
        variant.loss_gradients += row.before;
        if (const auto casts = cast_counts(row.dtype, row.before, row.after)) variant.casts += *casts;
      });
    }
    underflow.variants.push_back(std::move(variant));
  }
  return underflow;
}

/// The sweep's table, and how much of dL/dy rounds to zero: of the casts, and of the values in FP16, whatever
/// took them.
Described describe_underflow(const Underflow& underflow) {
  std::string text = underflow.table + "\nof the non-zero loss gradients dL/dy\n";
  std::string csv = "variant,loss_gradient_underflow,loss_gradient_underflow_in_fp16\n";
  for (const UnderflowVariant& variant : underflow.variants) {
    const bool was_cast = variant.casts.values > 0;
    const double in_fp16 = underflow_rate(variant.loss_gradients, fp16_range, 1.0);
    text += was_cast
                ? fmt::format("  {}: {:.2f} % rounded to zero\n", variant.name,
                              100 * variant.casts.underflow_rate())
                : fmt::format("  {}: {:.2f} % would round to zero in FP16\n", variant.name, 100 * in_fp16);
    csv += fmt::format("{},{},{}\n", variant.name,
                       was_cast ? fmt::format("{}", variant.casts.underflow_rate()) : "", in_fp16);
  }
  return {text, {{"exp_underflow.csv", underflow.csv}, {"loss_gradients.csv", csv}}};
}

/// What "hurts" means here, beside being worse at all: a size that matters.
constexpr double harm_percent = 5.0;

Answer judge_harm(const Underflow& underflow) {
  const JudgedRow& unscaled = underflow.variant("none").judged;
  Answer answer{is_worse(unscaled), words_of(unscaled)};
  if (answer.verdict != Verdict::holds) return answer;
  // A run that diverged has no interval, and needs none.
  const std::optional<analysis::Interval>& interval = unscaled.row.against_reference->interval;
  if (!interval) return answer;
  const auto [least, most] =
      std::minmax({unscaled.metric.badness(interval->lower), unscaled.metric.badness(interval->upper)});
  if (most < harm_percent) answer.verdict = Verdict::fails;
  if (least <= harm_percent && harm_percent <= most) answer.verdict = Verdict::cannot_tell;
  return answer;
}

Answer judge_recovery(const Underflow& underflow) {
  Answer answer{Verdict::fails, {}};
  bool open = false, any = false;
  for (const UnderflowVariant& variant : underflow.variants) {
    if (!variant.name.starts_with("fixed-")) continue;
    const Verdict verdict = is_as_good(variant.judged);
    any |= verdict != Verdict::not_run;
    open |= verdict == Verdict::cannot_tell;
    if (verdict == Verdict::holds) answer.verdict = Verdict::holds;
    answer.measured +=
        fmt::format("{}{} {}", answer.measured.empty() ? "" : " | ", variant.name, words_of(variant.judged));
  }
  if (!any) return {};
  if (answer.verdict == Verdict::fails && open) answer.verdict = Verdict::cannot_tell;
  return answer;
}

}  // namespace

const UnderflowVariant& Underflow::variant(std::string_view name) const {
  for (const UnderflowVariant& one : variants)
    if (one.name == name) return one;
  throw std::out_of_range(fmt::format("no variant '{}' was measured", name));
}

std::vector<Question<Underflow>> underflow_questions() {
  return {{.claim = "without loss scaling, FP16 training ends worse than FP32",
           .criterion = fmt::format("none is {}, and its 95 % interval lies above {:+g} %", worse_criterion,
                                    harm_percent),
           .judge = judge_harm},
          {.claim = "loss scaling brings it back",
           .criterion = fmt::format("a fixed scale is {}", as_good_criterion),
           .judge = judge_recovery}};
}

Command::Run ask_underflow(Options& options) {
  return ask_with_sweep(options, [](const CommonOptions& common, const SweepOptions& sweep) {
    const SweepPlan plan = underflow_plan(common);
    return run_study<Underflow>(common, {.questions = underflow_questions(),
                                         .measure =
                                             [&] {
                                               train_all(plan, common, sweep);
                                               return measure_underflow(plan);
                                             },
                                         .describe = describe_underflow});
  });
}

}  // namespace fp16lab::experiments
