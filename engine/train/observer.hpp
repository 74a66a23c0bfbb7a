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
#include "numerics/formats/dtype.hpp"

namespace fp16lab::engine {

namespace amp {
class OpStatistics;  // engine/amp/levels/op_statistics.hpp
}

/// One gradient tensor of one step, at the place where it was rounded to its stored dtype (or stored in
/// FP32). With scales of layers (engine/amp/scalers/layer_scaler.hpp) the uses of one tensor in a step, time steps or
/// micro-batches, may carry several scales: their counts are then brought to the largest by moving bins. Zeros stay what
/// rounding made of them, so after.zero - before.zero is what was lost; counts of `before` alone say what would be lost
/// if all uses had the largest scale.
struct GradientRecord {
  std::uint64_t step = 0;
  std::string_view tensor;  ///< "fc1.weight", "fc2.input", "loss.prediction"
  GradientKind kind = GradientKind::weight;
  DType dtype = DType::f32;  ///< it was stored in; e4m3 or e5m2: of a cast inside products
  /// A rounding on the way between the layers' gradients, which policies do not count (GradientObserver::on_rounding).
  bool intermediate = false;
  double loss_scale = 1.0;  ///< what the values still carry: S, times the layer's own scale where it has one
  const CastProbe& probe;   ///< before and after the rounding; summed over the micro-batches of the step
};

/// One optimizer iteration, after its update or skip.
struct StepRecord {
  std::uint64_t step = 0;  ///< 1-based, skipped ones included
  double loss = 0;         ///< unscaled training loss, mean over the micro-batches
  double loss_scale =
      1;  ///< S used in this step (not the next one); of loss 0 with scaler.per_loss; where the
          ///< step was rescued, of its last backward pass
  bool found_inf = false;      ///< of any optimizer's gradients
  bool skipped = false;        ///< an optimizer skipped its update
  bool loss_overflow = false;  ///< a 16-bit loss times S was beyond its dtype (StepState::loss_overflow)
  /// L2 norm of the unscaled gradients before clipping, over all optimizers; non-finite when found_inf.
  double grad_norm = 0;
  double learning_rate = 0;  ///< of the first optimizer
  /// Of all gradients' casts (CastCounts), where this step was observed and had any.
  std::optional<double> underflow_rate;
  std::uint64_t state_hash = 0;  ///< digest of weights, optimizer state and StepState
  double seconds = 0;
  std::uint64_t rescues = 0;  ///< backward passes that were done again (engine/train/rescue.hpp)
};

enum class CulpritPass { forward, backward };

enum class CulpritCause {
  operation,  ///< an operation gave an Inf or NaN, and all of its operands were finite
  infinity,   ///< an operation gave a NaN of operands that held infinities on purpose (a mask)
  parameter,  ///< a weight was not finite when the step began
  data,       ///< the batch holds an Inf or NaN
  constant,   ///< so does a constant of the model or a target
  loss_scale  ///< S, or the loss times S, is beyond the loss's dtype
};

/// A value that went into the operation.
struct CulpritOperand {
  std::string name;  ///< "fc2.weight", "gradient", "relu of fc1"
  DType dtype = DType::f32;
  Shape shape;
  double smallest = 0;  ///< of the magnitudes that are finite and not zero; 0: there are none
  double greatest = 0;
  ExponentHistogram histogram;
};

/// What made the first non-finite value of a pass, and of what. Facts only: analysis/first_culprit.hpp has the advice.
struct OverflowCulprit {
  CulpritPass pass = CulpritPass::forward;
  CulpritCause cause = CulpritCause::operation;
  std::string op;      ///< as op lists name it; in a backward pass: whose gradient was computed
  std::string part;    ///< the operation within it: "cast", "matmul"; empty: itself
  std::string layer;   ///< module path; empty: outside of all modules
  std::string tensor;  ///< "fc2.output"; of gradients as in GradientRecord: "fc2.input"
  DType dtype = DType::f32;
  Shape shape;
  std::uint32_t micro_batch = 0;
  double loss_scale = 1;        ///< of the backward pass, or of the last one before
  std::uint64_t element = 0;    ///< the first that is not finite, row-major
  double value = 0;             ///< there: an infinity or NaN
  std::uint64_t nonfinite = 0;  ///< how many are not finite
  /// Before the rounding to 16 bits, where that is known: the element in FP32, the greatest finite magnitude of the
  /// whole tensor, and its counts.
  std::optional<double> wide_value;
  double wide_greatest = 0;
  std::optional<ExponentHistogram> wide;
  std::vector<CulpritOperand> operands;
  bool reached = false;  ///< the loss (of a forward pass), or the gradient of a parameter
};

/// What overflowed in one iteration.
struct OverflowRecord {
  std::uint64_t step = 0;
  double loss_scale = 1;                        ///< S used in this step
  bool gradients = false;                       ///< StepRecord::found_inf
  bool loss = false;                            ///< StepRecord::loss_overflow
  std::vector<std::string> skipped_optimizers;  ///< names of groups (TrainingMethod::groups)
  std::vector<std::string> parameters;          ///< whose gradients hold an Inf or NaN
  /// Above 0: all of the above but the skipped optimizers is of the step's first backward pass, which was done again so
  /// often.
  std::uint64_t rescue_attempts = 0;
  double rescue_scale = 1;  ///< S of the last one
  bool rescued = false;     ///< which did not overflow: the step was taken
  bool explained = false;                       ///< somebody looked for culprits
  std::vector<OverflowCulprit> culprits = {};   ///< at most one a pass, in the order in which they happened
  /// Where it was tried (Iteration::find_finite_scale): the greatest S 2^-k, k >= 1, at which the step's backward passes
  /// gave finite gradients only; 0: none did, down to 2^-24.
  std::optional<double> finite_scale = {};
};

struct EvaluationRecord {
  std::uint64_t step = 0;
  std::string_view split;  ///< "train" or "test"
  double loss = 0;
  std::optional<double> accuracy;
  std::optional<double> bits_per_character;  ///< of language models: loss / ln 2 * bytes of a character
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
  /// With wants_overflows: and with what made them? Asked before every step. Every value of the step is looked at
  /// then, and the backward passes of one that overflowed are done again (OverflowRecord::finite_scale), for which
  /// graphs are kept: that costs time and memory (train.graph or not, the step is done verb by verb) and changes no bit.
  virtual bool wants_culprits() { return false; }
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
