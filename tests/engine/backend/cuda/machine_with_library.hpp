// The device back end on the PTX machine, with a fake library in cuBLASLt's place. Programs of these tests
// hold the objects of libfp16lab_cuda.so and the machine's CUDA runtime, so that they reach what the library
// does not export.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/backend/cuda/verbs/backend_impl.hpp"
#include "tests/engine/backend/cuda/fake_product_library.hpp"
#include "tests/machines/ptx/cudart/simulation.hpp"

namespace fp16lab::engine::test {

inline constexpr FakeAlgorithm right{};

/// A library whose work waits on the machine's streams, as cuBLASLt's does.
inline std::unique_ptr<ProductLibrary> fake_library(std::shared_ptr<FakeProductLibrary::Log> log) {
  return std::make_unique<FakeProductLibrary>(
      std::move(log), "hopper", [](void* stream, std::function<void()> work) {
        ptx::cudart::Simulation& simulation = ptx::cudart::Simulation::instance();
        const std::lock_guard lock(simulation.mutex);
        simulation.stream(static_cast<cudaStream_t>(stream))->add(std::move(work));
      });
}

/// A back end with a fake library, and what the two said.
struct MachineWithLibrary {
  explicit MachineWithLibrary(std::vector<FakeAlgorithm> offered,
                              CudaOptions options = {.gemm = GemmRoute::cublas}, bool accepting = true) {
    log->offered = std::move(offered);
    log->accepting = accepting;
    options.report = [this](std::string_view line) { reports.emplace_back(line); };
    backend = std::make_unique<gpu::CudaBackend>(options, [this] { return fake_library(log); });
  }

  std::shared_ptr<FakeProductLibrary::Log> log = std::make_shared<FakeProductLibrary::Log>();
  std::vector<std::string> reports;
  std::unique_ptr<Backend> backend;
};

}  // namespace fp16lab::engine::test
