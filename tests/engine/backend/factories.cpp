// The back ends that the conformance suite runs on. Thread counts are entries too: all must give the twins'
// bits.
#include <memory>
#include <utility>

#include "engine/backend/cuda/cuda_backend.hpp"
#include "engine/backend/cuda/runtime/devices.hpp"
#include "engine/backend/emulated/recording.hpp"
#include "engine/tensor/storage.hpp"
#include "tests/engine/backend/conformance.hpp"

namespace fp16lab::engine::test {

namespace {

/// Every verb is recorded by itself, where it may be, and replayed at once.
class ReplayedVerbs final : public Recordable<EmulatedBackend> {
 public:
  using Recordable::Recordable;

  std::unique_ptr<Recording> record(const std::function<void()>& work) override {
    std::unique_ptr<Recording> recording;
    const bool outer = std::exchange(recording_, true);
    try {
      recording = Recordable::record(work);
    } catch (...) {
      recording_ = outer;
      throw;
    }
    recording_ = outer;
    return recording;
  }

 protected:
#define FP16LAB_VERB(verb, ...)                                                         \
  void do_##verb(FP16LAB_PARAMETERS(__VA_ARGS__)) override {                            \
    replay_or_do(#verb, [&] { Recordable::do_##verb FP16LAB_ARGUMENTS(__VA_ARGS__); }); \
  }
  FP16LAB_BACKEND_VERBS(FP16LAB_VERB)
#undef FP16LAB_VERB
  void do_count_update(const Tensor& before, const Tensor& weight, const Tensor& gradient,
                       UpdateProbes& probes) override {
    replay_or_do("count_update", [&] { Recordable::do_count_update(before, weight, gradient, probes); });
  }
  Tensor do_pack_b(const GemmCall& call, const checks::GemmPlan& plan) override {
    Tensor packed;
    replay_or_do("pack_b", [&] { packed = Recordable::do_pack_b(call, plan); });
    return packed;
  }

 private:
  void replay_or_do(std::string_view verb, const std::function<void()>& work) {
    const bool meets_host = verb == "upload" || verb == "download" || verb == "histogram" || verb == "settle";
    if (recording_ || meets_host)
      work();
    else
      record(work)->replay();
  }

  bool recording_ = false;
};

}  // namespace

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
  BackendFactory replayed = emulated("hopper", 3);
  replayed.name = "emulated_hopper_replayed";
  replayed.make = [] { return std::make_unique<ReplayedVerbs>(tensor_core_model("hopper"), 3); };
  return {emulated("hopper", 1), emulated("hopper", 2), replayed, emulated("volta", 1), cuda};
}

INSTANTIATE_TEST_SUITE_P(All, BackendConformance, testing::ValuesIn(backend_factories()),
                         [](const auto& factory) { return factory.param.name; });

}  // namespace fp16lab::engine::test
