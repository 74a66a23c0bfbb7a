// The back ends that the conformance suite runs on. Thread counts are entries too: all must give the twins'
// bits.
#include "engine/backend/cuda/cuda_backend.hpp"
#include "engine/backend/cuda/runtime/devices.hpp"
#include "engine/backend/emulated/emulated_backend.hpp"
#include "engine/tensor/storage.hpp"
#include "tests/engine/backend/conformance.hpp"

namespace fp16lab::engine::test {

std::vector<BackendFactory> backend_factories() {
  const auto emulated = [](const std::string& model, int threads) {
    return BackendFactory{
        .name = "emulated_" + model + "_threads" + std::to_string(threads),
        .make = [model, threads] { return make_emulated_backend(tensor_core_model(model), threads); },
        .make_pool = [] { return std::make_unique<StoragePool>(make_host_memory()); },
        .unavailable = ""};
  };
  // A GPU, where there is one: CTest's entry backend_conformance_gpu; or the PTX machine:
  // backend_conformance_ptx.
  const CudaStatus status = cuda_status();
  const BackendFactory cuda{.name = "cuda",
                            .make = [] { return make_cuda_backend({.gemm = GemmRoute::mma}); },
                            .make_pool = [] { return std::make_unique<StoragePool>(make_cuda_memory()); },
                            .unavailable = status.devices.empty() ? status.reason : ""};
  return {emulated("hopper", 1), emulated("hopper", 2), emulated("hopper", 3), emulated("volta", 1), cuda};
}

INSTANTIATE_TEST_SUITE_P(All, BackendConformance, testing::ValuesIn(backend_factories()),
                         [](const auto& factory) { return factory.param.name; });

}  // namespace fp16lab::engine::test
