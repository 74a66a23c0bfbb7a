// CUDA Runtime API: "Memory Management". An asynchronous copy reads and writes when it is executed, also in
// pageable memory: "the function might be synchronous with respect to host" promises nothing ("API
// synchronization behavior").
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>

#include "tests/machines/ptx/cudart/simulation.hpp"

using namespace fp16lab::engine::ptx::cudart;

namespace {

/// One side of a copy, when it is asked for and again when it is executed.
class Side {
 public:
  Side(const Simulation& simulation, const char* what, const void* address, std::size_t bytes, bool on_device)
      : what_(what), address_(address), bytes_(bytes), device_(simulation.owner(address, bytes)) {
    if ((device_ != nullptr) != on_device) {
      say(std::string(what) +
          (on_device ? " is not device memory of " : " is device memory, not the host's, of ") +
          std::to_string(bytes) + " bytes");
      throw Refusal{cudaErrorInvalidValue};
    }
    if (!on_device) page_locked_ = is_page_locked(simulation);
  }
  void require_alive(const Simulation& simulation) const {
    if (device_ != nullptr) device_->require_owned(what_, address_, bytes_);
    if (page_locked_ && !is_page_locked(simulation))
      throw DeviceFault(cudaErrorIllegalAddress,
                        std::string(what_) + ": page-locked memory is no more when the copy is executed");
  }

 private:
  bool is_page_locked(const Simulation& simulation) const {
    auto next = simulation.page_locked.upper_bound(address_);
    if (next == simulation.page_locked.begin()) return false;
    const auto& [begin, size] = *--next;
    return static_cast<const std::byte*>(address_) < static_cast<const std::byte*>(begin) + size;
  }
  const char* what_;
  const void* address_;
  std::size_t bytes_;
  Device* device_;
  bool page_locked_ = false;
};

Operation copy(Simulation& simulation, void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  require(
      kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice,
      cudaErrorNotSupported);
  const Side destination(simulation, "a copy's destination", to, bytes, kind != cudaMemcpyDeviceToHost);
  const Side source(simulation, "a copy's source", from, bytes, kind != cudaMemcpyHostToDevice);
  const auto* const first = static_cast<const std::byte*>(to);
  const auto* const second = static_cast<const std::byte*>(from);
  require(first + bytes <= second || second + bytes <= first, cudaErrorInvalidValue);  // "may not overlap"
  return [=, &simulation] {
    destination.require_alive(simulation);
    source.require_alive(simulation);
    std::memcpy(to, from, bytes);
  };
}

}  // namespace

extern "C" {

cudaError_t cudaMalloc(void** address, std::size_t bytes) {
  return on_device("cudaMalloc", [=](Simulation&, Device& device) {
    require(address != nullptr, cudaErrorInvalidValue);
    *address = nullptr;
    if (bytes == 0) return;
    *address = device.allocate(bytes);
    require(*address != nullptr, cudaErrorMemoryAllocation);
  });
}

/// Waits for the device, as CUDA's does.
cudaError_t cudaFree(void* address) {
  return on_device("cudaFree", [address](const Simulation& simulation, Device& device) {
    device.synchronize();
    if (address == nullptr) return;
    Device* const owner = simulation.owner(address, 1);
    require(owner != nullptr, cudaErrorInvalidValue);
    owner->synchronize();
    owner->free(static_cast<std::byte*>(address));
  });
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  return on_device("cudaMemGetInfo", [=](Simulation&, const Device& device) {
    *free = device.free_bytes();
    *total = device.settings().memory_bytes;
  });
}

cudaError_t cudaMallocHost(void** address, std::size_t bytes) {
  return on_device("cudaMallocHost", [=](Simulation& simulation, Device&) {
    void* const made = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    require(made != nullptr, cudaErrorMemoryAllocation);
    std::memset(made, 0xa5, bytes);
    simulation.page_locked[made] = bytes;
    *address = made;
  });
}

/// Does not wait for copies that still use it: CUDA does not say that it would.
cudaError_t cudaFreeHost(void* address) {
  return answer("cudaFreeHost", [address](Simulation& simulation) {
    if (address == nullptr) return cudaSuccess;
    require(simulation.page_locked.erase(address) == 1, cudaErrorInvalidValue);
    std::free(address);
    return cudaSuccess;
  });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return on_device("cudaMemcpyAsync", [=](Simulation& simulation, Device&) {
    const std::shared_ptr<Stream> queue = simulation.stream(stream);
    if (bytes > 0) queue->add(copy(simulation, to, from, bytes, kind));
  });
}

/// Waits for the default stream, not for those that were made as non-blocking ones.
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  return on_device("cudaMemcpy", [=](Simulation& simulation, Device& device) {
    if (bytes > 0) device.default_stream().add(copy(simulation, to, from, bytes, kind));
    device.default_stream().run_all();
  });
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  return on_device("cudaMemsetAsync", [=](Simulation& simulation, Device&) {
    const std::shared_ptr<Stream> queue = simulation.stream(stream);
    if (bytes == 0) return;
    const Side destination(simulation, "cudaMemset's memory", to, bytes, true);
    queue->add([=, &simulation] {
      destination.require_alive(simulation);
      std::memset(to, value, bytes);
    });
  });
}

}  // extern "C"
