#include "analysis/comparison.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace fp16lab::analysis {
inline namespace by_range {

Quality quality_of(std::span<const double> final_values) {
  Quality quality;
  quality.seeds = static_cast<int>(final_values.size());
  std::vector<double> finite;
  std::copy_if(final_values.begin(), final_values.end(), std::back_inserter(finite),
               [](double value) { return std::isfinite(value); });
  quality.non_finite = quality.seeds - static_cast<int>(finite.size());
  if (finite.empty()) {
    quality.mean = quality.minimum = quality.maximum = std::numeric_limits<double>::quiet_NaN();
    return quality;
  }
  const auto [low, high] = std::minmax_element(finite.begin(), finite.end());
  quality.minimum = *low;
  quality.maximum = *high;
  double sum = 0;
  for (const double value : finite) sum += value;
  quality.mean = sum / static_cast<double>(finite.size());
  return quality;
}

std::string_view name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::diverged:
      return "diverged";
    case Verdict::behind:
      return "behind by more than 3 x spread";
    case Verdict::ahead:
      return "ahead by more than 3 x spread";
    case Verdict::within_spread:
      return "within 3 x spread";
    case Verdict::undecided:
      return "one seed: no spread";
  }
  return "?";
}

Comparison compare(std::span<const double> reference, std::span<const double> candidate, Better better) {
  Comparison result{.reference = quality_of(reference), .candidate = quality_of(candidate)};
  const double raw = result.candidate.mean - result.reference.mean;
  const double worse = better == Better::lower ? raw : -raw;
  result.difference_percent = worse == 0 ? 0 : 100 * worse / std::abs(result.reference.mean);
  result.spread = std::max(result.reference.spread(), result.candidate.spread());
  if (result.candidate.non_finite > 0)
    result.verdict = Verdict::diverged;
  else if (result.reference.seeds - result.reference.non_finite < 2 || result.candidate.seeds < 2)
    result.verdict = Verdict::undecided;
  else if (worse > spreads_to_differ * result.spread)
    result.verdict = Verdict::behind;
  else if (-worse > spreads_to_differ * result.spread)
    result.verdict = Verdict::ahead;
  else
    result.verdict = Verdict::within_spread;
  return result;
}

}  // namespace by_range
}  // namespace fp16lab::analysis
