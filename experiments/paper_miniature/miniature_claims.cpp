#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "experiments/paper_miniature/miniature.hpp"
#include "experiments/paper_miniature/paper_figures.hpp"
#include "numerics/files/run_folder.hpp"
#include "numerics/range_counts.hpp"

namespace fp16lab::experiments {
namespace {

using analysis::Better;
using analysis::Comparison;

constexpr double too_small_percent = 1.0;  ///< of the updates: enough to be seen; the paper has about 5
constexpr double worse_percent = 5.0;      ///< final loss above FP32's: a network that needs help
constexpr double recovered_percent = 1.0;  ///< and one that got it
constexpr double harmless_percent =
    10.0;  ///< of the non-zero gradients, lost without harm; the paper's bars say half

Comparison against_fp32(const std::vector<MiniatureRuns>& runs, const std::string& workload,
                        const std::string& variant) {
  return analysis::compare(runs_of(runs, workload, "fp32").losses, runs_of(runs, workload, variant).losses,
                           Better::lower);
}

bool complete(const std::vector<MiniatureRuns>& runs, const std::string& workload,
              const std::string& variant) {
  const MiniatureRuns& reference = runs_of(runs, workload, "fp32");
  const MiniatureRuns& candidate = runs_of(runs, workload, variant);
  return reference.complete && candidate.complete && reference.losses.size() >= 2 &&
         candidate.losses.size() >= 2;
}

std::string words(const Comparison& comparison) {
  if (comparison.candidate.non_finite > 0) return "diverged";
  return fmt::format("{:+.2f} %", comparison.difference_percent);
}

bool is_worse(const Comparison& comparison) {
  if (comparison.candidate.non_finite > 0) return true;
  return comparison.difference_percent > worse_percent && comparison.verdict == analysis::Verdict::behind;
}
bool is_level(const Comparison& comparison) {
  return comparison.candidate.non_finite == 0 && comparison.difference_percent <= recovered_percent;
}

ClaimState state(bool decided, bool holds) {
  return !decided ? ClaimState::undecided : holds ? ClaimState::holds : ClaimState::fails;
}

double percent(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : 100 * static_cast<double>(part) / static_cast<double>(whole);
}

MiniatureClaim updates_vanish(const Miniature& miniature) {
  const UpdateStudy& study = miniature.with_masters;
  const double small = percent(study.too_small, study.moved()),
               absorbed = percent(study.absorbed, study.moved());
  return {
      .claim =
          "some updates of weights are too small for FP16, by themselves or beside their weight (figure 2b)",
      .criterion =
          fmt::format("at least {} % of the non-zero updates round to zero in FP16", too_small_percent),
      .measured = fmt::format("{:.2f} % round to zero by themselves (the paper: about {} % below 2^-24), "
                              "another {:.2f} % are lost "
                              "when FP16 adds them to their weight; over {} steps",
                              small, speech_updates_below_subnormal_percent, absorbed, study.steps),
      .state = state(study.moved() > 0, small >= too_small_percent)};
}

MiniatureClaim masters_matter(const Miniature& miniature) {
  const Comparison with = against_fp32(miniature.runs, small_updates, "masters");
  const Comparison without = against_fp32(miniature.runs, small_updates, "no-masters");
  const UpdateStudy& kept = miniature.with_masters;
  const UpdateStudy& lost = miniature.without_masters;
  return {
      .claim = "FP16 training needs an FP32 master copy of the weights (figure 2a)",
      .criterion = fmt::format("final loss without masters above FP32's by more than {} % and 3 x the spread "
                               "over seeds; with them "
                               "within {} %",
                               worse_percent, recovered_percent),
      .measured = fmt::format(
          "with masters {}, without {}; a step moves {:.1f} % of the FP32 masters and {:.1f} % of the FP16 "
          "weights",
          words(with), words(without), percent(kept.moved(), kept.elements),
          percent(lost.moved(), lost.elements)),
      .state = state(complete(miniature.runs, small_updates, "masters") &&
                         complete(miniature.runs, small_updates, "no-masters"),
                     is_worse(without) && is_level(with))};
}

MiniatureClaim scaling_needed(const Miniature& miniature) {
  const Comparison plain = against_fp32(miniature.runs, needs_scaling, "s1");
  return {.claim = "some networks need loss scaling (table 2: SSD diverges without)",
          .criterion = fmt::format("final loss at S = 1 above FP32's by more than {} % and 3 x the spread",
                                   worse_percent),
          .measured = fmt::format("{}: S = 1 ends {} off FP32; {:.1f} % of its non-zero activation gradients "
                                  "round to zero (SSD's bars: "
                                  "{:.1f} %)",
                                  needs_scaling, words(plain),
                                  lost_percent(runs_of(miniature.runs, needs_scaling, "fp32"), 0),
                                  ssd_lost_percent(0, -24)),
          .state = state(complete(miniature.runs, needs_scaling, "s1"), is_worse(plain))};
}

MiniatureClaim eight_is_enough(const Miniature& miniature) {
  const Comparison scaled = against_fp32(miniature.runs, needs_scaling, "s8");
  const double lost = lost_percent(runs_of(miniature.runs, needs_scaling, "fp32"), 3);
  return {
      .claim = "a factor of 8 brings it back although many gradients still vanish (section 3.2)",
      .criterion = fmt::format(
          "final loss at S = 8 within {} % of FP32 while at least {} % of the non-zero activation gradients "
          "round to zero",
          recovered_percent, harmless_percent),
      .measured = fmt::format("S = 8 ends {} off FP32, {:.1f} % lost (SSD's bars: {:.1f} %)", words(scaled),
                              lost, ssd_lost_percent(3, -24)),
      .state =
          state(complete(miniature.runs, needs_scaling, "s8"), is_level(scaled) && lost >= harmless_percent)};
}

MiniatureClaim others_do_not(const Miniature& miniature) {
  const Comparison plain = against_fp32(miniature.runs, no_scaling, "s1");
  return {.claim = "others train without (table 1: the ILSVRC networks)",
          .criterion = "final loss at S = 1 within 3 x the spread over seeds of FP32's",
          .measured = fmt::format(
              "{}: S = 1 ends {} off FP32, {}; {:.1f} % of its non-zero activation gradients round to zero",
              no_scaling, words(plain), analysis::name_of(plain.verdict),
              lost_percent(runs_of(miniature.runs, no_scaling, "fp32"), 0)),
          .state = state(complete(miniature.runs, no_scaling, "s1"),
                         plain.verdict == analysis::Verdict::within_spread ||
                             plain.verdict == analysis::Verdict::ahead)};
}

MiniatureClaim large_factors_are_safe(const Miniature& miniature) {
  std::string measured;
  bool level = true, decided = true;
  for (const char* const workload : {needs_scaling, no_scaling}) {
    for (const char* const variant : {"s128", "s1024", "s32768"}) {
      const Comparison comparison = against_fp32(miniature.runs, workload, variant);
      decided = decided && complete(miniature.runs, workload, variant);
      level = level && (is_level(comparison) || comparison.verdict == analysis::Verdict::within_spread);
      measured +=
          fmt::format("{}{} {} {}", measured.empty() ? "" : ", ", workload, variant, words(comparison));
    }
  }
  return {.claim = "a larger factor does no harm as long as nothing overflows (section 3.2)",
          .criterion = fmt::format("at 128, 1024 and 32K both networks within {} % or 3 x the spread of FP32",
                                   recovered_percent),
          .measured = std::move(measured),
          .state = state(decided, level)};
}

}  // namespace

std::vector<MiniatureRuns> measure(const SweepPlan& plan) {
  std::vector<MiniatureRuns> all;
  for (const PlannedRun& planned : plan.runs) {
    auto found = std::find_if(all.begin(), all.end(), [&](const MiniatureRuns& runs) {
      return runs.workload == planned.workload && runs.variant == planned.variant;
    });
    if (found == all.end()) {
      all.push_back({.workload = planned.workload, .variant = planned.variant});
      found = all.end() - 1;
    }
    if (!is_done(planned)) {
      found->complete = false;
      continue;
    }
    const RunFolder folder = read_run_folder(planned.folder);
    const bool ended = folder.finished() && !folder.evaluations.empty();
    found->losses.push_back(ended ? folder.evaluations.back().loss : std::numeric_limits<double>::infinity());
    if (ended && folder.evaluations.back().accuracy)
      found->accuracies.push_back(*folder.evaluations.back().accuracy);
    for_each_histogram(planned.folder, [&](const HistogramRow& row) {
      if (row.kind != "activation") return;
      found->activation_gradients += row.before;
      found->recorded_scale = row.loss_scale;
    });
  }
  return all;
}

const MiniatureRuns& runs_of(const std::vector<MiniatureRuns>& all, const std::string& workload,
                             const std::string& variant) {
  const auto found = std::find_if(all.begin(), all.end(), [&](const MiniatureRuns& runs) {
    return runs.workload == workload && runs.variant == variant;
  });
  if (found == all.end())
    throw std::invalid_argument(
        fmt::format("the sweep has no variant '{}' of a workload '{}'; exp_paper_miniature needs those of "
                    "experiments/configs/paper_miniature.toml",
                    variant, workload));
  return *found;
}

double lost_percent(const MiniatureRuns& runs, int log2_scale) {
  return 100 *
         underflow_rate(runs.activation_gradients, fp16_range, std::exp2(log2_scale) / runs.recorded_scale);
}

std::vector<MiniatureClaim> judge(const Miniature& miniature) {
  return {updates_vanish(miniature),  masters_matter(miniature), scaling_needed(miniature),
          eight_is_enough(miniature), others_do_not(miniature),  large_factors_are_safe(miniature)};
}

std::string csv(const Miniature& miniature) {
  std::string text =
      "workload,variant,seeds,mean_loss,min_loss,max_loss,mean_accuracy,difference_percent,spread,lost_s1,"
      "lost_s8,"
      "lost_s128,lost_s1024,lost_s32768\n";
  for (const MiniatureRuns& runs : miniature.runs) {
    const analysis::Quality quality = analysis::quality_of(runs.losses);
    const analysis::Quality accuracy = analysis::quality_of(runs.accuracies);
    const Comparison comparison = against_fp32(miniature.runs, runs.workload, runs.variant);
    text += fmt::format("{},{},{},{},{},{},{},{},{}", runs.workload, runs.variant, quality.seeds,
                        quality.mean, quality.minimum, quality.maximum,
                        runs.accuracies.empty() ? "" : fmt::format("{}", accuracy.mean),
                        comparison.difference_percent, comparison.spread);
    for (const int scale : paper_log2_scales) text += fmt::format(",{:.6g}", lost_percent(runs, scale));
    text += '\n';
  }
  return text;
}

}  // namespace fp16lab::experiments
