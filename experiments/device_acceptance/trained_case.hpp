// One of the tutorials' networks on the device, ready to do steps: for times and for memory.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/train/trainer.hpp"
#include "experiments/app/run/prepared_run.hpp"
#include "experiments/device_acceptance/section.hpp"

namespace fp16lab::experiments::acceptance {

/// "paddle_linear9" or "paddle_mlp3" as experiments/configs/ has it, at the tutorials' full size (tiny in a
/// rehearsal).
RunConfig tutorial_config(const Settings& settings, const std::string& system,
                          const std::vector<std::string>& set);

class TrainedCase {
 public:
  /// `histograms`: every gradient of every step is counted.
  TrainedCase(const RunConfig& config, std::unique_ptr<engine::Backend> backend, bool histograms = false);
  ~TrainedCase();
  TrainedCase(const TrainedCase&) = delete;
  TrainedCase& operator=(const TrainedCase&) = delete;

  engine::Backend& backend() { return *run_->backend; }
  engine::Trainer& trainer() { return *trainer_; }
  void step() { trainer_->train_step(); }

 private:
  class Watcher;
  std::unique_ptr<PreparedRun> run_;
  std::unique_ptr<Watcher> watcher_;
  std::unique_ptr<engine::Trainer> trainer_;
};

}  // namespace fp16lab::experiments::acceptance
