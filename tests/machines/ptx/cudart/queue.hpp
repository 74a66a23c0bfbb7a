// Streams, events and graphs: work waits until something waits for it.
//
// CUDA promises that the work of a stream is done in order, and that it is done once the host has waited for
// it; it does not say when it begins. Here it begins at the last moment: whatever a program does too early (a
// staging buffer written again, host memory read before a copy has come) then shows every time. Source: CUDA
// C++ Programming Guide, "Asynchronous Concurrent Execution"; CUDA Runtime API, "Stream Management" and "API
// synchronization behavior".
#pragma once

#include <driver_types.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace fp16lab::engine::ptx::cudart {

class Device;

/// Throws DeviceFault if it fails.
using Operation = std::function<void()>;

class Stream {
 public:
  explicit Stream(Device& device) : device_(&device) {}
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() = default;

  Device& device() const { return *device_; }
  /// Into the queue, or into the capture. Its ticket.
  std::uint64_t add(Operation operation);
  /// Executes everything up to `ticket`, in order.
  void run_until(std::uint64_t ticket);
  void run_all() { run_until(last_); }

  bool capturing() const { return capture_.has_value(); }
  void begin_capture();
  /// A call that a capture does not allow: what was captured is lost.
  void invalidate_capture() { capture_->invalidated = true; }
  bool capture_invalidated() const { return capture_->invalidated; }
  std::vector<Operation> end_capture();

 private:
  struct Capture {
    std::vector<Operation> operations;
    bool invalidated = false;
  };
  Device* device_;
  std::deque<Operation> waiting_;
  std::uint64_t done_ = 0, last_ = 0;  ///< tickets
  std::optional<Capture> capture_;
};

class Event : public std::enable_shared_from_this<Event> {
 public:
  Event(Device& device, bool timing) : device_(&device), timing_(timing) {}

  /// Records after the work that `stream` has so far. While the stream captures, this does nothing; then no
  /// one may wait.
  void record(const std::shared_ptr<Stream>& stream);
  /// Waits; at once where nothing was recorded.
  void synchronize();
  /// cudaEventElapsedTime; throws Refusal.
  static float milliseconds(const Event& from, const Event& to);

 private:
  void require_moment() const;
  Device* device_;
  bool timing_, recorded_ = false, captured_ = false, happened_ = false;
  std::uint64_t ticket_ = 0, recording_ = 0;
  std::weak_ptr<Stream> stream_;
  std::chrono::steady_clock::time_point moment_;
};

/// What was captured, in order; a graph and its executable form hold the same.
struct CapturedWork {
  Device* device;
  std::vector<Operation> operations;
};

}  // namespace fp16lab::engine::ptx::cudart
