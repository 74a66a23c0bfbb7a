#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "experiments/build_info.hpp"
#include "experiments/child_process.hpp"
#include "experiments/interrupt.hpp"
#include "experiments/progress.hpp"
#include "experiments/run_backend.hpp"
#include "experiments/run_data.hpp"
#include "experiments/run_recorder.hpp"
#include "experiments/sweep.hpp"
#include "numerics/files/atomic_file.hpp"
#include "numerics/files/run_folder.hpp"

namespace fp16lab::experiments {
namespace {

using Clock = std::chrono::steady_clock;

/// The sweep's folder, locked against a second sweep for the life of this object.
class SweepFolder {
 public:
  explicit SweepFolder(const std::filesystem::path& folder) {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error)
      throw CommandError(ExitCode::run_failed, fmt::format("--out: {}: cannot make this folder: {}",
                                                           folder.string(), error.message()));
    descriptor_ = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool locked = descriptor_ >= 0 && flock(descriptor_, LOCK_EX | LOCK_NB) == 0;
    const bool writable = access(folder.c_str(), W_OK | X_OK) == 0;
    if (locked && writable) return;
    if (descriptor_ >= 0) close(descriptor_);
    throw CommandError(writable ? ExitCode::usage : ExitCode::run_failed,
                       fmt::format("--out: {}: {}", folder.string(),
                                   writable ? "another sweep is working in it" : "not writable"));
  }
  ~SweepFolder() { close(descriptor_); }
  SweepFolder(const SweepFolder&) = delete;
  SweepFolder& operator=(const SweepFolder&) = delete;

 private:
  int descriptor_ = -1;
};

/// Loading also finds unreadable data before the first run starts; runs in a row mostly share theirs.
class LengthEstimate {
 public:
  RunLength of(const RunConfig& config) {
    if (data_ == nullptr || !(config.data == loaded_) || workload_of(config).data != data_->kind ||
        config.model.context != context_) {
      data_ = load_data(config);
      loaded_ = config.data;
      context_ = config.model.context;
    }
    return length_of(config, *data_);
  }

 private:
  std::unique_ptr<const RunData> data_;
  DataConfig loaded_;
  std::int64_t context_ = 0;  ///< what a text was found long enough for
};

/// The step of the last complete line of a growing steps.csv; 0 before the first.
std::uint64_t last_step(const std::filesystem::path& folder) {
  std::ifstream file(folder / run_file::steps, std::ios::binary | std::ios::ate);
  if (!file) return 0;
  const std::streamoff size = file.tellg();
  const std::streamoff start = std::max<std::streamoff>(0, size - 1024);
  file.seekg(start);
  std::string tail(static_cast<std::size_t>(size - start), '\0');
  file.read(tail.data(), static_cast<std::streamsize>(tail.size()));
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
  std::map<std::string, std::pair<double, double>> measured_;  ///< work, seconds
};

/// The manifest of the run in the folder; nothing if there is none of this configuration, or a damaged one.
std::optional<Manifest> manifest_of(const PlannedRun& run) {
  if (!is_run_folder(run.folder)) return std::nullopt;
  try {
    Manifest manifest = read_manifest(run.folder);
    if (manifest.config == to_toml(run.config)) return manifest;
  } catch (const std::runtime_error&) {  // damaged: it is run again
  }
  return std::nullopt;
}

/// Another version of the program may give other bits; a run is not made of both.
bool can_continue(const PlannedRun& run) {
  const std::optional<Manifest> manifest = manifest_of(run);
  return manifest && manifest->git_hash == git_hash();
}

struct Job {
  const PlannedRun* run;
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
  SweepRunner(const SweepPlan& plan, const CommonOptions& common, int jobs)
      : plan_(&plan),
        common_(&common),
        parallel_(static_cast<std::size_t>(std::max(1, jobs))),
        progress_(common.quiet),
        program_(fp16lab_program()) {}

  SweepOutcome run() {
    LengthEstimate estimate;
    for (const PlannedRun& run : plan_->runs) {
      if (is_done(run)) {
        ++outcome_.done_before;
        continue;
      }
      require_backend(run.config);
      jobs_.push_back({&run, estimate.of(run.config)});
    }
    if (outcome_.done_before > 0)
      progress_.message(
          fmt::format("sweep: {} of {} runs are already complete", outcome_.done_before, plan_->runs.size()));
    while (true) {
      while (running_.size() < parallel_ && next_ < jobs_.size() && !interrupted()) start_next();
      if (running_.empty()) break;
      reap();
      if (progress_.due()) show();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    outcome_.interrupted = interrupted();
    return outcome_;
  }

 private:
  /// Before the first run starts: throws where a device is asked for that is not here, and says what "auto" takes.
  void require_backend(const RunConfig& config) {
    const BackendConfig& backend = config.backend;
    if (backend.device == "emulated" ||
        std::find(known_backends_.begin(), known_backends_.end(), backend) != known_backends_.end())
      return;
    known_backends_.push_back(backend);
    const ChosenBackend chosen = choose_backend(config, 1);
    if (backend.device == "auto") progress_.message(choice_text(chosen.record));
  }

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
    const std::filesystem::path config = plan_->folder / "plan" / (job.run->name + ".toml");
    std::filesystem::create_directories(config.parent_path());
    write_file_atomically(config, to_toml(job.run->config));
    const int threads = std::max(1, common_->threads / static_cast<int>(parallel_));
    const std::vector<std::string> arguments{"train",
                                             "--config",
                                             config.string(),
                                             "--out",
                                             job.run->folder.string(),
                                             "--threads",
                                             std::to_string(threads),
                                             "--quiet",
                                             can_continue(*job.run) ? "--resume" : "--force"};
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
    const bool diverged = status == static_cast<int>(ExitCode::diverged);
    if (status == 0 || diverged) {
      pace_.add(run.config, running.job->length.multiply_adds, seconds);
      progress_.message(fmt::format("sweep: {} {} after {}", run.name, diverged ? "diverged" : "finished",
                                    duration_text(seconds)));
    } else if (!interrupted()) {
      outcome_.failed.push_back(run.name);
      fmt::print(stderr, "sweep: {} failed ({} {}); the other runs go on\n", run.name,
                 status > 128 ? "killed by signal" : "exit code", status > 128 ? status - 128 : status);
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
  std::size_t parallel_;  ///< jobs at a time
  Progress progress_;
  std::filesystem::path program_;
  std::vector<Job> jobs_;
  std::vector<BackendConfig> known_backends_;  ///< asked for and found, each once
  std::size_t next_ = 0;                       ///< the first job that was not started
  std::vector<RunningJob> running_;
  Pace pace_;
  SweepOutcome outcome_;
};

}  // namespace

bool is_done(const PlannedRun& run) {
  const std::optional<Manifest> manifest = manifest_of(run);
  return manifest && is_complete(manifest->state);
}

SweepOutcome execute_sweep(const SweepPlan& plan, const CommonOptions& common, int jobs) {
  catch_interrupts();
  const SweepFolder folder(plan.folder);
  return SweepRunner(plan, common, jobs).run();
}

}  // namespace fp16lab::experiments
