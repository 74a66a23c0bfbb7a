#include "experiments/app/run/train_run.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <utility>

#include "analysis/account.hpp"
#include "engine/backend/cuda/runtime/devices.hpp"
#include "experiments/app/arguments.hpp"
#include "experiments/app/build_info.hpp"
#include "experiments/app/config/run_identity.hpp"
#include "experiments/app/process.hpp"
#include "experiments/app/run/continuation.hpp"
#include "experiments/app/run/network_table.hpp"
#include "experiments/app/run/prepared_run.hpp"
#include "experiments/app/run/ranks.hpp"
#include "experiments/app/run/run_notes.hpp"
#include "experiments/app/run/run_recorder.hpp"
#include "numerics/files/disk/atomic_file.hpp"
#include "numerics/files/disk/folder.hpp"
#include "numerics/files/run/row_numbers.hpp"
#include "numerics/files/run/run_folder.hpp"
#include "numerics/gemm/gemm.hpp"
#include "numerics/text/message.hpp"
#include "numerics/text/own_command.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab::experiments {
namespace {

Manifest make_manifest(const TrainRequest& request, const RunConfig& config, const PreparedRun& run) {
  Manifest manifest;
  manifest.name = request.name;
  manifest.argv = request.common.argv;
  manifest.identity = identity_of(config);
  manifest.config = to_toml(config);
  manifest.git_hash = git_hash();
  manifest.state_hash_version = engine::state_hash_version;
  manifest.seeds = {{"train", config.train.seed}};
  // Synthetic data come from no file: their seed says where they came from.
  if (run.data->kind == engine::data::DataKind::synthetic) manifest.seeds.emplace("data", config.train.seed);
  manifest.cpu = cpu_name();
  manifest.threads = request.common.threads;
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

nlohmann::ordered_json summary_of(const std::filesystem::path& folder, ExitState state,
                                  const engine::RunResult& result,
                                  const std::vector<std::uint64_t>& sent_bytes) {
  nlohmann::ordered_json summary;
  summary["folder"] = folder.string();
  summary["state"] = name_of(state);
  summary["steps"] = result.steps;
  summary["skipped_steps"] = result.skipped_steps;
  summary["final_train_loss"] = json_number(result.final_train_loss);
  summary["final_loss_scale"] = json_number(result.final_loss_scale);
  if (result.evaluation)
    for_each_number<EvaluationRow>([&](const auto& field) {
      if (const std::optional<double> value = *result.evaluation.*field.member)
        summary["evaluation_" + std::string(field.name)] = json_number(*value);
    });
  if (result.diagnosis) summary["diagnosis"] = result.diagnosis->code;
  const Manifest manifest = read_manifest(folder);
  // As tables have it.
  summary["peak_tensor_bytes"] = manifest.memory ? manifest.memory->peak : result.peak_tensor_bytes;
  if (manifest.backend && manifest.backend->library_products)
    summary["library_products"] = *manifest.backend->library_products;
  if (!sent_bytes.empty()) summary["sent_bytes"] = sent_bytes;  // by rank
  summary["state_hash"] = fmt::format("{:016x}", result.state_hash);
  return summary;
}

std::filesystem::path default_folder(const CommonOptions& common, const RunConfig& config) {
  const std::string name = common.config.empty() ? config.model.name : common.config.stem().string();
  return std::filesystem::path("results") / fmt::format("{}-seed{}", name, config.train.seed);
}

constexpr std::string_view way_out = "restore them from a copy, or start again with --force";

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
  print_result(summary.dump() + "\n");
  say("fp16lab: {}: this run has {} after {} steps; nothing is left to do", folder.string(),
      name_of(manifest.state), run.steps.size());
  return manifest.state == ExitState::finished ? ExitCode::ok : ExitCode::diverged;
}

/// What `--resume` finds in `folder`, checked against the new plan; nothing where a new run is to begin.
std::optional<Continuation> find_checked(const TrainRequest& request, const std::filesystem::path& folder,
                                         RunPlan& plan) {
  std::optional<Continuation> found = find_continuation(folder);
  if (!found) {
    if (request.common.config.empty())
      usage_error(fmt::format("--resume: {} holds no run; begin one with --config", folder.string()));
    plan = resolve_run(request.common);
    return std::nullopt;
  }
  plan = resolve_run(request.common, found->folder_config);
  require_resumable(found->begun_with, plan.config, folder);
  if (found->manifest.state == ExitState::finished && !found->checkpoint &&
      other_length(found->begun_with, plan.config))
    usage_error(
        fmt::format("--resume: {} holds a finished run without a checkpoint, which cannot be made longer "
                    "(checkpoint.every was 0)",
                    folder.string()));
  return found;
}

bool has_ended(const Continuation& found, const RunConfig& config) {
  // A run may have diverged by its last loss alone: with more steps it goes on from its last checkpoint.
  const bool made_all_steps = found.step() > 0 && found.step() == found.begun_with.train.steps;
  if (found.manifest.state == ExitState::diverged && !made_all_steps) return true;
  return is_complete(found.manifest.state) && !other_length(found.begun_with, config);
}

/// Null: one process.
std::optional<RankRecord> record_of(const engine::parallel::Communicator* all) {
  if (all == nullptr) return std::nullopt;
  return RankRecord{.library = all->library(), .hosts = {all->hosts().begin(), all->hosts().end()}};
}

/// What has to be right before anything is written.
void check_continuation(const Continuation& found, const PreparedRun& run,
                        const std::filesystem::path& folder, const engine::parallel::Communicator* all) {
  require_same_arithmetic(found.manifest, found.begun_with, run.chosen.record, folder);
  require_same_ranks(found.manifest, found.begun_with, record_of(all), folder);
  require_same_data(found.manifest, run.files());
  if (found.step() > run.plan.train.steps)
    usage_error(fmt::format(
        "--resume: the run has made {} steps already, more than the {} that its configuration now asks for",
        found.step(), run.plan.train.steps));
}

bool dumps_to_stdout(const std::filesystem::path& file) {
  return !file.empty() && writes_to_descriptor(file, STDOUT_FILENO);
}

void check_dumps(const TrainRequest& request, const Continuation* found) {
  const auto check = [](std::string_view option, const std::filesystem::path& file) {
    if (file.empty()) return;
    const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : ".";
    if (!is_folder(folder))
      usage_error(fmt::format("{}: {}: {} is not a folder", option, file.string(), folder.string()));
    try {
      require_output(file);
    } catch (const std::runtime_error& error) {
      usage_error(fmt::format("{}: {}", option, error.what()));
    }
  };
  check("--dump-initial", request.dump_initial);
  check("--dump-gradients", request.dump_gradients);
  if (dumps_to_stdout(request.dump_initial) && dumps_to_stdout(request.dump_gradients))
    usage_error(
        "--dump-initial and --dump-gradients both go to the standard output: expected one of them there");
  if (!request.dump_initial.empty() && found != nullptr && found->checkpoint)
    usage_error(fmt::format("--dump-initial: this run continues after step {}; its initial weights are gone",
                            found->step()));
}

/// What several ranks cannot do.
void check_ranks(const TrainRequest& request, const RunPlan& plan, engine::parallel::Communicator* all) {
  if (all == nullptr) return;
  if (all->size() > plan.parallel.shards)
    usage_error(fmt::format(
        "parallel.shards = {} on {} ranks: a rank needs a shard; expected parallel.shards = {} or "
        "more, or fewer ranks",
        plan.parallel.shards, all->size(), std::bit_ceil(static_cast<std::uint64_t>(all->size()))));
  if (!request.dump_gradients.empty())
    usage_error("--dump-gradients: no rank has the whole batch; run it in one process, with the same bits");
}

void dump(const TrainRequest& request, PreparedRun& run, engine::Trainer& trainer) {
  if (!request.dump_initial.empty())
    engine::dump_weights(request.dump_initial, *run.backend, *run.workload.model);
  if (request.dump_gradients.empty()) return;
  try {
    trainer.dump_gradients(request.dump_step, request.dump_gradients);
  } catch (const std::invalid_argument& error) {
    usage_error(fmt::format("--dump-gradients: {}", error.what()));
  }
}

/// From here on the folder says what is going on.
RunWriter open_folder(const TrainRequest& request, const std::filesystem::path& folder,
                      const RunConfig& config, const PreparedRun& run, const Continuation* found,
                      Ranks& ranks) {
  const std::optional<RankRecord> together = record_of(ranks.communicator());
  if (found == nullptr) {
    if (is_run_folder(folder)) remove_run(folder);
    Manifest manifest = make_manifest(request, config, run);
    manifest.ranks = together;
    return {folder, std::move(manifest)};
  }
  Manifest manifest = found->manifest;
  manifest.ranks = together;
  manifest.identity = identity_of(config);
  manifest.config = to_toml(config);
  manifest.resumptions.push_back({found->step(), utc_now(), git_hash()});
  if (manifest.state_hash_version < engine::state_hash_version) {
    manifest.state_hash_version = engine::state_hash_version;
    manifest.first_state_hash_until = found->step();
  }
  try {
    return RunWriter::resume(folder, std::move(manifest), found->step(),
                             found->checkpoint ? found->checkpoint->state_hash() : 0, found->rows);
  } catch (const std::runtime_error& error) {
    throw CommandError(ExitCode::run_failed, fmt::format("--resume: {} ({})", error.what(), way_out));
  }
}

void announce(const Continuation& found, const RunConfig& config) {
  std::vector<std::string> changes;
  for (const auto& [key, before, now] : key_differences(found.begun_with, config))
    changes.push_back(fmt::format("{} = {} ({} before)", key->name, now.empty() ? "not set" : now,
                                  before.empty() ? "not set" : before));
  if (!changes.empty()) say("note: from now on {}", fmt::join(changes, ", "));
  if (!found.checkpoint) {
    say("resuming: no checkpoint yet, from the beginning");
    return;
  }
  say("resuming after step {}", found.step());
  if (const std::string& hash = found.checkpoint->metadata("git_hash"); hash != git_hash())
    say("note: the checkpoint was written by version {}, this is {}; bits may differ", hash, git_hash());
  if (const std::uint64_t before = found.checkpoint->state_hash_version();
      before != engine::state_hash_version)
    say("note: steps up to {} have a state_hash of version {}, later ones of version {}, which leaves out "
        "powers of beta1 and beta2 that no rule reads",
        found.step(), before, engine::state_hash_version);
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

RecorderOptions recorder_options(const TrainRequest& request, const std::filesystem::path& folder,
                                 const RunConfig& config, const PreparedRun& run, std::uint64_t done) {
  RecorderOptions options;
  options.first_step = done + 1;
  options.total_steps = run.plan.train.steps;
  options.histograms_every = static_cast<std::uint64_t>(config.observe.histograms_every);
  options.observed = {};
  for (const std::string& name : config.observe.tensors)
    options.observed.insert(*enumerator_called<Observed>(name));
  options.observed_names = config.observe.names;
  options.title = printable(folder.filename().string());
  options.quiet = request.common.quiet;
  options.checkpoint_every = static_cast<std::uint64_t>(config.checkpoint.every);
  options.checkpoints_kept = static_cast<std::uint64_t>(config.checkpoint.keep);
  options.checkpoint_metadata = {
      {"config", to_toml(config)}, {"git_hash", git_hash()}, {"seed", fmt::format("{}", config.train.seed)}};
  options.save_weights = weights_writer(folder, config, run);
  options.explain_overflow = config.observe.explain_overflow;
  options.live = request.live;
  options.tensorboard = request.tensorboard;
  options.op_statistics = request.op_statistics;
  if (request.op_statistics) options.advice = gpu_advice(run.plan);
  return options;
}

ExitCode exit_code_of(const engine::RunResult& result) {
  using End = engine::RunResult::End;
  return result.end == End::finished  ? ExitCode::ok
         : result.end == End::stopped ? ExitCode::interrupted
                                      : ExitCode::diverged;
}

/// Where ranks come to differ, each that the message names leaves its state in the folder.
engine::RunResult run_on(engine::Trainer& trainer, const std::filesystem::path& folder, Ranks& ranks) {
  try {
    return trainer.run();
  } catch (const engine::RanksDiffer& differ) {
    const engine::parallel::Communicator& all = *ranks.communicator();
    const std::filesystem::path states = folder / run_file::ranks_differ;
    const auto state_of = [&](auto rank) {
      return states / fmt::format("step-{}-rank-{}.safetensors", trainer.iteration(), rank);
    };
    if (std::ranges::count(differ.ranks(), all.rank()) > 0) {
      try {
        make_folder_inside(states);
        engine::save_checkpoint(
            state_of(all.rank()), trainer.training_state(),
            {{"host", all.hosts()[static_cast<std::size_t>(all.rank())]}, {"git_hash", git_hash()}});
      } catch (const std::exception& error) {  // a disk may be what is wrong
        say("fp16lab: rank {}: its state could not be kept: {}", all.rank(), error.what());
      }
    }
    throw engine::RanksDiffer(
        fmt::format("{}. Their states: {}; --resume continues from the last checkpoint", differ.what(),
                    state_of(fmt::format("{}", fmt::join(differ.ranks(), "|"))).string()),
        differ.ranks());
  }
}

/// Puts what happened in the run into the summary; returns the text for stderr. `message`: how it ended.
std::string tell_account(const std::filesystem::path& folder, nlohmann::ordered_json& summary, bool quiet,
                         const std::string& message) {
  const analysis::Account account = analysis::account_of(read_run_folder(folder));
  summary["account"] = nlohmann::ordered_json::parse(analysis::account_json(account));
  if (quiet) return message;
  return analysis::account_text(account);
}

/// Trains to the end, and says in the folder, on stdout and by the exit code how that went.
ExitCode carry_out(const TrainRequest& request, engine::Trainer& trainer, RunRecorder& recorder,
                   RunWriter& writer, const std::function<void(std::uint64_t)>& save_weights,
                   std::uint64_t checkpoints_kept, Ranks& ranks, const std::uint64_t* library_products) {
  const std::filesystem::path& folder = writer.folder();
  const bool stdout_is_taken =
      dumps_to_stdout(request.dump_initial) || dumps_to_stdout(request.dump_gradients);
  const auto finish = [&](ExitState state, const std::string& why) {
    if (library_products != nullptr) writer.add_library_products(*library_products);
    writer.finish(state, why);
  };
  std::string message;
  nlohmann::ordered_json summary;
  ExitCode code = ExitCode::ok;
  try {
    const engine::RunResult result = run_on(trainer, folder, ranks);
    recorder.tell_culprits_again();
    recorder.end_progress();
    const std::vector<std::uint64_t> sent_bytes = ranks.sent_bytes();
    if (save_weights) save_weights(result.steps);
    // A kill after the last checkpoint may have come before older ones were removed.
    remove_old_checkpoints(folder, checkpoints_kept);
    using End = engine::RunResult::End;
    const ExitState state = result.end == End::finished  ? ExitState::finished
                            : result.end == End::stopped ? ExitState::stopped
                                                         : ExitState::diverged;
    if (state == ExitState::stopped)
      message = fmt::format(
          "interrupted with state saved, after step {}; {} continues", result.steps,
          request.of_sweep ? "the same command" : own_command({"train", "--resume", "-o", folder.string()}));
    else if (state == ExitState::diverged)
      message = fmt::format("diverged at step {}: {}. {}", result.steps, result.diagnosis->reason,
                            result.diagnosis->text);
    finish(state, message);
    summary = summary_of(folder, state, result, sent_bytes);
    code = exit_code_of(result);
    if (!request.dump_gradients.empty() && result.steps < request.dump_step)
      say("fp16lab: --dump-gradients: the run ended before step {}; {} was not written", request.dump_step,
          request.dump_gradients.string());
  } catch (const std::exception& error) {
    try {
      finish(ExitState::failed, reason_of(error));
    } catch (const std::exception& another) {  // what failed first is what is wrong
      say("fp16lab: {}: its end could not be recorded: {}", folder.string(), reason_of(another));
    }
    throw;
  }
  // The run has ended well: whether anybody hears of it changes nothing in its folder.
  if (code != ExitCode::interrupted) message = tell_account(folder, summary, request.common.quiet, message);
  std::istringstream parts(message);
  for (std::string part; std::getline(parts, part);) say("fp16lab: {}: {}", folder.string(), part);
  if (const std::string text = library_products_text(writer.manifest());
      !text.empty() && !request.common.quiet)
    say("fp16lab: {}: {}", folder.string(), text);
  const std::string line = summary.dump() + "\n";
  if (stdout_is_taken)
    show_text(line);  // a dump has the standard output
  else
    print_result(line);
  return code;
}

/// "precision: O1 of torch with f16".
std::string precision_of(const RunConfig& config) {
  const engine::AmpOptions& amp = config.amp;
  const RunIdentity run = identity_of(config);
  if (run.is_reference()) return "precision: FP32; --set amp.level=O1 for mixed";
  if (run.fp32) return fmt::format("precision: FP32, with the loss scale of policy {}", run.policy);
  return fmt::format("precision: {} of {} with {}", name_of(amp.level), name_of(amp.dialect),
                     name_of(amp.dtype));
}

/// What a run would need that is to begin, before its folder is made; nothing where the folder says it.
RunPlan plan_of(const TrainRequest& request) {
  if (request.resume && request.force)
    usage_error("--resume continues a run and --force replaces it: expected one of them");
  const CommonOptions& common = request.common;
  return !request.resume || common.out.empty() ? resolve_run(common) : RunPlan{};
}

/// Which device each rank has, where any has one: collective.
void tell_devices(const PreparedRun& run, engine::parallel::Communicator* all, bool speaks) {
  if (all == nullptr) return;
  const std::vector<std::string> devices =
      all->all_gather(run.chosen.gpu ? std::to_string(run.plan.config.backend.ordinal) : "the CPU");
  if (speaks && std::ranges::any_of(devices, [](const std::string& device) { return device != "the CPU"; }))
    say("ranks 0 to {} compute on devices {} of their hosts", devices.size() - 1, fmt::join(devices, ", "));
}

/// All ranks but the first write nothing.
ExitCode train_in(const std::filesystem::path& folder, const TrainRequest& request, RunPlan plan,
                  Ranks& ranks) {
  const CommonOptions& common = request.common;
  if (ranks.first())
    require_use(folder, request.resume  ? FolderUse::resume
                        : request.force ? FolderUse::replace
                                        : FolderUse::begin);
  std::optional<Continuation> found;
  if (request.resume) found = find_checked(request, folder, plan);
  const RunConfig config = plan.config;
  if (found && has_ended(*found, config)) {
    ranks.agree();
    return ranks.first() ? report_ended_run(folder, found->manifest) : ExitCode::ok;
  }
  const Continuation* continuation = found ? &*found : nullptr;
  check_dumps(request, continuation);

  check_ranks(request, plan, ranks.communicator());
  if (const auto* all = ranks.communicator(); all != nullptr && config.backend.device != Device::emulated)
    plan.config.backend.ordinal = device_of_rank(config.backend.ordinal, all->hosts(), all->rank(),
                                                 engine::cuda_status().devices.size());
  const bool speaks = !common.quiet && ranks.first();
  const bool alone = ranks.communicator() == nullptr;  // of several, each has a part of the batch
  const std::unique_ptr<PreparedRun> run =
      prepare_run(std::move(plan), common.threads, speaks && alone ? note_memory : nullptr);
  if (speaks) {
    say("{}", run->data->found);
    say("{}", precision_of(config));
    print_notes(*run);
    if (ranks.communicator() != nullptr && config.checkpoint.every == 0)
      say("note: checkpoint.every = 0: if a rank is killed, the run starts again");
  }
  if (found) check_continuation(*found, *run, folder, ranks.communicator());
  RecorderOptions options = recorder_options(request, folder, config, *run, found ? found->step() : 0);
  options.quiet = !speaks;
  RunRecorder recorder(std::move(options));
  SilentRank silent(recorder);
  engine::Tap& tap = ranks.first() ? static_cast<engine::Tap&>(recorder) : silent;
  engine::Trainer trainer(*run->backend, run->workload, run->plan, tap, ranks.communicator());
  if (found && speaks) announce(*found, config);
  if (found && found->checkpoint) with_advice(folder, [&] { trainer.resume(*found->checkpoint); });
  if (ranks.first()) dump(request, *run, trainer);

  ranks.agree();
  tell_devices(*run, ranks.communicator(), speaks);
  if (!ranks.first()) {
    run_on(trainer, folder, ranks);
    ranks.sent_bytes();
    return ExitCode::ok;
  }
  RunWriter writer = open_folder(request, folder, config, *run, continuation, ranks);
  recorder.write_to(writer);
  return carry_out(request, trainer, recorder, writer, weights_writer(folder, config, *run),
                   static_cast<std::uint64_t>(config.checkpoint.keep), ranks,
                   run->chosen.library_products.get());
}

}  // namespace

ExitCode train(const TrainRequest& request) {
  Ranks ranks;
  return ranks.run([&] {
    RunPlan plan = plan_of(request);
    const CommonOptions& common = request.common;
    const std::filesystem::path folder =
        common.out.empty() ? default_folder(common, plan.config) : common.out;
    catch_interrupts();
    std::optional<FolderClaim> claim;
    if (ranks.first()) claim.emplace(folder, another_writer);
    return train_in(folder, request, std::move(plan), ranks);
  });
}

ExitCode train(const TrainRequest& request, const FolderClaim& /*held*/) {
  Ranks ranks;
  return ranks.run([&] { return train_in(request.common.out, request, plan_of(request), ranks); });
}

}  // namespace fp16lab::experiments
