// RunRecorder: the observer that turns a training run into a run folder.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>

#include "engine/train/observer.hpp"
#include "experiments/progress.hpp"
#include "numerics/files/run_folder.hpp"

namespace fp16lab::experiments {

/// The right to write one run folder, held for the time of the run: a lock on the folder itself, so that two
/// processes cannot write into it at once. It vanishes with the process, however that ends.
class FolderClaim {
 public:
  /// Makes the folder if it is missing. CommandError(usage) if it holds a complete run (finished or diverged)
  /// and not `force`, if it holds other things than a run, or if another process is writing it;
  /// CommandError(run_failed) if it cannot be made or written.
  FolderClaim(const std::filesystem::path& folder, bool force);
  /// Removes the earlier run, if there is one.
  void clear();
  ~FolderClaim();
  FolderClaim(const FolderClaim&) = delete;
  FolderClaim& operator=(const FolderClaim&) = delete;

 private:
  void lock();

  std::filesystem::path folder_;
  int descriptor_ = -1;
};

/// Is the run done for good, so that repeating it would give the same?
bool is_complete(ExitState state);

struct RecorderOptions {
  std::uint64_t total_steps = 0;
  std::uint64_t histograms_every = 0;  ///< 0: none; else steps 1, every, 2 every, ... and the last one
  std::string title;                   ///< begins the progress line
  bool quiet = false;
};

class RunRecorder final : public engine::TrainObserver {
 public:
  RunRecorder(RunWriter& writer, const RecorderOptions& options);

  bool wants_gradients(std::uint64_t step) override;
  void on_gradient(const engine::GradientRecord& record) override;
  void on_step(const engine::StepRecord& record) override;
  void on_evaluation(const engine::EvaluationRecord& record) override;
  bool stop_requested() override;

 private:
  RunWriter* writer_;
  RecorderOptions options_;
  Progress progress_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace fp16lab::experiments
