#include "analysis/claim.hpp"
#include "numerics/text/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace fp16lab::analysis {

std::string verdict_text(const Claim& claim) {
  const std::string name(name_of(claim.verdict));
  if (!claim.decides && claim.verdict == Verdict::fails) return "BEHIND";
  if (!claim.recorded || claim.verdict == Verdict::not_run) return name;
  if (is_mismatch(claim)) return fmt::format("{}, RECORDED AS {}", name, name_of(*claim.recorded));
  return claim.verdict == Verdict::holds ? name : name + ", as recorded";
}

bool is_mismatch(const Claim& claim) {
  if (!claim.decides) return false;
  if (claim.recorded) return claim.verdict != Verdict::not_run && claim.verdict != *claim.recorded;
  return claim.verdict == Verdict::fails;
}

bool any_mismatch(std::span<const Claim> claims) {
  return std::any_of(claims.begin(), claims.end(), is_mismatch);
}

std::string claims_text(std::span<const Claim> claims) {
  std::string text, topic;
  int number = 0;
  for (const Claim& claim : claims) {
    if (claim.topic != topic) text += fmt::format("{}{}\n", text.empty() ? "" : "\n", claim.topic);
    topic = claim.topic;
    text += fmt::format("claim {}: {}\n  criterion: {}\n", ++number, claim.claim, claim.criterion);
    if (!claim.measured.empty()) text += fmt::format("  measured: {}\n", claim.measured);
    text += fmt::format("  verdict: {}\n", verdict_text(claim));
    for (const std::string& note : claim.notes) text += fmt::format("    {}\n", note);
  }
  return text;
}

std::string claims_lines(std::span<const Claim> claims) {
  std::string text, topic;
  std::size_t width = 12;
  for (const Claim& claim : claims) width = std::max(width, verdict_text(claim).size());
  for (const Claim& claim : claims) {
    if (claim.topic != topic) text += fmt::format("{}{}\n", text.empty() ? "" : "\n", claim.topic);
    topic = claim.topic;
    text +=
        fmt::format("  {:<{}} {}{}{}\n", verdict_text(claim), width, claim.claim,
                    claim.measured.empty() ? "" : ": " + claim.measured,
                    claim.measured == claim.criterion ? "" : fmt::format(" (expected {})", claim.criterion));
    for (const std::string& note : claim.notes) text += fmt::format("{:<{}}{}\n", "", width + 3, note);
  }
  return text;
}

std::string claims_count(std::span<const Claim> claims) {
  const auto counted = [&](Verdict verdict, bool decides) {
    return std::count_if(claims.begin(), claims.end(), [&](const Claim& claim) {
      return claim.verdict == verdict && (claim.decides || verdict != Verdict::fails) == decides;
    });
  };
  std::string text;
  const auto add = [&text](std::ptrdiff_t count, std::string_view one, std::string_view several) {
    if (count > 0)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, count == 1 ? one : several);
  };
  add(counted(Verdict::holds, true), "holds", "hold");
  add(counted(Verdict::fails, true), "fails", "fail");
  add(counted(Verdict::fails, false), "falls short", "fall short");
  add(counted(Verdict::cannot_tell, true), "is undecided", "are undecided");
  add(counted(Verdict::rehearsed, true), "was rehearsed", "were rehearsed");
  add(counted(Verdict::not_run, true), "was not run", "were not run");
  const auto recorded = std::count_if(claims.begin(), claims.end(),
                                      [](const Claim& claim) { return claim.recorded.has_value(); });
  const auto as_recorded = std::count_if(claims.begin(), claims.end(),
                                         [](const Claim& claim) { return claim.recorded == claim.verdict; });
  if (recorded > 0) text += fmt::format("; {} of {} as recorded", as_recorded, recorded);
  return fmt::format("{}{}{}", fp16lab::counted(claims.size(), "claim"), text.empty() ? "" : ": ", text);
}

using Json = nlohmann::ordered_json;

std::string claims_json(std::string_view question, std::span<const Claim> claims) {
  Json list = Json::array();
  for (const Claim& claim : claims) {
    Json one = Json::object();
    if (!claim.topic.empty()) one["topic"] = claim.topic;
    one["claim"] = claim.claim;
    one["criterion"] = claim.criterion;
    one["measured"] = claim.measured;
    one["verdict"] = name_of(claim.verdict);
    if (claim.recorded) one["recorded"] = name_of(*claim.recorded);
    if (!claim.decides) one["decides"] = false;
    if (!claim.notes.empty()) one["notes"] = claim.notes;
    list.push_back(std::move(one));
  }
  return Json{{"question", question}, {"claims", std::move(list)}}.dump(2, ' ', false,
                                                                        Json::error_handler_t::replace) +
         "\n";
}

}  // namespace fp16lab::analysis
