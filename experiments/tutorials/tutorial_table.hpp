// The table of exp_tutorials: our runs beside what the tutorials printed. One run a variant, so nothing here
// says how well one trains: losses, bits and what FP32's own seeds do are facts of these runs.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/tutorials/tutorial_run.hpp"

namespace fp16lab::experiments {

/// What a tutorial printed for one of its systems: on its own machine, at its own size and with its own
/// random numbers. Beside ours for orientation, never a target.
struct TheirResult {
  std::string_view system, variant;
  double loss = 0;                     ///< of the last batch, before its step
  std::optional<double> seconds = {};  ///< of the whole training
};
/// Null where the tutorial has no such run.
const TheirResult* their_result(std::string_view system, std::string_view variant);

class TutorialTable {
 public:
  void add(TutorialRun run) { runs_.push_back(std::move(run)); }
  /// An FP32 run again with another seed, to tell how far apart equally good runs end.
  void add_repetition(TutorialRun run) { repetitions_.push_back(std::move(run)); }
  std::span<const TutorialRun> runs() const { return runs_; }
  /// Null where there is no such run.
  const TutorialRun* find(std::string_view system, std::string_view variant) const;
  /// The FP32 run that `run` is compared with: of the same system, optimizer and accumulation. Null where
  /// there is none; `run` itself where it is one.
  const TutorialRun* reference_of(const TutorialRun& run) const;

  /// Final loss over the reference's; nothing without both.
  std::optional<double> ratio_of(const TutorialRun& run) const;
  /// How much of the reference's decrease of the loss the run made; nothing without both.
  std::optional<double> progress_of(const TutorialRun& run) const;
  /// Largest minus smallest final loss of the reference and its repetitions, over the reference's; nothing
  /// without repetitions.
  std::optional<double> span_of(const TutorialRun& run) const;

  std::string text() const;
  std::string csv() const;

 private:
  std::vector<TutorialRun> runs_, repetitions_;
};

}  // namespace fp16lab::experiments
