#include "tests/engine/backend/cuda/ptx/proof/symbolic_device.hpp"

#include <cxxabi.h>

#include <cstdlib>
#include <regex>
#include <stdexcept>
#include <utility>

#include "engine/backend/cuda/cuda_backend.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"
#include "tests/machines/ptx/cudart/simulation.hpp"
#include "tests/machines/ptx/machine.hpp"

namespace fp16lab::engine::ptx::test {

struct SymbolicDevice::State {
  Symbolic terms;
  std::vector<std::string> launched;
  std::string fault;
};

namespace {

class SymbolicExecutor final : public cudart::KernelExecutor {
 public:
  SymbolicExecutor(const cudart::Settings& settings, DeviceMemory& memory, const Texts& texts,
                   std::shared_ptr<SymbolicDevice::State> state)
      : state_(std::move(state)), program_(memory), machine_(memory, options_for(settings.architecture)) {
    for (const auto& [file, text] : texts) program_.add(file, text);
  }

  int architecture() const override { return program_.architecture(); }
  bool has(std::string_view name) const override { return program_.find(name) != nullptr; }
  const KernelFacts* find(std::string_view name) override {
    const Kernel* const kernel = program_.find(name);
    if (kernel == nullptr) return nullptr;
    return &facts_.try_emplace(std::string(name), program_.facts(*kernel)).first->second;
  }
  void launch(const KernelFacts& kernel, const Grid& grid, const void* const* parameters) override {
    if (makes_products(kernel.name)) state_->launched.push_back(kernel.name);
    try {
      machine_.launch(*program_.find(kernel.name), grid, parameters);
    } catch (const std::exception& fault) {
      state_->fault = fault.what();
      throw;
    }
  }

 private:
  Machine::Options options_for(int architecture) {
    Machine::Options options;
    const std::string_view row = tensor_core_of(architecture / 10, architecture % 10);
    options.f16 = &tensor_core_model(row);
    if (architecture >= 80) {
      options.bf16 = &tensor_core_model(row, DType::bf16);
      options.tf32 = &tensor_core_model(row, DType::tf32);
    }
    options.terms = &state_->terms;
    return options;
  }

  std::shared_ptr<SymbolicDevice::State> state_;
  Program program_;
  Machine machine_;
  std::map<std::string, KernelFacts, std::less<>> facts_;
};

}  // namespace

SymbolicDevice::SymbolicDevice(int architecture, const Texts& texts)
    : architecture_(architecture), state_(std::make_shared<State>()) {
  cudart::Settings settings;
  settings.architecture = architecture;
  settings.multiprocessors = 1;
  settings.make_executor = [state = state_, &texts](const cudart::Settings& chosen, DeviceMemory& memory) {
    return std::make_unique<SymbolicExecutor>(chosen, memory, texts, state);
  };
  cudart::Simulation::instance().reset(settings);
  backend_ = make_cuda_backend({.gemm = GemmRoute::mma});
}

SymbolicDevice::~SymbolicDevice() {
  backend_.reset();
  cudart::Simulation::instance().reset({.devices = 0});
}

void SymbolicDevice::begin() {
  state_->terms.clear();
  state_->launched.clear();
}
const Symbolic& SymbolicDevice::terms() const { return state_->terms; }
const std::vector<std::string>& SymbolicDevice::products_launched() const { return state_->launched; }
const std::string& SymbolicDevice::fault() const { return state_->fault; }

bool makes_products(std::string_view name) {
  return name.find("14multiply_tiles") != name.npos || name.find("15finish_products") != name.npos;
}

std::string short_name(const std::string& mangled_name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> demangled(
      abi::__cxa_demangle(mangled_name.c_str(), nullptr, nullptr, &status), &std::free);
  if (status != 0) return mangled_name;
  std::string name = demangled.get();
  const std::pair<const char*, const char*> shorter[] = {
      {R"(fp16lab::SmallFloat<fp16lab::Format<5, 11, \(fp16lab::Encoding\)0> >)", "f16"},
      {R"(fp16lab::SmallFloat<fp16lab::Format<8, 8, \(fp16lab::Encoding\)0> >)", "bf16"},
      {R"(fp16lab::engine::(gpu::|tile::|functions::)?(\(anonymous namespace\)::)?)", ""},
      {R"(\((tile::)?Runs\)0)", "along_k"},
      {R"(\((tile::)?Runs\)1)", "along_outer"},
      {R"(\(RowStart\)0)", "flagged"},
      {R"(\(RowStart\)1)", "aligned"},
      {R"(\(RowStart\)2)", "anywhere"},
      {R"(\(PatchRole\)0)", "depth_is_k"},
      {R"(\(PatchRole\)1)", "position_is_k"},
      {R"( >)", ">"},
      {R"(^void )", ""},
      {R"(^multiply_tiles<(.*)>\(.*$)", "$1"},
      {R"(\(float const\*.*$)", ""},
  };
  for (const auto& [pattern, replacement] : shorter)
    name = std::regex_replace(name, std::regex(pattern), replacement);
  return name;
}

}  // namespace fp16lab::engine::ptx::test
