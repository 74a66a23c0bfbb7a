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
  if (settings.rehearsal()) goal.measured += " (rehearsal, meaningless)";
  goal.verdict = settings.rehearsal() ? Verdict::rehearsed : holds ? Verdict::pass : Verdict::behind;
  return goal;
}

}  // namespace

std::string name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::pass:
      return "PASS";
    case Verdict::missed:
      return "MISSED";
    case Verdict::behind:
      return "BEHIND";
    case Verdict::rehearsed:
      return "REHEARSED";
    case Verdict::not_measured:
      return "not measured";
  }
  return "?";
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

Goal must_hold(const Settings& settings, std::string name, std::string target, std::string measured,
               bool holds) {
  return {.name = std::move(name),
          .target = std::move(target),
          .measured = std::move(measured),
          .verdict = !holds                 ? Verdict::missed
                     : settings.rehearsal() ? Verdict::rehearsed
                                            : Verdict::pass};
}

Goal none_differ(const Settings& settings, std::string name, std::uint64_t differing, std::uint64_t of,
                 const std::string& what) {
  return must_hold(settings, std::move(name), "0 differ",
                   fmt::format("{} of {} {} differ", differing, of, what), differing == 0 && of > 0);
}

Goal none_differ_on_gpu(const Settings& settings, std::string name, std::uint64_t differing, std::uint64_t of,
                        const std::string& what) {
  Goal goal = none_differ(settings, std::move(name), differing, of, what);
  if (settings.rehearsal()) {
    goal.measured = "rehearsal: the emulator in the GPU's place";
    goal.verdict = of > 0 ? Verdict::rehearsed : Verdict::not_measured;
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
      {"tiles", "does every tile that products and convolutions can be cut into give those bits", false,
       &compare_all_tiles},
      {"training", "does training give the emulated run's bits at every step", false, &compare_training},
      {"gemm", "how fast are matrix products", true, &time_products},
      {"steps", "how fast are the tutorials' training steps", true, &time_steps},
      {"histograms", "what does looking at every gradient cost", true, &time_histograms},
      {"memory", "what does each level hold in memory", false, &measure_memory},
  };
  return sections;
}

}  // namespace fp16lab::experiments::acceptance
