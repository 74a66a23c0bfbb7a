#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/amp/policy.hpp"
#include "experiments/policy_league/league.hpp"

namespace fp16lab::experiments {
namespace {

SweepVariant variant_of(const engine::amp::PolicyDescription& policy) {
  SweepVariant variant{.name = policy_variant(std::string(policy.name)),
                       .set = {"amp.level=O1", fmt::format("scaler.policy={}", policy.name)}};
  const engine::amp::PolicyParameter* const interval = policy.find("growth_interval");
  if (interval != nullptr && interval->fallback > static_cast<double>(league_interval))
    variant.set.push_back(fmt::format("scaler.growth_interval={}", league_interval));
  if (policy.name == "layerwise" || policy.name == "groups")
    variant.set.push_back(fmt::format("scaler.groups={}", league_groups));
  return variant;
}

}  // namespace

std::vector<int> league_scales(bool quick) {
  return quick ? std::vector{-8, 8} : std::vector{-8, -4, 0, 4, 8, 12, 16};
}

std::string scale_variant(int log2_scale) { return fmt::format("fixed-2p{}", log2_scale); }
std::string policy_variant(const std::string& policy) { return "policy-" + policy; }

std::vector<std::string> league_policies(bool quick) {
  if (quick) return {"none", "torch", "lost-mass"};
  std::vector<std::string> names;
  for (const engine::amp::PolicyDescription& policy : engine::amp::scale_policies())
    names.emplace_back(policy.name);
  return names;
}

SweepPlan league_plan(const CommonOptions& common, bool quick) {
  // The file's own plan: workloads, their configurations and seeds.
  CommonOptions base = common;
  base.set.clear();  // make_plan applies them last
  const SweepPlan read = load_sweep(base);
  std::vector<SweepWorkload> workloads;
  for (const PlannedRun& run : read.runs) {
    const auto known =
        std::find_if(workloads.begin(), workloads.end(),
                     [&run](const SweepWorkload& workload) { return workload.name == run.workload; });
    if (known != workloads.end()) {
      if (std::find(known->seeds.begin(), known->seeds.end(), run.config.train.seed) == known->seeds.end())
        known->seeds.push_back(run.config.train.seed);
      continue;
    }
    SweepWorkload workload{.name = run.workload, .config = run.config, .seeds = {run.config.train.seed}};
    if (quick) {
      workload.config.train.steps = 12;
      if (workload.config.optimizer.schedule.warmup_steps > 0)
        workload.config.optimizer.schedule.warmup_steps = 2;
    }
    workloads.push_back(std::move(workload));
  }
  if (quick)
    for (SweepWorkload& workload : workloads) workload.seeds.resize(1);

  std::vector<SweepVariant> variants{
      {.name = std::string(league_reference),
       .set = {"amp.level=O0", "scaler.policy=none", "observe.histograms_every=1"}}};
  for (const std::string& policy : league_policies(quick))
    variants.push_back(variant_of(engine::amp::scale_policy(policy)));
  for (const int scale : league_scales(quick))
    variants.push_back(
        {.name = scale_variant(scale),
         .set = {"amp.level=O1", "scaler.policy=fixed", fmt::format("scaler.initial_scale=2^{}", scale)}});
  for (SweepVariant& variant : variants)
    if (variant.name != league_reference)
      variant.set.push_back(fmt::format("observe.histograms_every={}", quick ? 4 : 40));
  SweepPlan plan = make_plan(workloads, variants, common);
  add_twins(plan);
  return plan;
}

}  // namespace fp16lab::experiments
