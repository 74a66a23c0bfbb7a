#include "tests/machines/ptx/cudart/ptx_executor.hpp"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <limits>
#include <map>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "numerics/tensor_core/tensor_core_model.hpp"
#include "tests/machines/ptx/texts.hpp"

namespace fp16lab::engine::ptx::cudart {

namespace {

Order order_of_environment() {
  const char* const text = std::getenv("FP16LAB_PTX_ORDER");
  const std::string_view order = text == nullptr ? "ascending" : text;
  if (order == "ascending") return Order::ascending;
  if (order == "descending") return Order::descending;
  if (order == "scrambled") return Order::scrambled;
  throw std::invalid_argument("FP16LAB_PTX_ORDER=" + std::string(order) +
                              ": expected ascending, descending or scrambled");
}

/// On, unless the user turns the watch off to see what comes after a race.
bool races_of_environment() {
  const char* const text = std::getenv("FP16LAB_PTX_RACES");
  const std::string_view races = text == nullptr ? "on" : text;
  if (races != "on" && races != "off")
    throw std::invalid_argument("FP16LAB_PTX_RACES=" + std::string(races) + ": expected on or off");
  return races == "on";
}

/// No grid of a kernel that walks by its extent has more blocks: a test of a few thousand elements then sees
/// its second and third stride, with what a block has left in shared memory. FP16LAB_PTX_GRID; no limit where
/// it is not set.
std::uint32_t largest_grid_of_environment() {
  const char* const text = std::getenv("FP16LAB_PTX_GRID");
  if (text == nullptr) return std::numeric_limits<std::uint32_t>::max();
  const int blocks = std::atoi(text);
  if (blocks < 1)
    throw std::invalid_argument(std::string("FP16LAB_PTX_GRID=") + text + ": expected a number from 1");
  return static_cast<std::uint32_t>(blocks);
}

/// Plants a fault in every launch of a matrix product, by FP16LAB_PTX_PLANT, so that tests see which check
/// notices it. true: the launch is to be left out.
bool planted(std::string_view kernel) {
  const char* const text = std::getenv("FP16LAB_PTX_PLANT");
  const std::string_view kind = text == nullptr ? "" : text;
  if (kind.empty() || kernel.find("14multiply_tiles") == kernel.npos) return false;
  for (const char* const of_convolutions :
       {"10GatherTile", "11ChannelRuns", "12PositionRuns", "11PlaneChains"})
    if (kernel.find(of_convolutions) != kernel.npos) return false;
  if (kind == "crash") std::raise(SIGSEGV);
  while (kind == "hang") pause();
  if (kind == "poison") throw Fault(FaultKind::bounds, std::string(kernel) + ": planted");
  if (kind != "bits")
    throw std::invalid_argument("FP16LAB_PTX_PLANT=" + std::string(kind) +
                                ": expected bits, crash, hang or poison");
  return true;
}

/// The rows of the device's tensor cores; what it does not multiply stays null.
Machine::Options options_for(const Capability& capability) {
  Machine::Options options;
  options.order = order_of_environment();
  options.watch_races = races_of_environment();
  const std::string_view name = tensor_core_of(capability.major, capability.minor);
  options.f16 = &tensor_core_model(name);
  if (capability.major >= 8) {
    options.bf16 = &tensor_core_model(name, DType::bf16);
    options.tf32 = &tensor_core_model(name, DType::tf32);
  }
  return options;
}

/// In an unnamed namespace nvcc puts a hash of the source's path into the names
/// (_GLOBAL__N__ca871cdf_7_cast_cu_...). Without it a text from another folder, or one that a compiler cache
/// gave back, has the library's names.
std::string without_hash_of_path(std::string_view name) {
  constexpr std::string_view begin = "_GLOBAL__N__";
  std::string kept(name);
  for (std::size_t at = kept.find(begin); at != std::string::npos; at = kept.find(begin, at)) {
    at += begin.size();
    const std::size_t end = kept.find('_', at);
    if (end == at + 8) kept.replace(at, 8, "");
  }
  return kept;
}

class PtxExecutor final : public KernelExecutor {
 public:
  PtxExecutor(const std::string& places, const Settings& settings, DeviceMemory& memory)
      : program_(memory), machine_(memory, options_for(capability_of(settings.architecture))) {
    for (auto& [file, text] : ptx_texts(places)) program_.add(file, std::move(text));
    for (const std::string& name : program_.names()) {
      const auto [entry, is_new] = names_.try_emplace(without_hash_of_path(name), name);
      if (!is_new) entry->second.clear();  // two sources of one name have a kernel of one name
    }
  }

  int architecture() const override { return program_.architecture(); }

  bool has(std::string_view mangled_name) const override { return kernel_of(mangled_name) != nullptr; }

  const KernelFacts* find(std::string_view mangled_name) override {
    const auto known = kernels_.find(mangled_name);
    if (known != kernels_.end()) return &known->second.facts;
    const Kernel* const kernel = kernel_of(mangled_name);
    if (kernel == nullptr) return nullptr;
    Known made{kernel, program_.facts(*kernel)};
    made.facts.name = mangled_name;
    return &kernels_.emplace(mangled_name, std::move(made)).first->second.facts;
  }

  void launch(const KernelFacts& kernel, const Grid& grid, const void* const* parameters) override {
    if (planted(kernel.name)) return;
    Grid launched = grid;
    if (kernel.walks_by_grid) launched.x = std::min(grid.x, largest_grid_);
    machine_.launch(*kernels_.find(kernel.name)->second.kernel, launched, parameters);
  }

 private:
  struct Known {
    const Kernel* kernel;
    KernelFacts facts;
  };
  const Kernel* kernel_of(std::string_view mangled_name) const {
    if (const Kernel* const kernel = program_.find(mangled_name)) return kernel;
    const auto found = names_.find(without_hash_of_path(mangled_name));
    return found == names_.end() ? nullptr : program_.find(found->second);
  }

  Program program_;
  Machine machine_;
  std::uint32_t largest_grid_ = largest_grid_of_environment();
  std::map<std::string, std::string> names_;           ///< by what without_hash_of_path leaves
  std::map<std::string, Known, std::less<>> kernels_;  ///< by the program's name
};

}  // namespace

std::function<std::unique_ptr<KernelExecutor>(const Settings&, DeviceMemory&)> ptx_executor_maker(
    const std::string& places) {
  return [places](const Settings& settings, DeviceMemory& memory) {
    return std::make_unique<PtxExecutor>(places, settings, memory);
  };
}

}  // namespace fp16lab::engine::ptx::cudart
