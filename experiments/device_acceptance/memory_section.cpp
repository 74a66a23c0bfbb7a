// Section "memory": what each level holds, by class of tensor, from shapes and from the pool's own count.
#include <fmt/format.h>

#include <map>

#include "experiments/device_acceptance/section.hpp"
#include "experiments/device_acceptance/trained_case.hpp"

namespace fp16lab::experiments::acceptance {
namespace {

std::string mebibytes(std::uint64_t bytes) {
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
          "MiB by class of tensor. Activations: the inputs, and what the forward pass leaves alive (O1: "
          "with its casts of the weights). They are given back while the gradients of weights come into "
          "being, so the peak, scratch included, is less than the sum",
      .columns = {"system", "level", "weights", "masters", "weight gradients", "optimizer", "activations",
                  "peak", "x O0"},
      .rows = {}};
  for (const char* system : systems) {
    std::map<std::string, RunMemory> measured;
    for (const auto& [level, set] : levels) {
      if (settings.progress) settings.progress(fmt::format("{}: {}", system, level));
      std::vector<std::string> sized = set;
      // Large enough that blocks of the pool are not mostly their rounding.
      if (settings.rehearsal()) sized.emplace_back("model.scale_down=64");
      TrainedCase one(tutorial_config(settings, system, sized),
                      settings.side.make({.gemm = engine::GemmRoute::mma}));
      for (int step = 0; step < settings.sized(3, 2, 2); ++step) one.step();
      const RunMemory bytes = one.trainer().memory();
      measured[level] = bytes;
      table.rows.push_back({system, level, mebibytes(bytes.parameters), mebibytes(bytes.masters),
                            mebibytes(bytes.gradients), mebibytes(bytes.optimizer),
                            mebibytes(bytes.activations), mebibytes(bytes.peak),
                            fmt::format("{:.3f}", static_cast<double>(bytes.peak) /
                                                      static_cast<double>(measured["O0"].peak))});
    }
    const auto share = [&](const char* level, auto part) {
      return static_cast<double>(measured[level].*part) / static_cast<double>(measured["O0"].*part);
    };
    for (const double value :
         {share("O2 with masters", &RunMemory::activations), share("O2 without masters", &RunMemory::peak),
          share("O2 with masters", &RunMemory::peak)})
      result.claims.push_back(judged(settings, goals[result.claims.size()], value));
  }
  result.tables.push_back(std::move(table));
  return result;
}

}  // namespace fp16lab::experiments::acceptance
