#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "experiments/app/exit_code.hpp"
#include "experiments/app/process.hpp"
#include "experiments/app/progress.hpp"
#include "experiments/app/run/folder_claim.hpp"
#include "experiments/app/sweep/child_process.hpp"
#include "experiments/app/sweep/sweep.hpp"
#include "numerics/files/disk/folder.hpp"
#include "numerics/files/disk/input_file.hpp"
#include "numerics/files/run/run_folder.hpp"
#include "numerics/text/message.hpp"

namespace fp16lab::experiments {
namespace {

using Clock = std::chrono::steady_clock;

/// The step of the last complete line of a growing steps.csv; 0 before the first.
std::uint64_t last_step(const std::filesystem::path& folder) {
  if (!is_there(folder / run_file::steps)) return 0;
  const InputFile file(folder / run_file::steps);
  std::string tail(static_cast<std::size_t>(std::min<std::uint64_t>(file.size(), 1024)), '\0');
  file.read(file.size() - tail.size(), std::as_writable_bytes(std::span(tail)));
  const std::size_t end = tail.rfind('\n');
  if (end == std::string::npos || end == 0) return 0;
  const std::size_t begin = tail.rfind('\n', end - 1);
  std::uint64_t step = 0;
  for (std::size_t i = begin == std::string::npos ? 0 : begin + 1;
       i < end && tail[i] >= '0' && tail[i] <= '9'; ++i)
    step = step * 10 + static_cast<std::uint64_t>(tail[i] - '0');
  return step;
}

/// Seconds per multiply-add, learnt from what has run, FP32 and FP16 apart.
class Pace {
 public:
  void add(const RunConfig& config, double work, double seconds) {
    auto& entry = measured_[config.amp.level];
    entry.first += work;
    entry.second += seconds;
  }
  /// 0 before anything was measured.
  double seconds_for(const RunConfig& config, double work) const {
    const auto found = measured_.find(config.amp.level);
    const auto use = found != measured_.end() ? found : measured_.begin();
    return use == measured_.end() || use->second.first == 0 ? 0
                                                            : work * use->second.second / use->second.first;
  }

 private:
  std::map<engine::Level, std::pair<double, double>> measured_;  ///< work, seconds
};

/// Otherwise it is 128 + signal. No signal is 2 of those that kill a child whose Ctrl-C the parent gets.
bool has_exited(int status) { return status <= 128 || status == static_cast<int>(ExitCode::interrupted); }

struct Job {
  const PlannedRun* run;
  std::size_t task;  ///< its number in the plan, from 1
  RunLength length;
};

/// A job whose process was started.
struct RunningJob {
  const Job* job;
  Clock::time_point start;
  std::unique_ptr<ChildProcess> process;
};

class SweepRunner {
 public:
  SweepRunner(const SweepPlan& plan, const CommonOptions& common, const SweepOptions& options)
      : plan_(&plan),
        common_(&common),
        options_(options),
        parallel_(static_cast<std::size_t>(std::max(1, options.jobs))),
        progress_(common.quiet),
        program_(fp16lab_program()) {}

  SweepOutcome run() {
    const Survey found = survey(*plan_, options_, *common_);
    require_safe(*plan_, found.states, options_, *common_);
    note_memory_of_runs(found, parallel_, *common_);
    write_plan(*plan_, options_.force);
    for (std::size_t i = 0; i < plan_->runs.size(); ++i) {
      if (is_kept(found.states[i], options_))
        ++outcome_.done_before;
      else
        jobs_.push_back({&plan_->runs[i], i + 1, found.lengths[i]});
    }
    if (outcome_.done_before > 0)
      progress_.message(
          fmt::format("sweep: {} of {} runs are already complete", outcome_.done_before, plan_->runs.size()));
    while (true) {
      while (running_.size() < parallel_ && next_ < jobs_.size() && !interrupted()) start_next();
      if (running_.empty()) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));  // a moment of a run
      reap();
      if (progress_.due()) show();
    }
    outcome_.interrupted = interrupted();
    return outcome_;
  }

 private:
  /// Where that cannot be done, the sweep ends: the others stop, all at once, before they are waited for.
  void start_next() {
    try {
      start(jobs_[next_++]);
    } catch (...) {
      for (RunningJob& running : running_) running.process->stop();
      throw;
    }
  }

  void start(const Job& job) {
    const int threads = std::max(1, common_->threads / static_cast<int>(parallel_));
    std::vector<std::string> arguments = task_arguments(*plan_, threads, options_.force);
    arguments.push_back(std::to_string(job.task));
    running_.push_back({&job, Clock::now(), std::make_unique<ChildProcess>(program_, arguments)});
  }

  void reap() {
    std::erase_if(running_, [this](RunningJob& running) {
      if (interrupted()) running.process->stop();
      const std::optional<int> status = running.process->poll();
      if (status) note_end(running, *status);
      return status.has_value();
    });
  }

  void note_end(const RunningJob& running, int status) {
    const PlannedRun& run = *running.job->run;
    const double seconds = std::chrono::duration<double>(Clock::now() - running.start).count();
    ++outcome_.run_now;
    if (status == 0) {
      const bool diverged = read_manifest(run.folder).state == ExitState::diverged;
      pace_.add(run.config, running.job->length.multiply_adds, seconds);
      progress_.message(fmt::format("sweep: {} {} after {}", run.name, diverged ? "diverged" : "finished",
                                    duration_text(seconds)));
    } else if (!interrupted()) {
      outcome_.failed.push_back(run.name);
      say("sweep: {} {} ({} {}); the other runs continue", run.name,
          status == static_cast<int>(ExitCode::interrupted) ? "was interrupted; its state is saved"
                                                            : "failed",
          has_exited(status) ? "exit code" : "killed by signal", has_exited(status) ? status : status - 128);
    }
  }

  void show() {
    if (running_.empty()) return;
    double left = 0;
    bool known = false;
    for (const RunningJob& running : running_) {
      const Job& job = *running.job;
      const double elapsed = std::chrono::duration<double>(Clock::now() - running.start).count();
      const double done = static_cast<double>(steps_done(job)) / static_cast<double>(job.length.steps);
      Pace pace = pace_;
      if (done > 0) pace.add(job.run->config, job.length.multiply_adds * done, elapsed);
      left += pace.seconds_for(job.run->config, job.length.multiply_adds * (1 - done));
      known = known || done > 0;
    }
    for (std::size_t i = next_; i < jobs_.size(); ++i)
      left += pace_.seconds_for(jobs_[i].run->config, jobs_[i].length.multiply_adds);
    left /= static_cast<double>(parallel_);
    const Job& oldest = *running_.front().job;
    progress_.show(fmt::format("sweep: {}/{} runs done, {} step {}/{}{}, {} left",
                               outcome_.done_before + outcome_.run_now, plan_->runs.size(), oldest.run->name,
                               steps_done(oldest), oldest.length.steps,
                               running_.size() > 1 ? fmt::format(" and {} more", running_.size() - 1) : "",
                               known || left > 0 ? duration_text(left) : "? s"));
  }

  static std::uint64_t steps_done(const Job& job) {
    return std::min(last_step(job.run->folder), job.length.steps);
  }

  const SweepPlan* plan_;
  const CommonOptions* common_;
  SweepOptions options_;
  std::size_t parallel_;  ///< jobs at a time
  Progress progress_;
  std::filesystem::path program_;
  std::vector<Job> jobs_;
  std::size_t next_ = 0;  ///< the first job that was not started
  std::vector<RunningJob> running_;
  Pace pace_;
  SweepOutcome outcome_;
};

}  // namespace

SweepOutcome execute_sweep(const SweepPlan& plan, const CommonOptions& common, const SweepOptions& options) {
  catch_interrupts();
  const FolderClaim claim(plan.folder, "another sweep is working in it");
  return SweepRunner(plan, common, options).run();
}

}  // namespace fp16lab::experiments
