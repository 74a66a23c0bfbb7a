#include "tests/machines/ptx/cudart/queue.hpp"

#include <utility>

#include "tests/machines/ptx/cudart/device.hpp"
#include "tests/machines/ptx/cudart/errors.hpp"

namespace fp16lab::engine::ptx::cudart {

std::uint64_t Stream::add(Operation operation) {
  if (capturing()) {
    capture_->operations.push_back(std::move(operation));
    return 0;
  }
  waiting_.push_back(std::move(operation));
  return ++last_;
}

void Stream::run_until(std::uint64_t ticket) {
  for (; done_ < ticket; ++done_) {
    const Operation operation = std::move(waiting_.front());
    waiting_.pop_front();
    device_->perform(operation);
  }
}

void Stream::begin_capture() { capture_.emplace(); }

std::vector<Operation> Stream::end_capture() {
  std::vector<Operation> operations = std::move(capture_->operations);
  capture_.reset();
  return operations;
}

void Event::record(const std::shared_ptr<Stream>& stream) {
  require(&stream->device() == device_, cudaErrorInvalidResourceHandle);
  captured_ = stream->capturing();
  recorded_ = true;
  happened_ = false;
  if (captured_) return;
  stream_ = stream;
  ticket_ = stream->add([event = shared_from_this(), recording = ++recording_] {
    if (event->recording_ != recording) return;  // recorded again since then
    event->happened_ = true;
    event->moment_ = std::chrono::steady_clock::now();
  });
}

void Event::synchronize() {
  require(!captured_, cudaErrorCapturedEvent);
  if (const std::shared_ptr<Stream> stream = stream_.lock(); stream && !happened_) stream->run_until(ticket_);
}

void Event::require_moment() const {
  require(recorded_ && timing_, cudaErrorInvalidResourceHandle);
  require(!captured_, cudaErrorCapturedEvent);
  require(happened_, cudaErrorNotReady);
}

float Event::milliseconds(const Event& from, const Event& to) {
  from.require_moment();
  to.require_moment();
  require(from.device_ == to.device_, cudaErrorInvalidResourceHandle);
  return std::chrono::duration<float, std::milli>(to.moment_ - from.moment_).count();
}

}  // namespace fp16lab::engine::ptx::cudart
