// Section "verbs": every verb of the back end against the emulated one.
#include <fmt/format.h>

#include "engine/backend/emulated/emulated_backend.hpp"
#include "experiments/device_acceptance/section.hpp"
#include "experiments/device_acceptance/verb_cases.hpp"
#include "numerics/tensor_core_model.hpp"

namespace fp16lab::experiments::acceptance {

SectionResult compare_all_verbs(const Settings& settings) {
  const auto emulated =
      engine::make_emulated_backend(tensor_core_model(settings.side.tensor_core), settings.threads);
  const auto device = settings.side.make({.gemm = engine::GemmRoute::mma});
  const CaseSize size = settings.rehearsal() || settings.quick ? CaseSize::small : CaseSize::full;
  const std::vector<VerbRow> rows = compare_verbs(*emulated, *device, size, settings.seed, settings.progress);

  SectionResult result;
  Table table{.caption = "Against the emulated back end, bit for bit",
              .columns = {"verb", "cases", "elements", "differing elements", "differing bits", "same"},
              .rows = {}};
  std::uint64_t differing = 0, elements = 0, failed = 0;
  for (const VerbRow& row : rows) {
    table.rows.push_back({row.verb, fmt::format("{}", row.cases), fmt::format("{}", row.elements),
                          fmt::format("{}", row.differing_elements), fmt::format("{}", row.differing_bits),
                          row.same()   ? "yes"
                          : row.failed ? "FAILED"
                                       : "NO"});
    differing += row.differing_elements;
    elements += row.elements;
    failed += row.failed ? 1 : 0;
    for (const std::string& note : row.notes) result.notes.push_back(row.verb + ": " + note);
  }
  result.tables.push_back(std::move(table));
  result.goals.push_back(none_differ(fmt::format("all {} verbs against the emulated back end", rows.size()),
                                     differing, elements, "elements"));
  result.goals.push_back({.name = "verbs that ran on both back ends",
                          .target = "all",
                          .measured = fmt::format("{} of {}", rows.size() - failed, rows.size()),
                          .verdict = failed == 0 ? Verdict::pass : Verdict::missed});
  return result;
}

}  // namespace fp16lab::experiments::acceptance
