// exp_claims: which of the numbers in mixed-precision tutorials are right?
//
// Every claim with the value that this project's numerics or engine computes for it, our verdict, and a
// command that shows it. One that is right only to fewer digits, or in another reading, fails as "imprecise".
// A computed value that contradicts the recorded verdict is a verification mismatch: exit code 5.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

#include "experiments/app/command_line.hpp"
#include "experiments/study/study.hpp"
#include "experiments/tutorials/claims/claim.hpp"
#include "numerics/files/disk/atomic_file.hpp"
#include "numerics/files/disk/folder.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab::experiments::claims {
namespace {

std::vector<Said> all_claims(int threads) {
  std::vector<Said> all = format_claims();
  for (const std::vector<Said>& more : {measurement_claims(), training_claims(), level_claims(threads)})
    all.insert(all.end(), more.begin(), more.end());
  // What is said of one topic stands together, topics in the order of their first claims.
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

ExitCode run_exp_claims(const CommonOptions& common, bool json) {
  const std::string question = "which of the numbers in mixed-precision tutorials are right?";
  const std::vector<Said> all = all_claims(common.threads);
  if (!common.out.empty()) {
    make_folders(common.out);
    write_file_atomically(common.out / "exp_claims.csv", csv_of(all));
  }
  std::vector<Claim> claims;
  std::ranges::transform(all, std::back_inserter(claims), claim_of);
  if (json) {
    write_claims(common, question, claims);
    fmt::print("{}", analysis::claims_json(question, claims));
    return exit_code_of(claims);
  }
  print_question(question, "");
  return conclude(common, question, claims, {.list = analysis::claims_lines});
}

}  // namespace
}  // namespace fp16lab::experiments::claims

int main(int argc, char** argv) {
  using namespace fp16lab::experiments;
  bool json = false;
  return experiment_main(
      argc, argv,
      {.name = "exp_claims",
       .description =
           "Which of the numbers in mixed-precision tutorials are right? Claim, computed value, verdict and "
           "command.",
       .examples = "  exp_claims\n"
                   "  exp_claims --json -o results/exp_claims",
       .declare =
           [&](Options& options) {
             options.flag("--json", json, "JSON instead of text");
             return [&](const CommonOptions& common) { return claims::run_exp_claims(common, json); };
           }},
      {});
}
