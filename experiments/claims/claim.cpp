#include "experiments/claims/claim.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "numerics/decimal.hpp"

namespace fp16lab::experiments::claims {
namespace {

/// Digits of a plain decimal without its leading zeros: "0.0670" has three.
int significant_digits(const std::string& text) {
  const std::string significand = text.substr(0, text.find_first_of("eE"));
  const auto first = std::ranges::find_if(significand, [](char c) { return c >= '1' && c <= '9'; });
  return static_cast<int>(
      std::count_if(first, significand.end(), [](char c) { return c >= '0' && c <= '9'; }));
}

}  // namespace

std::string_view name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::holds:
      return "true";
    case Verdict::fails:
      return "false";
    case Verdict::imprecise:
      return "imprecise";
  }
  return "";
}

Verdict judge_number(const std::string& claimed, double exact) {
  const double value = parse_number(claimed).value.to_double();
  const int digits = std::max(1, significant_digits(claimed));
  if (fmt::format("{:.{}e}", exact, digits - 1) == fmt::format("{:.{}e}", value, digits - 1))
    return Verdict::holds;
  return std::fabs(value - exact) <= 0.1 * std::fabs(exact) ? Verdict::imprecise : Verdict::fails;
}

}  // namespace fp16lab::experiments::claims
