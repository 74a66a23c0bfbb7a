// What a training run tells the outside: the engine's only outgoing interface.
//
// The engine never includes analysis/ or files of a run folder; whoever watches (experiments/) implements
// this.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "engine/autograd/gradient_observer.hpp"  // GradientKind
#include "engine/backend/backend.hpp"
#include "numerics/dtype.hpp"

namespace fp16lab::engine {

/// One gradient tensor of one step, at the place where it was rounded to its stored dtype (or stored in
/// FP32).
struct GradientRecord {
  std::uint64_t step = 0;
  std::string_view tensor;  ///< "fc1.weight", "fc2.input", "loss.prediction"
  GradientKind kind = GradientKind::weight;
  DType dtype = DType::f32;  ///< dtype it was stored in
  double loss_scale = 1.0;   ///< S that the values still carry
  const CastProbe& probe;    ///< before and after the rounding; summed over the micro-batches of the step
};

/// One optimizer iteration, after its update or skip.
struct StepRecord {
  std::uint64_t step = 0;  ///< 1-based, skipped ones included
  double loss = 0;         ///< unscaled training loss, mean over the micro-batches
  double loss_scale = 1;   ///< S used in this step (not the next one)
  bool found_inf = false;
  bool skipped = false;
  double grad_norm = 0;  ///< L2 norm of the unscaled gradients before clipping; non-finite when found_inf
  double learning_rate = 0;
  std::optional<double> underflow_rate;  ///< of all observed gradients, where this step was observed
  std::uint64_t state_hash = 0;          ///< digest of weights, optimizer state and StepState
  double seconds = 0;
};

struct EvaluationRecord {
  std::uint64_t step = 0;
  std::string_view split;  ///< "train" or "test"
  double loss = 0;
  std::optional<double> accuracy;
  std::optional<double> bits_per_character;  ///< of language models: loss / ln 2
};

struct TrainingState;  // engine/train/checkpoint.hpp

/// Where a run stands after an iteration.
enum class RunMoment {
  going_on,
  stopped,   ///< a stop was requested: the run ends here, before its last step
  finished,  ///< this was the last step; the evaluation at the end is still to come
};

class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  /// Should gradients of this step be counted? Counting costs time; it never changes bits.
  virtual bool wants_gradients(std::uint64_t step) = 0;
  virtual void on_gradient(const GradientRecord& record) = 0;
  virtual void on_step(const StepRecord& record) = 0;
  virtual void on_evaluation(const EvaluationRecord& record) = 0;
  /// Asked after every step: true ends the run early (Ctrl-C).
  virtual bool stop_requested() = 0;
  /// Asked after every step that did not end the run as diverged, before the evaluation that is due at it: should
  /// the state be saved now?
  virtual bool wants_checkpoint(std::uint64_t /*step*/, RunMoment /*moment*/) { return false; }
  /// Called where the answer was yes; the observer knows where checkpoints go (save_checkpoint).
  virtual void on_checkpoint(const TrainingState& /*state*/) {}
};

}  // namespace fp16lab::engine
