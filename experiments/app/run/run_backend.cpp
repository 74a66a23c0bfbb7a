#include "experiments/app/run/run_backend.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "engine/backend/cuda/runtime/devices.hpp"
#include "engine/backend/cuda/runtime/no_device.hpp"
#include "engine/backend/emulated/emulated_backend.hpp"
#include "experiments/app/config/run_plan.hpp"
#include "experiments/app/exit_code.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"

namespace fp16lab::experiments {
namespace {

/// What "auto" means where products are emulated.
constexpr std::string_view emulated_tensor_core = "hopper";

ChosenBackend emulated(const BackendConfig& config, int threads) {
  const std::string_view row =
      config.tensor_core == "auto" ? emulated_tensor_core : std::string_view(config.tensor_core);
  ChosenBackend chosen;
  chosen.backend = engine::make_emulated_backend(
      row, config.accumulator, threads, config.overflow,
      {.plan = config.library, .threads = static_cast<int>(config.library_threads)});
  chosen.record.device = chosen.backend->name();
  chosen.record.tensor_core = row;
  return chosen;
}

ChosenBackend cuda(const BackendConfig& config) {
  ChosenBackend chosen;
  const auto library_products = std::make_shared<std::uint64_t>(0);
  chosen.backend = engine::make_cuda_backend({.device = static_cast<int>(config.ordinal),
                                              .tensor_core = config.tensor_core,
                                              .gemm = gemm_route(config.gemm),
                                              .library_products = library_products});
  chosen.library_products = library_products;
  chosen.record.device = chosen.backend->name();
  chosen.record.tensor_core = chosen.backend->tensor_core();
  chosen.record.gemm = name_of(config.gemm);
  const engine::CudaStatus status = engine::cuda_status();
  chosen.record.runtime = cuda_version_text(status.runtime_version);
  chosen.driver = "CUDA " + cuda_version_text(status.driver_version);
  for (const engine::CudaDevice& device : status.devices) {
    if (device.ordinal != config.ordinal) continue;
    chosen.gpu = device.name;
    chosen.record.capability = fmt::format("{}.{}", device.capability_major, device.capability_minor);
  }
  return chosen;
}

/// What the device that was found lacks for this run's products; else nothing.
std::string missing_products(const RunConfig& config, const BackendRecord& found) {
  const RunPlan plan = resolve_run(config);
  try {
    check_products(plan, settled(config.backend, found));
    return {};
  } catch (const std::invalid_argument& error) {
    for (const engine::CudaDevice& device : engine::cuda_status().devices)
      if (device.ordinal == config.backend.ordinal)
        if (std::string missing = engine::missing_products_text(
                device, plan.amp.low == DType::tf32 ? DType::tf32 : DType::bf16);
            !missing.empty())
          return missing;
    return error.what();
  }
}

}  // namespace

ChosenBackend choose_backend(const RunConfig& config, int threads) {
  const BackendConfig& asked = config.backend;
  if (asked.device == Device::emulated) return emulated(asked, threads);
  std::string reason(needs_emulation(config));
  if (reason.empty()) reason = engine::cuda_status().reason;
  if (reason.empty() || asked.device == Device::cuda) {
    try {
      ChosenBackend chosen = cuda(asked);
      if (asked.device == Device::cuda) return chosen;
      reason = missing_products(config, chosen.record);
      if (reason.empty()) {
        chosen.record.note = fmt::format("found {}", chosen.gpu.value_or("a device"));
        return chosen;
      }
    } catch (const engine::DeviceUnavailable& unavailable) {
      if (asked.device == Device::cuda) throw CommandError(ExitCode::unavailable, unavailable.what());
      reason = unavailable.what();
    }
  }
  ChosenBackend chosen = emulated(asked, threads);
  chosen.record.note = reason;
  return chosen;
}

BackendConfig settled(BackendConfig asked, const BackendRecord& found) {
  asked.device = found.device == name_of(Device::cuda) ? Device::cuda : Device::emulated;
  asked.tensor_core = found.tensor_core;
  return asked;
}

std::unique_ptr<engine::Backend> make_backend(const RunConfig& config, int threads) {
  return choose_backend(config, threads).backend;
}

std::int64_t device_of_rank(std::int64_t first, std::span<const std::string> hosts, int rank,
                            std::size_t devices) {
  const std::string& own = hosts[static_cast<std::size_t>(rank)];
  const auto before = std::ranges::count(hosts.first(static_cast<std::size_t>(rank)), own);
  if (before == 0 || devices == 0) return first;
  return (first + before) % static_cast<std::int64_t>(devices);
}

std::string choice_text(const BackendRecord& record) {
  return fmt::format("backend.device = \"auto\": {} (tensor cores: {}; {})", record.device,
                     record.tensor_core, record.note);
}

std::optional<std::string_view> configured_tensor_core(const BackendConfig& config) {
  if (config.tensor_core != "auto") return config.tensor_core;
  if (config.device == Device::emulated) return emulated_tensor_core;
  return std::nullopt;
}

engine::GemmRoute gemm_route(Gemm gemm) {
  return gemm < Gemm::cublas ? engine::GemmRoute::mma : engine::GemmRoute::cublas;
}

std::string cuda_version_text(int version) {
  constexpr int major = 1000, minor = 10;  // as CUDA counts: 12040 is 12.4
  return fmt::format("{}.{}", version / major, version % major / minor);
}

}  // namespace fp16lab::experiments
