#include "analysis/quality.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace fp16lab::analysis {

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

}  // namespace fp16lab::analysis
