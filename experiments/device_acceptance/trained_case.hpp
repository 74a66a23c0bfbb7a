// One of the tutorials' networks on the device, ready to do steps: for times and for memory.
#pragma once

#include <cstddef>
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
  /// `histograms`: every gradient of every step is counted. `activations`: they are measured (and steps
  /// cannot be recorded; supervised training with one micro-batch only).
  TrainedCase(const RunConfig& config, std::unique_ptr<engine::Backend> backend, bool histograms = false,
              bool activations = false);
  ~TrainedCase();
  TrainedCase(const TrainedCase&) = delete;
  TrainedCase& operator=(const TrainedCase&) = delete;

  engine::Backend& backend() { return *run_->backend; }
  engine::Trainer& trainer() { return *trainer_; }
  /// 0, or of the last step: bytes of the network's input as its first layer reads it (of the batch itself,
  /// where nothing is cast), and of all that the forward pass leaves alive for the backward pass. Transient
  /// casts and scratch are given back before, and the loss comes afterwards. Under O1 also the 16-bit copies
  /// of the weights, which that level casts in every step.
  std::size_t activation_bytes() const { return activation_bytes_; }
  void step() { trainer_->train_step(); }

 private:
  class Watcher;
  std::size_t activation_bytes_ = 0;
  std::unique_ptr<PreparedRun> run_;
  std::unique_ptr<Watcher> watcher_;
  std::unique_ptr<engine::Trainer> trainer_;
};

}  // namespace fp16lab::experiments::acceptance
