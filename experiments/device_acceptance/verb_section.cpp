// Sections "verbs" and "tiles": every verb of the back end, and every tile of its products, against the
// emulated one.
#include <fmt/format.h>

#include "experiments/device_acceptance/case_section.hpp"
#include "tests/engine/backend/cases/tile_cases.hpp"

namespace fp16lab::experiments::acceptance {
namespace {

SectionResult compare(const Settings& settings, const Goals& goals, const CaseList& list,
                      const std::string& what) {
  const std::vector<VerbRow> rows = compare_on_device(settings, list);
  SectionResult result = result_of(rows, what);
  result.claims = case_claims(settings, goals, rows);
  return result;
}

}  // namespace

Goals verb_goals(const Settings&) { return case_goals("verbs"); }
Goals tile_goals(const Settings&) { return case_goals("tiles"); }

CaseList verb_cases(const Settings& settings) {
  return {all_verb_cases(), settings.rehearsal() || settings.quick ? CaseSize::small : CaseSize::full};
}

CaseList tile_case_list(const Settings& settings) {
  // Whole slices of k, and one that ends within an instruction and so has rows that are moved to be aligned.
  return {tile_cases(tile_gpu(settings), settings.sized<std::vector<std::int64_t>>({64, 131}, {72}, {24}))};
}

SectionResult compare_all_verbs(const Settings& settings, const Goals& goals) {
  return compare(settings, goals, verb_cases(settings), "verbs");
}

SectionResult compare_all_tiles(const Settings& settings, const Goals& goals) {
  SectionResult result = compare(settings, goals, tile_case_list(settings), "tiles");
  result.notes.push_back(fmt::format(
      "extents are the least that the planner cuts into these tiles on a device of {} multiprocessors",
      settings.side.multiprocessors));
  return result;
}

}  // namespace fp16lab::experiments::acceptance
