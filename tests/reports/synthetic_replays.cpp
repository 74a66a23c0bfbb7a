#include "synthetic_replays.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace fp16lab::reports {
namespace {

struct Rule {
  std::string_view name;
  double initial, growth, backoff;  ///< log2
  std::uint64_t interval;
};

double ceiling_at(std::uint64_t step, std::uint64_t steps) {
  const double progress = static_cast<double>(step) / static_cast<double>(steps);
  return std::floor(15 + 6 * progress + 1.5 * std::sin(static_cast<double>(step) * 0.7));
}

/// Share of L1 that is lost at a scale: a sixteenth of a gradient that a scale of 2^8 would keep.
double lost_at(double log2_scale) { return std::exp2(-std::max(0.0, log2_scale + 4)); }

ReplayedPolicy follow(const Rule& rule, std::uint64_t steps) {
  ReplayedPolicy policy;
  policy.name = policy.label = rule.name;
  policy.parameters = {{"initial_scale", std::exp2(rule.initial)},
                       {"growth_factor", std::exp2(rule.growth)},
                       {"growth_interval", static_cast<double>(rule.interval)}};
  policy.source = "synthetic/" + std::string(rule.name);
  double scale = rule.initial, lost = 0;
  std::uint64_t good = 0;
  for (std::uint64_t step = 1; step <= steps; ++step) {
    if (step == 1 || step == steps || policy.log2_scale_lower.back() != scale) {
      policy.steps.push_back(step);
      policy.log2_scale_lower.push_back(scale);
    }
    if (scale > ceiling_at(step, steps)) {
      policy.skipped_lower.push_back(step);
      scale += rule.backoff;
      good = 0;
    } else {
      lost += lost_at(scale);
      if (++good >= rule.interval) {
        scale += rule.growth;
        good = 0;
      }
    }
  }
  policy.log2_scale_upper = policy.log2_scale_lower;
  policy.skipped_upper = policy.skipped_lower;
  const auto skips = static_cast<double>(policy.skipped_lower.size());
  lost /= std::max(1.0, static_cast<double>(steps) - skips);
  policy.skips = policy.wasted_steps = {skips, skips};
  policy.lost_count = {std::min(1.0, 8 * lost), std::min(1.0, 8 * lost)};
  policy.lost_l1 = {lost / 2, lost};
  policy.lost_l2 = {lost / 8, lost / 4};
  policy.cosine = {1 - lost * lost, 1 - lost * lost / 4};
  policy.seconds = 0.01;
  return policy;
}

}  // namespace

ReplayFile synthetic_replay(const std::string& run, std::uint64_t steps) {
  static constexpr std::array<Rule, 24> rules{{
      {"none", 0, 0, 0, 1000000000},
      {"fixed", 10, 0, 0, 1000000000},
      {"torch", 16, 1, -1, 200},
      {"paddle", 15, 1, -1, 100},
      {"paddle-static", 15, 1, -1, 120},
      {"mindspore", 24, 1, -1, 150},
      {"apex", 16, 1, -1, 180},
      {"apex-hysteresis", 16, 1, -1, 90},
      {"deepspeed", 32, 1, -1, 110},
      {"megatron", 32, 1, -1, 130},
      {"fairseq", 7, 1, -1, 60},
      {"metaseq", 7, 1, -1, 40},
      {"openseq2seq-backoff", 24, 1, -1, 70},
      {"openseq2seq-logmax", 12, 0.5, -0.5, 5},
      {"tf1-exponential", 15, 1, -1, 75},
      {"keras2", 15, 1, -1, 85},
      {"keras3", 15, 1, -1, 95},
      {"jmp", 15, 1, -1, 105},
      {"flax", 16, 1, -1, 115},
      {"chainer", 0, 1, -1, 3},
      {"popart", 10, 1, -1, 20},
      {"ada-loss", 9, 1, -1, 25},
      {"lost-mass", 12, 1, -1, 30},
      {"fairscale-layerwise", 14, 1, -1, 35},
  }};
  ReplayFile replay{.run = run,
                    .workload = "autoencoder",
                    .total_steps = steps,
                    .observed_steps = steps,
                    .exact = false,
                    .notes = {"Synthetic: made for tests, from no run."}};
  for (std::uint64_t step = 1; step <= steps; ++step) {
    replay.band.steps.push_back(step);
    replay.band.log2_highest.push_back(ceiling_at(step, steps));
    replay.band.log2_one_percent.push_back(3);
    replay.band.log2_lossless.push_back(12);
  }
  for (const Rule& rule : rules) replay.policies.push_back(follow(rule, steps));
  for (ReplayedPolicy& policy : replay.policies) {
    if (policy.name == "metaseq") {  // bounds: one more overflow is possible, and halves the lower end
      policy.exact = false;
      for (std::size_t i = policy.steps.size() / 2; i < policy.steps.size(); ++i)
        policy.log2_scale_lower[i] -= 1;
      const std::uint64_t perhaps = policy.steps[policy.steps.size() / 2];
      if (!std::binary_search(policy.skipped_upper.begin(), policy.skipped_upper.end(), perhaps))
        policy.skipped_upper.insert(
            std::upper_bound(policy.skipped_upper.begin(), policy.skipped_upper.end(), perhaps), perhaps);
      policy.skips.upper = policy.wasted_steps.upper = static_cast<double>(policy.skipped_upper.size());
    }
    if (policy.name == "ada-loss") {
      policy.per_layer = true;
      for (double& scale : policy.log2_scale_upper) scale += 3;
    }
    if (policy.name == "fairscale-layerwise") {
      policy = ReplayedPolicy{
          .name = policy.name, .label = policy.label, .note = "needs the run itself", .replayed = false};
    }
  }
  ReplayedPolicy oracle = follow({"oracle", 3, 0, 0, 1}, steps);
  oracle.note = "in hindsight";
  replay.policies.push_back(oracle);
  return replay;
}

}  // namespace fp16lab::reports
