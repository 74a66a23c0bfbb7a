// A range report as an aligned text table and as JSON.
#pragma once

#include <iosfwd>
#include <optional>
#include <span>
#include <string>

#include "analysis/range_report.hpp"
#include "analysis/suggested_scale.hpp"

namespace fp16lab::analysis {

/// What of a report is shown.
struct RangeView {
  DType format = DType::f16;      ///< f32, f16, bf16, e4m3 or e5m2
  std::optional<double> scale{};  ///< none: every tensor at the one it carried
  bool exact_mass = false;        ///< also the exact sums of tensors with given values (hist --exact-mass)
};

/// Tables of one row a tensor and one for all together: by count (values, exact zeros before the cast, and
/// the zones of the format at the scale in percent of the finite non-zero values, "12.3", "12.1..12.5" where
/// an edge cuts a bin, or "-" where there are none), by magnitude (the same zones in percent of L1 and of the
/// sum of squares, the least cosine or "unknown", the scales that fit), and of exact sums where asked for.
/// Then the suggestion. Without a scale the first table gives that of each tensor.
void print_table(std::ostream& out, const RangeReport& report, const RangeView& view,
                 const SuggestedScale& suggestion);

/// All tensors together, one row a format of `views`, which have one scale: would another format do?
void print_formats(std::ostream& out, const RangeReport& report, std::span<const RangeView> views,
                   std::span<const SuggestedScale> suggestions);

/// The tensors with which most is wrong (TensorState::worse_than), `most` of them, a row each, and one for
/// all together: values, those that are Inf or NaN, the smallest and greatest magnitude, what overflows,
/// rounds to 0 or is subnormal in percent, the rounding error as a multiple of what precision alone costs
/// (FitSums::ratio), the scales that fit. Where entries are steps, each tensor in its worst one, with the
/// scales that fit in all.
void print_worst(std::ostream& out, const RangeReport& report, const RangeView& view, std::size_t most);

/// What changed from step to step, at most three lines; nothing where no entries are steps.
void print_changes(std::ostream& out, const RangeReport& report);

/// What the casts of a run did at the scales that it had, whatever formats and scales are asked about;
/// nothing if none were recorded.
void print_casts(std::ostream& out, const RangeReport& report);

/// {"format": "f16", "scale" or null, "tensors": [{"tensor", "recorded_scales": [ascending], "total", "zero",
/// "infinite", "nan", "lost": [lower, upper], "subnormal", "normal", "overflow", "casts": [{"dtype",
/// "values", "underflow", "overflow"}], "l1": {"total": [lower, upper], "lost", "subnormal", "normal",
/// "overflow"}, "l2_squared": {same}, "cosine": [lower, upper] or null, "what_if": [{"log2_scale", "lost",
/// "subnormal", "normal", "overflow", "lost_l1", "lost_l2_squared", "cosine"}], "suggestion": {"fits",
/// "least", "greatest", "asks_most", "overflows_first", "unknown", "suggested", "needs_none", "reasoning"}}],
/// "merged": {same}, "suggestion": {same}}. Zone values are counts; those of l1 and l2_squared are shares of
/// the total, which is in units of the unscaled gradients. For given values both ends are the same, but for
/// the cosine's, which is always a bound; it is null where it is unknown. "casts" are counts of what happened
/// when the values were stored, at their own scale; empty where there was no cast. With `exact_mass` also
/// "exact": [{"tensor", "scale", "zero", "infinite", "nan", "lost": {"count", "l1", "l2_squared", "l1_share",
/// "l2_squared_share"}, "subnormal", "normal", "overflow", "total": {"count", "l1", "l2_squared"}}], in units
/// of the values as they are in the file, sums rounded once to FP64, and "scale" what they are multiplied by.
/// Ends with a newline.
void write_json(std::ostream& out, const RangeReport& report, const RangeView& view,
                const SuggestedScale& suggestion);

}  // namespace fp16lab::analysis
