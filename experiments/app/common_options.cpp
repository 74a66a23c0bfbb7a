#include "experiments/app/common_options.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "engine/parallel/communicator.hpp"
#include "experiments/app/config/run_plan.hpp"
#include "numerics/text/message.hpp"

namespace fp16lab::experiments {

void announce_output(const CommonOptions& common) {
  if (!common.out.empty() && !common.quiet && engine::parallel::launch_of_environment().rank == 0)
    say("{}: writes into {}", common.program, common.out.string());
}

RunPlan resolve_run(const CommonOptions& common) { return resolve_run(common, RunConfig{}); }

RunPlan resolve_run(const CommonOptions& common, const RunConfig& base) {
  RunConfig below = common.config.empty() ? base : load_config(common.config, NamedHow::by_user);
  if (!common.config.empty()) resolve_data_path(below, common.config.parent_path());
  const std::string source = common.config.empty() ? "configuration" : common.config.string();
  const std::string both = common.set.empty()      ? source
                           : common.config.empty() ? std::string("--set")
                                                   : source + " with --set";
  RunConfig config = below;
  std::vector<std::string> left_out = apply_settings(config, common.set, "--set");
  resolve_data_path(config, {});
  if (common.seed) config.train.seed = static_cast<std::uint64_t>(*common.seed);
  resolve_names(config, both);
  require_read(common.set, config, "--set");
  if (!common.config.empty()) require_read(settings_unread(below), config, source);
  std::ranges::move(leave_out_unread(config), std::back_inserter(left_out));
  RunPlan plan = resolve_run(std::move(config), both);
  plan.left_out = std::move(left_out);
  return plan;
}

}  // namespace fp16lab::experiments
