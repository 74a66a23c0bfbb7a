// Sections "verbs" and "tiles": every verb of the back end, and every tile of its products, against the
// emulated one.
#include <fmt/format.h>

#include "engine/backend/emulated/emulated_backend.hpp"
#include "experiments/device_acceptance/cases/tile_cases.hpp"
#include "experiments/device_acceptance/cases/verb_cases.hpp"
#include "experiments/device_acceptance/section.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"

namespace fp16lab::experiments::acceptance {
namespace {

/// The cases on both back ends; `what`: "verbs".
SectionResult compare(const Settings& settings, const Goals& goals, const std::vector<VerbCase>& cases,
                      CaseSize size, const std::string& what) {
  const auto emulated =
      engine::make_emulated_backend(tensor_core_model(settings.side.tensor_core), settings.threads);
  const auto device = settings.side.make({.gemm = engine::GemmRoute::mma});
  const std::vector<VerbRow> rows =
      compare_cases(cases, *emulated, *device, size, settings.seed, settings.progress);

  SectionResult result;
  Table table{.caption = "Against the emulated back end, bit for bit",
              .columns = {what, "cases", "elements", "differing elements", "differing bits", "same"},
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
  result.claims = {
      none_differ(settings, goals[0], differing, elements, "elements"),
      must_hold(settings, goals[1], fmt::format("{} of {}", rows.size() - failed, rows.size()), failed == 0)};
  return result;
}

Goals goals_of(const std::string& what) {
  return {no_difference(fmt::format("all {} against the emulated back end", what)),
          {.claim = {.claim = fmt::format("{} that ran on both back ends", what), .criterion = "all"}}};
}

}  // namespace

Goals verb_goals(const Settings&) { return goals_of("verbs"); }
Goals tile_goals(const Settings&) { return goals_of("tiles"); }

SectionResult compare_all_verbs(const Settings& settings, const Goals& goals) {
  const CaseSize size = settings.rehearsal() || settings.quick ? CaseSize::small : CaseSize::full;
  return compare(settings, goals, all_verb_cases(), size, "verbs");
}

SectionResult compare_all_tiles(const Settings& settings, const Goals& goals) {
  // Whole slices of k, and one that ends within an instruction and so has rows that are moved to be aligned.
  const std::vector<std::int64_t> depths = settings.sized<std::vector<std::int64_t>>({64, 131}, {72}, {24});
  SectionResult result = compare(settings, goals,
                                 tile_cases({settings.side.multiprocessors, settings.side.shared_per_block,
                                             settings.side.shared_per_multiprocessor},
                                            depths),
                                 CaseSize::full, "tiles");
  result.notes.push_back(fmt::format(
      "extents are the least that the planner cuts into these tiles on a device of {} multiprocessors",
      settings.side.multiprocessors));
  return result;
}

}  // namespace fp16lab::experiments::acceptance
