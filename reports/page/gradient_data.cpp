// The explorer's part of the page's JSON.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "analysis/observed_output.hpp"
#include "reports/data/run_config.hpp"
#include "reports/page/emulation.hpp"
#include "reports/page/page_sections.hpp"

namespace fp16lab::reports {

namespace {

OrderedJson what_if_json(const RunGradients& gradients) {
  const auto each_scale = [](auto rate) {
    std::vector<double> rates;
    for (int k = analysis::min_log2_scale; k <= analysis::max_log2_scale; ++k)
      rates.push_back(rate(std::ldexp(1.0, k)));
    return drawn_numbers(rates);
  };
  OrderedJson per_tensor = OrderedJson::array();
  for (std::size_t tensor = 0; tensor < gradients.tensors.size(); ++tensor)
    per_tensor.push_back(each_scale(
        [&](double scale) { return analysis::rates_of(gradients.at_scale(tensor, scale)).lost.middle(); }));
  return {{"lost", std::move(per_tensor)},
          {"merged_lost", each_scale([&](double scale) {
             return analysis::rates_of(gradients.at_scale(scale)).lost.middle();
           })},
          {"merged_overflow", each_scale([&](double scale) {
             return analysis::rates_of(gradients.at_scale(scale)).overflow.upper;
           })}};
}

/// [snapshot, log2 scale, lost, subnormal, normal, overflow as lower and upper], all tensors together that
/// are rounded.
OrderedJson check_json(const RunGradients& gradients, const std::vector<std::size_t>& snapshots) {
  OrderedJson checks = OrderedJson::array();
  const std::set<std::size_t> chosen{0, snapshots.size() / 2, snapshots.size() - 1};
  for (const std::size_t index : chosen) {
    const GradientSnapshot& snapshot = gradients.snapshots[snapshots[index]];
    constexpr int every = 4;
    for (int k = analysis::min_log2_scale; k <= analysis::max_log2_scale; k += every) {
      RangeCounts c;
      for (std::size_t i = 0; i < snapshot.histograms.size(); ++i)
        if (gradients.formats[i] != DType::f32)
          c += count_ranges(snapshot.histograms[i], range_of(gradients.formats[i]),
                            std::scalbn(1.0, k) / snapshot.scales[i]);
      checks.push_back(
          OrderedJson::array({index, k, c.lost.lower, c.lost.upper, c.subnormal.lower, c.subnormal.upper,
                              c.normal.lower, c.normal.upper, c.overflow.lower, c.overflow.upper}));
    }
  }
  return checks;
}

}  // namespace

namespace {

struct Observations {
  OrderedJson steps = OrderedJson::array(), scales = OrderedJson::array(), histograms = OrderedJson::array(),
              casts = OrderedJson::array();
};

Observations observations(const RunGradients& gradients, const std::vector<std::size_t>& chosen) {
  Observations all;
  for (const std::size_t index : chosen) {
    const GradientSnapshot& snapshot = gradients.snapshots[index];
    all.steps.push_back(snapshot.step);
    all.scales.push_back(snapshot.one_scale() ? OrderedJson(snapshot.loss_scale)
                                              : OrderedJson(snapshot.scales));
    OrderedJson row = OrderedJson::array(), cast = OrderedJson::array();
    for (const ExponentHistogram& histogram : snapshot.histograms) row.push_back(histogram_json(histogram));
    for (const std::optional<CastCounts>& counts : snapshot.casts)
      cast.push_back(counts ? OrderedJson::array({counts->values, counts->underflow, counts->overflow})
                            : OrderedJson(nullptr));
    all.histograms.push_back(std::move(row));
    all.casts.push_back(std::move(cast));
  }
  return all;
}

OrderedJson formats_json(const RunGradients& gradients, Observed observed) {
  OrderedJson formats = OrderedJson::array();
  for (const DType format : gradients.formats) formats.push_back(format_json(format, observed));
  return formats;
}

OrderedJson others_json(const std::map<Observed, RunGradients>& tensors) {
  OrderedJson others = OrderedJson::array();
  for (const auto& [observed, values] : tensors) {
    if (observed == Observed::gradients || values.snapshots.empty()) continue;
    Observations seen = observations(values, evenly_chosen(values.snapshots.size(), values.snapshots.size()));
    others.push_back({{"observed", name_of(observed)},
                      {"title", analysis::title_of(observed)},
                      {"tensors", values.tensors},
                      {"kinds", values.kinds},
                      {"formats", formats_json(values, observed)},
                      {"rounded", values.rounded},
                      {"steps", std::move(seen.steps)},
                      {"scales", std::move(seen.scales)},
                      {"histograms", std::move(seen.histograms)},
                      {"casts", std::move(seen.casts)}});
  }
  return others;
}

/// Each step as [loss, L2 norm of the gradients, found_inf, skipped, learning rate, scale of the step after
/// it].
OrderedJson happenings(const Run& run, const OrderedJson& steps) {
  OrderedJson rows = OrderedJson::array();
  const std::vector<StepRow>& all = run.folder.steps;
  for (const OrderedJson& step : steps) {
    const auto row = std::lower_bound(all.begin(), all.end(), step.get<std::uint64_t>(),
                                      [](const StepRow& r, std::uint64_t s) { return r.step < s; });
    if (row == all.end() || row->step != step.get<std::uint64_t>()) {
      rows.push_back(nullptr);
      continue;
    }
    rows.push_back(
        {number_or_null(row->loss), number_or_null(row->grad_norm), row->found_inf, row->skipped,
         number_or_null(row->lr),
         std::next(row) == all.end() ? OrderedJson(nullptr) : number_or_null(std::next(row)->loss_scale)});
  }
  return rows;
}

/// What the picture of a step writes beside its boxes.
OrderedJson settings_json(const Run& run) {
  OrderedJson settings = OrderedJson::object();
  for (const char* key : {"amp.level", "amp.dtype", "scaler.growth_interval", "optimizer.name"})
    settings[key] = value_or(run.config, key, "");
  settings["policy"] = run.id().fp32 ? "none" : run.id().policy;
  settings["tensor_core"] = tensor_core_of(run);
  settings["device"] = device_of(run);
  if (run.folder.manifest.memory) settings["masters"] = run.folder.manifest.memory->masters;
  if (run.folder.manifest.memory) settings["parameters"] = run.folder.manifest.memory->parameters;
  return settings;
}

}  // namespace

OrderedJson gradients_json(const Run& run, const std::string& workload, const std::string& label,
                           const RunGradients& gradients, const std::map<Observed, RunGradients>& others,
                           std::size_t snapshots) {
  const std::vector<std::size_t> chosen = evenly_chosen(gradients.snapshots.size(), snapshots);
  Observations seen = observations(gradients, chosen);
  OrderedJson rows = happenings(run, seen.steps);
  return {{"name", run.name},
          {"workload", workload},
          {"label", pretty(label)},
          {"fp32", run.id().fp32},
          {"seed", run.seed},
          {"tensors", gradients.tensors},
          {"kinds", gradients.kinds},
          {"formats", formats_json(gradients, Observed::gradients)},
          {"rounded", gradients.rounded},
          {"observed", gradients.observed_steps},
          {"steps", std::move(seen.steps)},
          {"scales", std::move(seen.scales)},
          {"histograms", std::move(seen.histograms)},
          {"casts", std::move(seen.casts)},
          {"rows", std::move(rows)},
          {"settings", settings_json(run)},
          {"others", others_json(others)},
          {"what_if", what_if_json(gradients)},
          {"check", check_json(gradients, chosen)}};
}

}  // namespace fp16lab::reports
