#include "experiments/device_acceptance/plant.hpp"

#include <unistd.h>

#include <csignal>
#include <stdexcept>
#include <string_view>

#include "engine/backend/cuda/cpu_simt/executor.hpp"
#include "engine/backend/cuda/runtime/device_errors.hpp"

namespace fp16lab::experiments::acceptance {
namespace {

using engine::cpu_simt::Launch;

bool multiplies(const Launch& launch) { return std::string_view(launch.name).starts_with("gemm"); }

}  // namespace

void plant(const std::string& kind) {
  if (kind.empty()) return;
  if (kind == "bits") {
    engine::cpu_simt::watch_launches([](const Launch& launch) { return !multiplies(launch); });
  } else if (kind == "crash") {
    engine::cpu_simt::watch_launches([](const Launch& launch) {
      if (multiplies(launch)) raise(SIGSEGV);
      return true;
    });
  } else if (kind == "hang") {
    engine::cpu_simt::watch_launches([](const Launch& launch) {
      while (multiplies(launch)) pause();
      return true;
    });
  } else if (kind == "poison") {
    engine::cpu_simt::watch_launches([lost = false](const Launch& launch) mutable {
      lost = lost || multiplies(launch);
      if (lost)
        throw engine::DeviceFailure(std::string("kernel ") + launch.name +
                                    ": an illegal memory access was encountered (planted)");
      return true;
    });
  } else {
    throw std::invalid_argument("plant: '" + kind + "' is none of bits, crash, hang and poison");
  }
}

}  // namespace fp16lab::experiments::acceptance
