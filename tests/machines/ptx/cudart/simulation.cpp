#include "tests/machines/ptx/cudart/simulation.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "tests/machines/ptx/cudart/ptx_executor.hpp"

namespace fp16lab::engine::ptx::cudart {

namespace {

/// A number of the environment in [low, high]; `otherwise` where the variable is not set.
std::size_t number_of(const char* variable, std::size_t otherwise, std::size_t low, std::size_t high) {
  const char* const text = std::getenv(variable);
  if (text == nullptr) return otherwise;
  const char* const end = text + std::strlen(text);
  std::size_t value = 0;
  const auto [rest, error] = std::from_chars(text, end, value);
  if (error != std::errc{} || rest != end || value < low || value > high)
    throw std::invalid_argument(std::string(variable) + "=" + text + ": expected a number from " +
                                std::to_string(low) + " to " + std::to_string(high));
  return value;
}

}  // namespace

Simulation& Simulation::instance() {
  // Never destroyed: the last tensors are given back while the process ends.
  static Simulation* const simulation = [] {
    auto* const made = new Simulation;
    made->set_up_from_environment();
    return made;
  }();
  return *simulation;
}

ThreadState& Simulation::thread() {
  static thread_local ThreadState state;
  return state;
}

void Simulation::set_up_from_environment() {
  const char* const folder = std::getenv("FP16LAB_PTX");
  if (folder == nullptr) return;  // no device
  try {
    Settings settings;
    settings.devices = static_cast<int>(number_of("FP16LAB_PTX_DEVICES", 1, 0, 8));
    settings.architecture = static_cast<int>(number_of("FP16LAB_PTX_ARCH", 90, 10, 999));
    settings.multiprocessors = static_cast<int>(number_of("FP16LAB_PTX_MULTIPROCESSORS", 4, 1, 1024));
    settings.memory_bytes = number_of("FP16LAB_PTX_MEMORY_MIB", 4096, 1, std::size_t{1} << 20) << 20;
    settings.make_executor = ptx_executor_maker(folder);
    reset(settings);
  } catch (const std::exception& error) {
    devices.clear();
    say(error.what());
  }
}

void Simulation::reset(const Settings& settings) {
  executables = {};
  graphs = {};
  events = {};
  streams = {};
  devices.clear();
  settings_ = settings;
  thread() = {};
  for (int ordinal = 0; ordinal < settings_.devices; ++ordinal)
    devices.push_back(std::make_unique<Device>(ordinal, settings_));
}

Device& Simulation::current() {
  require(!devices.empty(), cudaErrorNoDevice);
  return *devices[static_cast<std::size_t>(thread().device)];
}

Device* Simulation::owner(const void* address, std::size_t bytes) const {
  for (const std::unique_ptr<Device>& device : devices)
    if (device->owns(address, bytes)) return device.get();
  return nullptr;
}

std::shared_ptr<Stream> Simulation::stream(cudaStream_t handle) {
  if (handle == nullptr || handle == cudaStreamLegacy) return current().streams.front();
  return streams.find(handle);
}

const KernelFacts& Simulation::kernel(const void* host_function) {
  const auto found = registered.find(host_function);
  require(found != registered.end(), cudaErrorInvalidDeviceFunction);
  return current().kernel(found->second.name);
}

void Simulation::require_texts_of_the_program(Device& device) const {
  struct Unit {
    std::size_t kernels = 0, missing = 0;
    std::string first;  // the first missing one by name
  };
  std::map<const void*, Unit> units;
  for (const auto& [host_function, kernel] : registered) {
    Unit& unit = units[kernel.unit];
    ++unit.kernels;
    if (device.has_kernel(kernel.name)) continue;
    if (unit.missing++ == 0 || kernel.name < unit.first) unit.first = kernel.name;
  }
  const auto is_foreign = [](const auto& unit) { return unit.second.missing == unit.second.kernels; };
  const bool none_fits = std::all_of(units.begin(), units.end(), is_foreign);
  for (const auto& [handle, unit] : units) {
    if (unit.missing == 0 || (unit.missing == unit.kernels && !none_fits)) continue;
    say("the texts of FP16LAB_PTX are of another build than the program: they lack " +
        std::to_string(unit.missing) + " of the " + std::to_string(unit.kernels) +
        " kernels of one of its sources, first " + unit.first +
        "; build the target of the texts again (fp16lab_ptx_90 for FP16LAB_PTX_ARCH=90)");
    throw Refusal{cudaErrorInvalidKernelImage};
  }
}

}  // namespace fp16lab::engine::ptx::cudart
