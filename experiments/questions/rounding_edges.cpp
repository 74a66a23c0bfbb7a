// exp_rounding_edges: what happens at every edge of FP16 that a user asks about?
#include "analysis/rounding_edges.hpp"

#include <fmt/format.h>

#include <string>

#include "experiments/questions/questions.hpp"
#include "experiments/study/study.hpp"

namespace fp16lab::experiments {

Command::Run ask_rounding_edges(Options&) {
  return [](const CommonOptions& common) {
    const std::vector<Claim> claims = analysis::rounding_edges();
    std::string csv = "topic,claim,expected,computed,verdict\n";
    for (const Claim& one : claims)
      csv += fmt::format("\"{}\",\"{}\",{},{},{}\n", one.topic, one.claim, one.criterion, one.measured,
                         name_of(one.verdict));
    return show_claims(common, claims, {.files = {{"exp_rounding_edges.csv", csv}}});
  };
}

}  // namespace fp16lab::experiments
