#include "experiments/tutorials/claims/claim.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "numerics/formats/decimal.hpp"

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

analysis::Claim claim_of(const Said& said) {
  analysis::Claim claim{.claim = said.words,
                        .criterion = said.claimed,
                        .measured = (said.computed.imprecise ? "imprecise: " : "") + said.exact,
                        .verdict = said.computed.verdict,
                        .topic = said.topic,
                        .notes = {"[" + said.source + "]"},
                        .recorded = said.recorded};
  if (!said.remark.empty()) claim.notes.push_back(said.remark);
  claim.notes.push_back("$ " + said.command);
  return claim;
}

Judgement judge_number(const std::string& claimed, double exact) {
  const double value = parse_number(claimed).value.to_double();
  const int digits = std::max(1, significant_digits(claimed));
  return judge_statement(
      fmt::format("{:.{}e}", exact, digits - 1) == fmt::format("{:.{}e}", value, digits - 1),
      std::fabs(value - exact) <= 0.1 * std::fabs(exact));
}

}  // namespace fp16lab::experiments::claims
