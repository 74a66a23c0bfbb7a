// Data-parallel ranks on one machine: the same weights, a micro-batch each.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/amp/levels/autocast.hpp"
#include "engine/autograd/tape.hpp"
#include "engine/optim/optimizer.hpp"
#include "experiments/app/run/prepared_run.hpp"

namespace fp16lab::experiments::allreduce {

/// The gradients that each rank has before anything is exchanged. As long as all ranks apply the same mean
/// they hold the same weights, so one model represents all of them.
class RankGradients {
 public:
  /// `run` must outlive it. CommandError(usage) for an AMP level other than O0 and O1: what travels here are
  /// FP32 gradients of FP32 parameters (at O1 they hold FP16 numbers, times S).
  RankGradients(PreparedRun& run, std::uint64_t steps);

  std::size_t elements() const { return elements_; }
  engine::Backend& backend() const { return *run_->backend; }
  /// The weights, in parameter order.
  std::vector<float> weights();

  /// For every rank the gradient of the loss of its micro-batch at the present weights, times `scale`, in
  /// parameter order. Rank r of iteration i takes micro-batch i * ranks + r.
  std::vector<std::vector<float>> scaled(std::uint64_t iteration, int ranks, double scale);
  /// The same for a rank whose inputs were `factor` times as large: a batch of outliers.
  std::vector<float> scaled_outlier(std::uint64_t micro_batch, double scale, float factor);
  /// One step of the configured optimizer by an unscaled mean.
  void step(const std::vector<float>& mean);

 private:
  std::vector<float> one(std::uint64_t micro_batch, double scale, float input_factor);

  PreparedRun* run_;
  engine::Tape tape_;
  engine::amp::Autocast autocast_;
  std::vector<engine::Parameter*> parameters_;
  engine::Tensor step_;
  std::unique_ptr<engine::optim::Optimizer> optimizer_;
  std::size_t elements_ = 0;
};

/// Is every element of every rank finite?
bool all_finite(const std::vector<std::vector<float>>& ranks);

}  // namespace fp16lab::experiments::allreduce
