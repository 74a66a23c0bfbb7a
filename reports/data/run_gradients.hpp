// The recorded gradient histograms of one run, thinned to what figures and pages can show.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "analysis/range_report.hpp"
#include "numerics/files/run/observed.hpp"
#include "numerics/histogram/cast_counts.hpp"
#include "reports/data/run_set.hpp"

namespace fp16lab::reports {

/// All gradients of one observed step; the vectors follow RunGradients::tensors.
struct GradientSnapshot {
  std::uint64_t step = 0;
  double loss_scale = 1;                         ///< the step's; where tensors differ, the last one's
  std::vector<ExponentHistogram> histograms;     ///< before the cast, still carrying their tensor's scale
  std::vector<std::optional<CastCounts>> casts;  ///< what the cast did; none without a cast (FP32)
                                                 ///< or without an observer (see cast_counts)
  std::vector<double> scales;                    ///< one per tensor: policies may scale layers apart
  bool one_scale() const;
};

struct RunGradients {
  std::vector<std::string>
      tensors;  ///< in the order of the file; a second format of one is "fc1.output (E5M2)"
  std::vector<std::string> kinds;
  /// What each tensor was stored in, or, in a run that rounded no gradient (level O0), FP16: what-if rates
  /// then show what FP16 would do.
  std::vector<DType> formats;
  bool rounded = false;  ///< some tensor was stored in fewer than 32 bits
  std::vector<GradientSnapshot> snapshots;
  std::size_t observed_steps = 0;  ///< also those without a snapshot here

  /// What-if: zones of the gradients of every observed step at `scale`, in the tensor's format.
  RangeCounts at_scale(std::size_t tensor, double scale) const;
  /// The same of all tensors that are rounded.
  RangeCounts at_scale(double scale) const;
  /// "FP16", or "FP16 and FP32" where tensors differ.
  std::string format_names() const;

  std::vector<std::map<double, ExponentHistogram>> by_scale;  ///< one per tensor, over every observed step
};

/// `limit` of `count` places, evenly chosen, the first and the last among them; all where there are no more.
/// At least 2 are taken of 2 or more.
std::vector<std::size_t> evenly_chosen(std::size_t count, std::size_t limit);

/// At most `max_snapshots` of the observed steps, evenly chosen, the first and the last among them. Every loss
/// scale of tensors that are no gradients is 1 (HistogramRow says what their counts mean).
RunGradients load_gradients(const Run& run, std::size_t max_snapshots,
                            Observed observed = Observed::gradients);
/// The kinds other than gradients that the run's configuration asked to record (observe.tensors).
std::vector<Observed> other_tensors(const Run& run);

}  // namespace fp16lab::reports
