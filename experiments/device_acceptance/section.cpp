#include "experiments/device_acceptance/section.hpp"

#include <fmt/format.h>

#include <cmath>
#include <stdexcept>

namespace fp16lab::experiments::acceptance {
namespace {

Goal limited(std::string name, const char* relation, double limit, bool lower, std::string unit) {
  return {.claim = {.claim = std::move(name),
                    .criterion = fmt::format("{} {:g} {}", relation, limit, unit),
                    .decides = false},
          .limit = limit,
          .lower = lower,
          .unit = std::move(unit)};
}

}  // namespace

Goal at_least(std::string name, double limit, std::string unit) {
  return limited(std::move(name), ">=", limit, true, std::move(unit));
}

Goal at_most(std::string name, double limit, std::string unit) {
  return limited(std::move(name), "<=", limit, false, std::move(unit));
}

Goal no_difference(std::string name) {
  return {.claim = {.claim = std::move(name), .criterion = "0 differ"}};
}

Claim judged(const Settings& settings, const Goal& goal, std::optional<double> value) {
  Claim claim = goal.claim;
  if (!value || !std::isfinite(*value)) return claim;
  claim.measured =
      fmt::format("{:.3g} {}{}", *value, goal.unit, settings.rehearsal() ? " (rehearsal, meaningless)" : "");
  claim.verdict = settings.rehearsal()
                      ? Verdict::rehearsed
                      : analysis::verdict_of(goal.lower ? *value >= goal.limit : *value <= goal.limit);
  return claim;
}

Claim must_hold(const Settings& settings, const Goal& goal, std::string measured, bool holds) {
  Claim claim = goal.claim;
  claim.measured = std::move(measured);
  claim.verdict = holds && settings.rehearsal() ? Verdict::rehearsed : analysis::verdict_of(holds);
  return claim;
}

Claim none_differ(const Settings& settings, const Goal& goal, std::uint64_t differing, std::uint64_t of,
                  const std::string& what) {
  return must_hold(settings, goal, fmt::format("{} of {} {} differ", differing, of, what),
                   differing == 0 && of > 0);
}

Claim none_differ_on_gpu(const Settings& settings, const Goal& goal, std::uint64_t differing,
                         std::uint64_t of, const std::string& what) {
  if (!settings.rehearsal()) return none_differ(settings, goal, differing, of, what);
  Claim claim = goal.claim;
  if (of == 0) return claim;
  claim.measured = "rehearsal: the emulator in the GPU's place";
  claim.verdict = Verdict::rehearsed;
  return claim;
}

Goals no_goals(const Settings&) { return {}; }

const std::vector<Section>& all_sections() {
  constexpr bool first = true, timing = true;
  static const std::vector<Section> sections{
      // The ten checks that come first on a device, in their order.
      {"device", "what was measured on", !timing, &no_goals, &describe_device, nullptr, first},
      {"tests", "do the tests that want a GPU pass", !timing, &test_goals, &run_gpu_tests, nullptr, first},
      {"probes", "does the tensor core compute what the table says (P1 to P8, P10, P11)", !timing,
       &probe_goals, &probe_tensor_cores, nullptr, first},
      {"large", "do products and a convolution of many large tiles give the emulator's bits", !timing,
       &large_goals, &compare_large, &large_cases, first},
      {"sanitizer", "does compute-sanitizer find errors of memory, barriers or races", !timing,
       &sanitizer_goals, &run_sanitizers, nullptr, first},
      {"capture", "does a step that is replayed as a graph have the bits of one that is not", !timing,
       &capture_goals, &compare_captures, &capture_cases, first},
      {"counts", "do CUB's counts, ours and scattered rows agree", !timing, &count_goals, &compare_counts,
       &count_cases, first},
      {"products", "do mma.sync and wgmma give the emulator's bits", !timing, &product_goals,
       &compare_products, &product_cases, first},
      {"profile", "what does our own product of 8192 cubed reach", timing, &no_goals, &profile_product,
       nullptr, first},
      // What takes long.
      {"verbs", "does every verb give the emulated back end's bits", !timing, &verb_goals, &compare_all_verbs,
       &verb_cases},
      {"tiles", "does every tile that products and convolutions can be cut into give those bits", !timing,
       &tile_goals, &compare_all_tiles, &tile_case_list},
      {"training", "does training give the emulated run's bits at every step", !timing, &training_goals,
       &compare_training},
      {"gemm", "how fast are matrix products", timing, &gemm_goals, &time_products},
      {"steps", "how fast are the tutorials' training steps", timing, &step_goals, &time_steps},
      {"histograms", "what does looking at every gradient cost", timing, &histogram_goals, &time_histograms},
      {"memory", "what does each level hold in memory", !timing, &memory_goals, &measure_memory},
  };
  return sections;
}

const Section& section_called(std::string_view name) {
  for (const Section& section : all_sections())
    if (section.name == name) return section;
  throw std::runtime_error(fmt::format("there is no section '{}'", name));
}

}  // namespace fp16lab::experiments::acceptance
