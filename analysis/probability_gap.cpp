#include "analysis/probability_gap.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

namespace fp16lab::analysis {

std::vector<double> log_probabilities(std::span<const float> logits, std::span<const std::int32_t> targets) {
  const std::size_t classes = targets.empty() ? 0 : logits.size() / targets.size();
  if (logits.size() != classes * targets.size())
    throw std::invalid_argument(fmt::format("{} logits for {} targets: rows of one length are needed",
                                            logits.size(), targets.size()));
  std::vector<double> result;
  for (std::size_t row = 0; row < targets.size(); ++row) {
    const std::span<const float> x = logits.subspan(row * classes, classes);
    if (targets[row] < 0 || static_cast<std::size_t>(targets[row]) >= classes)
      throw std::invalid_argument(
          fmt::format("target {} is {}, which is not in [0, {})", row, targets[row], classes));
    const double greatest = static_cast<double>(std::ranges::max(x));
    double sum = 0;
    for (const float logit : x) sum += std::exp(static_cast<double>(logit) - greatest);
    result.push_back(static_cast<double>(x[static_cast<std::size_t>(targets[row])]) - greatest -
                     std::log(sum));
  }
  return result;
}

ProbabilityGap probability_gap(std::span<const double> a, std::span<const double> b,
                               std::span<const std::size_t> batches, double band) {
  if (a.size() != b.size() || std::accumulate(batches.begin(), batches.end(), std::size_t{0}) != a.size())
    throw std::invalid_argument(fmt::format("{} and {} log-probabilities, and batches of {} together",
                                            a.size(), b.size(),
                                            std::accumulate(batches.begin(), batches.end(), std::size_t{0})));
  if (!(band >= 1)) throw std::invalid_argument(fmt::format("a band of {}; 1 or more is needed", band));
  ProbabilityGap gap{.targets = a.size()};
  std::vector<double> of_batches;
  std::size_t at = 0, outside = 0;
  for (const std::size_t count : batches) {
    double sum = 0;
    for (const std::size_t end = at + count; at < end; ++at) {
      const double difference = a[at] == b[at] ? 0 : b[at] - a[at], magnitude = std::fabs(difference);
      sum += magnitude;
      gap.mean += difference;
      if (!(magnitude <= std::log(band))) ++outside;
      if (!(magnitude <= gap.largest) && !std::isnan(gap.largest))
        gap.largest = magnitude, gap.largest_at = at;
    }
    gap.mean_magnitude += sum;
    if (count > 0) of_batches.push_back(sum / static_cast<double>(count));
  }
  if (a.empty()) return gap;
  const auto targets = static_cast<double>(a.size());
  gap.mean_magnitude /= targets;
  gap.mean /= targets;
  gap.outside = static_cast<double>(outside) / targets;
  gap.interval = mean_interval(of_batches);
  return gap;
}

}  // namespace fp16lab::analysis
