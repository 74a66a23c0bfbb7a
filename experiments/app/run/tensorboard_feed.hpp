// TensorboardFeed: a run's records as an event file (train --tensorboard DIR).
#pragma once

#include <cstdint>
#include <filesystem>

#include "engine/train/observer.hpp"
#include "numerics/files/run/tensorboard_events.hpp"

namespace fp16lab::experiments {

/// Scalars of every step and, as "evaluation/NAME", of every evaluation: what run_rows.hpp calls a curve. Of
/// an observed step a histogram "exponents/TENSOR" of every gradient, before rounding and with the loss scale
/// in it; "activations/TENSOR", "weights/TENSOR" and so on of other tensors; of updates also a scalar
/// "unmoved/TENSOR".
class TensorboardFeed {
 public:
  TensorboardFeed(const std::filesystem::path& folder, std::uint64_t first_step)
      : writer_(folder, first_step) {}

  void on_tensor(const HistogramRow& row);
  void on_step(const StepRow& row);
  void on_evaluation(const EvaluationRow& row);
  void sync() { writer_.sync(); }

 private:
  TensorboardWriter writer_;
};

}  // namespace fp16lab::experiments
