#include "experiments/device_acceptance/greeting.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdio>
#include <string>

#include "engine/backend/cuda/runtime/devices.hpp"
#include "experiments/app/exit_code.hpp"
#include "experiments/device_acceptance/watched.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"

namespace fp16lab::experiments::acceptance {
namespace {

void say(const char* what, const std::string& value) {
  fmt::print("{:<18} {}\n", what, value);
  std::fflush(stdout);
}

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

/// Of the library that the device back end has loaded.
std::string cublaslt_text(int runtime_version) {
  const std::string name = fmt::format("libcublasLt.so.{}", runtime_version / 1000);
  void* const library = dlopen(name.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return "no cuBLASLt";
  const auto version = reinterpret_cast<std::size_t (*)()>(dlsym(library, "cublasLtGetVersion"));
  const std::string text = version == nullptr ? "cuBLASLt" : fmt::format("cuBLASLt {}", version());
  dlclose(library);
  return text;
}

void say_tools() {
  for (const char* tool : {"compute-sanitizer", "ncu"}) {
    const std::filesystem::path path = tool_called(tool);
    say(tool, path.empty() ? "not installed" : path.string());
  }
}

}  // namespace

DeviceSide greet(const Settings& settings) {
  if (settings.rehearsal()) {
    DeviceSide side = open_rehearsal();
    say("device", side.description);
    say("multiprocessors", fmt::format("{}", side.multiprocessors));
    say("tensor cores", side.tensor_core);
    say("routes", "mma (mma.sync), fma (FP32); no cuBLASLt");
    say_tools();
    return side;
  }
  const engine::CudaStatus status = engine::cuda_status();
  if (status.devices.empty())
    throw CommandError(ExitCode::unavailable, fmt::format("no GPU to accept: {} (build/tests/on_ptx COMMAND "
                                                          "--rehearse runs the kernels on the CPU instead)",
                                                          status.reason));
  const engine::CudaDevice& device = status.devices.front();
  say("device", device.name);
  say("compute capability", fmt::format("{}.{}", device.capability_major, device.capability_minor));
  say("multiprocessors", fmt::format("{}", device.multiprocessors));
  say("memory", fmt::format("{:.1f} GiB", static_cast<double>(device.memory_bytes) / (1 << 30)));
  say("driver, runtime", fmt::format("CUDA {}, CUDA {}", version_text(status.driver_version),
                                     version_text(status.runtime_version)));
  say("tensor cores", fmt::format("to be judged by the row {}",
                                  tensor_core_of(device.capability_major, device.capability_minor)));
  DeviceSide side = open_gpu(device.ordinal);
  say("opened", "yes");
  say("routes", fmt::format("mma (mma.sync{}), {}, fma (FP32)",
                            engine::multiplies_bf16_and_tf32(device) ? "" : " of FP16 alone",
                            cublaslt_text(status.runtime_version)));
  say_tools();
  return side;
}

}  // namespace fp16lab::experiments::acceptance
