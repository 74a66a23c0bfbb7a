#include "reports/data/rate_text.hpp"

#include <fmt/core.h>

#include <string_view>

namespace fp16lab::reports {
namespace {

constexpr std::string_view unit = " %";

/// `percent` in (0, 100).
std::string rounded(double percent) {
  if (percent < 0.01) return "< 0.01";
  if (percent > 99.9) return "> 99.9";
  // Limits as the numbers will be printed: 9.96 is "10", not "10.0".
  if (percent < 0.995) return fmt::format("{:.2f}", percent);
  if (percent < 9.95 || percent >= 99) return fmt::format("{:.1f}", percent);
  return fmt::format("{:.0f}", percent);
}

std::string number(double rate) {
  if (rate <= 0) return "0";
  if (rate >= 1) return "100";
  return rounded(100 * rate);
}

}  // namespace

std::string rate_text(double rate) { return number(rate) + std::string(unit); }

std::string rate_text(const analysis::RateInterval& rate) {
  std::string lower = number(rate.lower), upper = number(rate.upper);
  if (lower == "0" && upper.starts_with('<')) return upper + std::string(unit);
  if (lower.starts_with('>') && upper == "100") return lower + std::string(unit);
  if (lower == upper) return upper + std::string(unit);
  // The text may widen an interval so that its end needs no sign.
  if (lower.starts_with('<')) lower = "0";
  if (upper.starts_with('>')) upper = "100";
  return lower + "–" + upper + std::string(unit);
}

}  // namespace fp16lab::reports
