// What the library keeps between calls: devices, handles, kernels that programs have registered, and each
// thread's last error. One lock holds all of it; every function of the interface goes through answer() or
// on_device().
#pragma once

#include <driver_types.h>
#include <vector_types.h>

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/machines/ptx/cudart/device.hpp"
#include "tests/machines/ptx/cudart/errors.hpp"
#include "tests/machines/ptx/cudart/queue.hpp"

namespace fp16lab::engine::ptx::cudart {

/// Objects that opaque pointers name; Refusal (cudaErrorInvalidResourceHandle) for one that is not there.
template <class Object>
class Handles {
 public:
  template <class Handle>
  Handle add(std::shared_ptr<Object> object) {
    const void* const key = object.get();
    objects_[key] = std::move(object);
    return static_cast<Handle>(const_cast<void*>(key));
  }
  const std::shared_ptr<Object>& find(const void* handle) const {
    const auto found = objects_.find(handle);
    require(found != objects_.end(), cudaErrorInvalidResourceHandle);
    return found->second;
  }
  std::shared_ptr<Object> take(const void* handle) {
    const std::shared_ptr<Object> object = find(handle);
    objects_.erase(handle);
    return object;
  }
  const auto& all() const { return objects_; }

 private:
  std::unordered_map<const void*, std::shared_ptr<Object>> objects_;
};

struct ExecutableWork : CapturedWork {};

struct LaunchConfiguration {
  dim3 grid, block;
  std::size_t shared_bytes;
  cudaStream_t stream;
};

struct ThreadState {
  int device = 0;
  cudaError_t last = cudaSuccess;
  std::vector<LaunchConfiguration> configurations;
};

/// What a program has registered of a kernel.
struct RegisteredKernel {
  std::string name;  ///< mangled
  const void* unit;  ///< handle of its source, shared by all kernels of that source
};

class Simulation {
 public:
  /// The first call reads the environment; the object exists as long as the process.
  static Simulation& instance();
  static ThreadState& thread();
  /// Forgets devices, handles and memory; for tests. Registered kernels stay.
  void reset(const Settings& settings);

  std::mutex mutex;
  std::vector<std::unique_ptr<Device>> devices;
  Handles<Stream> streams;
  Handles<Event> events;
  Handles<CapturedWork> graphs;
  Handles<ExecutableWork> executables;
  std::map<const void*, std::size_t> page_locked;                ///< bytes by address
  std::unordered_map<const void*, RegisteredKernel> registered;  ///< by host function

  /// Refusal if there is none.
  Device& current();
  /// The one that has [address, address + bytes); nullptr.
  Device* owner(const void* address, std::size_t bytes) const;
  /// Accepts the current device's default stream too.
  std::shared_ptr<Stream> stream(cudaStream_t handle);
  const KernelFacts& kernel(const void* host_function);
  /// Refusal (cudaErrorInvalidKernelImage) and a line on stderr, if the texts have some kernels of a source
  /// and not all of them, or none of any source: they are of another build than the program.
  void require_texts_of_the_program(Device& device) const;
  void set_up_from_environment();

 private:
  Settings settings_;
};

/// Does `body`, which returns an error or throws, and keeps its error for cudaGetLastError.
template <class Body>
cudaError_t answer(const char* function, Body body) noexcept {
  cudaError_t error = cudaErrorUnknown;
  try {
    const std::lock_guard lock(Simulation::instance().mutex);
    error = body(Simulation::instance());
  } catch (const Refusal& refusal) {
    error = refusal.error;
  } catch (const std::bad_alloc&) {
    error = cudaErrorMemoryAllocation;
  } catch (const std::exception& failure) {
    say(std::string(function) + ": " + failure.what());
  }
  if (error != cudaSuccess) Simulation::thread().last = error;
  return error;
}

/// The same for calls that need the current device: its failure is the answer, before and after.
template <class Body>
cudaError_t on_device(const char* function, Body body) noexcept {
  return answer(function, [&body](Simulation& simulation) {
    Device& device = simulation.current();
    if (device.failure() == cudaSuccess) body(simulation, device);
    return device.failure();
  });
}

}  // namespace fp16lab::engine::ptx::cudart
