#include "experiments/device_acceptance/section.hpp"

#include <fmt/format.h>

#include <cmath>

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

const std::vector<Section>& all_sections() {
  static const std::vector<Section> sections{
      {"device", "what was measured on", false, [](const Settings&) { return Goals{}; }, &describe_device},
      {"probes", "does the tensor core compute what the table says (P1 to P8, P10, P11)", false, &probe_goals,
       &probe_tensor_cores},
      {"products", "do mma.sync, wgmma and cuBLASLt give the emulator's bits (P9)", false, &product_goals,
       &compare_products},
      {"verbs", "does every verb give the emulated back end's bits", false, &verb_goals, &compare_all_verbs},
      {"tiles", "does every tile that products and convolutions can be cut into give those bits", false,
       &tile_goals, &compare_all_tiles},
      {"training", "does training give the emulated run's bits at every step", false, &training_goals,
       &compare_training},
      {"gemm", "how fast are matrix products", true, &gemm_goals, &time_products},
      {"steps", "how fast are the tutorials' training steps", true, &step_goals, &time_steps},
      {"histograms", "what does looking at every gradient cost", true, &histogram_goals, &time_histograms},
      {"memory", "what does each level hold in memory", false, &memory_goals, &measure_memory},
  };
  return sections;
}

}  // namespace fp16lab::experiments::acceptance
