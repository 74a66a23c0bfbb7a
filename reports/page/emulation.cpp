#include "reports/page/emulation.hpp"
#include "reports/page/marked.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <set>

namespace fp16lab::reports {

std::string device_of(const Run& run) {
  const auto& backend = run.folder.manifest.backend;
  return backend && !backend->device.empty() ? backend->device : value_or(run.config, "backend.device", "");
}

std::string tensor_core_of(const Run& run) {
  const auto& backend = run.folder.manifest.backend;
  return backend ? backend->tensor_core : value_or(run.config, "backend.tensor_core", "");
}

bool is_emulated(const RunSet& set, const Workload& workload) {
  for (const Configuration& configuration : workload.configurations)
    for (const std::size_t index : configuration.runs)
      if (!set.runs[index].missing && device_of(set.runs[index]) == "emulated") return true;
  return false;
}

std::string emulation_words(const RunSet& set) {
  std::size_t there = 0, emulated = 0;
  std::set<std::string> cores;
  for (const Run& run : set.runs) {
    if (run.missing) continue;
    ++there;
    if (device_of(run) != "emulated") continue;
    ++emulated;
    cores.insert(tensor_core_of(run));
  }
  if (emulated == 0) return "";
  if (emulated < there) return fmt::format(" ({} of them emulated on the CPU)", emulated);
  std::string core = cores.size() == 1 ? *cores.begin() : "";
  if (!core.empty() && core.front() >= 'a' && core.front() <= 'z')
    core.front() = static_cast<char>(core.front() - 'a' + 'A');
  return core.empty() ? " emulated on the CPU" : fmt::format(" on an emulated {} tensor core (CPU)", core);
}

std::string time_title(const std::string& name, bool emulated) {
  return emulated ? name + " " + small("(emulated: not a GPU’s speed)") : name;
}

}  // namespace fp16lab::reports
