#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <map>
#include <system_error>
#include <thread>

#include "experiments/child_process.hpp"
#include "experiments/interrupt.hpp"
#include "experiments/progress.hpp"
#include "experiments/run_recorder.hpp"
#include "experiments/sweep.hpp"
#include "experiments/workloads.hpp"
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

/// Multiply-adds of forward and backward passes, the measure of a run's length. Steps are counted as the
/// trainer will.
struct RunLength {
  std::uint64_t steps = 0;
  double work = 0;
};

class LengthEstimate {
 public:
  RunLength of(const RunConfig& config) {
    const std::int64_t images = config.data.subset > 0 ? config.data.subset : image_count(config);
    const std::int64_t micro_batches = images / config.train.batch_size * config.train.epochs;
    RunLength length;
    length.steps = static_cast<std::uint64_t>(
        config.train.steps > 0 ? config.train.steps : micro_batches / config.train.accumulate);
    double weights = 0;
    for (std::size_t i = 0; i + 1 < config.model.widths.size(); ++i)
      weights +=
          static_cast<double>(config.model.widths[i]) * static_cast<double>(config.model.widths[i + 1]);
    length.work = 3.0 * weights * static_cast<double>(config.train.batch_size * config.train.accumulate) *
                  static_cast<double>(length.steps);
    return length;
  }

 private:
  /// Loading also finds unreadable data before the first run starts.
  std::int64_t image_count(const RunConfig& config) {
    const auto key = std::pair(config.data.name, config.data.path);
    const auto found = counts_.find(key);
    if (found != counts_.end()) return found->second;
    const engine::data::DatasetLocation location =
        engine::data::find_dataset(config.data.name, config.data.path);
    const std::int64_t count =
        engine::data::load_dataset(config.data.name, location, engine::data::Split::train).count;
    counts_.emplace(key, count);
    return count;
  }

  std::map<std::pair<std::string, std::string>, std::int64_t> counts_;
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

struct Job {
  const PlannedRun* run;
  RunLength length;
};

class SweepRunner {
 public:
  SweepRunner(const SweepPlan& plan, const CommonOptions& common)
      : plan_(&plan), common_(&common), progress_(common.quiet), program_(fp16lab_program()) {}

  SweepOutcome run() {
    LengthEstimate estimate;
    for (const PlannedRun& run : plan_->runs) {
      if (is_done(run)) {
        ++outcome_.done_before;
        continue;
      }
      if (run.config.backend.device == "cuda") make_backend(run.config, 1);  // throws where it is not here
      jobs_.push_back({&run, estimate.of(run.config)});
    }
    if (outcome_.done_before > 0)
      progress_.message(
          fmt::format("sweep: {} of {} runs are already complete", outcome_.done_before, plan_->runs.size()));
    for (next_ = 0; next_ < jobs_.size() && !interrupted(); ++next_) run_one(jobs_[next_]);
    outcome_.interrupted = interrupted();
    return outcome_;
  }

 private:
  void run_one(const Job& job) {
    const std::filesystem::path config = plan_->folder / "plan" / (job.run->name + ".toml");
    std::filesystem::create_directories(config.parent_path());
    write_file_atomically(config, to_toml(job.run->config));

    const Clock::time_point start = Clock::now();
    ChildProcess child(program_, {"train", "--config", config.string(), "--out", job.run->folder.string(),
                                  "--threads", std::to_string(common_->threads), "--quiet", "--force"});
    std::optional<int> status;
    while (!(status = child.poll())) {
      if (interrupted()) child.stop();
      if (progress_.due()) show(job, start);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    ++outcome_.run_now;
    const bool diverged = *status == static_cast<int>(ExitCode::diverged);
    if (*status == 0 || diverged) {
      pace_.add(job.run->config, job.length.work, seconds);
      progress_.message(fmt::format("sweep: {} {} after {}", job.run->name,
                                    diverged ? "diverged" : "finished", duration_text(seconds)));
    } else if (!interrupted()) {
      outcome_.failed.push_back(job.run->name);
      fmt::print(stderr, "sweep: {} failed ({} {}); the other runs go on\n", job.run->name,
                 *status > 128 ? "killed by signal" : "exit code", *status > 128 ? *status - 128 : *status);
    }
  }

  void show(const Job& job, Clock::time_point start) {
    const double elapsed = std::chrono::duration<double>(Clock::now() - start).count();
    const std::uint64_t step = std::min(last_step(job.run->folder), job.length.steps);
    const double done = static_cast<double>(step) / static_cast<double>(job.length.steps);
    Pace pace = pace_;
    if (step > 0) pace.add(job.run->config, job.length.work * done, elapsed);
    double left = pace.seconds_for(job.run->config, job.length.work * (1 - done));
    for (std::size_t i = next_ + 1; i < jobs_.size(); ++i)
      left += pace.seconds_for(jobs_[i].run->config, jobs_[i].length.work);
    progress_.show(fmt::format("sweep: {}/{} runs done, {} step {}/{}, {:.3g} steps/s, {} left",
                               outcome_.done_before + next_, plan_->runs.size(), job.run->name, step,
                               job.length.steps, static_cast<double>(step) / elapsed,
                               step > 0 || left > 0 ? duration_text(left) : "? s"));
  }

  const SweepPlan* plan_;
  const CommonOptions* common_;
  Progress progress_;
  std::filesystem::path program_;
  std::vector<Job> jobs_;
  std::size_t next_ = 0;
  Pace pace_;
  SweepOutcome outcome_;
};

}  // namespace

bool is_done(const PlannedRun& run) {
  if (!is_run_folder(run.folder)) return false;
  try {
    const Manifest manifest = read_manifest(run.folder);
    return is_complete(manifest.state) && manifest.config == to_toml(run.config);
  } catch (const std::runtime_error&) {
    return false;  // damaged: it is run again
  }
}

SweepOutcome execute_sweep(const SweepPlan& plan, const CommonOptions& common) {
  catch_interrupts();
  const SweepFolder folder(plan.folder);
  return SweepRunner(plan, common).run();
}

}  // namespace fp16lab::experiments
