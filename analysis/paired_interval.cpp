#include "analysis/paired_interval.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <stdexcept>

namespace fp16lab::analysis {

std::optional<PairedInterval> paired_interval(std::span<const double> differences, double confidence) {
  if (!(confidence > 0 && confidence < 1))
    throw std::invalid_argument(fmt::format("confidence {}: must be between 0 and 1", confidence));
  const auto finite = [](double x) { return std::isfinite(x); };
  if (differences.size() < 2 || !std::all_of(differences.begin(), differences.end(), finite))
    return std::nullopt;
  const auto n = static_cast<double>(differences.size());
  double sum = 0;
  for (const double difference : differences) sum += difference;
  const double mean = sum / n;
  double squares = 0;
  for (const double difference : differences) squares += (difference - mean) * (difference - mean);
  const boost::math::students_t distribution(n - 1);
  const double t = boost::math::quantile(distribution, 0.5 * (1 + confidence));
  const double half = t * std::sqrt(squares / (n - 1) / n);
  return PairedInterval{static_cast<int>(differences.size()), mean, mean - half, mean + half};
}

}  // namespace fp16lab::analysis
