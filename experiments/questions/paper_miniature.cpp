#include "experiments/questions/paper_miniature.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <memory>
#include <span>
#include <stdexcept>
#include <utility>

#include "engine/train/trainer.hpp"
#include "experiments/app/exit_code.hpp"
#include "experiments/app/progress.hpp"
#include "experiments/app/run/prepared_run.hpp"
#include "experiments/app/sweep/summary_output.hpp"
#include "experiments/questions/questions.hpp"
#include "experiments/questions/step_tap.hpp"
#include "experiments/questions/tensor_values.hpp"
#include "numerics/arithmetic/arithmetic.hpp"
#include "numerics/convert/convert.hpp"
#include "numerics/files/run/run_folder.hpp"
#include "numerics/histogram/zones.hpp"
#include "reports/figures/question_figures.hpp"

namespace fp16lab::experiments {
namespace {

using Half = SmallFloat<Binary16>;

/// The loss scales of the paper's networks: 1, 8 (SSD), 128 (bigLSTM), 1024 (translation), 32K (the guide).
constexpr int paper_log2_scales[] = {0, 3, 7, 10, 15};
/// Figure 2b: weight gradients of a speech model, times the learning rate (what the text calls updates);
/// about 5 % of all are below 2^-24.
constexpr double speech_updates_below_subnormal_percent = 5;

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

/// A sweep file's runs and FP32's twins. CommandError(usage) where it lacks what the claims are about.
SweepPlan miniature_plan(const CommonOptions& common) {
  SweepPlan plan = load_sweep(common);
  for (const char* const workload : {needs_scaling, no_scaling})
    require(plan, workload, {"fp32", "s1", "s8", "s128", "s1024", "s32768"});
  require(plan, small_updates, {"fp32", "masters", "no-masters"});
  add_twins(plan);
  return plan;
}

/// From what is on disk, but the updates of weights.
Miniature measure_miniature(const SweepPlan& plan, int threads) {
  const JudgedSweep sweep(plan);
  Miniature miniature{.table = sweep.table(), .csv = summary_csv(sweep.workloads())};
  for (const reports::WorkloadSummary& workload : sweep.workloads())
    for (const reports::SummaryRow& row : workload.rows)
      miniature.rows.push_back({workload.name, row.label, {workload.metric, row}});
  for (const PlannedRun& planned : plan.runs) {
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

Described describe_miniature(const Miniature& miniature, const std::filesystem::path& out) {
  std::string lost = "workload,log2_scale,lost_percent\n";
  for (const auto& [workload, gradients] : miniature.activation_gradients)
    for (const int scale : paper_log2_scales)
      lost += fmt::format("{},{},{:.6g}\n", workload, scale, miniature.lost_percent(workload, scale));
  return {.text = miniature.table,
          .files = {{"exp_paper_miniature.csv", miniature.csv}, {"lost_gradients.csv", lost}},
          .undrawn = draw_figures(miniature, out / "figures")};
}

constexpr double too_small_percent = 1.0;  ///< of the updates: enough to be seen; the paper has about 5
constexpr double harmless_percent =
    10.0;  ///< of the non-zero gradients, lost without harm; the paper's bars say half

double percent(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : 100 * static_cast<double>(part) / static_cast<double>(whole);
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
  engine::Backend& backend = *prepared->backend;
  StepTap tap;
  engine::Trainer trainer(backend, prepared->workload, prepared->plan, tap);
  std::vector<engine::Parameter*> weights = trainer.parameters();
  std::erase_if(weights, [](const engine::Parameter* one) { return one->name.ends_with("bias"); });
  std::vector<std::vector<float>> before;
  const auto keep = [&] {
    before.clear();
    for (const engine::Parameter* weight : weights) before.push_back(values_of(backend, weight->value));
  };
  keep();
  const auto looks_at = [every](std::uint64_t step) { return (step - 1) % every == 0; };
  UpdateStudy study;
  tap.after = [&](const StepRow& row) {
    if (looks_at(row.step) && !row.skipped) {
      for (std::size_t i = 0; i < weights.size(); ++i)
        count(study, before[i], values_of(backend, weights[i]->value));
      ++study.steps;
    }
    if (looks_at(row.step + 1)) keep();
  };
  if (trainer.run().end == engine::RunResult::End::stopped)
    throw CommandError(ExitCode::interrupted, "interrupted; the same command continues");
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

std::vector<Question<Miniature>> miniature_questions() {
  return {
      {.claim =
           "some updates of weights are too small for FP16, by themselves or beside their weight (figure 2b)",
       .criterion =
           fmt::format("at least {} % of the non-zero updates of one run round to zero in FP16 (a count)",
                       too_small_percent),
       .judge = [](const Miniature& miniature) -> Answer {
         const UpdateStudy& study = miniature.with_masters;
         if (study.moved() == 0) return {};
         const double small = percent(study.too_small, study.moved());
         return {
             verdict_of(small >= too_small_percent),
             fmt::format("{:.2f} % round to zero by themselves (the paper: about {} % below 2^-24), another "
                         "{:.2f} % are lost when FP16 adds them to their weight; over {} steps of one seed",
                         small, speech_updates_below_subnormal_percent,
                         percent(study.absorbed, study.moved()), study.steps)};
       }},
      {.claim = "FP16 training needs an FP32 master copy of the weights (figure 2a)",
       .criterion = fmt::format("without masters {}; with them {}", worse_criterion, as_good_criterion),
       .judge = [](const Miniature& miniature) -> Answer {
         const JudgedRow& with = miniature.row(small_updates, "masters");
         const JudgedRow& without = miniature.row(small_updates, "no-masters");
         const UpdateStudy &kept = miniature.with_masters, &lost = miniature.without_masters;
         return {all_of(std::array{is_worse(without), is_as_good(with)}),
                 fmt::format(
                     "with masters {} | without {} | a step moves {:.1f} % of the FP32 masters and {:.1f} % "
                     "of the FP16 weights",
                     words_of(with), words_of(without), percent(kept.moved(), kept.elements),
                     percent(lost.moved(), lost.elements))};
       }},
      {.claim = "some networks need loss scaling (table 2: SSD diverges without)",
       .criterion = fmt::format("{} at S = 1 {}", needs_scaling, worse_criterion),
       .judge = [](const Miniature& miniature) -> Answer {
         const JudgedRow& plain = miniature.row(needs_scaling, "s1");
         return {is_worse(plain),
                 fmt::format(
                     "S = 1 {} | {:.1f} % of its non-zero activation gradients round to zero (SSD's bars: "
                     "{:.1f} %)",
                     words_of(plain), miniature.lost_percent(needs_scaling, 0), ssd_lost_percent(0, -24))};
       }},
      {.claim = "a factor of 8 brings it back although many gradients still vanish (section 3.2)",
       .criterion = fmt::format(
           "{} at S = 8 {}, while at least {} % of the non-zero activation gradients round to zero",
           needs_scaling, as_good_criterion, harmless_percent),
       .judge = [](const Miniature& miniature) -> Answer {
         const JudgedRow& scaled = miniature.row(needs_scaling, "s8");
         const double lost = miniature.lost_percent(needs_scaling, 3);
         return {all_of(std::array{is_as_good(scaled), verdict_of(lost >= harmless_percent)}),
                 fmt::format("S = 8 {} | {:.1f} % lost (SSD's bars: {:.1f} %)", words_of(scaled), lost,
                             ssd_lost_percent(3, -24))};
       }},
      {.claim = "others train without (table 1: the ILSVRC networks)",
       .criterion = fmt::format("{} at S = 1 {}", no_scaling, as_good_criterion),
       .judge = [](const Miniature& miniature) -> Answer {
         const JudgedRow& plain = miniature.row(no_scaling, "s1");
         return {is_as_good(plain),
                 fmt::format("S = 1 {} | {:.1f} % of its non-zero activation gradients round to zero",
                             words_of(plain), miniature.lost_percent(no_scaling, 0))};
       }},
      {.claim = "a larger factor does no harm as long as nothing overflows (section 3.2)",
       .criterion = fmt::format("at 128, 1024 and 32K both networks {}", as_good_criterion),
       .judge = [](const Miniature& miniature) -> Answer {
         std::vector<Verdict> verdicts;
         std::string measured;
         for (const char* const workload : {needs_scaling, no_scaling})
           for (const char* const variant : {"s128", "s1024", "s32768"}) {
             const JudgedRow& scaled = miniature.row(workload, variant);
             verdicts.push_back(is_as_good(scaled));
             measured += fmt::format("{}{} {} {}", measured.empty() ? "" : " | ", workload, variant,
                                     words_of(scaled));
           }
         return {all_of(verdicts), std::move(measured)};
       }}};
}

Command::Run ask_paper_miniature(Options& options) {
  return ask_with_sweep(options, [](const CommonOptions& common, const SweepOptions& sweep) {
    const SweepPlan plan = miniature_plan(common);
    return run_study<Miniature>(
        common,
        {.questions = miniature_questions(),
         .measure =
             [&] {
               train_all(plan, common, sweep);
               Progress progress(common.quiet);
               progress.show(common.program + ": every update of the small-updates runs");
               return measure_miniature(plan, common.threads);
             },
         .describe = [&](const Miniature& miniature) { return describe_miniature(miniature, common.out); }});
  });
}

}  // namespace fp16lab::experiments
