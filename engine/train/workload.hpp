// What a training run trains, on what, for how long, and how.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "engine/amp/levels/level.hpp"
#include "engine/amp/policy.hpp"
#include "engine/data/batch_source.hpp"
#include "engine/nn/module.hpp"
#include "engine/optim/optimizer.hpp"
#include "engine/train/method.hpp"
#include "engine/train/sharding.hpp"

namespace fp16lab::engine {

struct Workload {
  std::unique_ptr<nn::Module> model;
  data::BatchSource* training = nullptr;    ///< not owned
  data::BatchSource* evaluation = nullptr;  ///< not owned; may be null
  nn::LossOptions loss = {};
  std::unique_ptr<TrainingMethod> method = {};  ///< null: Supervised
  bool accuracy = false;  ///< count argmax == target in evaluations (cross_entropy only)
  /// Symbols of a character of what is evaluated, where it is text: evaluations then report bits per
  /// character, loss / ln 2 times this (cross_entropy only). 0: no text.
  double symbols_per_character = 0;
};

enum class AccumulateMode {
  mean,  ///< the loss of every micro-batch is divided by their number
  sum,   ///< it is not: gradients grow with the number of micro-batches
};

struct TrainOptions {
  std::uint64_t steps = 0;      ///< optimizer iterations, skipped ones included
  std::int64_t accumulate = 1;  ///< micro-batches per iteration, >= 1
  AccumulateMode accumulate_mode = AccumulateMode::mean;
  double clip_norm = 0;              ///< 0: off
  double clip_value = 0;             ///< largest magnitude of a gradient element, after clip_norm; 0: off
  std::uint64_t seed = 0;            ///< for dropout's masks
  std::uint64_t evaluate_every = 0;  ///< 0: only at the end
  std::uint64_t skip_limit = 0;      ///< consecutive skips that end the run; 0: none
  bool graph = false;  ///< steps are recorded once and replayed (engine/train/recorded_steps.hpp)
};

/// Checks the options as far as possible without a run: std::invalid_argument "train.KEY = VALUE: ..." for
/// one that is out of range, that asks to clip gradients that the scaler leaves scaled, or to record steps
/// with scales of layers.
void check(const TrainOptions& options, const amp::ScalerOptions& scaler);

/// How a run trains: options that were checked and resolved, once. Everything that trains reads it.
struct TrainingPlan {
  TrainOptions train;
  amp::AmpPlan amp;
  amp::ScalerOptions scaler;
  amp::ScalePolicy policy;  ///< that `scaler` names, also where it is not enabled
  optim::OptimizerOptions optimizer;
  ParallelOptions parallel = {};
  /// For groups of the method (OptimizerGroup::name) that have options of their own.
  std::map<std::string, optim::OptimizerOptions, std::less<>> own_optimizers = {};

  /// The options of a group's optimizer: its own or `optimizer`, with what all optimizers of a run share as
  /// `optimizer` has it: the schedule, the loss scale that is left to them, and how 16-bit weights are
  /// rounded.
  optim::OptimizerOptions optimizer_of(std::string_view group) const;
};

/// std::invalid_argument as amp::resolve, amp::make_scale_policy, check and amp::scales_layers, and for
/// optimizer.kahan where weights are FP32 or rounded stochastically; and for several shards with options that
/// exclude them: scales of layers, recorded steps, gradients that are cleared to zeros. `optimizer`'s
/// stochastic_rounding and seed are those of `amp` and `train`.
TrainingPlan plan_training(const TrainOptions& train, const amp::AmpOptions& amp,
                           const amp::ScalerOptions& scaler, const optim::OptimizerOptions& optimizer,
                           const ParallelOptions& parallel = {},
                           std::map<std::string, optim::OptimizerOptions, std::less<>> own_optimizers = {});

/// What the patterns of amp::AmpOptions can name where this model is trained.
amp::NetworkNames network_names(const nn::Module& model);

/// std::invalid_argument "train.graph = true: ..." where steps are to be recorded, and the back end cannot,
/// or the method's must not be.
void check_graph(const TrainOptions& options, const Backend& backend, const TrainingMethod& method);
/// The part of it that needs no back end.
void check_graph(const TrainOptions& options, const TrainingMethod& method);

/// std::invalid_argument "scaler.per_loss = true: ..." where a scale for each of the method's `losses` is
/// requested but impossible.
void check_per_loss(const amp::ScalerOptions& scaler, int losses);

}  // namespace fp16lab::engine
