// Section "device": what everything else was measured on.
#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <memory>

#include "engine/backend/cuda/runtime/devices.hpp"
#include "experiments/app/build_info.hpp"
#include "experiments/device_acceptance/section.hpp"

namespace fp16lab::experiments::acceptance {
namespace {

/// What `nvidia-smi` says of this device; nothing where it is not there.
std::vector<std::pair<std::string, std::string>> asked_of_nvidia_smi(int ordinal) {
  static constexpr const char* keys[] = {"driver_version",
                                         "vbios_version",
                                         "pci.bus_id",
                                         "clocks.sm",
                                         "clocks.mem",
                                         "clocks.max.sm",
                                         "clocks.max.mem",
                                         "power.limit",
                                         "power.draw",
                                         "temperature.gpu",
                                         "ecc.mode.current",
                                         "mig.mode.current",
                                         "clocks_event_reasons.active",
                                         "persistence_mode"};
  std::vector<std::pair<std::string, std::string>> answers;
  for (const char* key : keys) {
    const std::string command =
        fmt::format("nvidia-smi -i {} --query-gpu={} --format=csv,noheader 2>/dev/null", ordinal, key);
    const auto close = [](FILE* pipe) { pclose(pipe); };
    const std::unique_ptr<FILE, decltype(close)> pipe(popen(command.c_str(), "r"), close);
    if (!pipe) return answers;
    std::array<char, 256> line{};
    if (std::fgets(line.data(), line.size(), pipe.get()) == nullptr) {
      if (answers.empty()) return answers;  // it is not there
      continue;                             // another version of it, without this key
    }
    std::string answer = line.data();
    while (!answer.empty() && (answer.back() == '\n' || answer.back() == '\r')) answer.pop_back();
    answers.emplace_back(key, answer);
  }
  return answers;
}

}  // namespace

SectionResult describe_device(const Settings& settings, const Goals&) {
  Table table{.caption = "Machine", .columns = {"what", "value"}, .rows = {}};
  const auto add = [&](const std::string& what, const std::string& value) {
    table.rows.push_back({what, value});
  };
  add("device", settings.side.description);
  add("tensor cores", settings.side.tensor_core);
  const engine::CudaStatus status = engine::cuda_status();
  for (const engine::CudaDevice& device : status.devices) {
    if (settings.rehearsal() || device.ordinal != settings.side.ordinal) continue;
    add("memory", fmt::format("{} bytes", device.memory_bytes));
    add("multiprocessors", fmt::format("{}", device.multiprocessors));
    for (const auto& [key, value] : asked_of_nvidia_smi(device.ordinal)) add("nvidia-smi " + key, value);
  }
  add("CUDA driver, runtime", fmt::format("{}, {}", status.driver_version, status.runtime_version));
  add("version", git_hash());
  add("compiler", compiler_name() + " " + compiler_flags());
  add("processor", fmt::format("{}, {} threads used", cpu_name(), settings.threads));
  add("command", settings.command);
  return {.tables = {std::move(table)}, .notes = {}, .claims = {}};
}

}  // namespace fp16lab::experiments::acceptance
