// Runtime: one device and one stream on it; every use of the CUDA runtime by the back end.
//
// Everything is ordered on the stream unless a comment says "waits". Errors of the device throw DeviceFailure
// with CUDA's own words; a kernel's failure shows at the next call that waits. Every call makes its device
// the thread's current one first, so that several devices may be used in turn.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "engine/backend/cuda/runtime/devices.hpp"

namespace fp16lab::engine::gpu {

/// A recorded sequence of operations (cudaGraphExec_t).
class Graph {
 public:
  virtual ~Graph() = default;
};

class Runtime {
 public:
  /// DeviceUnavailable, naming the reason and the remedy, if there is no such device, the driver is too old,
  /// or this binary has no code for the device.
  explicit Runtime(int ordinal);
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;
  ~Runtime();

  const CudaDevice& device() const;
  /// Bytes of free device memory.
  std::size_t free_bytes() const;

  // ---- memory ----
  /// Memory of device `ordinal`; nullptr when there is none left. Not ordered with the stream: both may wait
  /// for the device. Static, because tensors may outlive their back end.
  static std::byte* allocate(int ordinal, std::size_t bytes) noexcept;
  static void deallocate(int ordinal, std::byte* address) noexcept;
  /// Host memory may be changed when it returns. Goes through page-locked staging memory and does not wait
  /// for the device, but where the staging memory is full.
  void copy_to_device(std::byte* device, const std::byte* host, std::size_t bytes);
  /// Waits.
  void copy_to_host(std::byte* host, const std::byte* device, std::size_t bytes);
  void copy_on_device(std::byte* to, const std::byte* from, std::size_t bytes);
  void set_bytes(std::byte* device, unsigned char value, std::size_t bytes);

  /// Waits until all work on the stream is done.
  void synchronize();

  // ---- recording (stream capture) ----
  /// Until finish_recording, operations are recorded instead of done; those that wait throw std::logic_error.
  void begin_recording();
  std::unique_ptr<Graph> finish_recording();
  /// Ends a recording that failed; nothing is kept.
  void abandon_recording() noexcept;
  bool recording() const;
  void replay(Graph& graph);

  /// Milliseconds between two moments on the stream, each marked by mark(0) or mark(1); waits.
  void mark(int moment);
  double milliseconds_between_marks();

  /// The device becomes the thread's current one: for libraries that ask CUDA which device they work for.
  void make_current() const;
  /// cudaStream_t, for libraries and launches, whose device becomes the thread's current one.
  void* stream() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// DeviceUnavailable, saying what would be right, if `device` (the current one) is too old or the program has
/// no kernels for it.
void require_code_for_device(const CudaDevice& device);  // backend.cpp
bool has_code_for_current_device();                      // memory.cu

}  // namespace fp16lab::engine::gpu
