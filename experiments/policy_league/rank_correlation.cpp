#include "experiments/policy_league/rank_correlation.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <stdexcept>

namespace fp16lab::experiments {

std::vector<double> ranks(std::span<const double> values) {
  if (std::any_of(values.begin(), values.end(), [](double value) { return std::isnan(value); }))
    throw std::invalid_argument("ranks: a value is NaN, which has no rank");
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [values](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  std::vector<double> result(values.size());
  for (std::size_t begin = 0; begin < order.size();) {
    std::size_t end = begin;
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    // Ranks begin + 1 ... end, whose mean is:
    const double mean = 0.5 * static_cast<double>(begin + 1 + end);
    for (; begin < end; ++begin) result[order[begin]] = mean;
  }
  return result;
}

std::optional<double> rank_correlation(std::span<const double> x, std::span<const double> y) {
  if (x.size() != y.size()) throw std::invalid_argument("rank_correlation: sides of different length");
  if (x.size() < 3) return std::nullopt;
  const std::vector<double> a = ranks(x), b = ranks(y);
  const double mean = 0.5 * static_cast<double>(x.size() + 1);
  double ab = 0, aa = 0, bb = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ab += (a[i] - mean) * (b[i] - mean);
    aa += (a[i] - mean) * (a[i] - mean);
    bb += (b[i] - mean) * (b[i] - mean);
  }
  if (aa == 0 || bb == 0) return std::nullopt;
  return ab / std::sqrt(aa * bb);
}

namespace {

struct Correlations {
  std::optional<double> a, b;
  std::optional<double> difference() const { return a && b ? std::optional(*b - *a) : std::nullopt; }
};

Correlations correlations(std::span<const PredictedPoint> points, std::optional<std::size_t> without = {}) {
  std::vector<double> a, b, outcome;
  for (const PredictedPoint& point : points) {
    if (point.group == without) continue;
    a.push_back(point.a);
    b.push_back(point.b);
    outcome.push_back(point.outcome);
  }
  return {rank_correlation(a, outcome), rank_correlation(b, outcome)};
}

}  // namespace

PredictorContest contest(std::span<const PredictedPoint> points) {
  std::set<std::size_t> groups;
  for (const PredictedPoint& point : points) groups.insert(point.group);
  const Correlations all = correlations(points);
  PredictorContest result{.groups = groups.size(), .by_a = all.a, .by_b = all.b};
  if (!all.difference() || groups.size() < analysis::fewest_pairs) return result;
  const auto n = static_cast<double>(groups.size());
  std::vector<double> pseudo_values;
  for (const std::size_t group : groups) {
    const std::optional<double> others = correlations(points, group).difference();
    if (!others) return result;
    pseudo_values.push_back(n * *all.difference() - (n - 1) * *others);
  }
  result.difference = analysis::mean_interval(pseudo_values);
  return result;
}

}  // namespace fp16lab::experiments
