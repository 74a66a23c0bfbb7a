// The back ends that the conformance suite runs on. Thread counts are entries too: all must give the twins'
// bits.
#include "engine/backend/emulated/emulated_backend.hpp"
#include "engine/tensor/storage.hpp"
#include "tests/engine/backend_conformance.hpp"

namespace fp16lab::engine::test {

std::vector<BackendFactory> backend_factories() {
  const auto emulated = [](const std::string& model, int threads) {
    return BackendFactory{
        .name = "emulated_" + model + "_threads" + std::to_string(threads),
        .make = [model, threads] { return make_emulated_backend(tensor_core_model(model), threads); },
        .make_pool = [] { return std::make_unique<StoragePool>(make_host_memory()); },
        .unavailable = ""};
  };
  return {emulated("hopper", 1), emulated("hopper", 2), emulated("hopper", 3), emulated("volta", 1)};
}

INSTANTIATE_TEST_SUITE_P(All, BackendConformance, testing::ValuesIn(backend_factories()),
                         [](const auto& factory) { return factory.param.name; });

}  // namespace fp16lab::engine::test
