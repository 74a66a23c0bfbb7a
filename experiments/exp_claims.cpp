// exp_claims: which of the numbers in mixed-precision tutorials are right?
//
// Every claim with the value that this project's numerics or engine computes for it, our verdict, and a command that
// shows it. A computed value that contradicts the recorded verdict is a verification mismatch: exit code 5.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "experiments/claims/claim.hpp"
#include "experiments/command_line.hpp"
#include "experiments/openmp_waiting.hpp"
#include "numerics/files/atomic_file.hpp"

namespace fp16lab::experiments::claims {
namespace {

std::vector<Claim> all_claims(int threads) {
  std::vector<Claim> all = format_claims();
  for (const std::vector<Claim>& more : {measurement_claims(), training_claims(), level_claims(threads)})
    all.insert(all.end(), more.begin(), more.end());
  // What is said of one topic stands together, topics in the order of their first claims.
  std::vector<std::string> topics;
  const auto place = [&topics](const Claim& claim) {
    const auto found = std::ranges::find(topics, claim.topic);
    if (found == topics.end()) topics.push_back(claim.topic);
    return std::ranges::find(topics, claim.topic) - topics.begin();
  };
  for (const Claim& claim : all) place(claim);
  std::ranges::stable_sort(all, {}, place);
  return all;
}

bool stands(const Claim& claim) { return claim.recorded == claim.computed; }

std::string verdict_of(const Claim& claim) {
  return stands(claim) ? std::string(name_of(claim.recorded))
                       : fmt::format("{}, RECORDED AS {}", name_of(claim.computed), name_of(claim.recorded));
}

void print_text(const std::vector<Claim>& all) {
  std::string topic;
  for (const Claim& claim : all) {
    if (claim.topic != topic) fmt::print("{}{}\n", topic.empty() ? "" : "\n", claim.topic);
    topic = claim.topic;
    fmt::print("  {:<9} {}  [{}]\n", verdict_of(claim), claim.words, claim.source);
    fmt::print("            claimed {}, computed {}\n", claim.claimed, claim.exact);
    if (!claim.remark.empty()) fmt::print("            {}\n", claim.remark);
    fmt::print("            $ {}\n", claim.command);
  }
}

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) result += c == '"' ? std::string("\"\"") : std::string(1, c);
  return result + '"';
}

std::string csv_of(const std::vector<Claim>& all) {
  std::string text = "topic,source,claim,claimed,computed,verdict,stands,command,remark\n";
  for (const Claim& claim : all)
    text +=
        fmt::format("{},{},{},{},{},{},{},{},{}\n", quoted(claim.topic), quoted(claim.source),
                    quoted(claim.words), quoted(claim.claimed), quoted(claim.exact), name_of(claim.recorded),
                    stands(claim) ? 1 : 0, quoted(claim.command), quoted(claim.remark));
  return text;
}

std::string json_of(const std::vector<Claim>& all) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const Claim& claim : all)
    json.push_back({{"topic", claim.topic},
                    {"source", claim.source},
                    {"claim", claim.words},
                    {"claimed", claim.claimed},
                    {"computed", claim.exact},
                    {"verdict", name_of(claim.recorded)},
                    {"stands", stands(claim)},
                    {"command", claim.command},
                    {"remark", claim.remark}});
  return json.dump(2) + "\n";
}

ExitCode run_exp_claims(const CommonOptions& common, bool json) {
  const std::vector<Claim> all = all_claims(common.threads);
  if (!common.out.empty()) {
    std::filesystem::create_directories(common.out);
    write_file_atomically(common.out / "exp_claims.csv", csv_of(all));
  }
  const auto standing = std::ranges::count_if(all, stands);
  const bool all_stand = standing == static_cast<std::ptrdiff_t>(all.size());
  const auto counted = [&all](Verdict verdict) {
    return std::ranges::count_if(all, [verdict](const Claim& claim) { return claim.recorded == verdict; });
  };
  if (json) {
    fmt::print("{}", json_of(all));
  } else {
    print_text(all);
    fmt::print(
        "\n{} claims: {} true, {} imprecise, {} false\nverdict: {}, {} of {} recorded verdicts follow from "
        "what was "
        "computed\n",
        all.size(), counted(Verdict::holds), counted(Verdict::imprecise), counted(Verdict::fails),
        all_stand ? "PASS" : "FAIL", standing, all.size());
  }
  return all_stand ? ExitCode::ok : ExitCode::mismatch;
}

}  // namespace
}  // namespace fp16lab::experiments::claims

int main(int argc, char** argv) {
  using namespace fp16lab::experiments;
  limit_openmp_spinning(argv);
  bool json = false;
  return experiment_main(
      argc, argv,
      {"exp_claims",
       "Which of the numbers in mixed-precision tutorials are right? Claim, computed value, verdict and "
       "command.",
       "  exp_claims\n"
       "  exp_claims --json -o results/exp_claims",
       {{"--json", "", "JSON instead of text", nullptr, &json}}},
      {}, [&json](const CommonOptions& common) { return claims::run_exp_claims(common, json); });
}
