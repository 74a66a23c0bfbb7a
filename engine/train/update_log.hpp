// UpdateLog: counts the weights that a step begins with, what the optimizer makes of them, and its state.
#pragma once

#include "engine/backend/backend.hpp"
#include "engine/optim/optimizer.hpp"
#include "engine/train/tensor_log.hpp"

namespace fp16lab::engine {

/// For one Optimizer::apply. All that it does are verbs of the back end, so that a recording replays them.
class UpdateLog final : public optim::UpdateObserver {
 public:
  UpdateLog(Backend& backend, TensorLog& log, const optim::Optimizer& optimizer)
      : backend_(&backend), log_(&log), optimizer_(&optimizer) {}

  /// Weights that no forward pass of the iteration has cast, as they are stored.
  void count_weights();
  void before_update(const Parameter& parameter) override;
  void after_update(const Parameter& parameter) override;
  /// Behind the updates.
  void count_state();

 private:
  Backend* backend_;
  TensorLog* log_;
  const optim::Optimizer* optimizer_;
  Tensor old_;  ///< f32: the weight before the update; undefined: nobody asks for this one
};

}  // namespace fp16lab::engine
