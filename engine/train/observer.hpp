// What a training run tells the outside: the engine's only outgoing interface.
//
// The engine never includes analysis/ or files of a run folder; whoever watches (experiments/) implements
// this.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/autograd/gradient_observer.hpp"  // GradientKind
#include "engine/backend/backend.hpp"
#include "numerics/dtype.hpp"

namespace fp16lab::engine {

namespace amp {
class OpStatistics;  // engine/amp/op_statistics.hpp
}

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
  std::uint64_t step = 0;      ///< 1-based, skipped ones included
  double loss = 0;             ///< unscaled training loss, mean over the micro-batches
  double loss_scale = 1;       ///< S used in this step (not the next one); of loss 0 with scaler.per_loss
  bool found_inf = false;      ///< of any optimizer's gradients
  bool skipped = false;        ///< an optimizer skipped its update
  bool loss_overflow = false;  ///< a 16-bit loss times S was beyond its dtype (StepState::loss_overflow)
  /// L2 norm of the unscaled gradients before clipping, over all optimizers; non-finite when found_inf.
  double grad_norm = 0;
  double learning_rate = 0;              ///< of the first optimizer
  std::optional<double> underflow_rate;  ///< of all observed gradients, where this step was observed
  std::uint64_t state_hash = 0;          ///< digest of weights, optimizer state and StepState
  double seconds = 0;
};

/// What overflowed in one iteration.
struct OverflowRecord {
  std::uint64_t step = 0;
  double loss_scale = 1;                        ///< S used in this step
  bool gradients = false;                       ///< StepRecord::found_inf
  bool loss = false;                            ///< StepRecord::loss_overflow
  std::vector<std::string> skipped_optimizers;  ///< names of groups (TrainingMethod::groups)
  std::vector<std::string> parameters;          ///< whose gradients hold an Inf or NaN
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
  /// Should overflows be told with the names of what overflowed? Finding them costs time, in steps with one only.
  virtual bool wants_overflows() { return false; }
  /// Before on_step, for a step in which gradients or the loss overflowed.
  virtual void on_overflow(const OverflowRecord& /*record*/) {}
  /// Should the ops of this step's forward passes be counted? Asked before the step; it never changes bits.
  virtual bool wants_op_statistics(std::uint64_t /*step*/) { return false; }
  /// Before on_step, where the answer was yes.
  virtual void on_op_statistics(std::uint64_t /*step*/, const amp::OpStatistics& /*statistics*/) {}
  /// Asked after every step: true ends the run early (Ctrl-C).
  virtual bool stop_requested() = 0;
  /// Asked after every step that did not end the run as diverged, before the evaluation that is due at it: should
  /// the state be saved now?
  virtual bool wants_checkpoint(std::uint64_t /*step*/, RunMoment /*moment*/) { return false; }
  /// Called where the answer was yes; the observer knows where checkpoints go (save_checkpoint).
  virtual void on_checkpoint(const TrainingState& /*state*/) {}
};

}  // namespace fp16lab::engine
