#include "experiments/app/run/run_recorder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "analysis/first_culprit.hpp"
#include "engine/amp/levels/level.hpp"
#include "engine/amp/levels/op_statistics.hpp"
#include "engine/train/checkpoint.hpp"
#include "experiments/app/exit_code.hpp"
#include "experiments/app/process.hpp"
#include "experiments/app/run/continuation.hpp"
#include "numerics/files/disk/folder.hpp"
#include "numerics/files/run/run_folder.hpp"
#include "numerics/files/run/run_resume.hpp"
#include "numerics/text/message.hpp"
#include "numerics/text/scale_text.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab::experiments {

namespace {

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// What the row's description calls a curve, under its name after `group`.
template <class Row>
void write_curves(TensorboardWriter& writer, const Row& row, const std::string& group) {
  std::vector<std::pair<std::string, double>> values;
  for_each_field<Row>([&](const auto& field) {
    if (!field.traits.curve) return;
    const auto& value = row.*field.member;
    if constexpr (std::is_arithmetic_v<std::remove_cvref_t<decltype(value)>>)
      values.emplace_back(group + std::string(field.name), static_cast<double>(value));
    else if constexpr (std::is_same_v<std::remove_cvref_t<decltype(value)>, std::optional<double>>)
      if (value) values.emplace_back(group + std::string(field.name), *value);
  });
  std::vector<EventScalar> scalars;
  for (const auto& [tag, value] : values) scalars.push_back({tag, value});
  writer.scalars(row.step, wall_time(), scalars);
}

}  // namespace

bool is_complete(ExitState state) { return state == ExitState::finished || state == ExitState::diverged; }

void require_use(const std::filesystem::path& folder, FolderUse use) {
  const auto refuse = [&](const std::string& why) {
    throw CommandError(ExitCode::usage, fmt::format("--out: {} {}", folder.string(), why));
  };
  remove_temporary_files(folder);
  if (!is_run_folder(folder)) {
    for (const std::filesystem::path& path : entries_of(folder))
      if (!path.filename().string().starts_with(run_file::claim))
        refuse("is not empty and holds no run; choose another folder");
  } else if (use == FolderUse::resume) {
    try {
      require_plain_run(folder);
    } catch (const std::runtime_error& error) {
      throw CommandError(ExitCode::run_failed, fmt::format("--resume: {}", error.what()));
    }
  } else if (use == FolderUse::begin) {
    const ExitState state = read_manifest(folder).state;
    if (is_complete(state))
      refuse(
          fmt::format("holds a {} run; choose another folder, or replace it with --force", name_of(state)));
    if (const auto checkpoints = stored_checkpoints(folder); !checkpoints.empty())
      refuse(
          fmt::format("holds an unfinished run with a checkpoint of step {}; continue it with --resume, or "
                      "replace it with --force",
                      checkpoints.back().step));
  }
}

RunRecorder::RunRecorder(RecorderOptions options)
    : options_(std::move(options)),
      progress_(options_.quiet),
      unseen_names_(options_.observed_names),
      start_(std::chrono::steady_clock::now()) {
  if (!options_.quiet && wants_panel(options_.live))
    live_.emplace(options_.title, options_.first_step, options_.total_steps, terminal_style());
}

void RunRecorder::write_to(RunWriter& writer) {
  writer_ = &writer;
  if (!options_.tensorboard.empty()) tensorboard_.emplace(options_.tensorboard, options_.first_step);
}

bool RunRecorder::counts_at(std::uint64_t step) const {
  const std::uint64_t every = options_.histograms_every;
  return every > 0 && (step == 1 || step % every == 0 || step == options_.total_steps);
}

bool RunRecorder::wants(const engine::Site& site) {
  using engine::What, engine::RunMoment;
  const auto names = [&site](const std::string& pattern) { return engine::amp::matches(pattern, site.name); };
  const std::uint64_t every = options_.checkpoint_every;
  switch (site.what) {
    case What::overflows:
      return true;
    case What::culprits:
      return options_.explain_overflow;
    case What::op_statistics:
      return options_.op_statistics && site.step == options_.first_step;
    case What::operands:
      return counts_at(site.step);
    case What::stop:
      return interrupted();
    case What::checkpoint:
      return site.moment == RunMoment::stopped ||
             (every > 0 && (site.step % every == 0 || site.moment == RunMoment::finished));
    default:
      return contains(options_.observed, site.what) && counts_at(site.step) &&
             (site.name.empty() || options_.observed_names.empty() ||
              std::ranges::any_of(options_.observed_names, names));
  }
}

void RunRecorder::see(const engine::Event& event) {
  if (const auto* const tensor = event.as<HistogramRow>()) add(*tensor);
  if (const auto* const step = event.as<StepRow>()) add(*step);
  if (const auto* const memory = event.as<RunMemory>()) writer_->set_memory(*memory);
  if (const auto* const evaluation = event.as<EvaluationRow>()) add(*evaluation);
  if (const auto* const overflow = event.as<OverflowRow>()) writer_->append(*overflow);
  if (const auto* const operand = event.as<RecipeRow>()) writer_->append(*operand);
  if (const auto* const culprits = event.as<engine::Culprits>()) explain(*culprits);
  if (const auto* const ops = event.as<engine::CountedOps>()) show(*ops);
  if (const auto* const state = event.as<engine::TrainingState>()) save(*state);
}

void RunRecorder::add(const HistogramRow& row) {
  std::erase_if(unseen_names_,
                [&row](const std::string& pattern) { return engine::amp::matches(pattern, row.tensor); });
  writer_->append(row);
  if (live_ && row.observed == Observed::gradients) live_->on_gradient(row);
  if (tensorboard_) tensorboard_->on_tensor(row);
}

void RunRecorder::add(const StepRow& row) {
  if (!unseen_names_.empty() && counts_at(row.step) && !options_.observed.empty())
    for (const std::string& pattern : std::exchange(unseen_names_, {}))
      message(
          fmt::format("note: observe.names = \"{}\": no counted tensor has such a name", printable(pattern)));
  writer_->append(row);
  if (tensorboard_) tensorboard_->on_step(row);
  show_progress(row);
}

void RunRecorder::show_progress(const StepRow& row) {
  if (live_) {
    live_->on_step(row);
    return;
  }
  if (!progress_.due() && row.step != options_.total_steps) return;
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
  const double rate = static_cast<double>(row.step - options_.first_step + 1) / elapsed.count();
  progress_.show(fmt::format("{}: step {}/{}, loss {:.5g}, scale {}, {:.3g} steps/s, {} left", options_.title,
                             row.step, options_.total_steps, row.loss, scale_text(row.loss_scale), rate,
                             duration_text(static_cast<double>(options_.total_steps - row.step) / rate)));
}

void RunRecorder::add(const EvaluationRow& row) {
  writer_->append(row);
  if (tensorboard_) tensorboard_->on_evaluation(row);
}

void RunRecorder::explain(const engine::Culprits& culprits) {
  for (CulpritRow row : culprits.rows) {
    analysis::advise(row);
    writer_->append(row);
    if (culprits_.is_new(analysis::kind_of(row), culprits.step, row.loss_scale))
      message(analysis::culprit_line(row));
  }
  if (culprits.rows.empty())
    message(
        fmt::format("step {}: overflow, but every value of the forward and backward passes was finite: it "
                    "happened between them and the update",
                    culprits.step));
}

void RunRecorder::tell_culprits_again() {
  for (const std::string& line : culprits_.again()) message(line);
}

void RunRecorder::message(const std::string& line) {
  if (live_) {
    live_->message(line);
  } else {
    progress_.message(line);
  }
}

void RunRecorder::show(const engine::CountedOps& ops) {
  const auto& [step, statistics] = ops;
  write_file_atomically(writer_->folder() / run_file::op_statistics, engine::amp::to_csv(statistics));
  if (options_.quiet) return;
  say("ops of step {}, forward passes only:", step);
  show_text(engine::amp::to_text(statistics));
  for (const engine::amp::Advice& advice : statistics.advice())
    say("advice: {}: {}", advice.layer.empty() ? "(no layer)" : advice.layer, advice.text);
  for (const std::string& advice : options_.advice) say("advice: {}", advice);
}

void RunRecorder::save(const engine::TrainingState& state) {
  writer_->sync();
  if (tensorboard_) tensorboard_->sync();
  make_checkpoint_folder(writer_->folder());
  SafetensorsMetadata metadata = options_.checkpoint_metadata;
  RunRows rows = writer_->rows();
  rows.sha256.erase(std::string(run_file::steps));  // it has times, and equal runs have equal checkpoints
  metadata.emplace(rows_key, to_json(rows));
  save_checkpoint(checkpoint_path(writer_->folder(), state.iteration), state, metadata);
  if (options_.save_weights) options_.save_weights(state.iteration);
  remove_old_checkpoints(writer_->folder(), options_.checkpoints_kept);
}

void TensorboardFeed::on_tensor(const HistogramRow& row) {
  const std::string_view group = row.observed == Observed::gradients ? "exponents" : name_of(row.observed);
  writer_.exponents(row.step, wall_time(), std::string(group) + "/" + row.tensor, row.before);
  if (!row.unmoved) return;
  const std::string tag = "unmoved/" + row.tensor;
  const EventScalar unmoved{tag, static_cast<double>(*row.unmoved)};
  writer_.scalars(row.step, wall_time(), std::vector{unmoved});
}

void TensorboardFeed::on_step(const StepRow& row) { write_curves(writer_, row, ""); }

void TensorboardFeed::on_evaluation(const EvaluationRow& row) { write_curves(writer_, row, "evaluation/"); }

}  // namespace fp16lab::experiments
