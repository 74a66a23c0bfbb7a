// What exp_paper_miniature measured and claims: the grid of configs/paper_miniature.toml with FP32's twins, and
// two of its runs repeated in this process to see every update of a weight.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/app/config/config.hpp"
#include "experiments/study/judged_sweep.hpp"
#include "numerics/histogram/exponent_histogram.hpp"

namespace fp16lab::experiments {

inline constexpr const char* needs_scaling = "needs-scaling";
inline constexpr const char* no_scaling = "no-scaling";
inline constexpr const char* small_updates = "small-updates";

// Figures of "Mixed Precision Training" (Micikevicius et al., ICLR 2018, arXiv 1710.03740) as numbers, for
// comparison. Read off the printed bars, so each is good to about a tenth of itself.

/// Percent of all values whose magnitude is in [2^from, 2^to).
struct PaperBar {
  int from = 0;
  int to = 0;
  double percent = 0;
};

/// Figure 3: activation gradients of Multibox SSD trained in FP32. 67 % of all values are exactly zero beside
/// these.
std::span<const PaperBar> ssd_activation_gradients();

/// Percent of the non-zero values of figure 3 that are below `threshold` = 2^e after multiplication by
/// 2^log2_scale, bars taken as even in the exponent.
double ssd_lost_percent(int log2_scale, int threshold_exponent);

/// How large the updates of weights are, and what FP16 weights would make of them.
/// Counts over all weights (no biases) and all observed steps. A weight's update is the difference of the
/// stored weight after and before the step, which is exact to half an ulp of the stored type.
struct UpdateStudy {
  std::uint64_t elements = 0;
  ExponentHistogram updates;    ///< magnitudes of the differences; zero: the stored weight did not move
  std::uint64_t too_small = 0;  ///< updates that FP16 rounds to zero by themselves: 0 < |u| <= 2^-25
  /// Updates that FP16 holds, but that fp16(w) + fp16(u), rounded to nearest even, loses: fp16(w) again.
  std::uint64_t absorbed = 0;
  std::uint64_t steps = 0;  ///< observed ones

  std::uint64_t moved() const { return updates.finite_nonzero(); }
};

/// Trains to the end in this process and looks at every `every`-th step, the first included.
/// CommandError(interrupted) after Ctrl-C where catch_interrupts() was called.
UpdateStudy study_updates(const RunConfig& config, std::uint64_t every, int threads);

/// One variant of one workload, all seeds.
struct MiniatureRow {
  std::string workload, variant;
  JudgedRow judged{};
};

struct Miniature {
  std::vector<MiniatureRow> rows{};
  /// Histograms of FP32's runs, by workload: all observed steps and tensors, at a loss scale of 1.
  std::map<std::string, ExponentHistogram, std::less<>> activation_gradients{};
  UpdateStudy with_masters{}, without_masters{};
  std::string table{}, csv{};  ///< of the sweep

  /// std::out_of_range without one.
  const JudgedRow& row(std::string_view workload, std::string_view variant) const;
  /// Percent of the finite non-zero activation gradients that FP16 would round to zero at 2^log2_scale.
  double lost_percent(std::string_view workload, int log2_scale) const;
};

/// Criteria fixed before anything was measured.
std::vector<Question<Miniature>> miniature_questions();

}  // namespace fp16lab::experiments
