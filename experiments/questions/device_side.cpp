#include "experiments/questions/device_side.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "engine/backend/cuda/runtime/devices.hpp"
#include "experiments/app/exit_code.hpp"

namespace fp16lab::experiments {
namespace {

/// 13000 is 13.0.
std::string cuda_version(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

}  // namespace

std::unique_ptr<engine::Backend> DeviceSide::make(engine::CudaOptions options) const {
  options.device = ordinal;
  options.tensor_core = tensor_core;
  return engine::make_cuda_backend(options);
}

DeviceSide open_gpu(int ordinal) {
  const engine::CudaStatus status = engine::cuda_status();
  DeviceSide side;
  side.ordinal = ordinal;
  try {
    side.tensor_core =
        engine::make_cuda_backend({.device = ordinal, .gemm = engine::GemmRoute::mma})->tensor_core();
  } catch (const engine::DeviceUnavailable& error) {
    throw CommandError(
        ExitCode::unavailable,
        fmt::format("{} (build/tests/on_ptx COMMAND --rehearse runs the kernels on the CPU instead)",
                    error.what()));
  }
  const engine::CudaDevice& device = status.devices.at(static_cast<std::size_t>(ordinal));
  side.multiprocessors = device.multiprocessors;
  side.shared_per_block = device.shared_per_block;
  side.shared_per_multiprocessor = device.shared_per_multiprocessor;
  side.description = fmt::format("{}, compute capability {}.{}, driver CUDA {}, runtime CUDA {}", device.name,
                                 device.capability_major, device.capability_minor,
                                 cuda_version(status.driver_version), cuda_version(status.runtime_version));
  return side;
}

DeviceSide open_rehearsal() {
  const engine::CudaStatus status = engine::cuda_status();
  if (status.devices.empty() || !status.devices.front().name.starts_with("the PTX machine"))
    throw CommandError(ExitCode::unavailable,
                       "--rehearse: the PTX machine is not there; run build/tests/on_ptx COMMAND --rehearse "
                       "(cmake --build build --target on_ptx)");
  DeviceSide side = open_gpu();
  side.rehearsal = true;
  side.description = status.devices.front().name;
  return side;
}

std::string line_mark(const DeviceSide& side) { return side.rehearsal ? "[rehearsal, no GPU] " : ""; }

Timing time_of(engine::Backend& backend, const TimingPlan& plan, const std::function<void()>& work) {
  constexpr int most_calls = 2000;
  for (int i = 0; i < plan.warm_up; ++i) work();
  Timing timing;
  if (plan.least_milliseconds > 0) {
    const double once = std::max(backend.milliseconds(work), 1e-3);
    timing.calls =
        static_cast<int>(std::clamp(std::ceil(plan.least_milliseconds / once), 1.0, double{most_calls}));
  }
  std::vector<double> times;
  times.reserve(static_cast<std::size_t>(plan.repetitions));
  for (int i = 0; i < plan.repetitions; ++i)
    times.push_back(backend.milliseconds([&] {
      for (int call = 0; call < timing.calls; ++call) work();
    }) / timing.calls);
  std::ranges::sort(times);
  timing.fastest = times.front();
  timing.slowest = times.back();
  timing.median = times.size() % 2 == 1 ? times[times.size() / 2]
                                        : (times[times.size() / 2 - 1] + times[times.size() / 2]) / 2;
  return timing;
}

}  // namespace fp16lab::experiments
