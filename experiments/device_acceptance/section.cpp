#include "experiments/device_acceptance/section.hpp"

#include <fmt/format.h>

#include <cmath>

namespace fp16lab::experiments::acceptance {
namespace {

Goal judged(const Settings& settings, std::string name, std::string target,
            const std::optional<double>& value, const std::string& unit, bool holds) {
  Goal goal{.name = std::move(name), .target = std::move(target), .measured = "not measured"};
  if (!value || !std::isfinite(*value)) return goal;
  goal.measured = fmt::format("{:.3g} {}", *value, unit);
  if (settings.rehearsal())
    goal.measured += " (rehearsal, meaningless)";
  else
    goal.verdict = holds ? Verdict::pass : Verdict::missed;
  return goal;
}

}  // namespace

std::string name_of(Verdict verdict) {
  return verdict == Verdict::pass ? "PASS" : verdict == Verdict::missed ? "MISSED" : "not measured";
}

Goal at_least(const Settings& settings, std::string name, double limit, std::optional<double> value,
              const std::string& unit) {
  return judged(settings, std::move(name), fmt::format(">= {:g} {}", limit, unit), value, unit,
                value && *value >= limit);
}

Goal at_most(const Settings& settings, std::string name, double limit, std::optional<double> value,
             const std::string& unit) {
  return judged(settings, std::move(name), fmt::format("<= {:g} {}", limit, unit), value, unit,
                value && *value <= limit);
}

Goal none_differ(std::string name, std::uint64_t differing, std::uint64_t of, const std::string& what) {
  return {.name = std::move(name),
          .target = "0 differ",
          .measured = fmt::format("{} of {} {} differ", differing, of, what),
          .verdict = differing == 0 && of > 0 ? Verdict::pass : Verdict::missed};
}

Goal none_differ_on_gpu(const Settings& settings, std::string name, std::uint64_t differing, std::uint64_t of,
                        const std::string& what) {
  Goal goal = none_differ(std::move(name), differing, of, what);
  if (settings.rehearsal()) {
    goal.measured = "rehearsal: the emulator in the GPU's place";
    goal.verdict = Verdict::not_measured;
  }
  return goal;
}

const std::vector<Section>& all_sections() {
  static const std::vector<Section> sections{
      {"device", "what was measured on", false, &describe_device},
      {"probes", "does the tensor core compute what the table says (P1 to P8, P10, P11)", false,
       &probe_tensor_cores},
      {"products", "do mma.sync, wgmma and cuBLASLt give the emulator's bits (P9)", false, &compare_products},
      {"verbs", "does every verb give the emulated back end's bits", false, &compare_all_verbs},
      {"training", "does training give the emulated run's bits at every step", false, &compare_training},
      {"gemm", "how fast are matrix products", true, &time_products},
      {"steps", "how fast are the tutorials' training steps", true, &time_steps},
      {"histograms", "what does looking at every gradient cost", true, &time_histograms},
      {"memory", "what does each level hold in memory", false, &measure_memory},
  };
  return sections;
}

}  // namespace fp16lab::experiments::acceptance
