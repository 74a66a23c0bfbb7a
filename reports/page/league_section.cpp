#include "reports/page/page_sections.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "numerics/text/scale_text.hpp"
#include "reports/data/league.hpp"
#include "reports/data/run_config.hpp"
#include "reports/page/html.hpp"
#include "reports/page/html_table.hpp"

namespace fp16lab::reports {
namespace {

std::string count_text(const ReplayInterval& count) {
  return count.exact() ? fmt::format("{}", count.lower) : fmt::format("{}–{}", count.lower, count.upper);
}

std::string log2_scale_text(const ReplayedPolicy& policy) {
  if (policy.log2_scale_lower.empty()) return "–";
  const double low = policy.log2_scale_lower.back(), high = policy.log2_scale_upper.back();
  const auto power = [](double k) {
    return k == std::floor(k) ? pretty(scale_text(std::exp2(k))) : fmt::format("{:.6g}", std::exp2(k));
  };
  return low == high ? power(low) : power(low) + "–" + power(high);
}

std::string parameters_text(const ReplayedPolicy& policy) {
  std::string text = policy.name == policy.label ? "" : policy.name;
  for (const auto& [name, value] : policy.parameters)
    text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", name, value);
  if (!policy.source.empty()) text += fmt::format("{}source: {}", text.empty() ? "" : "; ", policy.source);
  return text;
}

/// Unlike the rates of histograms these tell policies apart by their smallness: "1.2e-05 %" rather than "<
/// 0.01 %".
std::string percent_text(double rate) {
  const double percent = 100 * rate;
  if (percent == 0 || percent >= 99.95)
    return percent == 0 ? "0" : rate == 1 ? "100" : fmt::format("{:.4g}", percent);
  return percent < 0.01 ? fmt::format("{:.1e}", percent) : fmt::format("{:.2g}", percent);
}

TableCell share(const ReplayInterval& rate) {
  const std::string lower = percent_text(rate.lower), upper = percent_text(rate.upper);
  return {(lower == upper ? upper : lower + "–" + upper) + " %", rate.upper};
}

std::string league_table(const ReplayFile& replay) {
  const std::vector<TableColumn> columns{
      {"policy", "The rule that moves the loss scale; its parameters and source on hover.", true},
      {"skips", "Skipped steps."},
      {"wasted", "Steps skipped, or without any non-zero weight gradient, or after the policy’s stop."},
      {"unused",
       "Share of the gradients’ L1 mass that no update used, every step counting alike: a skipped step loses "
       "all of it, the others what rounds to zero."},
      {"lost values", "Share of all non-zero gradients that round to zero, over the steps not skipped."},
      {"lost L1", "The same of the sum of magnitudes."},
      {"lost L2", "The same of the root of the sum of squares."},
      {"1 − cosine",
       "At most so much, of the angle between the gradients and what their formats keep of them."},
      {"last scale", "The loss scale at the end, or the range of it that histograms leave open."}};
  const std::vector<bool> front = league_front(replay);
  std::vector<TableRow> rows;
  for (const std::size_t i : league_order(replay)) {
    const ReplayedPolicy& policy = replay.policies[i];
    std::string name = fmt::format("<span class=\"tip\" tabindex=\"0\" data-tip=\"{}\">{}</span>",
                                   html_escape(parameters_text(policy)), html_escape(pretty(policy.label)));
    if (front[i])
      name +=
          " <span class=\"front tip\" tabindex=\"0\" data-tip=\"Nobody has both fewer skips and less lost "
          "L1.\">◆</span>";
    if (!policy.note.empty())
      name += fmt::format("<br><span class=\"soft\">{}</span>", html_escape(policy.note));
    const auto known = [&policy](TableCell cell) {
      return policy.any_applied ? std::move(cell) : TableCell{"–"};
    };
    TableRow row{
        {{name},
         {count_text(policy.skips), policy.skips.upper},
         {count_text(policy.wasted_steps), policy.wasted_steps.upper},
         share(unused_share(policy, replay.total_steps)),
         known(share(policy.lost_count)),
         known(share(policy.lost_l1)),
         known(share(policy.lost_l2)),
         known({fmt::format("{:.2g}", 1 - policy.cosine.lower), 1 - policy.cosine.lower}),
         {log2_scale_text(policy),
          policy.log2_scale_upper.empty() ? std::optional<double>() : policy.log2_scale_upper.back()}},
        is_yardstick(policy)};
    rows.push_back(std::move(row));
  }
  return html_table("Policies replayed: " + replay.run, columns, rows);
}

std::string section(const ReplayFile& replay, std::size_t index) {
  std::string html = fmt::format("<section{}>\n<h3>Policies replayed: {}</h3>\n",
                                 index == 0 ? " id=\"replays\"" : "", html_escape(replay.run));
  html += fmt::format(
      "<p>Every loss-scale policy over the recorded gradients of {}: {} steps, {} of them with histograms. "
      "{} A replay is not what training would do: another scale would have skipped other steps, and so "
      "changed the weights and every later gradient.</p>\n",
      html_escape(replay.workload), replay.total_steps, replay.observed_steps,
      replay.exact ? "All of it is exact." : "Where histograms leave something open, both ends are given.");
  html += league_table(replay);
  html +=
      "<p class=\"soft\">◆ nobody has both fewer skips and less lost L1, by the ends of the intervals that "
      "are certain. Ordered by what no update used: skipped steps with all of their gradient, the others "
      "with what rounds to zero. Losses are means over the steps that are not skipped.</p>\n";
  std::string left_out;
  for (const ReplayedPolicy& policy : replay.policies)
    if (!policy.replayed)
      left_out += fmt::format("<li>{}: {}</li>\n", html_escape(policy.label), html_escape(policy.note));
  if (!left_out.empty())
    html += "<details><summary>Policies that histograms cannot replay</summary>\n<ul class=\"notes soft\">" +
            left_out + "</ul></details>\n";
  html += fmt::format("<h4>Scale traces</h4>\n<div class=\"traces\" data-traces=\"{}\"></div>\n", index);
  html +=
      "<p class=\"soft\">Crosses below the axis: skipped steps; rings: steps that may be skipped. Shaded: "
      "the scales that the run allowed, from the smallest that loses at most 1 % of the L1 norm to the "
      "largest that cannot overflow. Between two lines: where the scale may be, or the scales of the tensors "
      "of a policy that moves them apart.</p>\n";
  if (!replay.notes.empty()) {
    html += "<ul class=\"notes soft\">\n";
    for (const std::string& note : replay.notes) html += fmt::format("<li>{}</li>\n", html_escape(note));
    html += "</ul>\n";
  }
  return html + "</section>\n";
}

}  // namespace

std::string league_sections(std::span<const ReplayFile> replays) {
  std::string html;
  for (std::size_t i = 0; i < replays.size(); ++i) html += section(replays[i], i);
  return html;
}

}  // namespace fp16lab::reports
