// CUDA's errors: their names and words, and the exceptions that carry them to the border of the library.
#pragma once

#include <driver_types.h>

#include <stdexcept>
#include <string>

#include "tests/machines/ptx/machine.hpp"

namespace fp16lab::engine::ptx::cudart {

/// As cudaGetErrorName and cudaGetErrorString of CUDA 13.0 say them.
const char* name_of(cudaError_t error);
const char* words_of(cudaError_t error);

/// A call that is refused: it returns `error`, nothing else happens.
struct Refusal {
  cudaError_t error;
};
inline void require(bool condition, cudaError_t error) {
  if (!condition) throw Refusal{error};
}

/// Work of a device that fails while it is executed: from then on every call that needs the device returns
/// `error` (CUDA Runtime API, "Error Handling": asynchronous errors that leave the process inconsistent).
class DeviceFault : public std::runtime_error {
 public:
  DeviceFault(cudaError_t error, const std::string& message) : std::runtime_error(message), error_(error) {}
  cudaError_t error() const { return error_; }

 private:
  cudaError_t error_;
};

/// The error that CUDA has for the PTX machine's fault in a kernel.
cudaError_t error_of_fault(FaultKind kind);

/// One line on stderr.
void say(const std::string& message);

}  // namespace fp16lab::engine::ptx::cudart
