// A range report as an aligned text table and as JSON.
#pragma once

#include <iosfwd>
#include <optional>
#include <span>
#include <string>

#include "analysis/range_report.hpp"
#include "analysis/suggested_scale.hpp"
#include "numerics/exact_mass.hpp"

namespace fp16lab::analysis {

/// What looking at every value of a tensor found (hist --exact-mass).
struct NamedExactMass {
  std::string tensor;
  ExactZoneMass mass;
};

/// Three tables of one row a tensor and one for all together: by count (values, exact zeros before the cast, and the
/// zones at `scale` in percent of the finite non-zero values, "12.3" or "12.1-12.5" where an edge cuts a bin), by
/// magnitude (the same zones in percent of L1 and of the sum of squares, the least cosine, the scales that fit), and,
/// where casts were recorded, their zeros; a fourth one of `exact`, if any. Then the suggestion. No `scale`: every tensor
/// at the one it carried, which the first table then names.
void print_table(std::ostream& out, const RangeReport& report, std::optional<double> scale,
                 const SuggestedScale& suggestion, std::span<const NamedExactMass> exact = {});

/// {"scale" or null, "tensors": [{"tensor", "recorded_scales": [ascending], "total", "zero", "infinite", "nan", "lost": [lower, upper], "subnormal",
/// "normal", "overflow", "cast_zeros": {"before", "after"} or null, "l1": {"total": [lower, upper], "lost",
/// "subnormal", "normal", "overflow"}, "l2_squared": {same}, "cosine": [lower, upper], "what_if": [{"log2_scale",
/// "lost", "subnormal", "normal", "overflow", "lost_l1", "lost_l2_squared", "cosine"}], "suggestion": {"largest_safe",
/// "smallest_sufficient", "smallest_sufficient_l1", "suggested", "reasoning"}}], "merged": {same}, "suggestion":
/// {same}}. Zone values are counts; those of l1 and l2_squared are shares of the total, which is in units of the unscaled
/// gradients; cast_zeros are those of the casts as they happened, at their own scale. With `exact` also "exact": [{"tensor",
/// "scale", "zero", "infinite", "nan", "lost": {"count", "l1", "l2_squared", "l1_share", "l2_squared_share"}, "subnormal",
/// "normal", "overflow", "total": {"count", "l1", "l2_squared"}}], sums rounded once to FP64. Ends with a newline.
void write_json(std::ostream& out, const RangeReport& report, std::optional<double> scale,
                const SuggestedScale& suggestion, std::span<const NamedExactMass> exact = {});

}  // namespace fp16lab::analysis
