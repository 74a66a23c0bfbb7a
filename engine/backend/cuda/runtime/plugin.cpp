// Finds and loads libfp16lab_cuda.so, and forwards to it (plugin.hpp).
#include "engine/backend/cuda/runtime/plugin.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "engine/backend/cuda/runtime/no_device.hpp"
#include "fp16lab_seam.h"  // FP16LAB_SEAM, which the build makes (scripts/seam.cmake)
#include "numerics/platform/own_place.hpp"

namespace fp16lab::engine {

namespace {

namespace fs = std::filesystem;

/// A library at another place, for tests and packagers.
constexpr char override_variable[] = "FP16LAB_CUDA_PLUGIN";

fs::path plugin_path() {
  if (const char* const elsewhere = std::getenv(override_variable)) return elsewhere;
  return plugin_beside_us("libfp16lab_cuda.so");
}

bool has_driver() {
  void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (driver != nullptr) dlclose(driver);
  return driver != nullptr;
}

/// The loaded library, or why there is none.
struct Loaded {
  const CudaPlugin* plugin = nullptr;
  bool built = false;  ///< the file is there
  std::string reason;
};

Loaded load() {
  Loaded loaded;
  const fs::path path = plugin_path();
  if (path.empty()) {
    loaded.reason =
        FP16LAB_CUDA_RUNTIME == 0
            ? "this binary was built without CUDA (FP16LAB_CUDA)"
            : "there is no libfp16lab_cuda.so next to this program; build the target fp16lab_cuda";
    return loaded;
  }
  loaded.built = true;
  if (std::getenv(override_variable) == nullptr && !has_driver()) {
    loaded.reason = no_device_text(0, FP16LAB_CUDA_RUNTIME, "");
    return loaded;
  }
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);  // for the life of the process
  if (library == nullptr) {
    loaded.reason = fmt::format("{} cannot be loaded: {}", path.string(), dlerror());
    return loaded;
  }
  using Entry = const CudaPlugin* (*)();
  const auto entry = reinterpret_cast<Entry>(dlsym(library, plugin_entry));
  if (entry == nullptr) {
    loaded.reason =
        fmt::format("{} is no device back end of fp16lab: it has no {}", path.string(), plugin_entry);
  } else if (entry()->seam != plugin_seam()) {
    loaded.reason = fmt::format("{} is of another build than this program; build both again", path.string());
  } else {
    loaded.plugin = entry();
  }
  return loaded;
}

const Loaded& loaded() {
  static const Loaded once = load();
  return once;
}

/// DeviceUnavailable if there is none.
const CudaPlugin& plugin(std::string_view what, std::string_view remedy) {
  if (loaded().plugin == nullptr)
    throw DeviceUnavailable(fmt::format("{}: {}{}", what, loaded().reason, remedy));
  return *loaded().plugin;
}

}  // namespace

std::string_view plugin_seam() { return FP16LAB_SEAM; }

CudaStatus cuda_status() {
  if (loaded().plugin != nullptr) return loaded().plugin->status();
  CudaStatus status;
  status.built = loaded().built;
  if (status.built) status.runtime_version = FP16LAB_CUDA_RUNTIME;
  status.reason = loaded().reason;
  return status;
}

bool has_code_for(const CudaDevice& device) {
  return loaded().plugin != nullptr && loaded().plugin->has_code_for(device);
}

std::unique_ptr<Backend> make_cuda_backend(const CudaOptions& options) {
  return plugin("backend.device = \"cuda\"", "; use \"emulated\" or \"auto\"").make_backend(options);
}

std::unique_ptr<MemoryResource> make_cuda_memory(int device) {
  return plugin("device memory", "").make_memory(device);
}

void count_exponents_on_stream(const void* values, std::size_t count, DType dtype, std::uint64_t* row,
                               void* stream) {
  plugin("histograms of a device", "").count_on_stream(values, count, dtype, row, stream);
}

}  // namespace fp16lab::engine
