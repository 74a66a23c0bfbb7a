// RunRecorder: the tap that turns a training run into a run folder.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "analysis/first_culprit.hpp"
#include "engine/train/observer.hpp"
#include "experiments/app/progress.hpp"
#include "experiments/app/run/live_panel.hpp"
#include "numerics/files/arrays/safetensors.hpp"
#include "numerics/files/run/run_folder.hpp"
#include "numerics/files/run/tensorboard_events.hpp"

namespace fp16lab::experiments {

/// What a command means to do with a run folder.
enum class FolderUse {
  begin,    ///< a new run; not over a complete one, nor over one that has checkpoints
  replace,  ///< a new run over whatever run is there
  resume,   ///< continue the run that is there, if there is one
};

/// May a process that has claimed the folder do that with it? CommandError(usage) if `use` may not have the
/// run that it holds, or if it holds other things than a run. What a killed writer left half written goes.
void require_use(const std::filesystem::path& folder, FolderUse use);

/// Is the run done for good, so that repeating it would give the same?
bool is_complete(ExitState state);

/// A run's records as an event file (train --tensorboard DIR).
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

struct RecorderOptions {
  std::uint64_t first_step = 1;  ///< above 1 where a run is continued
  std::uint64_t total_steps = 0;
  std::uint64_t histograms_every = 0;         ///< 0: none; else steps 1, every, 2 every, ... and the last one
  ObservedSet observed{Observed::gradients};  ///< in those steps
  std::vector<std::string> observed_names{};  ///< patterns; empty: all
  std::string title;                          ///< begins the progress line
  bool quiet = false;
  std::uint64_t checkpoint_every = 0;         ///< and at the run's end; 0: only where it is stopped early
  std::uint64_t checkpoints_kept = 0;         ///< newest ones; 0: all
  SafetensorsMetadata checkpoint_metadata{};  ///< besides the engine's own
  /// Called with the step after every checkpoint, to write weights.safetensors; empty: not needed.
  std::function<void(std::uint64_t)> save_weights{};
  std::vector<std::string> advice{};    ///< about the GPUs that are here, printed with the op statistics
  LiveMode live = LiveMode::off;        ///< a panel in the place of the progress line
  std::filesystem::path tensorboard{};  ///< a folder for an event file; empty: none
  /// Find what made the first Inf or NaN of every step with an overflow, into culprits.jsonl and, unless
  /// quiet, onto stderr.
  bool explain_overflow = false;
  /// Count the ops of the first step into op_stats.csv and, unless quiet, onto stderr.
  bool op_statistics = false;
};

class RunRecorder final : public engine::Tap {
 public:
  explicit RunRecorder(RecorderOptions options);
  /// Before the first record. Begins the event file, if there is to be one.
  void write_to(RunWriter& writer);

  bool wants(const engine::Site& site) override;
  void see(const engine::Event& event) override;
  void tell_culprits_again();
  /// What comes after on stderr begins on a line of its own.
  void end_progress() { progress_.end(); }

 private:
  bool counts_at(std::uint64_t step) const;
  void add(const HistogramRow& row);
  void add(const StepRow& row);
  void add(const EvaluationRow& row);
  /// Explains the first of those alike; tell_culprits_again() says in which steps they came again.
  void explain(const engine::Culprits& culprits);
  void show(const engine::CountedOps& ops);
  /// Rows reach the disk first, then the checkpoint; only then do older ones go.
  void save(const engine::TrainingState& state);
  void show_progress(const StepRow& row);
  /// A line that stays, above whatever shows the progress.
  void message(const std::string& line);

  RunWriter* writer_ = nullptr;
  RecorderOptions options_;
  Progress progress_;
  std::optional<LiveFeed> live_;
  std::optional<TensorboardFeed> tensorboard_;
  analysis::ToldOnce culprits_;
  std::vector<std::string> unseen_names_;  ///< patterns that have named nothing so far
  std::chrono::steady_clock::time_point start_;
};

}  // namespace fp16lab::experiments
