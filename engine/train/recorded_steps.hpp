// RecordedSteps: iterations that the back end replays, our form of the tutorials' static graph (train.graph).
//
// The verbs of an iteration, from its beginning to the scaler's update, are recorded once for each kind of
// step; then the host only copies the batches to where the recording finds them, replays it, and puts its own
// part of the state where a step would have put it. Records, evaluations, checkpoints and dumps are not part
// of a recording: they read a step's results, and find them as they always do. Same bits as verb by verb:
// they are the same verbs.
//
// A Trainer does this by itself. Without one, a step is a program that is fed, run and read: Supervised
//   method;
//   Iteration parts(backend, workload, method, plan);  // plan.train.graph
//   RecordedSteps program(backend, method, parts);
//   program.feed("inputs", images);
//   program.feed("targets", labels);
//   program.run();
//   const Tensor loss = program.fetch("loss");
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/backend/backend.hpp"
#include "engine/train/iteration.hpp"
#include "engine/train/method.hpp"
#include "engine/train/tensor_log.hpp"

namespace fp16lab::engine {

/// What makes one step do other verbs than another.
struct StepKind {
  ObservedSet observed;          ///< what it counts
  bool names_overflows = false;  ///< and it keeps what names those that are not finite
};

class RecordedSteps {
 public:
  /// All must outlive it; `log` counts in observed steps, and may be null where there are none.
  /// std::invalid_argument as check_graph, and where the plan of `parts` has train.graph = false.
  RecordedSteps(Backend& backend, TrainingMethod& method, Iteration& parts, TensorLog* log = nullptr);

  // ---- a step as a program ----
  /// What the runs to come train on, until it is fed again: "inputs" or "targets", of which "inputs" and
  /// "targets" of a data::Batch say shape and dtype; "inputs.0", "targets.1" and so on of micro-batches
  /// (train.accumulate above 1). The memory is shared, not copied: it must be as it was fed until the run.
  /// std::invalid_argument for another name, and for another shape or dtype than was fed first.
  void feed(std::string_view name, const Tensor& value);
  /// Does one iteration: the first verb by verb, the second is recorded, and all from there on are replayed.
  /// std::logic_error naming what was not fed.
  void run();
  /// After a run: "loss" (f32, one element, the mean over micro-batches), "loss_scale" (likewise; S as the
  /// policy has set it for the next run), a parameter's name (its value, or master weight: the memory itself,
  /// which the next run writes), or that and ".gradient" (as the optimizer took it; likewise).
  /// std::invalid_argument for another name, with all names that there are.
  Tensor fetch(std::string_view name);

  // ---- for the trainer ----
  /// Runs iteration `number`, which is set up but not begun. Returns false, and does nothing, where it is to
  /// be done verb by verb: before the first of its kind was (note_done), so that memory, tables and choices
  /// of algorithms are there before they are recorded, and where its batches have other shapes than those
  /// that are recorded.
  bool replay(std::uint64_t number, StepKind kind);
  /// A step of this kind was done verb by verb.
  void note_done(StepKind kind) { record_of(kind).warm = true; }

 private:
  /// What a parameter has after the recorded step. The gradient's memory is the recording's.
  struct LeftGradient {
    Tensor gradient;
    bool has_gradient = false;
  };
  struct Record {
    bool warm = false;
    std::unique_ptr<Recording> verbs;
    std::vector<LeftGradient> gradients;  ///< by parameter
    std::vector<Iteration::CountedGradients> counted;
    /// The probe of observed steps, as the recording left it: its counts are pending, and a replay zeroes
    /// them when it begins to count.
    std::optional<TensorLog> log;
  };
  Record& record_of(StepKind kind) { return records_[{kind.observed.number(), kind.names_overflows}]; }
  void record(std::uint64_t number, StepKind kind, Record& record);
  /// One iteration, whose batches are loaded, verb by verb.
  void do_verbs(std::uint64_t number, StepKind kind);
  /// Replays an iteration whose batches are loaded.
  bool replay_loaded(std::uint64_t number, StepKind kind);

  Backend* backend_;
  TrainingMethod* method_;
  Iteration* parts_;
  TensorLog* log_;
  std::vector<Parameter*> parameters_;
  std::map<std::pair<unsigned, bool>, Record> records_;
  std::vector<data::Batch> fed_;        ///< by micro-batch
  std::optional<std::uint64_t> begun_;  ///< by run()
};

}  // namespace fp16lab::engine
