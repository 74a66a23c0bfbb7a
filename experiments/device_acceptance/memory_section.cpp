// Section "memory": what each level holds, by class of tensor, from shapes and from the pool's own count.
#include <fmt/format.h>

#include <map>

#include "experiments/device_acceptance/section.hpp"
#include "experiments/device_acceptance/trained_case.hpp"

namespace fp16lab::experiments::acceptance {
namespace {

struct Bytes {
  std::size_t weights = 0;    ///< as the network sees them
  std::size_t masters = 0;    ///< FP32 copies beside 16-bit weights
  std::size_t gradients = 0;  ///< of weights, when all of them are there
  std::size_t optimizer = 0;
  std::size_t activations = 0;  ///< at the end of the forward pass (ForwardMemory)
  std::size_t peak = 0;         ///< most bytes of tensors alive at once, batch, casts and scratch included
};

Bytes bytes_of(TrainedCase& one) {
  Bytes bytes;
  for (const engine::Parameter* parameter : one.trainer().parameters()) {
    const bool has_master =
        parameter->model_value.defined() && parameter->dtypes.model != parameter->value.dtype();
    if (has_master) {
      bytes.weights += parameter->model_value.byte_count();
      bytes.masters += parameter->value.byte_count();
    } else {
      bytes.weights += parameter->value.byte_count();
    }
    if (parameter->gradient.defined()) bytes.gradients += parameter->gradient.byte_count();
  }
  for (std::size_t group = 0; group < one.trainer().optimizer_count(); ++group)
    for (const engine::optim::NamedTensor& state : one.trainer().optimizer(group).state())
      bytes.optimizer += state.tensor.byte_count();
  bytes.activations = one.activation_bytes();
  bytes.peak = one.backend().memory_statistics().peak_bytes_in_use;
  return bytes;
}

std::string mebibytes(std::size_t bytes) {
  return fmt::format("{:.2f}", static_cast<double>(bytes) / (1 << 20));
}

constexpr const char* systems[] = {"paddle_linear9", "paddle_mlp3"};

}  // namespace

Goals memory_goals(const Settings&) {
  Goals goals;
  for (const std::string system : systems) {
    goals.push_back(at_most(system + ": activations of O2 against FP32", 0.55, "x"));
    goals.push_back(at_most(system + ": all memory of O2 without masters against FP32", 0.55, "x"));
    goals.push_back(at_most(system + ": all memory of O2 with masters against FP32", 1.0, "x"));
  }
  return goals;
}

SectionResult measure_memory(const Settings& settings, const Goals& goals) {
  const std::pair<const char*, std::vector<std::string>> levels[] = {
      {"O0", {"amp.level=O0", "scaler.policy=none"}},
      {"O1", {"amp.level=O1"}},
      {"O2 with masters", {"amp.level=O2"}},
      {"O2 without masters", {"amp.level=O2", "amp.master_weights=false"}}};
  SectionResult result;
  Table table{
      .caption =
          "MiB by class of tensor. Activations: the input as the first layer reads it, and what the "
          "forward pass leaves alive (O1: with its casts of the weights). They are given back while the "
          "gradients of weights come into being, so the peak, batch and scratch included, is less than "
          "the sum",
      .columns = {"system", "level", "weights", "masters", "weight gradients", "optimizer", "activations",
                  "peak", "x O0"},
      .rows = {}};
  for (const char* system : systems) {
    std::map<std::string, Bytes> measured;
    for (const auto& [level, set] : levels) {
      if (settings.progress) settings.progress(fmt::format("{}: {}", system, level));
      std::vector<std::string> sized = set;
      // Large enough that blocks of the pool are not mostly their rounding.
      if (settings.rehearsal()) sized.emplace_back("model.scale_down=64");
      TrainedCase one(tutorial_config(settings, system, sized),
                      settings.side.make({.gemm = engine::GemmRoute::mma}), false, true);
      for (int step = 0; step < settings.sized(3, 2, 2); ++step) one.step();
      const Bytes bytes = bytes_of(one);
      measured[level] = bytes;
      table.rows.push_back({system, level, mebibytes(bytes.weights), mebibytes(bytes.masters),
                            mebibytes(bytes.gradients), mebibytes(bytes.optimizer),
                            mebibytes(bytes.activations), mebibytes(bytes.peak),
                            fmt::format("{:.3f}", static_cast<double>(bytes.peak) /
                                                      static_cast<double>(measured["O0"].peak))});
    }
    const auto share = [&](const char* level, auto part) {
      return static_cast<double>(measured[level].*part) / static_cast<double>(measured["O0"].*part);
    };
    for (const double value :
         {share("O2 with masters", &Bytes::activations), share("O2 without masters", &Bytes::peak),
          share("O2 with masters", &Bytes::peak)})
      result.claims.push_back(judged(settings, goals[result.claims.size()], value));
  }
  result.tables.push_back(std::move(table));
  return result;
}

}  // namespace fp16lab::experiments::acceptance
