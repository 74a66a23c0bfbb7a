#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "experiments/app/run/run_backend.hpp"
#include "experiments/generations/generations.hpp"

namespace fp16lab::experiments {
namespace {

/// The same run, whatever its row.
bool same_but_for_rows(RunConfig a, const RunConfig& b) {
  a.backend.tensor_core = b.backend.tensor_core;
  return a == b;
}

bool same_functions(const RunConfig& a, const RunConfig& b) {
  const auto equal = [](const TensorCoreModel* x, const TensorCoreModel* y) { return same_function(*x, *y); };
  return std::ranges::equal(rows_of(a), rows_of(b), equal);
}

/// The runs of one workload and one seed.
std::vector<const PlannedRun*> block_of(const SweepPlan& plan, const PlannedRun& first) {
  std::vector<const PlannedRun*> block;
  for (const PlannedRun& run : plan.runs)
    if (run.workload == first.workload && run.config.train.seed == first.config.train.seed)
      block.push_back(&run);
  return block;
}

}  // namespace

std::vector<const TensorCoreModel*> rows_of(const RunConfig& config) {
  std::vector<const TensorCoreModel*> rows;
  const std::optional<std::string_view> name = configured_tensor_core(config.backend);
  if (config.amp.level == engine::Level::O0 || !name) return rows;
  rows.push_back(&tensor_core_model(*name, DType::f16, config.backend.accumulator));
  for (const engine::Fp8Rounding rounding : {config.amp.fp8_operands, config.amp.fp8_gradients})
    if (rounding) rows.push_back(&tensor_core_model(*name, *rounding));
  return rows;
}

std::vector<SameRows> same_rows(const SweepPlan& plan) {
  std::vector<SameRows> found;
  if (plan.runs.empty()) return found;
  const std::vector<const PlannedRun*> block = block_of(plan, plan.runs.front());
  std::set<std::string> taken;
  for (std::size_t i = 0; i < block.size(); ++i) {
    const RunConfig& config = block[i]->config;
    if (rows_of(config).empty() || taken.contains(block[i]->variant)) continue;
    SameRows same{.variant = block[i]->variant, .others = {}, .function = {}};
    for (std::size_t k = i + 1; k < block.size(); ++k)
      if (same_but_for_rows(config, block[k]->config) && same_functions(config, block[k]->config))
        same.others.push_back(block[k]->variant);
    taken.insert(same.others.begin(), same.others.end());
    std::vector<std::string> functions;
    for (const TensorCoreModel* row : rows_of(config)) functions.push_back(stages_text(*row));
    functions.erase(std::unique(functions.begin(), functions.end()), functions.end());
    same.function = fmt::format("{}", fmt::join(functions, "; "));
    if (!same.others.empty()) found.push_back(std::move(same));
  }
  return found;
}

SweepPlan generations_plan(const CommonOptions& common, bool quick) {
  CommonOptions asked = common;
  if (quick)
    for (const char* set : {"train.steps=12", "schedule.warmup_steps=2", "data.test_subset=512"})
      asked.set.insert(asked.set.begin(), set);
  SweepPlan plan = load_sweep(asked);
  add_twins(plan);
  std::set<std::string> copies;
  for (const SameRows& same : same_rows(plan)) copies.insert(same.others.begin(), same.others.end());
  std::map<std::pair<std::string, std::string>, std::size_t> seeds;  // seen so far, of a workload's variant
  std::erase_if(plan.runs, [&](const PlannedRun& run) {
    const std::size_t before = seeds[{run.workload, run.variant}]++;
    const bool fp8 = std::ranges::find(fp8_rows, run.variant) != fp8_rows.end();
    const std::size_t most = copies.contains(run.variant) ? 1 : fp8 ? fp8_seeds : plan.runs.size();
    return before >= (quick ? std::min<std::size_t>(most, 2) : most);
  });
  return plan;
}

}  // namespace fp16lab::experiments
