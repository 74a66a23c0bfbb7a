#include "experiments/underflow/underflow.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "experiments/app/config/run_plan.hpp"
#include "experiments/app/sweep/summary_output.hpp"
#include "experiments/study/judged_sweep.hpp"
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

/// What FP16 would lose of dL/dy at the scale that it had.
double in_fp16(const UnderflowVariant& variant) {
  return underflow_rate(variant.loss_gradients, fp16_range, 1.0);
}

}  // namespace

const UnderflowVariant& Underflow::variant(std::string_view name) const {
  for (const UnderflowVariant& one : variants)
    if (one.name == name) return one;
  throw std::out_of_range(fmt::format("no variant '{}' was measured", name));
}

SweepPlan underflow_plan(const CommonOptions& common) {
  CommonOptions base = common;
  base.set.clear();  // make_plan applies them last
  base.seed.reset();
  SweepPlan plan = make_plan({{workload, resolve_run(base).config, {1, 2, 3, 4, 5}}}, variants(), common);
  add_twins(plan);
  return plan;
}

Underflow measure_underflow(const SweepPlan& plan) {
  const JudgedSweep sweep(plan);
  Underflow underflow{.table = sweep.table(), .csv = summary_csv(sweep.workloads())};
  for (const SweepVariant& described : variants()) {
    UnderflowVariant variant{
        .name = described.name,
        .judged = {sweep.workload(workload).metric, sweep.row(workload, described.name)}};
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

std::string underflow_text(const Underflow& underflow) {
  std::string text = underflow.table + "\nof the non-zero loss gradients dL/dy\n";
  for (const UnderflowVariant& variant : underflow.variants)
    text += variant.casts.values == 0 ? fmt::format("  {}: {:.2f} % would round to zero in FP16\n",
                                                    variant.name, 100 * in_fp16(variant))
                                      : fmt::format("  {}: {:.2f} % rounded to zero\n", variant.name,
                                                    100 * variant.casts.underflow_rate());
  return text;
}

std::string loss_gradients_csv(const Underflow& underflow) {
  std::string text = "variant,loss_gradient_underflow,loss_gradient_underflow_in_fp16\n";
  for (const UnderflowVariant& variant : underflow.variants)
    text += fmt::format("{},{},{}\n", variant.name,
                        variant.casts.values == 0 ? "" : fmt::format("{}", variant.casts.underflow_rate()),
                        in_fp16(variant));
  return text;
}

}  // namespace fp16lab::experiments
