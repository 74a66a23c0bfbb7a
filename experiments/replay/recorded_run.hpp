// The gradients that a run recorded, step by step, for whoever replays it.
//
// histograms.jsonl is streamed: one step's histograms are in memory at a time, merged as far as a loss scale allows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "numerics/exponent_histogram.hpp"
#include "numerics/files/run_folder.hpp"

namespace fp16lab::experiments {

/// The gradients of a step that carry the same loss scale, before they were rounded to their dtype.
struct RecordedGroup {
  double loss_scale = 1;
  // Those that FP16 holds, or would hold (see RecordedRun::rounded):
  ExponentHistogram weight;      ///< of parameters
  ExponentHistogram activation;  ///< of layer inputs
  // Those that stayed wide in a run whose other gradients were FP16:
  ExponentHistogram wide_weight;
  ExponentHistogram wide_activation;
};

/// A gradient tensor by itself, for scales that differ between tensors.
struct RecordedTensor {
  std::string name;
  bool weight = false;
  bool wide = false;
  double loss_scale = 1;
  ExponentHistogram before;
};

struct RecordedStep {
  std::uint64_t step = 0;
  double loss_scale = 1;   ///< of steps.csv
  bool found_inf = false;  ///< of steps.csv
  bool observed = true;    ///< false: the histograms are those of the last observed step
  std::vector<RecordedGroup> groups{};
  std::vector<RecordedTensor> tensors{};  ///< in file order
};

class RecordedRun {
 public:
  /// Reads everything but the histograms. std::runtime_error: no run folder, a damaged file (FILE:LINE: reason), a run
  /// without steps or without histograms, one that no replay can take (scaler.per_loss).
  explicit RecordedRun(const std::filesystem::path& folder);

  /// Steps in order. With `recorded_only`, those with histograms; otherwise all steps from the first of these on, and
  /// steps without histograms hold the last ones. std::runtime_error (FILE:LINE: reason) for damaged rows, steps that
  /// go back or that steps.csv does not have, and loss scales that are not finite or not above 0.
  /// A step that the run was killed in, after its histograms and before its row of steps.csv, is left out.
  void for_each_step(bool recorded_only, const std::function<void(const RecordedStep&)>& visit) const;

  const RunFolder& folder() const { return folder_; }
  const std::string& name() const { return name_; }
  const std::string& workload() const { return workload_; }
  /// The run rounded its gradients to FP16: those that it kept wider stay wide in a replay, and its found_inf is what
  /// FP16 really did at the recorded scale. Otherwise (FP32, BF16) every gradient is judged as if FP16 held it.
  bool rounded() const { return rounded_; }
  /// found_inf is the result of a check (scaler.drop_overflow_update is not false).
  bool checked() const { return checked_; }
  /// The run's own limits, as notes for readers of a replay.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  RunFolder folder_;
  std::string name_, workload_;
  bool rounded_ = false;
  bool checked_ = true;
  std::vector<std::string> notes_;
};

}  // namespace fp16lab::experiments
