#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "experiments/app/replay/replay.hpp"

namespace fp16lab::experiments {
namespace {

/// Three significant digits, but no exponent for what is not tiny.
std::string short_number(double x) {
  if (x == 0) return "0";
  if (x < 1e-4) return fmt::format("{:.1e}", x);
  return fmt::format("{:.3g}", x);
}

std::string log2_text(double log2_scale) {
  if (std::isinf(log2_scale)) return log2_scale > 0 ? "inf" : "0";
  return log2_scale == std::round(log2_scale) ? fmt::format("2^{:.0f}", log2_scale)
                                              : fmt::format("2^{:.3g}", log2_scale);
}

/// Bounds from counts are never exactly 1; what is left of the angle says more than 0.99999.
std::string cosine_text(double cosine) {
  if (cosine == 0) return "0";
  if (cosine > 0.9999) return fmt::format("1-{:.0e}", 1 - cosine);
  return fmt::format("{:.4f}", cosine);
}

constexpr std::array<const char*, 9> headings = {"policy",       "skips",       "wasted",
                                                 "lost count %", "lost L1 %",   "lost L2 %",
                                                 "cosine >=",    "final scale", "exact"};

}  // namespace

std::string interval_text(const ReplayInterval& interval) {
  return interval.exact() ? fmt::format("{}", interval.lower)
                          : fmt::format("{}..{}", interval.lower, interval.upper);
}

std::string percent_text(const ReplayInterval& share) {
  const std::string lower = short_number(100 * share.lower), upper = short_number(100 * share.upper);
  return lower == upper ? lower : lower + ".." + upper;
}

std::string log2_range_text(double log2_lower, double log2_upper) {
  const std::string lower = log2_text(log2_lower);
  return log2_lower == log2_upper ? lower : lower + ".." + log2_text(log2_upper);
}

std::string replay_table(const ReplayFile& replay) {
  using Cells = std::array<std::string, headings.size()>;
  std::vector<Cells> rows{Cells{}};
  std::copy(headings.begin(), headings.end(), rows.front().begin());
  for (const ReplayedPolicy& policy : replay.policies) {
    if (!policy.replayed || policy.steps.empty()) {
      rows.push_back({policy.label, "-", "-", "-", "-", "-", "-", "-", "not replayable"});
      continue;
    }
    const auto known = [&policy](std::string text) { return policy.any_applied ? std::move(text) : "-"; };
    rows.push_back({policy.label, interval_text(policy.skips), interval_text(policy.wasted_steps),
                    known(percent_text(policy.lost_count)), known(percent_text(policy.lost_l1)),
                    known(percent_text(policy.lost_l2)), known(cosine_text(policy.cosine.lower)),
                    log2_range_text(policy.log2_scale_lower.back(), policy.log2_scale_upper.back()),
                    policy.exact ? "yes" : "bounds"});
  }
  std::array<std::size_t, headings.size()> widths{};
  for (const Cells& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  for (const Cells& row : rows) {
    std::string line = fmt::format("{:<{}}", row[0], widths[0]);
    for (std::size_t i = 1; i < row.size(); ++i) line += fmt::format("  {:>{}}", row[i], widths[i]);
    text += line + '\n';
  }
  return text;
}

}  // namespace fp16lab::experiments
