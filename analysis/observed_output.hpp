// What was counted of a step's activations, weights, updates or optimizer state, as a table and as JSON.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <span>
#include <string>
#include <string_view>

#include "numerics/files/run/run_rows.hpp"
#include "numerics/formats/format_range.hpp"

namespace fp16lab::analysis {

/// "Activations", "Optimizer state": for headings.
std::string_view title_of(Observed observed);

/// The zones by which rows of a kind are judged: the format's own; for updates, which are u / w, what the
/// format makes of w + u where it holds the weight itself. With precision p
///   "rounds to zero"  |u| <= 2^-(p+1) |w|: at most half the spacing of the format's numbers at w, and w
///                     stays
///   "subnormal"       below 2^-p |w|: that depends on where in its binade w is
///   "normal"          from there on w moves, unless it is subnormal itself; 2^-p of a power of two is a tie,
///                     and stays
FormatRange judged_range(Observed observed, DType format);

/// Rows of one kind and one step, other than gradients, in file order: a line a tensor, then all together.
/// Values, exact zeros, and for each format the zones, in percent of the finite non-zero values before any
/// cast ("12.1-12.5" where an edge cuts a bin); updates count the weights that moved, and beside them the
/// weights that did not although their gradient was not zero.
void print_observed(std::ostream& out, Observed observed, std::span<const HistogramRow> rows,
                    std::span<const DType> formats);

/// {"observed": "weights", "step", "tensors": [{"tensor", "kind", "dtype", "total", "zero", "infinite",
/// "nan", "unmoved" (of updates), "cast": {"values", "underflow", "overflow"} or null, "zones": {"f16":
/// {"lost": [lower, upper], "subnormal", "normal", "overflow"}}}]}: counts. Ends with a newline. `watched`:
/// as in cast_counts.
void write_observed_json(std::ostream& out, Observed observed, std::span<const HistogramRow> rows,
                         std::span<const DType> formats, bool watched = false);

/// Rows of updates together, from several tensors and steps.
struct UpdateCounts {
  std::uint64_t values = 0;
  std::uint64_t unmoved = 0;
  void add(const HistogramRow& row);
};
/// "of 1234 updates 56 (4.5 %) left the stored weight as it was, although its gradient was not zero"
std::string words_of(const UpdateCounts& counts);

}  // namespace fp16lab::analysis
