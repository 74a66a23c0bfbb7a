#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "experiments/generations/generations.hpp"

namespace fp16lab::experiments {
namespace {

constexpr std::array<VariantPair, 3> generation_pairs{
    {{"hopper", "volta"}, {"hopper", "ampere"}, {"ampere", "volta"}}};
constexpr VariantPair control{"hopper", one_ulp_variant}, fp32_control{fp32_variant, twin_variant};

std::optional<double> rate_of(const std::vector<DistanceCurve>& curves, const std::string& workload,
                              std::int64_t seed, const VariantPair& pair) {
  const auto found = std::ranges::find_if(curves, [&](const DistanceCurve& curve) {
    return curve.workload == workload && curve.seed == seed &&
           VariantPair{curve.reference, curve.variant} == pair;
  });
  return found == curves.end() ? std::nullopt : growth_rate(found->distances, growth_low, growth_high);
}

double average_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

/// An interval of logarithms, as a ratio.
std::string ratio_text(const std::vector<double>& logs, const std::optional<analysis::Interval>& interval) {
  if (logs.empty()) return "no rate";
  if (!interval) return fmt::format("{:.2f} times, no interval", std::exp(average_of(logs)));
  return fmt::format("{:.2f} times [{:.2f}, {:.2f}]", std::exp(average_of(logs)), std::exp(interval->lower),
                     std::exp(interval->upper));
}

std::string rates_text(const std::vector<double>& rates) {
  return rates.empty() ? std::string("never in that range") : fmt::format("{:.3f} a step", average_of(rates));
}

}  // namespace

Answer judge_growth(const std::vector<DistanceCurve>& curves) {
  std::vector<std::string> workloads;
  std::set<std::int64_t> seeds;
  for (const DistanceCurve& curve : curves) {
    if (std::ranges::find(workloads, curve.workload) == workloads.end()) workloads.push_back(curve.workload);
    seeds.insert(curve.seed);
  }
  if (curves.empty()) return {};
  Answer answer;
  std::map<std::int64_t, std::vector<double>> by_seed;  // of every workload that has a rate
  for (const std::string& workload : workloads) {
    std::vector<double> logs, generations, ulps, twins;
    for (const std::int64_t seed : seeds) {
      if (const auto twin = rate_of(curves, workload, seed, fp32_control)) twins.push_back(*twin);
      const auto ulp = rate_of(curves, workload, seed, control);
      if (!ulp || *ulp <= 0) continue;
      std::vector<double> of_seed;
      for (const VariantPair& pair : generation_pairs)
        if (const auto rate = rate_of(curves, workload, seed, pair); rate && *rate > 0) {
          generations.push_back(*rate);
          of_seed.push_back(std::log(*rate / *ulp));
        }
      if (of_seed.size() < generation_pairs.size()) continue;
      ulps.push_back(*ulp);
      logs.push_back(average_of(of_seed));
      by_seed[seed].push_back(logs.back());
    }
    answer.notes.push_back(
        fmt::format("{}: {} ({} of {} seeds); generations {}, one ulp on hopper {}, FP32's twin {}", workload,
                    ratio_text(logs, analysis::mean_interval(logs)), logs.size(), seeds.size(),
                    rates_text(generations), rates_text(ulps), rates_text(twins)));
  }
  std::vector<double> means;
  for (const auto& [seed, logs] : by_seed)
    if (logs.size() == workloads.size()) means.push_back(average_of(logs));
  const std::optional<analysis::Interval> interval = analysis::mean_interval(means);
  const double most = std::log(largest_growth_ratio);
  answer.measured = fmt::format("{} over {} seeds", ratio_text(means, interval), means.size());
  answer.verdict = !interval                                           ? Verdict::cannot_tell
                   : interval->lower > -most && interval->upper < most ? Verdict::holds
                   : interval->lower > most || interval->upper < -most ? Verdict::fails
                                                                       : Verdict::cannot_tell;
  return answer;
}

}  // namespace fp16lab::experiments
