// The host machine with a fake library in cuBLASLt's place.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/backend/cuda/cpu_simt/host_machine.hpp"
#include "tests/engine/backend/cuda/fake_product_library.hpp"

namespace fp16lab::engine::test {

inline constexpr FakeAlgorithm right{};

/// A back end with a fake library, and what the two said.
struct MachineWithLibrary {
  explicit MachineWithLibrary(std::vector<FakeAlgorithm> offered,
                              CudaOptions options = {.gemm = GemmRoute::cublas}, bool accepting = true) {
    log->offered = std::move(offered);
    log->accepting = accepting;
    options.tensor_core = options.tensor_core == "auto" ? "hopper" : options.tensor_core;
    options.report = [this](std::string_view line) { reports.emplace_back(line); };
    backend = cpu_simt::make_cuda_backend_on_cpu(options, cpu_simt::Schedule::ascending, [this, &options] {
      return std::make_unique<FakeProductLibrary>(log, options.tensor_core);
    });
  }

  std::shared_ptr<FakeProductLibrary::Log> log = std::make_shared<FakeProductLibrary::Log>();
  std::vector<std::string> reports;
  std::unique_ptr<Backend> backend;
};

}  // namespace fp16lab::engine::test
