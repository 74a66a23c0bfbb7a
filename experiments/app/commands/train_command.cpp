// fp16lab train: one run into one run folder.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>

#include "experiments/app/build_info.hpp"
#include "experiments/app/commands.hpp"
#include "experiments/app/process.hpp"
#include "experiments/app/run/continuation.hpp"
#include "experiments/app/run/live_mode.hpp"
#include "experiments/app/run/network_table.hpp"
#include "experiments/app/run/prepared_run.hpp"
#include "experiments/app/run/run_notes.hpp"
#include "experiments/app/run/run_recorder.hpp"
#include "numerics/files/run/run_folder.hpp"
#include "numerics/gemm/gemm.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab::experiments {
namespace {

struct TrainCommand {
  CommonOptions common;
  bool force = false;                    ///< replace a finished run
  bool resume = false;                   ///< continue the run in the output folder
  std::string name;                      ///< of the configuration, for tables and figures
  std::filesystem::path dump_initial;    ///< empty: not given
  std::filesystem::path dump_gradients;  ///< of the iteration dump_step; empty: not given
  std::uint64_t dump_step = 0;
  bool op_statistics = false;  ///< count the ops of the first step
  LiveMode live = LiveMode::off;
  std::filesystem::path tensorboard;  ///< --tensorboard; empty: not given
  // As given; finish() reads them.
  std::vector<std::string> dump_arguments;  ///< STEP, FILE; empty: not given
  bool graph = false;
  std::filesystem::path load_initial;  ///< --load-initial; empty: not given
  bool explain_overflow = false;
  std::string live_text;  ///< "auto", "always"; empty: not given
};

std::uint64_t step_number(const std::string& option, const std::string& text) {
  std::uint64_t step = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), step);
  if (error != std::errc() || end != text.data() + text.size() || step == 0)
    usage_error(fmt::format("{}: '{}': expected a step, 1 or more", option, text));
  return step;
}

/// Flags that stand for a configuration key come behind the settings of `common`. A bad step is a usage
/// error.
void finish(TrainCommand& command) {
  if (command.graph) command.common.set.emplace_back("train.graph=true");
  if (!command.live_text.empty())
    command.live = command.live_text == "always" ? LiveMode::always : LiveMode::automatic;
  if (!command.load_initial.empty())
    command.common.set.push_back("train.initial=" + toml_string(command.load_initial.string()));
  if (command.explain_overflow) command.common.set.emplace_back("observe.explain_overflow=true");
  if (command.dump_arguments.empty()) return;
  command.dump_step = step_number("--dump-gradients", command.dump_arguments.at(0));
  command.dump_gradients = command.dump_arguments.at(1);
  if (command.dump_gradients.empty()) usage_error("--dump-gradients: '': expected a file");
}

Manifest make_manifest(const TrainCommand& command, const RunConfig& config, const PreparedRun& run) {
  Manifest manifest;
  manifest.name = command.name;
  manifest.argv = command.common.argv;
  manifest.config = to_toml(config);
  manifest.git_hash = git_hash();
  manifest.seeds = {{"train", config.train.seed}};
  // Synthetic data come from no file: their seed says where they came from.
  if (run.data->kind == engine::data::DataKind::synthetic) manifest.seeds.emplace("data", config.train.seed);
  manifest.cpu = cpu_name();
  manifest.threads = command.common.threads;
  manifest.compiler = compiler_name();
  manifest.flags = compiler_flags();
  manifest.backend = run.chosen.record;
  manifest.gpu = run.chosen.gpu;
  manifest.driver = run.chosen.driver;
  manifest.gemm_target = run.chosen.gpu ? run.chosen.record.device : gemm_target_name();
  for (const engine::data::SourceFile& file : run.files())
    manifest.data.push_back({file.path.string(), file.sha256});
  manifest.model = network_table(config, *run.data).dump();
  return manifest;
}

void print_summary(const std::filesystem::path& folder, ExitState state, const engine::RunResult& result) {
  nlohmann::ordered_json summary;
  summary["folder"] = folder.string();
  summary["state"] = name_of(state);
  summary["steps"] = result.steps;
  summary["skipped_steps"] = result.skipped_steps;
  summary["final_train_loss"] = json_number(result.final_train_loss);
  summary["final_loss_scale"] = json_number(result.final_loss_scale);
  if (result.evaluation_loss) summary["evaluation_loss"] = json_number(*result.evaluation_loss);
  if (result.evaluation_accuracy) summary["evaluation_accuracy"] = json_number(*result.evaluation_accuracy);
  if (result.evaluation_bits_per_character)
    summary["evaluation_bits_per_character"] = json_number(*result.evaluation_bits_per_character);
  if (result.diagnosis) summary["diagnosis"] = result.diagnosis->code;
  summary["peak_tensor_bytes"] = result.peak_tensor_bytes;
  summary["state_hash"] = fmt::format("{:016x}", result.state_hash);
  fmt::print("{}\n", summary.dump());
}

std::filesystem::path default_folder(const CommonOptions& common, const RunConfig& config) {
  const std::string name = common.config.empty() ? config.model.name : common.config.stem().string();
  return std::filesystem::path("results") / fmt::format("{}-seed{}", name, config.train.seed);
}

[[noreturn]] void usage(const std::string& message) { throw CommandError(ExitCode::usage, message); }

constexpr std::string_view way_out = "restore them from a copy, or begin again with --force";

/// A run that has ended for good says again how. CommandError(run_failed) if its records are damaged.
ExitCode report_ended_run(const std::filesystem::path& folder, const Manifest& manifest) {
  const RunFolder run = read_run_folder(folder);
  if (!run.damage.empty())
    throw CommandError(
        ExitCode::run_failed,
        fmt::format("{}: this run has {}, but its records are damaged: {}; {}", folder.string(),
                    name_of(manifest.state), fmt::join(run.damage, "; "), way_out));
  nlohmann::ordered_json summary;
  summary["folder"] = folder.string();
  summary["state"] = name_of(manifest.state);
  summary["steps"] = run.steps.size();
  summary["skipped_steps"] =
      std::count_if(run.steps.begin(), run.steps.end(), [](const StepRow& row) { return row.skipped; });
  if (!run.steps.empty()) summary["final_train_loss"] = json_number(run.steps.back().loss);
  if (!run.steps.empty()) summary["state_hash"] = fmt::format("{:016x}", run.steps.back().state_hash);
  fmt::print("{}\n", summary.dump());
  fmt::print(stderr, "fp16lab: {}: this run has {} after {} steps; nothing is left to do\n", folder.string(),
             name_of(manifest.state), run.steps.size());
  return manifest.state == ExitState::finished ? ExitCode::ok : ExitCode::diverged;
}

/// What `--resume` finds in `folder`, checked against the new plan; nothing where a new run is to begin.
std::optional<Continuation> find_checked(const TrainCommand& command, const std::filesystem::path& folder,
                                         RunPlan& plan) {
  std::optional<Continuation> found = find_continuation(folder);
  if (!found) {
    if (command.common.config.empty())
      usage(fmt::format("--resume: {} holds no run; begin one with --config", folder.string()));
    plan = resolve_run(command.common);
    return std::nullopt;
  }
  plan = resolve_run(command.common, found->folder_config);
  require_resumable(found->begun_with, plan.config, folder);
  if (found->manifest.state == ExitState::finished && !found->checkpoint &&
      other_length(found->begun_with, plan.config))
    usage(
        fmt::format("--resume: {} holds a finished run without a checkpoint, which cannot be made longer "
                    "(checkpoint.every was 0)",
                    folder.string()));
  return found;
}

bool has_ended(const Continuation& found, const RunConfig& config) {
  return found.manifest.state == ExitState::diverged ||
         (found.manifest.state == ExitState::finished && !other_length(found.begun_with, config));
}

/// What has to be right before anything is written.
void check_continuation(const Continuation& found, const PreparedRun& run,
                        const std::filesystem::path& folder) {
  require_same_arithmetic(found.manifest, found.begun_with, run.chosen.record, folder);
  require_same_data(found.manifest, run.files());
  if (found.step() > run.plan.train.steps)
    usage(fmt::format(
        "--resume: the run has made {} steps already, more than the {} that its configuration now "
        "asks for",
        found.step(), run.plan.train.steps));
}

void check_dumps(const TrainCommand& command, const Continuation* found) {
  const auto check_folder = [](std::string_view option, const std::filesystem::path& file) {
    const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : ".";
    if (!file.empty() && !std::filesystem::is_directory(folder))
      usage(fmt::format("{}: {}: {} is not a folder", option, file.string(), folder.string()));
  };
  check_folder("--dump-initial", command.dump_initial);
  check_folder("--dump-gradients", command.dump_gradients);
  if (!command.dump_initial.empty() && found != nullptr && found->checkpoint)
    usage(fmt::format("--dump-initial: this run continues behind step {}; its initial weights are gone",
                      found->step()));
}

void dump(const TrainCommand& command, PreparedRun& run, engine::Trainer& trainer) {
  if (!command.dump_initial.empty())
    engine::dump_weights(command.dump_initial, *run.backend, *run.workload.model);
  if (command.dump_gradients.empty()) return;
  try {
    trainer.dump_gradients(command.dump_step, command.dump_gradients);
  } catch (const std::invalid_argument& error) {
    usage(fmt::format("--dump-gradients: {}", error.what()));
  }
}

/// From here on the folder says what is going on.
RunWriter open_folder(const TrainCommand& command, const std::filesystem::path& folder, FolderClaim& claim,
                      const RunConfig& config, const PreparedRun& run, const Continuation* found) {
  if (found == nullptr) {
    claim.clear();
    return {folder, make_manifest(command, config, run)};
  }
  Manifest manifest = found->manifest;
  manifest.config = to_toml(config);
  manifest.resumptions.push_back({found->step(), utc_now(), git_hash()});
  try {
    return RunWriter::resume(folder, std::move(manifest), found->step(),
                             found->checkpoint ? found->checkpoint->state_hash() : 0, found->rows);
  } catch (const std::runtime_error& error) {
    throw CommandError(ExitCode::run_failed, fmt::format("--resume: {} ({})", error.what(), way_out));
  }
}

void announce(const Continuation& found) {
  if (!found.checkpoint) {
    fmt::print(stderr, "resuming: no checkpoint yet, from the beginning\n");
    return;
  }
  fmt::print(stderr, "resuming behind step {}\n", found.step());
  if (const std::string& hash = found.checkpoint->metadata("git_hash"); hash != git_hash())
    fmt::print(stderr, "note: the checkpoint was written by version {}, this is {}; bits may differ\n", hash,
               git_hash());
}

/// Writes weights.safetensors after `step`; empty without amp.save_dtype.
std::function<void(std::uint64_t)> weights_writer(const std::filesystem::path& folder,
                                                  const RunConfig& config, const PreparedRun& run) {
  const std::optional<DType> dtype = config.checkpoint.save_dtype;
  if (!dtype) return {};
  return [path = folder / run_file::weights, dtype = *dtype, &run](std::uint64_t step) {
    engine::save_weights(path, *run.backend, *run.workload.model, dtype, {{"step", fmt::format("{}", step)}});
  };
}

RecorderOptions recorder_options(const TrainCommand& command, const std::filesystem::path& folder,
                                 const RunConfig& config, const PreparedRun& run, std::uint64_t done) {
  RecorderOptions options;
  options.first_step = done + 1;
  options.total_steps = run.plan.train.steps;
  options.histograms_every = static_cast<std::uint64_t>(config.observe.histograms_every);
  options.observed = {};
  for (const std::string& name : config.observe.tensors) options.observed.insert(*observed_of(name));
  options.observed_names = config.observe.names;
  options.title = folder.filename().string();
  options.quiet = command.common.quiet;
  options.checkpoint_every = static_cast<std::uint64_t>(config.checkpoint.every);
  options.checkpoints_kept = static_cast<std::uint64_t>(config.checkpoint.keep);
  options.checkpoint_metadata = {
      {"config", to_toml(config)}, {"git_hash", git_hash()}, {"seed", fmt::format("{}", config.train.seed)}};
  options.save_weights = weights_writer(folder, config, run);
  options.explain_overflow = config.observe.explain_overflow;
  options.live = command.live;
  options.tensorboard = command.tensorboard;
  options.op_statistics = command.op_statistics;
  if (command.op_statistics) options.advice = gpu_advice(run.plan);
  return options;
}

/// Trains to the end, and says in the folder, on stdout and by the exit code how that went.
ExitCode carry_out(const TrainCommand& command, engine::Trainer& trainer, RunWriter& writer,
                   const std::function<void(std::uint64_t)>& save_weights, std::uint64_t checkpoints_kept) {
  const std::filesystem::path& folder = writer.folder();
  try {
    const engine::RunResult result = trainer.run();
    if (save_weights) save_weights(result.steps);
    // A kill behind the last checkpoint may have come before older ones were removed.
    remove_old_checkpoints(folder, checkpoints_kept);
    using End = engine::RunResult::End;
    const ExitState state = result.end == End::finished  ? ExitState::finished
                            : result.end == End::stopped ? ExitState::stopped
                                                         : ExitState::diverged;
    const std::string message =
        state == ExitState::stopped
            ? fmt::format("interrupted with state saved, after step {}; continue with --resume", result.steps)
        : state == ExitState::diverged ? fmt::format("diverged at step {}: {}. {}", result.steps,
                                                     result.diagnosis->reason, result.diagnosis->text)
                                       : "";
    writer.finish(state, message);
    print_summary(folder, state, result);
    if (!message.empty()) fmt::print(stderr, "fp16lab: {}: {}\n", folder.string(), message);
    if (!command.dump_gradients.empty() && result.steps < command.dump_step)
      fmt::print(stderr, "fp16lab: --dump-gradients: the run ended before step {}; {} was not written\n",
                 command.dump_step, command.dump_gradients.string());
    return state == ExitState::finished  ? ExitCode::ok
           : state == ExitState::stopped ? ExitCode::interrupted
                                         : ExitCode::diverged;
  } catch (const std::exception& error) {
    writer.finish(ExitState::failed, error.what());
    throw;
  }
}

/// "precision: O1 of torch with f16".
std::string precision_of(const RunConfig& config) {
  const engine::AmpOptions& amp = config.amp;
  if (is_fp32(config)) return "precision: FP32; --set amp.level=O1 for mixed";
  return fmt::format("precision: {} of {} with {}", name_of(amp.level), name_of(amp.dialect),
                     name_of(amp.dtype));
}

ExitCode run_train(const TrainCommand& command) {
  if (command.resume && command.force)
    usage("--resume continues a run and --force replaces it: expected one of them");
  const CommonOptions& common = command.common;
  RunPlan plan;
  if (!command.resume || common.out.empty()) plan = resolve_run(common);
  const std::filesystem::path folder = common.out.empty() ? default_folder(common, plan.config) : common.out;
  catch_interrupts();
  FolderClaim claim(folder, command.resume  ? FolderUse::resume
                            : command.force ? FolderUse::replace
                                            : FolderUse::begin);
  std::optional<Continuation> found;
  if (command.resume) found = find_checked(command, folder, plan);
  const RunConfig config = plan.config;
  if (found && has_ended(*found, config)) return report_ended_run(folder, found->manifest);
  const Continuation* continuation = found ? &*found : nullptr;
  check_dumps(command, continuation);

  const std::unique_ptr<PreparedRun> run = prepare_run(std::move(plan), common.threads);
  if (!common.quiet) {
    fmt::print(stderr, "{}\n{}\n", run->data->found, precision_of(config));
    print_notes(*run);
  }
  if (found) check_continuation(*found, *run, folder);
  RunRecorder recorder(recorder_options(command, folder, config, *run, found ? found->step() : 0));
  engine::Trainer trainer(*run->backend, run->workload, run->plan, recorder);
  if (found && !common.quiet) announce(*found);
  if (found && found->checkpoint) with_advice(folder, [&] { trainer.resume(*found->checkpoint); });
  dump(command, *run, trainer);

  RunWriter writer = open_folder(command, folder, claim, config, *run, continuation);
  recorder.write_to(writer);
  return carry_out(command, trainer, writer, weights_writer(folder, config, *run),
                   static_cast<std::uint64_t>(config.checkpoint.keep));
}

}  // namespace

Command train_command() {
  return {
      .name = "train",
      .description = "One training run into one run folder; a JSON summary on stdout",
      .examples =
          "  fp16lab train -c classifier -o results/classifier\n"
          "  fp16lab train -c autoencoder --set amp.level=O1 --seed 2\n"
          "  fp16lab train -c lenet5 --set amp.dialect=paddle --set amp.level=O2 "
          "--op-stats\n"
          "  fp16lab train -c classifier --set backend.device=cuda --graph\n"
          "  fp16lab train --resume -o results/classifier",
      .uses = {.config = "Configuration in TOML: a file, or the name of one that fp16lab list shows",
               .bare_config = true,
               .set = "Override a configuration key (fp16lab list shows them all), such as --set "
                      "scaler.policy=dynamic; "
                      "repeatable",
               .out = "Run folder (default: results/CONFIG-seedN)",
               .seed = "Seed of weights and shuffling, as train.seed",
               .threads = true},
      .declare = [](Options& options) -> Command::Run {
        auto command = std::make_shared<TrainCommand>();
        options.flag("--force", command->force, "Replace the run in the output folder");
        options.flag(
            "--resume", command->resume,
            "Continue the run in the output folder from its newest checkpoint (see checkpoint.every), "
            "with its own configuration and the same bits");
        options
            .add("--name", command->name,
                 "What tables and figures call this configuration, before what its settings say; a sweep "
                 "gives "
                 "its variants' names")
            .type("NAME");
        options.flag(
            "--graph", command->graph,
            "Capture a step once as a CUDA graph and replay it, as train.graph; needs backend.device=cuda");
        options.flag(
            "--explain-overflow", command->explain_overflow,
            "For every overflow the operation that made the first Inf or NaN, and the greatest lower loss "
            "scale at which the whole step is finite, found by doing its backward passes again: on stderr "
            "and in culprits.jsonl, as observe.explain_overflow");
        options
            .flag("--live{auto}", command->live_text,
                  "Show a panel that is redrawn in place of the progress line: scale, skips, underflow by "
                  "layer. "
                  "--live=always: also where stderr is no terminal")
            .one_of({"auto", "always"})
            .type("[=auto|always]");
        options
            .add(
                "--tensorboard", command->tensorboard,
                "Write an event file for TensorBoard: scalars of every step, exponents of observed gradients")
            .type("DIR")
            .not_empty("a folder");
        options.flag("--op-stats", command->op_statistics,
                     "Count the ops of the first step by dtype and layer: a table with advice on stderr, "
                     "op_stats.csv in the folder");
        options
            .add("--load-initial", command->load_initial,
                 "Begin with the parameters and buffers of a safetensors file, by PyTorch's names, as "
                 "train.initial")
            .type("FILE")
            .not_empty("a file");
        options
            .add("--dump-initial", command->dump_initial,
                 "Write the initial parameters and buffers as safetensors, then train")
            .type("FILE")
            .not_empty("a file");
        options
            .add("--dump-gradients", command->dump_arguments,
                 "Write step STEP's batches, weights and unscaled gradients as safetensors")
            .type("STEP FILE")
            .values(2);
        return [command](const CommonOptions& common) {
          command->common = common;
          finish(*command);
          return run_train(*command);
        };
      }};
}

}  // namespace fp16lab::experiments
