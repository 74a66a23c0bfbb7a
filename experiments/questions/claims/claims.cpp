// exp_claims: which of the numbers in mixed-precision tutorials are right?
//
// Every claim with the value that this project's numerics or engine computes for it, our verdict, and a
// command that shows it. One that is right only to fewer digits, or in another reading, fails as "imprecise".
// A computed value that contradicts the recorded verdict is a verification mismatch: exit code 5.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "experiments/questions/claims/claim.hpp"
#include "experiments/questions/questions.hpp"
#include "experiments/study/study.hpp"
#include "numerics/formats/decimal.hpp"
#include "numerics/text/text.hpp"

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

namespace {

std::vector<Said> all_claims(int threads) {
  std::vector<Said> all = format_claims();
  for (const std::vector<Said>& more : {measurement_claims(), training_claims(), level_claims(threads)})
    all.insert(all.end(), more.begin(), more.end());
  // Claims of one topic come together, topics in the order of their first claims.
  std::vector<std::string> topics;
  const auto place = [&topics](const Said& said) {
    const auto found = std::ranges::find(topics, said.topic);
    if (found == topics.end()) topics.push_back(said.topic);
    return std::ranges::find(topics, said.topic) - topics.begin();
  };
  for (const Said& said : all) place(said);
  std::ranges::stable_sort(all, {}, place);
  return all;
}

std::string csv_of(const std::vector<Said>& all) {
  std::string text = "topic,source,claim,claimed,computed,verdict,stands,command,remark\n";
  for (const Said& said : all) {
    const Claim claim = claim_of(said);
    text += fmt::format("{},{},{},{},{},{},{},{},{}\n", csv_text(said.topic), csv_text(said.source),
                        csv_text(said.words), csv_text(said.claimed), csv_text(claim.measured),
                        name_of(claim.verdict), is_mismatch(claim) ? 0 : 1, csv_text(said.command),
                        csv_text(said.remark));
  }
  return text;
}

}  // namespace
}  // namespace fp16lab::experiments::claims

namespace fp16lab::experiments {

Command::Run ask_claims(Options& options) {
  auto json = std::make_shared<bool>(false);
  options.flag("--json", *json, "Print JSON instead of text");
  return [json](const CommonOptions& common) {
    const std::vector<claims::Said> all = claims::all_claims(common.threads);
    std::vector<Claim> judged;
    std::ranges::transform(all, std::back_inserter(judged), claims::claim_of);
    return show_claims(common, judged, {.files = {{"exp_claims.csv", claims::csv_of(all)}}}, *json);
  };
}

}  // namespace fp16lab::experiments
