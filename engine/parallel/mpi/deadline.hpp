// An end for calls that wait without us: MPI_Init, MPI_Finalize, MPI_Abort.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace fp16lab::engine::parallel {

/// Calls `expired` on a thread of its own if it lives for `seconds`.
class Deadline {
 public:
  Deadline(double seconds, std::function<void()> expired);
  ~Deadline();
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable over_;
  bool done_ = false;
  std::thread thread_;
};

}  // namespace fp16lab::engine::parallel
