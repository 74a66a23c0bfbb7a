#include "experiments/run_recorder.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "experiments/exit_code.hpp"
#include "experiments/interrupt.hpp"

namespace fp16lab::experiments {

bool is_complete(ExitState state) { return state == ExitState::finished || state == ExitState::diverged; }

FolderClaim::FolderClaim(const std::filesystem::path& folder, bool force) : folder_(folder) {
  const auto refuse = [&](ExitCode code, const std::string& why) {
    throw CommandError(code, fmt::format("--out: {} {}", folder.string(), why));
  };
  lock();
  try {
    if (access(folder.c_str(), W_OK | X_OK) != 0) refuse(ExitCode::run_failed, "is not writable");
    if (!is_run_folder(folder)) {
      if (!std::filesystem::is_empty(folder))
        refuse(ExitCode::usage, "is not empty and holds no run; choose another folder");
    } else if (!force) {
      const ExitState state = read_manifest(folder).state;
      if (is_complete(state))
        refuse(
            ExitCode::usage,
            fmt::format("holds a {} run; choose another folder, or replace it with --force", name_of(state)));
    }
  } catch (...) {
    close(descriptor_);
    throw;
  }
}

void FolderClaim::lock() {
  const auto fail = [&](ExitCode code, const std::string& why) {
    throw CommandError(code, fmt::format("--out: {}: {}", folder_.string(), why));
  };
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error) fail(ExitCode::run_failed, "cannot make this folder: " + error.message());
  descriptor_ = open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor_ < 0)
    fail(ExitCode::run_failed, "cannot open this folder: " + std::generic_category().message(errno));
  if (flock(descriptor_, LOCK_EX | LOCK_NB) == 0) return;
  close(descriptor_);
  descriptor_ = -1;
  fail(ExitCode::usage, "another process is writing this run");
}

void FolderClaim::clear() {
  if (!is_run_folder(folder_)) return;
  remove_run(folder_);
  // An emptied folder goes away with its run, and the lock with it.
  close(descriptor_);
  lock();
}

FolderClaim::~FolderClaim() {
  if (descriptor_ >= 0) close(descriptor_);
  // A folder in which nothing was begun is not left behind; one that holds a run is not empty, and stays.
  std::error_code ignored;
  if (std::filesystem::is_empty(folder_, ignored) && !ignored) std::filesystem::remove(folder_, ignored);
}

RunRecorder::RunRecorder(RunWriter& writer, const RecorderOptions& options)
    : writer_(&writer),
      options_(options),
      progress_(options.quiet),
      start_(std::chrono::steady_clock::now()) {}

bool RunRecorder::wants_gradients(std::uint64_t step) {
  const std::uint64_t every = options_.histograms_every;
  return every > 0 && (step == 1 || step % every == 0 || step == options_.total_steps);
}

void RunRecorder::on_gradient(const engine::GradientRecord& record) {
  HistogramRow row;
  row.step = record.step;
  row.tensor = record.tensor;
  row.kind = record.kind == engine::GradientKind::weight ? "weight" : "activation";
  row.dtype = record.dtype;
  row.loss_scale = record.loss_scale;
  row.before = record.probe.before;
  row.after = record.probe.after;
  writer_->append(row);
}

void RunRecorder::on_step(const engine::StepRecord& record) {
  StepRow row;
  row.step = record.step;
  row.loss = record.loss;
  row.loss_scale = record.loss_scale;
  row.found_inf = record.found_inf;
  row.skipped = record.skipped;
  row.grad_norm = record.grad_norm;
  row.lr = record.learning_rate;
  row.underflow_rate = record.underflow_rate;
  row.state_hash = record.state_hash;
  row.seconds = record.seconds;
  writer_->append(row);

  if (!progress_.due() && record.step != options_.total_steps) return;
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
  const double rate = static_cast<double>(record.step) / elapsed.count();
  progress_.show(fmt::format("{}: step {}/{}, loss {:.5g}, scale {:g}, {:.3g} steps/s, {} left",
                             options_.title, record.step, options_.total_steps, record.loss,
                             record.loss_scale, rate,
                             duration_text(static_cast<double>(options_.total_steps - record.step) / rate)));
}

void RunRecorder::on_evaluation(const engine::EvaluationRecord& record) {
  EvaluationRow row;
  row.step = record.step;
  row.split = record.split;
  row.loss = record.loss;
  row.accuracy = record.accuracy;
  writer_->append(row);
}

bool RunRecorder::stop_requested() { return interrupted(); }

}  // namespace fp16lab::experiments
