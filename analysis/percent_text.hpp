// Rates in percent, as the tables of reports show them. Internal to analysis/.
#pragma once

#include <fmt/core.h>

#include <string>

#include "analysis/range_report.hpp"

namespace fp16lab::analysis {

/// Two significant digits below 1 %, so that a small rate does not read as none, and no exponents.
inline std::string percent(double rate) {
  const double value = 100 * rate;
  if (value == 0) return "0";
  if (value < 0.001) return "< 0.001";
  return value < 1 ? fmt::format("{:.2g}", value) : fmt::format("{:.1f}", value);
}

/// "12.1..12.5"; a lower bound below 0.001 becomes the looser one, 0.
inline std::string percent(double lower_rate, double upper_rate) {
  const std::string lower = percent(lower_rate), upper = percent(upper_rate);
  return lower == upper ? lower : (lower.starts_with('<') ? "0" : lower) + ".." + upper;
}
inline std::string percent(const RateInterval& rate) { return percent(rate.lower, rate.upper); }
inline std::string percent(const MassInterval& share) { return percent(share.lower, share.upper); }
/// "-" where there is nothing to be a part of.
template <class Interval>
std::string percent(bool any, const Interval& share) {
  return any ? percent(share) : "-";
}

}  // namespace fp16lab::analysis
