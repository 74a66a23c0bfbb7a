#include "experiments/paper_miniature/miniature.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <stdexcept>
#include <utility>

#include "engine/train/trainer.hpp"
#include "experiments/app/exit_code.hpp"
#include "experiments/app/process.hpp"
#include "experiments/app/run/prepared_run.hpp"
#include "experiments/app/sweep/summary_output.hpp"
#include "experiments/study/judged_sweep.hpp"
#include "numerics/arithmetic/arithmetic.hpp"
#include "numerics/convert/convert.hpp"
#include "numerics/files/run/run_folder.hpp"
#include "numerics/histogram/zones.hpp"
#include "reports/figures/question_figures.hpp"

namespace fp16lab::experiments {
namespace {

using Half = SmallFloat<Binary16>;

/// The stored values, widened: 16-bit ones exactly.
std::vector<float> values_of(engine::Backend& backend, const engine::Tensor& tensor) {
  engine::Tensor wide = tensor;
  if (tensor.dtype() != DType::f32) {
    wide = backend.empty(tensor.shape(), DType::f32);
    backend.cast(tensor, wide);
  }
  std::vector<float> values(static_cast<std::size_t>(wide.element_count()));
  backend.download(wide, std::as_writable_bytes(std::span(values)));
  return values;
}

void count(UpdateStudy& study, const std::vector<float>& before, const std::vector<float>& after) {
  study.elements += before.size();
  for (std::size_t i = 0; i < before.size(); ++i) {
    const float update = after[i] - before[i];
    study.updates.count(bits_of(update));
    if (update == 0.0f) continue;
    const Half weight = narrow<Binary16>(before[i]), step = narrow<Binary16>(update);
    if ((step.bits() & Binary16::magnitude_mask) == 0)
      ++study.too_small;
    else if (add(weight, step).bits() == weight.bits())
      ++study.absorbed;
  }
}

class UpdateWatcher final : public engine::Tap {
 public:
  UpdateWatcher(std::uint64_t every, UpdateStudy& study) : every_(every), study_(&study) {}
  void watch(engine::Backend& backend, const std::vector<engine::Parameter*>& parameters) {
    backend_ = &backend;
    for (engine::Parameter* parameter : parameters)
      if (!parameter->name.ends_with("bias")) weights_.push_back(parameter);
    keep();
  }

  void see(const engine::Event& event) override {
    const auto* const row = event.as<StepRow>();
    if (row == nullptr) return;
    if (looks_at(row->step) && !row->skipped) {
      for (std::size_t i = 0; i < weights_.size(); ++i)
        count(*study_, before_[i], values_of(*backend_, weights_[i]->value));
      ++study_->steps;
    }
    if (looks_at(row->step + 1)) keep();
  }
  bool wants(const engine::Site& site) override { return site.what == engine::What::stop && interrupted(); }

 private:
  bool looks_at(std::uint64_t step) const { return (step - 1) % every_ == 0; }
  void keep() {
    before_.clear();
    for (const engine::Parameter* weight : weights_) before_.push_back(values_of(*backend_, weight->value));
  }

  std::uint64_t every_;
  UpdateStudy* study_;
  engine::Backend* backend_ = nullptr;
  std::vector<engine::Parameter*> weights_;
  std::vector<std::vector<float>> before_;
};

constexpr std::uint64_t observed_every = 20;

/// The first seed's run.
const PlannedRun* find(const SweepPlan& plan, std::string_view workload, std::string_view variant) {
  const auto found = std::find_if(plan.runs.begin(), plan.runs.end(), [&](const PlannedRun& run) {
    return run.workload == workload && run.variant == variant;
  });
  return found == plan.runs.end() ? nullptr : &*found;
}

void require(const SweepPlan& plan, const char* workload, std::initializer_list<const char*> variants) {
  for (const char* const variant : variants)
    if (find(plan, workload, variant) == nullptr)
      throw CommandError(
          ExitCode::usage,
          fmt::format("the sweep has no variant '{}' of a workload '{}'; exp_paper_miniature needs those of "
                      "experiments/configs/paper_miniature.toml",
                      variant, workload));
}

}  // namespace

std::span<const PaperBar> ssd_activation_gradients() {
  static constexpr std::array<PaperBar, 17> bars = {{{-60, -45, .009},
                                                     {-45, -40, .10},
                                                     {-40, -38, .15},
                                                     {-38, -36, .33},
                                                     {-36, -34, .8},
                                                     {-34, -32, 1.95},
                                                     {-32, -30, 4.0},
                                                     {-30, -28, 6.4},
                                                     {-28, -26, 7.3},
                                                     {-26, -24, 6.0},
                                                     {-24, -22, 3.4},
                                                     {-22, -20, 1.5},
                                                     {-20, -18, .67},
                                                     {-18, -16, .35},
                                                     {-16, -14, .15},
                                                     {-14, -12, .05},
                                                     {-12, -10, .009}}};
  return bars;
}

double ssd_lost_percent(int log2_scale, int threshold_exponent) {
  double lost = 0, all = 0;
  const double edge = threshold_exponent - log2_scale;
  for (const PaperBar& bar : ssd_activation_gradients()) {
    const double below = std::clamp((edge - bar.from) / (bar.to - bar.from), 0.0, 1.0);
    lost += below * bar.percent;
    all += bar.percent;
  }
  return 100 * lost / all;
}

UpdateStudy study_updates(const RunConfig& config, std::uint64_t every, int threads) {
  const std::unique_ptr<PreparedRun> prepared = prepare_run(resolve_run(config), threads);
  UpdateStudy study;
  UpdateWatcher watcher(every, study);
  engine::Trainer trainer(*prepared->backend, prepared->workload, prepared->plan, watcher);
  watcher.watch(*prepared->backend, trainer.parameters());
  if (trainer.run().end == engine::RunResult::End::stopped)
    throw CommandError(ExitCode::interrupted, "interrupted; the same command carries on");
  return study;
}

const JudgedRow& Miniature::row(std::string_view workload, std::string_view variant) const {
  for (const MiniatureRow& one : rows)
    if (one.workload == workload && one.variant == variant) return one.judged;
  throw std::out_of_range(fmt::format("no variant '{}' of '{}' was measured", variant, workload));
}

double Miniature::lost_percent(std::string_view workload, int log2_scale) const {
  const auto found = activation_gradients.find(workload);
  if (found == activation_gradients.end()) return 0;
  return 100 * underflow_rate(found->second, fp16_range, std::exp2(log2_scale));
}

SweepPlan miniature_plan(const CommonOptions& common) {
  SweepPlan plan = load_sweep(common);
  for (const char* const workload : {needs_scaling, no_scaling})
    require(plan, workload, {"fp32", "s1", "s8", "s128", "s1024", "s32768"});
  require(plan, small_updates, {"fp32", "masters", "no-masters"});
  add_twins(plan);
  return plan;
}

Miniature measure_miniature(const SweepPlan& plan, int threads) {
  const JudgedSweep sweep(plan);
  Miniature miniature{.table = sweep.table(), .csv = summary_csv(sweep.workloads())};
  for (const PlannedRun& planned : plan.runs) {
    const auto same = [&](const MiniatureRow& row) {
      return row.workload == planned.workload && row.variant == planned.variant;
    };
    if (std::none_of(miniature.rows.begin(), miniature.rows.end(), same))
      miniature.rows.push_back(
          {planned.workload,
           planned.variant,
           {sweep.workload(planned.workload).metric, sweep.row(planned.workload, planned.variant)}});
    if (planned.variant != "fp32" || !is_done(planned)) continue;
    ExponentHistogram& gradients = miniature.activation_gradients[planned.workload];
    for_each_histogram(planned.folder, [&gradients](const HistogramRow& row) {
      if (row.kind == "activation") gradients += row.before;  // FP32 without scaling: at a scale of 1
    });
  }
  miniature.with_masters =
      study_updates(find(plan, small_updates, "masters")->config, observed_every, threads);
  miniature.without_masters =
      study_updates(find(plan, small_updates, "no-masters")->config, observed_every, threads);
  return miniature;
}

std::string lost_gradients_csv(const Miniature& miniature) {
  std::string text = "workload,log2_scale,lost_percent\n";
  for (const auto& [workload, gradients] : miniature.activation_gradients)
    for (const int scale : paper_log2_scales)
      text += fmt::format("{},{},{:.6g}\n", workload, scale, miniature.lost_percent(workload, scale));
  return text;
}

std::string draw_figures(const Miniature& miniature, const std::filesystem::path& folder) {
  std::map<int, double> paper_percent;  // a bar's values spread evenly over its exponents
  double all = 0;
  for (const PaperBar& bar : ssd_activation_gradients()) all += bar.percent;
  for (const PaperBar& bar : ssd_activation_gradients())
    for (int e = bar.from; e < bar.to; ++e) paper_percent[e] = 100 * bar.percent / (bar.to - bar.from) / all;
  std::vector<reports::PaperFigures::Lost> lost;
  for (int k = 0; k <= 16; ++k)
    lost.push_back({miniature.lost_percent(needs_scaling, k), miniature.lost_percent(no_scaling, k),
                    ssd_lost_percent(k, -24)});
  const UpdateStudy &with = miniature.with_masters, &without = miniature.without_masters;
  return reports::draw_paper_figures({.with_masters = {with.updates, with.elements},
                                      .without_masters = {without.updates, without.elements},
                                      .needs_scaling = miniature.activation_gradients.at(needs_scaling),
                                      .no_scaling = miniature.activation_gradients.at(no_scaling),
                                      .paper_percent = std::move(paper_percent),
                                      .lost = lost},
                                     folder);
}

}  // namespace fp16lab::experiments
