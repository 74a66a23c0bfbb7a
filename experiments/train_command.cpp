// fp16lab train: one run into one run folder.
#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "experiments/build_info.hpp"
#include "experiments/commands.hpp"
#include "experiments/interrupt.hpp"
#include "experiments/run_recorder.hpp"
#include "experiments/workloads.hpp"
#include "numerics/files/run_folder.hpp"
#include "numerics/gemm.hpp"

namespace fp16lab::experiments {
namespace {

Manifest make_manifest(const TrainCommand& command, const RunConfig& config, const PreparedRun& run) {
  Manifest manifest;
  manifest.argv = command.common.argv;
  manifest.config = to_toml(config);
  manifest.git_hash = git_hash();
  manifest.seeds = {{"train", static_cast<std::uint64_t>(config.train.seed)}};
  manifest.cpu = cpu_name();
  manifest.threads = command.common.threads;
  manifest.compiler = compiler_name();
  manifest.flags = compiler_flags();
  manifest.gemm_target = gemm_target_name();
  for (const engine::data::SourceFile& file : run.files())
    manifest.data.push_back({file.path.string(), file.sha256});
  return manifest;
}

nlohmann::ordered_json number(double x) {
  if (std::isfinite(x)) return x;
  return std::isnan(x) ? "NaN" : x > 0 ? "Infinity" : "-Infinity";  // JSON has no such numbers
}

void print_summary(const std::filesystem::path& folder, ExitState state, const engine::RunResult& result) {
  nlohmann::ordered_json summary;
  summary["folder"] = folder.string();
  summary["state"] = name_of(state);
  summary["steps"] = result.steps;
  summary["skipped_steps"] = result.skipped_steps;
  summary["final_train_loss"] = number(result.final_train_loss);
  summary["final_loss_scale"] = number(result.final_loss_scale);
  if (result.evaluation_loss) summary["evaluation_loss"] = number(*result.evaluation_loss);
  if (result.evaluation_accuracy) summary["evaluation_accuracy"] = number(*result.evaluation_accuracy);
  summary["state_hash"] = fmt::format("{:016x}", result.state_hash);
  fmt::print("{}\n", summary.dump());
}

std::filesystem::path default_folder(const CommonOptions& common, const RunConfig& config) {
  const std::string name = common.config.empty() ? config.model.name : common.config.stem().string();
  return std::filesystem::path("results") / fmt::format("{}-seed{}", name, config.train.seed);
}

}  // namespace

RunConfig resolve_config(const CommonOptions& common) {
  RunConfig config = common.config.empty() ? RunConfig{} : load_config(common.config);
  for (const std::string& setting : common.set) apply_setting(config, setting, "--set");
  if (common.seed) config.train.seed = *common.seed;
  validate_config(config, common.config.empty() ? "configuration" : common.config.string());
  return config;
}

ExitCode run_train(const TrainCommand& command) {
  const RunConfig config = resolve_config(command.common);
  const std::filesystem::path folder =
      command.common.out.empty() ? default_folder(command.common, config) : command.common.out;
  catch_interrupts();
  FolderClaim claim(folder, command.force);
  const std::unique_ptr<PreparedRun> run = prepare_run(config, command.common.threads);
  if (!command.common.quiet) fmt::print(stderr, "{}\n", run->data_source);

  claim.clear();
  RunWriter writer(folder, make_manifest(command, config, *run));
  try {
    RunRecorder recorder(writer,
                         {.total_steps = run->train.steps,
                          .histograms_every = static_cast<std::uint64_t>(config.observe.histograms_every),
                          .title = folder.filename().string(),
                          .quiet = command.common.quiet});
    engine::Trainer trainer(*run->backend, run->workload, run->train, run->amp, run->scaler, run->optimizer,
                            recorder);
    const engine::RunResult result = trainer.run();

    using End = engine::RunResult::End;
    const ExitState state = result.end == End::finished  ? ExitState::finished
                            : result.end == End::stopped ? ExitState::stopped
                                                         : ExitState::diverged;
    const std::string message =
        state == ExitState::stopped    ? fmt::format("stopped after step {}", result.steps)
        : state == ExitState::diverged ? fmt::format("diverged at step {}: {}", result.steps,
                                                     "loss not finite for long, or the skip limit")
                                       : "";
    writer.finish(state, message);
    print_summary(folder, state, result);
    if (!message.empty()) fmt::print(stderr, "fp16lab: {}: {}\n", folder.string(), message);
    return state == ExitState::finished  ? ExitCode::ok
           : state == ExitState::stopped ? ExitCode::interrupted
                                         : ExitCode::diverged;
  } catch (const std::exception& error) {
    writer.finish(ExitState::failed, error.what());
    throw;
  }
}

}  // namespace fp16lab::experiments
