// The gradients that a run recorded, step by step, for whoever replays it.
//
// histograms.jsonl is streamed: one step's histograms are in memory at a time, merged as far as a loss scale
// allows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "numerics/files/run/run_folder.hpp"
#include "numerics/histogram/exponent_histogram.hpp"

namespace fp16lab::experiments {

/// The gradients of a step that carry the same loss scale and that one format holds, or would hold (see
/// RecordedRun::rounded), as they were before they were rounded to it.
struct RecordedGroup {
  double loss_scale = 1;
  DType format = DType::f16;
  bool intermediate =
      false;  ///< casts that no policy counts (HistogramRow): they lose and overflow all the same
  ExponentHistogram weight{};      ///< of parameters
  ExponentHistogram activation{};  ///< of layer inputs

  /// A cast to the format may lose values. Not to FP32, in a run whose other gradients were rounded.
  bool rounds() const { return format != DType::f32; }
  /// What is beyond the format becomes infinite. Casts to FP8, within a product, saturate.
  bool overflows() const { return !is_byte_format(format); }
};

struct RecordedStep {
  std::uint64_t step = 0;
  double loss_scale = 1;   ///< of steps.csv
  bool found_inf = false;  ///< of steps.csv
  bool observed = true;    ///< false: the histograms are those of the last observed step
  std::vector<RecordedGroup> groups{};
};

/// A note for readers about runs that rounded (RecordedRun::rounded).
inline constexpr std::string_view after_rounding_note =
    "the recorded run rounds: what earlier casts of its backward passes made zero stays zero at every other "
    "scale, so the scale that fits may be larger than these gradients show";

class RecordedRun {
 public:
  /// Reads everything but the histograms. std::runtime_error: no run folder, a damaged file (FILE:LINE:
  /// reason), a run without steps or without histograms, one that no replay can take (scaler.per_loss).
  explicit RecordedRun(const std::filesystem::path& folder);

  /// Steps in order. With `recorded_only`, those with histograms; otherwise all steps from the first of these
  /// on, and steps without histograms hold the last ones. std::runtime_error (FILE:LINE: reason) for damaged
  /// rows, steps that go back or that steps.csv does not have, and loss scales that are not finite or not
  /// above 0. A step that the run was killed in, after its histograms and before its row of steps.csv, is
  /// left out.
  void for_each_step(bool recorded_only, const std::function<void(const RecordedStep&)>& visit) const;

  const RunFolder& folder() const { return folder_; }
  const std::string& name() const { return name_; }
  const std::string& workload() const { return workload_; }
  /// The run rounded gradients, to FP16 or BF16: each tensor is judged by the format that held it, those that
  /// it kept in FP32 stay FP32 in a replay, and its found_inf is what these formats really did at the
  /// recorded scale. Otherwise (level O0) every gradient is judged as if FP16 held it.
  bool rounded() const { return rounded_; }
  /// found_inf is the result of a check (scaler.drop_overflow_update is not false).
  bool checked() const { return checked_; }
  /// The run's own limits, as notes for readers of a replay.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  RunFolder folder_;
  std::string name_, workload_;
  bool rounded_ = false;
  bool known_extremes_ = true;  ///< in the first step; older folders do not have them
  bool checked_ = true;
  std::vector<std::string> notes_;
};

}  // namespace fp16lab::experiments
