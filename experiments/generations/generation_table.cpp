#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "experiments/generations/generations.hpp"
#include "reports/figures/question_figures.hpp"

namespace fp16lab::experiments {
namespace {

using Names = std::pair<std::string, std::string>;  ///< variant, reference

void add_each_other(std::vector<Names>& pairs, std::span<const std::string_view> rows) {
  for (std::size_t newer = 1; newer < rows.size(); ++newer)
    for (std::size_t older = 0; older < newer; ++older) pairs.emplace_back(rows[newer], rows[older]);
}

std::vector<Names> pairs_of(const std::vector<std::string>& variants) {
  std::vector<Names> pairs;
  for (const std::string& variant : variants) {
    if (variant == fp32_variant) continue;
    pairs.emplace_back(variant, fp32_variant);
    if (variant != twin_variant) pairs.emplace_back(variant, twin_variant);
  }
  pairs.emplace_back(one_ulp_variant, f32_rows.back());
  add_each_other(pairs, f32_rows);
  for (std::size_t i = 0; i < f16_rows.size(); ++i) pairs.emplace_back(f16_rows[i], f32_rows[i]);
  add_each_other(pairs, f16_rows);
  add_each_other(pairs, fp8_rows);
  return pairs;
}

analysis::PairedSample sample_of(const Generations& measured, const TrainedWorkload& workload,
                                 const Names& names) {
  analysis::PairedSample sample;
  sample.margin = workload.metric.margin;
  sample.higher_is_better = workload.metric.higher_is_better();
  sample.is_of_losses = !sample.higher_is_better;
  for (const std::int64_t seed : measured.seeds_of(workload.name, names.first)) {
    const TrainedRun* const run = measured.find(workload.name, names.first, seed);
    const TrainedRun* const reference = measured.find(workload.name, names.second, seed);
    if (reference == nullptr) continue;
    if (!std::isfinite(reference->metric))
      ++sample.dropped;
    else if (!std::isfinite(run->metric))
      ++sample.diverged;
    else
      sample.differences.push_back(workload.metric.difference(run->metric, reference->metric));
  }
  return sample;
}

}  // namespace

std::vector<JudgedPair> judged_pairs(const Generations& measured) {
  std::vector<JudgedPair> pairs;
  std::vector<analysis::PairedSample> family;
  const auto is_copy = [&](const std::string& variant) {
    return std::ranges::any_of(measured.same, [&](const SameRows& same) {
      return std::ranges::find(same.others, variant) != same.others.end();
    });
  };
  for (const TrainedWorkload& workload : measured.workloads) {
    std::vector<std::string> variants;
    for (const TrainedRun& run : measured.runs)
      if (run.workload == workload.name && !is_copy(run.variant) &&
          std::ranges::find(variants, run.variant) == variants.end())
        variants.push_back(run.variant);
    for (const Names& names : pairs_of(variants)) {
      analysis::PairedSample sample = sample_of(measured, workload, names);
      if (sample.differences.empty() && sample.diverged == 0 && sample.dropped == 0) continue;
      pairs.push_back({.workload = workload.name,
                       .variant = names.first,
                       .reference = names.second,
                       .unit = workload.metric.unit(),
                       .judgement = {}});
      family.push_back(std::move(sample));
    }
  }
  const std::vector<analysis::Judgement> judgements = analysis::judge(family);
  for (std::size_t i = 0; i < pairs.size(); ++i) pairs[i].judgement = judgements[i];
  return pairs;
}

const JudgedPair* find(const std::vector<JudgedPair>& pairs, std::string_view workload,
                       std::string_view variant, std::string_view reference) {
  const auto found = std::ranges::find_if(pairs, [&](const JudgedPair& pair) {
    return pair.workload == workload && pair.variant == variant && pair.reference == reference;
  });
  return found == pairs.end() ? nullptr : &*found;
}

std::string pairs_text(const std::vector<JudgedPair>& pairs) {
  std::string text =
      "Final test metric against the reference of the same seed, mean and unadjusted 95 % interval "
      "(variant - reference: accuracy in points, bits per character in percent):\n";
  text += fmt::format("{:<11} {:<22} {:<22} {:>5} {:>8} {:<18} {}\n", "workload", "variant", "against",
                      "pairs", "mean", "interval", "in words");
  for (const JudgedPair& pair : pairs)
    text +=
        fmt::format("{:<11} {:<22} {:<22} {:>5} {:>+8.2f} {:<18} {}\n", pair.workload, pair.variant,
                    pair.reference, pair.judgement.pairs, std::round(100 * pair.judgement.mean) / 100 + 0.0,
                    analysis::interval_text(pair.judgement.interval), words_of(pair.judgement, pair.unit));
  return text;
}

std::string pairs_csv(const std::vector<JudgedPair>& pairs) {
  std::string text =
      "workload,variant,reference,unit,pairs,diverged,mean,deviation,lower,upper,margin,word\n";
  for (const JudgedPair& pair : pairs) {
    const analysis::Judgement& judged = pair.judgement;
    text += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{}\n", pair.workload, pair.variant, pair.reference,
                        pair.unit, judged.pairs, judged.diverged, judged.mean, judged.deviation,
                        judged.interval ? fmt::format("{}", judged.interval->lower) : "",
                        judged.interval ? fmt::format("{}", judged.interval->upper) : "", judged.margin,
                        name_of(judged.word));
  }
  return text;
}

namespace {

constexpr std::array<VariantPair, 8> measured_pairs{{{fp32_variant, twin_variant},
                                                     {"hopper", one_ulp_variant},
                                                     {"hopper", "volta"},
                                                     {"hopper", "ampere"},
                                                     {"ampere", "volta"},
                                                     {fp32_variant, "hopper"},
                                                     {"hopper", "hopper-f16"},
                                                     {"hopper-fp8", "hopper-wgmma-fp8"}}};
constexpr std::array<std::string_view, measured_pairs.size()> pair_words{
    "last bit flipped, FP32",   "last bit flipped, Hopper", "Volta / Hopper",
    "Ampere / Hopper",          "Volta / Ampere",           "FP32 / Hopper",
    "FP16 / FP32 sums, Hopper", "FP8: 14 / 25 bits, Hopper"};

}  // namespace

std::span<const VariantPair> drawn_pairs() { return measured_pairs; }

std::string draw_distances(const std::vector<DistanceCurve>& curves, const std::filesystem::path& folder) {
  std::vector<reports::DistanceRow> rows;
  for (const DistanceCurve& curve : curves) {
    const auto* const pair = std::ranges::find(measured_pairs, VariantPair{curve.reference, curve.variant});
    if (pair == measured_pairs.end()) continue;
    rows.push_back({.workload = curve.workload,
                    .pair = static_cast<std::size_t>(pair - measured_pairs.begin()),
                    .seed = curve.seed,
                    .distances = curve.distances});
  }
  return reports::draw_distances(
      {.title = "Does the GPU's generation change training more than the last bit of every weight?",
       .pairs = pair_words},
      rows, folder);
}

}  // namespace fp16lab::experiments
