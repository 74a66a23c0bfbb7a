#include <algorithm>
#include <cmath>
#include <numeric>

#include "experiments/generations/generations.hpp"

namespace fp16lab::experiments {
namespace {

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// The deviation of the logarithms.
double variance_of(const std::vector<double>& losses) {
  std::vector<double> logs;
  for (const double loss : losses) logs.push_back(std::log(loss));
  const double mean = mean_of(logs);
  double sum = 0;
  for (const double x : logs) sum += (x - mean) * (x - mean);
  return sum / static_cast<double>(logs.size() - 1);
}

/// 1/2 ln of the ratio of the sums, without entry `left_out` (none for one that is not there).
double log_ratio(const std::vector<double>& variances, const std::vector<double>& reference,
                 std::size_t left_out) {
  double sum = 0, reference_sum = 0;
  for (std::size_t i = 0; i < variances.size(); ++i) {
    if (i == left_out) continue;
    sum += variances[i];
    reference_sum += reference[i];
  }
  return 0.5 * std::log(sum / reference_sum);
}

SpreadRatio ratio_of(const std::vector<double>& values, double confidence = 0.95) {
  SpreadRatio ratio{.ratio = std::nan("")};
  if (values.empty()) return ratio;
  ratio.ratio = std::exp(mean_of(values));
  if (const auto interval = analysis::mean_interval(values, confidence))
    ratio.interval = analysis::Interval{std::exp(interval->lower), std::exp(interval->upper)};
  return ratio;
}

}  // namespace

Spread::Spread(const std::vector<std::vector<double>>& losses,
               const std::vector<std::vector<double>>& reference) {
  const std::size_t n = losses.size();
  if (n < 3 || reference.size() != n) return;
  std::vector<double> variances, reference_variances;
  for (std::size_t i = 0; i < n; ++i) {
    variances.push_back(variance_of(losses[i]));
    reference_variances.push_back(variance_of(reference[i]));
  }
  const double all = log_ratio(variances, reference_variances, n);
  for (std::size_t i = 0; i < n; ++i)
    values_.push_back(static_cast<double>(n) * all -
                      static_cast<double>(n - 1) * log_ratio(variances, reference_variances, i));
  if (!std::ranges::all_of(values_, [](double value) { return std::isfinite(value); })) values_.clear();
}

SpreadRatio Spread::ratio(double confidence) const { return ratio_of(values_, confidence); }

SpreadRatio mean_ratio(const std::vector<Spread>& spreads) {
  std::vector<double> means;
  for (const Spread& spread : spreads) {
    const std::vector<double>& values = spread.jackknife_values();
    if (values.empty()) return ratio_of({});
    means.resize(means.empty() ? values.size() : means.size());
    if (means.size() != values.size()) return ratio_of({});
    for (std::size_t i = 0; i < values.size(); ++i)
      means[i] += values[i] / static_cast<double>(spreads.size());
  }
  return ratio_of(means);
}

}  // namespace fp16lab::experiments
