// Final quality of a group of runs (one configuration, several seeds) against a reference group.
//
// Spread is max - min over the seeds: for two seeds a standard deviation is hardly defined, and the range is
// never the smaller of the two. A difference counts only if it exceeds three times the larger spread of both
// groups.
#pragma once

#include <span>
#include <string_view>

namespace fp16lab::analysis {
/// Beside the verdicts of claim.hpp, until its last user is gone.
inline namespace by_range {

inline constexpr double spreads_to_differ = 3.0;

enum class Better { lower, higher };  ///< a loss; an accuracy

struct Quality {
  int seeds = 0;
  int non_finite = 0;  ///< seeds whose value is NaN or infinite; left out of the rest
  double mean = 0;     ///< NaN where no finite value is left
  double minimum = 0;
  double maximum = 0;
  double spread() const { return maximum - minimum; }
};
Quality quality_of(std::span<const double> final_values);

enum class Verdict {
  diverged,       ///< at least one seed ended non-finite
  behind,         ///< worse by more than 3 x spread
  ahead,          ///< better by more than 3 x spread
  within_spread,  ///< no difference that the seeds could not make
  undecided,      ///< a group has fewer than two seeds: no spread to judge by
};
/// "diverged", "behind by more than 3 x spread", ...
std::string_view name_of(Verdict verdict);

struct Comparison {
  Quality reference;
  Quality candidate;
  double difference_percent = 0;  ///< of the means, positive = worse than the reference
  double spread = 0;              ///< the larger one of the two groups
  Verdict verdict = Verdict::undecided;
};
Comparison compare(std::span<const double> reference, std::span<const double> candidate, Better better);

}  // namespace by_range
}  // namespace fp16lab::analysis
