// The tutorials' systems: our runs beside what the tutorials printed, and what must hold of them whatever the
// machine, fixed before anything is measured. One run a variant, so nothing here says how well one trains:
// losses, bits and what FP32's own seeds do are facts of these runs.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/questions/tutorials/tutorial_run.hpp"
#include "experiments/study/study.hpp"

namespace fp16lab::experiments {

/// What a tutorial printed for one of its systems: on its own machine, at its own size and with its own
/// random numbers. Beside ours for orientation, never a target.
struct TheirResult {
  std::string_view system, variant, title;
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

/// Largest relative difference of a final loss from FP32's that the tutorials' system may have in its one
/// run, and the share of the stored FP16 weights that SGD at 1e-4 must leave as they are for "does not move".
inline constexpr double as_fp32 = 1e-3;
inline constexpr double frozen_share = 0.95;
/// The ten losses that MindSpore's tutorial prints, of the last batch of each epoch, and how far from one
/// FP32 sums in another order may lie: MindSpore 2.10 on a CPU, given the same draws, is 2.9e-6 away.
inline constexpr double mindspore_losses[] = {2.3018966, 2.2965345, 2.3021417, 2.2995133, 2.3040886,
                                              2.3131478, 2.2919555, 2.311748,  2.304955,  2.2682834};
inline constexpr double as_printed = 1e-5;

/// Names of the runs that configuration files cannot hold.
inline constexpr const char* divides_in_the_step = "divides-in-the-step";
inline constexpr const char* overflow_in_window = "o1-accum10-overflow";
inline constexpr const char* after_dropped_window = "o1-accum10-after-drop";

/// Adds those runs, made from "as-written" of mindspore_custom_step and "o1-accumulate10" of paddle_linear9
/// (nothing where the table lacks them). `progress` gets the name of each.
void add_special_runs(TutorialTable& table, int threads,
                      const std::function<void(const std::string&)>& progress);

/// Facts of single runs: bits, and losses of one seed.
std::vector<Question<TutorialTable>> tutorial_questions();

}  // namespace fp16lab::experiments
