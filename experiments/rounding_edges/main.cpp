// exp_rounding_edges: what happens at every edge of FP16 that a user asks about?
#include <fmt/format.h>

#include <string>

#include "analysis/rounding_edges.hpp"
#include "experiments/app/command_line.hpp"
#include "experiments/study/study.hpp"
#include "numerics/files/disk/atomic_file.hpp"
#include "numerics/files/disk/folder.hpp"

namespace fp16lab::experiments {
namespace {

ExitCode run_exp_rounding_edges(const CommonOptions& common) {
  const std::vector<Claim> claims = analysis::rounding_edges();
  if (!common.out.empty()) {
    std::string csv = "topic,claim,expected,computed,verdict\n";
    for (const Claim& one : claims)
      csv += fmt::format("\"{}\",\"{}\",{},{},{}\n", one.topic, one.claim, one.criterion, one.measured,
                         name_of(one.verdict));
    make_folders(common.out);
    write_file_atomically(common.out / "exp_rounding_edges.csv", csv);
  }
  const std::string question = "what happens at every edge of FP16 rounding?";
  print_question(question, "");
  return conclude(common, question, claims, {.list = analysis::claims_lines});
}

}  // namespace
}  // namespace fp16lab::experiments

int main(int argc, char** argv) {
  using namespace fp16lab::experiments;
  return experiment_main(
      argc, argv,
      {.name = "exp_rounding_edges",
       .description = "What happens at every edge of FP16 rounding? Prints claim and verdict a line.",
       .examples = "  exp_rounding_edges\n"
                   "  exp_rounding_edges -o results/exp_rounding_edges",
       .declare = [](Options&) { return run_exp_rounding_edges; }},
      {});
}
