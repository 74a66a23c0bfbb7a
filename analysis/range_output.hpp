// A range report as an aligned text table and as JSON.
#pragma once

#include <iosfwd>

#include "analysis/range_report.hpp"
#include "analysis/suggested_scale.hpp"

namespace fp16lab::analysis {

/// One row a tensor and one for all together: values, exact zeros, and the zones at `scale` in percent of the
/// finite non-zero values ("12.3" or "12.1-12.5" where an edge cuts a bin), then the suggestion.
void print_table(std::ostream& out, const RangeReport& report, double scale,
                 const SuggestedScale& suggestion);

/// {"scale", "tensors": [{"tensor", "total", "zero", "infinite", "nan", "lost": [lower, upper], "subnormal",
/// "normal", "overflow", "what_if": [{"log2_scale", "lost", "subnormal", "normal", "overflow"}]}], "merged":
/// {same}, "suggestion": {"largest_safe", "smallest_sufficient", "reasoning"}}; all zone values are counts. Ends
/// with a newline.
void write_json(std::ostream& out, const RangeReport& report, double scale, const SuggestedScale& suggestion);

}  // namespace fp16lab::analysis
