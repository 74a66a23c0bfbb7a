// Optimizers on FP32 master weights, or on 16-bit weights where there is no master copy; their state is FP32
// either way. All arithmetic happens in back-end verbs that read found_inf themselves.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "engine/amp/scalers/grad_scaler.hpp"
#include "engine/autograd/parameter.hpp"
#include "engine/autograd/tap.hpp"
#include "engine/backend/backend.hpp"
#include "engine/optim/schedule.hpp"
#include "numerics/text/named_enum.hpp"

namespace fp16lab::engine::optim {

/// The fields of OptimizerOptions that an algorithm reads besides learning rate and decay.
namespace reads {
inline constexpr unsigned momentum = 1, dampening = 2, nesterov = 4, betas = 8, averages = 16, epsilon = 32;
}

/// The optimizers, in an order that files hold: ROW(name, rule, others, states, adaptive, epsilon, decay,
/// reads, move), described by OptimizerRow. Keys, help, lists and most tests take a row by themselves.
#define FP16LAB_OPTIMIZERS(ROW)                                                                             \
  ROW(sgd, sgd, sgd, 1, false, 1e-8, "L2 for", reads::momentum | reads::dampening | reads::nesterov,        \
      update_once)                                                                                          \
  ROW(adam, adam, adam, 2, true, 1e-8, "L2 for", reads::betas | reads::epsilon, update_once)                \
  ROW(adamw, adamw, adamw, 2, true, 1e-8, "decoupled for", reads::betas | reads::epsilon, update_once)      \
  ROW(rmsprop, rmsprop, rmsprop, 3, true, 1e-8, "L2 for",                                                   \
      reads::momentum | reads::averages | reads::epsilon, update_once)                                      \
  ROW(lamb, lamb_direction, lamb, 2, true, 1e-8, "a part of the update for", reads::betas | reads::epsilon, \
      follow_direction)                                                                                     \
  /* mindspore/nn/optim/adam.py, AdamWeightDecay */                                                         \
  ROW(adam_weight_decay, adam_weight_decay, adam_weight_decay, 2, true, 1e-6, "a part of the update for",   \
      reads::betas | reads::epsilon, update_once)                                                           \
  ROW(muon, muon_momentum, adamw, 1, true, 1e-8, "decoupled for",                                           \
      reads::momentum | reads::nesterov | reads::betas | reads::epsilon, orthogonalise)

#define FP16LAB_OPTIMIZER_NAME(name, ...) name,
enum class Algorithm : std::uint8_t { FP16LAB_OPTIMIZERS(FP16LAB_OPTIMIZER_NAME) };
#undef FP16LAB_OPTIMIZER_NAME
#define FP16LAB_OPTIMIZER_TEXT(name, ...) std::string_view(#name),
constexpr auto names_of(Algorithm) { return std::array{FP16LAB_OPTIMIZERS(FP16LAB_OPTIMIZER_TEXT)}; }
#undef FP16LAB_OPTIMIZER_TEXT

struct OptimizerOptions {
  Algorithm name = Algorithm::sgd;
  double learning_rate = 0.1;  ///< finite, >= 0
  double momentum = 0.0;       ///< sgd, rmsprop, muon: >= 0
  double dampening = 0.0;      ///< sgd: >= 0; 0 with nesterov
  bool nesterov = false;       ///< sgd, muon: needs momentum > 0
  /// >= 0; L2 for sgd, adam and rmsprop, decoupled for adamw and muon, a part of the update for lamb and
  /// adam_weight_decay
  double weight_decay = 0.0;
  double beta1 = 0.9;  ///< for adam, adamw, lamb and adam_weight_decay: in [0, 1)
  double beta2 = 0.999;
  double alpha = 0.99;  ///< rmsprop: in [0, 1)
  bool centered =
      false;  ///< rmsprop: divides by the deviation of the gradients, not by their root mean square
  std::optional<double> epsilon = {};  ///< for all but sgd: >= 0; nothing: as epsilon_of says
  /// Every gradient is multiplied by float(1 / loss_scale) first: MindSpore's way to divide where the scaler
  /// leaves it to the optimizer (ScalerOptions::drop_overflow_update = false). Weight decay is added
  /// afterwards, to the unscaled gradient (MindSpore adds loss_scale times the decay before: equal but for
  /// rounding). Finite, > 0; 1: no multiplication.
  double loss_scale = 1.0;
  ScheduleOptions schedule = {};
  /// 16-bit weights keep what rounding takes from their updates, as WeightStore::compensation. Others are
  /// updated as usual; std::invalid_argument if all are.
  bool kahan = false;
  /// The updates of 16-bit weights are rounded stochastically (WeightStore::stochastic), by words of
  /// (seed, "<parameter>/rounding", iteration). As kahan: not both, and some weight has 16 bits.
  bool stochastic_rounding = false;
  std::uint64_t seed = 0;
  bool set_to_zero = false;  ///< the result of clear_gradients(): zeros, or nothing (Paddle's clear_grad)
};

class Optimizer;
struct WeightStep;

/// The facts about an algorithm.
struct OptimizerRow {
  UpdateRule rule;    ///< from the table of update rules; it names the states
  Algorithm others;   ///< what moves weights that are no matrices
  int kept_states;    ///< how many of the rule's states persist from step to step
  bool adaptive;      ///< it divides by what the gradients were, so that their scale cancels
  double epsilon;     ///< where none is given
  const char* decay;  ///< what it makes of weight_decay, for help
  unsigned reads;     ///< its options; powers of betas that it reads advance with its steps
  void (*move)(const OptimizerRow& row, const WeightStep& weight);
};

/// One step of one weight, for OptimizerRow::move.
struct WeightStep {
  Backend& backend;
  const UpdateOptions& options;
  Parameter& parameter;
  std::array<Tensor*, most_update_states> states;  ///< null where the rule does not use one
  int optimizer;
  const Tensor& step;
  const WeightStore& store;
};

const OptimizerRow& row_of(Algorithm algorithm);

/// The epsilon that the options give, or their algorithm's.
inline double epsilon_of(const OptimizerOptions& options) {
  return options.epsilon.value_or(row_of(options.name).epsilon);
}

/// float(1 / loss_scale), what the step verbs multiply gradients by: one FP64 division, rounded once.
float gradient_factor(const OptimizerOptions& options);

/// To the tap of an optimizer: a parameter that has a gradient, right before its update and right after it.
/// The host does not know whether the step is skipped, which leaves the update out.
struct WeightUpdate {
  const Parameter& parameter;
  bool done;  ///< after the update
};

/// The state of a gradient after clearing.
enum class ClearTo { none, zero };

using amp::NamedTensor;

/// An optimizer by its row. The order of an iteration:
///   begin_iteration: learning rate of this iteration from the table; optimizer 0 counts iterations (+= 1);
///   apply (through GradScaler::step): taken_steps, skipped_steps and, where the rule reads betas, their
///   powers advance, then OptimizerRow::move for each parameter.
class Optimizer final : public amp::ScaledOptimizer {
 public:
  /// What moves a parameter of this shape.
  const OptimizerRow& row_of(const Shape& shape) const {
    return shape.rank() == 2 ? *row_ : optim::row_of(row_->others);
  }

  /// As make_optimizer.
  Optimizer(Backend& backend, std::vector<Parameter*> parameters, const OptimizerOptions& options,
            std::uint64_t steps, int index);

  int index() const override { return index_; }
  std::string_view name() const override { return name_of(options_.name); }
  std::span<Parameter* const> parameters() const override { return parameters_; }
  void apply(Tensor& step) override;
  /// The observer of WeightUpdate. Not owned; may be null.
  void set_tap(Tap* tap) { tap_ = tap; }

  void begin_iteration(Tensor& step);
  /// none: the next backward stores, and parameters that it does not reach are left alone. zero: gradients
  /// are kept as zeros, so that momentum, moments and weight decay also move parameters that the next
  /// backward does not reach, forward passes leave their memory alone, and a gradient of -0 becomes +0.
  void clear_gradients(ClearTo to);
  /// As OptimizerOptions::set_to_zero says.
  void clear_gradients() { clear_gradients(options_.set_to_zero ? ClearTo::zero : ClearTo::none); }
  /// Those of the parameters that a backward has reached, in parameter order; valid until the next call.
  std::span<Tensor> gradients();
  /// State tensors in parameter order; then "<parameter>.compensation" with kahan, in its parameter's dtype.
  const std::vector<NamedTensor>& state() const { return state_; }
  const OptimizerOptions& options() const { return options_; }

 private:
  /// Adds a state tensor of zeros in the shape of `parameter`; returns its position in state().
  std::size_t add_state(const Parameter& parameter, std::string_view suffix, DType dtype = DType::f32);
  /// The additional state of 16-bit weights.
  void prepare_stores();

  Backend* backend_;
  std::vector<Parameter*> parameters_;
  OptimizerOptions options_;
  const OptimizerRow* row_;
  UpdateOptions update_;  ///< the options in FP32
  int index_;
  Tap* tap_ = nullptr;
  std::vector<NamedTensor> state_;
  std::vector<std::array<std::ptrdiff_t, most_update_states>>
      places_;                         ///< where each parameter's states are; -1: none
  std::vector<WeightStore> stores_;    ///< the parameters'; empty: the default for all
  std::vector<Tensor> compensations_;  ///< the parameters', where stores_ point to them
  std::vector<Tensor> gradients_;      ///< kept for its capacity
  Tensor learning_rates_;              ///< f32 table in back-end memory, indexed by taken_steps
};

/// Checks the options (std::invalid_argument naming option, value and range). `steps`: length of the run, for
/// the learning-rate table. `index`: its slot in StepState, one of [0, max_optimizers); 0 counts iterations.
std::unique_ptr<Optimizer> make_optimizer(Backend& backend, std::vector<Parameter*> parameters,
                                          const OptimizerOptions& options, std::uint64_t steps,
                                          int index = 0);

/// Norm of all unscaled gradients into StepState::grad_norm; then, if max_norm > 0, clipping to it. Refuses
/// scaled gradients (amp::ScalerError::Kind::scaled_gradients). A non-finite norm never clips.
void clip_grad_norm(Backend& backend, const amp::GradScaler& scaler, Optimizer& optimizer, double max_norm,
                    Tensor& step);

/// Clamps every element of the unscaled gradients to [-max_value, max_value], max_value rounded to FP32; 0:
/// off. A NaN stays. Refuses scaled gradients as clip_grad_norm does; std::invalid_argument unless max_value
/// is finite, >= 0 and, where above 0, above 0 in FP32 too.
void clip_grad_value(Backend& backend, const amp::GradScaler& scaler, Optimizer& optimizer, double max_value);

}  // namespace fp16lab::engine::optim
