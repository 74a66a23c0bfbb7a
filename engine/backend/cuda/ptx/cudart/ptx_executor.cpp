#include "engine/backend/cuda/ptx/cudart/ptx_executor.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "numerics/tensor_core/tensor_core_model.hpp"

namespace fp16lab::engine::ptx::cudart {

namespace {

namespace fs = std::filesystem;

std::vector<fs::path> files_below(const std::string& folders) {
  std::vector<fs::path> files;
  std::istringstream list(folders);
  for (std::string folder; std::getline(list, folder, ':');)
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder))
      if (entry.path().extension() == ".ptx") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  if (files.empty()) throw std::invalid_argument("FP16LAB_PTX=" + folders + ": there is no .ptx file");
  return files;
}

Order order_of_environment() {
  const char* const text = std::getenv("FP16LAB_PTX_ORDER");
  const std::string_view order = text == nullptr ? "ascending" : text;
  if (order == "ascending") return Order::ascending;
  if (order == "descending") return Order::descending;
  if (order == "scrambled") return Order::scrambled;
  throw std::invalid_argument("FP16LAB_PTX_ORDER=" + std::string(order) +
                              ": expected ascending, descending or scrambled");
}

/// On, unless somebody wants to see what is behind a race.
bool races_of_environment() {
  const char* const text = std::getenv("FP16LAB_PTX_RACES");
  const std::string_view races = text == nullptr ? "on" : text;
  if (races != "on" && races != "off")
    throw std::invalid_argument("FP16LAB_PTX_RACES=" + std::string(races) + ": expected on or off");
  return races == "on";
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

class PtxExecutor final : public KernelExecutor {
 public:
  PtxExecutor(const std::string& folders, const Settings& settings, DeviceMemory& memory)
      : program_(memory), machine_(program_, memory, options_for(capability_of(settings.architecture))) {
    for (const fs::path& file : files_below(folders)) {
      std::ifstream in(file, std::ios::binary);
      program_.add(file.filename().string(), {std::istreambuf_iterator<char>(in), {}});
    }
  }

  int architecture() const override { return program_.architecture(); }

  const KernelFacts* find(std::string_view mangled_name) override {
    const auto known = kernels_.find(mangled_name);
    if (known != kernels_.end()) return &known->second.facts;
    const Kernel* const kernel = program_.find(mangled_name);
    if (kernel == nullptr) return nullptr;
    return &kernels_.emplace(mangled_name, Known{kernel, program_.facts(*kernel)}).first->second.facts;
  }

  void launch(const KernelFacts& kernel, const Grid& grid, const void* const* parameters) override {
    machine_.launch(*kernels_.find(kernel.name)->second.kernel, grid, parameters);
  }

 private:
  struct Known {
    const Kernel* kernel;
    KernelFacts facts;
  };
  Program program_;
  Machine machine_;
  std::map<std::string, Known, std::less<>> kernels_;
};

}  // namespace

std::function<std::unique_ptr<KernelExecutor>(const Settings&, DeviceMemory&)> ptx_executor_maker(
    const std::string& folders) {
  return [folders](const Settings& settings, DeviceMemory& memory) {
    return std::make_unique<PtxExecutor>(folders, settings, memory);
  };
}

}  // namespace fp16lab::engine::ptx::cudart
