// RecordedSteps: iterations that the back end replays, our form of the tutorials' static graph (train.graph).
//
// The verbs of an iteration, from its beginning to the scaler's update, are recorded once for each kind of
// step; then the host only copies the batches to where the recording finds them, replays it, and puts its own
// part of the state where a step would have put it. Records, evaluations, checkpoints and dumps are not part
// of a recording: they read what a step leaves behind, and find it as they always do. Same bits as verb by
// verb: they are the same verbs.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/backend/backend.hpp"
#include "engine/train/iteration.hpp"
#include "engine/train/method.hpp"
#include "engine/train/tensor_log.hpp"

namespace fp16lab::engine {

/// What makes one step do other verbs than another.
struct StepKind {
  ObservedSet observed;          ///< what is counted
  bool names_overflows = false;  ///< and what names those that are not finite is kept
};

class RecordedSteps {
 public:
  /// All must outlive it; `log` counts in observed steps.
  RecordedSteps(Backend& backend, TrainingMethod& method, Iteration& parts, TensorLog& log,
                std::vector<Parameter*> parameters)
      : backend_(&backend),
        method_(&method),
        parts_(&parts),
        log_(&log),
        parameters_(std::move(parameters)) {}

  /// Does iteration `number`, which is set up but not begun. False, and nothing done, where it is to be done
  /// verb by verb: before the first of its kind was (note_done), so that memory, tables and choices of
  /// algorithms are there before they are recorded, and where its batches have other shapes than those that
  /// are recorded.
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

  Backend* backend_;
  TrainingMethod* method_;
  Iteration* parts_;
  TensorLog* log_;
  std::vector<Parameter*> parameters_;
  std::map<std::pair<unsigned, bool>, Record> records_;
};

}  // namespace fp16lab::engine
