#include "analysis/paired_verdict.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <boost/math/distributions/chi_squared.hpp>
#include <boost/math/distributions/non_central_t.hpp>
#include <boost/math/distributions/normal.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <boost/math/quadrature/gauss_kronrod.hpp>
#include <cmath>
#include <limits>
#include <map>
#include <stdexcept>
#include <vector>

namespace fp16lab::analysis {
namespace {

using boost::math::cdf;
using boost::math::complement;
using boost::math::quantile;

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
constexpr double level = 0.05;       // the unadjusted tests whose power is reported use it
constexpr double bound_share = 0.8;  // confidence of the deviation's upper bound

double mean_of(std::span<const double> values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

/// Exactly 0 where all values are equal, whatever the mean rounds to.
double deviation_of(std::span<const double> values, double mean) {
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  if (*least == *most) return 0;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

double student(int pairs, double confidence) {
  return quantile(boost::math::students_t(pairs - 1), 0.5 * (1 + confidence));
}

/// Mean -+ t * `width`; nothing where paired statistics have nothing to say.
std::optional<Interval> around_mean(std::span<const double> values, double confidence, double per_deviation) {
  if (!(confidence > 0 && confidence < 1))
    throw std::invalid_argument(fmt::format("confidence {}: must be between 0 and 1", confidence));
  const auto finite = [](double x) { return std::isfinite(x); };
  if (values.size() < 2 || !std::all_of(values.begin(), values.end(), finite)) return std::nullopt;
  const double mean = mean_of(values);
  const double half =
      student(static_cast<int>(values.size()), confidence) * deviation_of(values, mean) * per_deviation;
  return Interval{mean - half, mean + half};
}

/// The larger p of "below +margin" and "above -margin", and the p of "not 0".
struct Tests {
  double equal = 1, differs = 1;
};
Tests tests_of(const Judgement& of) {
  const boost::math::students_t distribution(of.pairs - 1);
  const double error = of.deviation / std::sqrt(static_cast<double>(of.pairs));
  return {.equal = cdf(complement(distribution, (of.margin - std::abs(of.mean)) / error)),
          .differs = 2 * cdf(complement(distribution, std::abs(of.mean) / error))};
}

/// Benjamini and Hochberg's: the largest p that passes, or -1.
double discovered_p(std::vector<double> p) {
  std::sort(p.begin(), p.end());
  double passes = -1;
  for (std::size_t k = 0; k < p.size(); ++k)
    if (p[k] <= false_discovery_rate * static_cast<double>(k + 1) / static_cast<double>(p.size()))
      passes = p[k];
  return passes;
}

/// Holm's: every p at the level that its step asks for, until the first that fails.
class HolmSteps {
 public:
  explicit HolmSteps(std::vector<double> p) : ascending_(std::move(p)) {
    std::sort(ascending_.begin(), ascending_.end());
    for (const double each : ascending_) {
      if (each > level_of(each)) break;
      passes_ = each;
    }
  }
  bool passes(double p) const { return p <= passes_; }
  double level_of(double p) const {
    const auto smaller = std::lower_bound(ascending_.begin(), ascending_.end(), p) - ascending_.begin();
    return family_error_rate / static_cast<double>(std::ssize(ascending_) - smaller);
  }

 private:
  std::vector<double> ascending_;
  double passes_ = -1;  ///< the largest
};

Judgement described(const PairedSample& sample) {
  if (!(sample.margin > 0))
    throw std::invalid_argument(fmt::format("margin {}: must be above 0", sample.margin));
  const auto finite = [](double x) { return std::isfinite(x); };
  if (!std::all_of(sample.differences.begin(), sample.differences.end(), finite))
    throw std::invalid_argument("a paired difference is not finite: count it as diverged or dropped");
  Judgement result{.pairs = static_cast<int>(sample.differences.size()),
                   .diverged = sample.diverged,
                   .dropped = sample.dropped,
                   .mean = not_a_number,
                   .deviation = not_a_number,
                   .margin = sample.margin};
  if (result.pairs > 0) result.mean = mean_of(sample.differences);
  if (result.pairs > 1) result.deviation = deviation_of(sample.differences, result.mean);
  return result;
}

/// Has it a t test?
bool is_tested(const Judgement& of) {
  return of.diverged == 0 && of.pairs >= fewest_pairs && of.deviation > 0;
}

/// Would its pairs be equal whatever their signs?
bool is_small(const Judgement& of) {
  const double n = of.pairs;
  const double t = quantile(boost::math::students_t(n - 1), 1 - level);
  const double squares = of.mean * of.mean + of.deviation * of.deviation * (n - 1) / n;
  return std::sqrt(squares * (1 + t * t / (n - 1))) <= of.margin;
}

void tell_percent(Judgement& of) {
  of.mean = percent_of(of.mean);
  of.interval = percent_of(of.interval);
  of.adjusted = percent_of(of.adjusted);
  if (of.detectable) of.detectable = percent_of(*of.detectable);
}

/// The least margin / deviation at which the equivalence test of so many pairs has the stated power.
double least_ratio(int pairs) {
  thread_local std::map<int, double> known;
  if (const auto found = known.find(pairs); found != known.end()) return found->second;
  double low = 0.01, high = 100;
  while (high - low > 1e-10 * high) {
    const double middle = 0.5 * (low + high);
    (equivalence_power(pairs, middle) < stated_power ? low : high) = middle;
  }
  return known[pairs] = high;
}

std::optional<int> seeds_to_tell(const Judgement& of) {
  const double freedom = of.pairs - 1;
  const double lowest = quantile(boost::math::chi_squared(freedom), 1 - bound_share);
  const double ratio = of.margin / (of.deviation * std::sqrt(freedom / lowest));
  if (ratio < least_ratio(most_seeds)) return std::nullopt;
  int fails = 2, tells = most_seeds;  // power rises with the number of pairs
  if (ratio >= least_ratio(fails)) return fails;
  while (tells - fails > 1) {
    const int middle = (fails + tells) / 2;
    (ratio >= least_ratio(middle) ? tells : fails) = middle;
  }
  return std::max(tells, fewest_pairs);
}

}  // namespace

double loss_difference(double variant, double reference) {
  const bool comparable = variant > 0 && reference > 0 && std::isfinite(variant) && std::isfinite(reference);
  return comparable ? 100 * std::log(variant / reference) : not_a_number;
}

double percent_of(double loss_difference) { return 100 * std::expm1(loss_difference / 100); }

std::optional<Interval> percent_of(const std::optional<Interval>& of_loss_differences) {
  if (!of_loss_differences) return std::nullopt;
  return Interval{percent_of(of_loss_differences->lower), percent_of(of_loss_differences->upper)};
}

double accuracy_difference(double variant, double reference) { return 100 * (variant - reference); }

std::optional<Interval> mean_interval(std::span<const double> values, double confidence) {
  return around_mean(values, confidence, 1 / std::sqrt(static_cast<double>(values.size())));
}

std::optional<Interval> single_run_band(std::span<const double> values) {
  if (values.size() < fewest_pairs ||
      std::ranges::all_of(values, [&](double x) { return x == values.front(); }))
    return std::nullopt;
  return around_mean(values, 0.95, std::sqrt(1 + 1 / static_cast<double>(values.size())));
}

std::vector<Judgement> judge(std::span<const PairedSample> family) {
  std::vector<Judgement> all;
  std::map<std::uint64_t, std::size_t> seen;  // bits -> the first with them
  std::vector<double> equal, differs;
  for (const PairedSample& sample : family) {
    Judgement& one = all.emplace_back(described(sample));
    if (!is_tested(one)) continue;
    one.interval = mean_interval(sample.differences);
    const Tests tests = tests_of(one);
    one.p_equal = tests.equal;
    one.p_differs = tests.differs;
    if (sample.bits != 0 && !seen.emplace(sample.bits, all.size()).second) continue;
    equal.push_back(tests.equal);
    if (!is_small(one)) differs.push_back(tests.differs);
  }
  const double most_equal = discovered_p(equal);
  const HolmSteps holm(std::move(differs));

  for (std::size_t i = 0; i < all.size(); ++i) {
    Judgement& one = all[i];
    if (one.diverged > 0) {
      one.word = Word::worse;
      continue;
    }
    if (one.pairs < fewest_pairs) continue;
    if (!is_tested(one)) {  // all differences are the same number
      if (std::abs(one.mean) <= one.margin) one.word = Word::equal;
      continue;
    }
    one.differs = !is_small(one) && holm.passes(*one.p_differs);
    if (one.differs) one.adjusted = mean_interval(family[i].differences, 1 - holm.level_of(*one.p_differs));
    if (*one.p_equal <= most_equal) {
      one.word = Word::equal;
    } else if (one.differs) {
      one.word = (one.mean > 0) != family[i].higher_is_better ? Word::worse : Word::better;
    } else {
      one.detectable = detectable_effect(one.pairs) * one.deviation;
      one.seeds_needed = seeds_to_tell(one);
    }
  }
  for (std::size_t i = 0; i < all.size(); ++i)
    if (family[i].is_of_losses) tell_percent(all[i]);
  return all;
}

std::string interval_text(const std::optional<Interval>& interval) {
  if (!interval) return "";
  const double far = std::max(std::abs(interval->lower), std::abs(interval->upper));
  const int digits =
      far > 0 && far < 0.1 ? std::min(1 - static_cast<int>(std::floor(std::log10(far))), 6) : 2;
  return fmt::format("[{:+.{}f}, {:+.{}f}]", interval->lower, digits, interval->upper, digits);
}

std::string with_unit(double value, std::string_view unit) {
  const std::string text = fmt::format("{:g}", value);
  return fmt::format("{} {}", text, text == "1" && unit == "points" ? "point" : unit);
}

std::string_view short_words_of(const Judgement& judgement) {
  static constexpr std::array<std::string_view, fewest_pairs> few{"no pair", "one seed", "two seeds"};
  const bool told = judgement.word != Word::cannot_tell || judgement.pairs >= fewest_pairs;
  return told ? name_of(judgement.word) : few.at(static_cast<std::size_t>(judgement.pairs));
}

std::string words_of(const Judgement& judgement, std::string_view unit) {
  switch (judgement.word) {
    case Word::equal:
      return fmt::format(
          "equal within {}{}", with_unit(judgement.margin, unit),
          judgement.differs ? fmt::format(" (measurably {:+.2g} {})", judgement.mean, unit) : "");
    case Word::better:
      return "better";
    case Word::worse:
      return judgement.diverged == 0 ? "worse"
                                     : fmt::format("worse ({} of {} diverged)", judgement.diverged,
                                                   judgement.diverged + judgement.pairs);
    case Word::cannot_tell:
      break;
  }
  if (judgement.pairs < fewest_pairs)
    return fmt::format("{}: three are needed for a verdict", short_words_of(judgement));
  if (!judgement.detectable)
    return fmt::format("cannot tell (every pair differs by the same {:+.2g} {})", judgement.mean, unit);
  const std::string seeds =
      !judgement.seeds_needed ? fmt::format("not at this margin, with up to {} seeds", most_seeds)
      : *judgement.seeds_needed > judgement.pairs
          ? fmt::format("{} seeds would decide", *judgement.seeds_needed)
          : fmt::format("{} seeds decide if there is no difference", *judgement.seeds_needed);
  return fmt::format("cannot tell (a difference of {:.2g} {} would have been detected; {}; both unadjusted)",
                     *judgement.detectable, unit, seeds);
}

double equivalence_power(int pairs, double ratio) {
  // D and s are independent: given s = w sigma, |D| < margin - t s / sqrt(n) is a normal probability; w is
  // chi / sqrt(n - 1).
  const double n = pairs, freedom = n - 1;
  const double t = quantile(boost::math::students_t(freedom), 1 - level);
  const boost::math::normal normal;
  const boost::math::chi_squared chi_squared(freedom);
  const double reach = ratio * std::sqrt(n);
  const auto integrand = [&](double w) {
    if (w <= 0) return 0.0;
    const double z = reach - t * w;
    const double density = 2 * freedom * w * pdf(chi_squared, freedom * w * w);
    return z <= 0 ? 0 : (1 - 2 * cdf(complement(normal, z))) * density;
  };
  constexpr double far = 8;  // deviations of w, which has about sqrt(1 / (2 freedom))
  const double width = far / std::sqrt(2 * freedom);
  const double from = std::max(0.0, 1 - width), to = std::min(1 + width, reach / t);
  if (to <= from) return 0;
  return boost::math::quadrature::gauss_kronrod<double, 31>::integrate(integrand, from, to, 10, 1e-10);
}

double detectable_effect(int pairs) {
  thread_local std::map<int, double> known;
  if (const auto found = known.find(pairs); found != known.end()) return found->second;
  const double freedom = pairs - 1;
  const double t = quantile(boost::math::students_t(freedom), 1 - level / 2);
  const auto power = [&](double shift) {
    const boost::math::non_central_t distribution(freedom, shift);
    return cdf(complement(distribution, t)) + cdf(distribution, -t);
  };
  double low = 0.1, high = 64;  // range for shift = effect * sqrt(n); two pairs need some 20
  while (high - low > 1e-9 * high) {
    const double middle = 0.5 * (low + high);
    (power(middle) < stated_power ? low : high) = middle;
  }
  return known[pairs] = high / std::sqrt(static_cast<double>(pairs));
}

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
