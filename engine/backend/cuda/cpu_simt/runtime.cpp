// Runtime on the host machine: everything happens at once, or is kept while recording.
#include "engine/backend/cuda/runtime/runtime.hpp"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "engine/backend/cuda/cpu_simt/executor.hpp"
#include "engine/backend/cuda/cpu_simt/host_machine.hpp"
#include "engine/backend/cuda/cpu_simt/warp_instructions.hpp"

namespace fp16lab::engine::cpu_simt {

namespace {

constexpr unsigned char memory_poison = 0xa5;

class RecordedCalls final : public Graph {
 public:
  std::vector<std::function<void()>> calls;
};

std::byte* allocate_poisoned(std::size_t bytes) noexcept {
  void* const address = ::operator new (bytes, std::align_val_t{256}, std::nothrow);
  if (address != nullptr) std::memset(address, memory_poison, bytes);
  return static_cast<std::byte*>(address);
}
void free_poisoned(std::byte* address) noexcept { ::operator delete (address, std::align_val_t{256}); }

/// Whose memory is whose: a device must not be given that of another one. Memory of no device at all is not
/// in it.
class Ownership {
 public:
  void take(const std::byte* address, std::size_t bytes, int ordinal) {
    const std::lock_guard lock(mutex_);
    blocks_[address] = {address + bytes, ordinal};
  }
  void give_back(const std::byte* address) {
    const std::lock_guard lock(mutex_);
    blocks_.erase(address);
  }
  void require(const std::byte* address, int ordinal) {
    const std::lock_guard lock(mutex_);
    auto block = blocks_.upper_bound(address);
    if (block == blocks_.begin()) return;
    const auto [end, owner] = (--block)->second;
    if (address < end && owner != ordinal)
      throw std::logic_error("the host machine: device " + std::to_string(ordinal) +
                             " was given memory of device " + std::to_string(owner));
  }

 private:
  struct Block {
    const std::byte* end;
    int ordinal;
  };
  std::mutex mutex_;
  std::map<const std::byte*, Block> blocks_;
};
Ownership& ownership() {
  static Ownership instance;
  return instance;
}

class PretendedDeviceMemory final : public MemoryResource {
 public:
  std::byte* allocate(std::size_t bytes) noexcept override { return allocate_poisoned(bytes); }
  void deallocate(std::byte* address, std::size_t /*bytes*/) noexcept override { free_poisoned(address); }
  bool host_accessible() const override { return false; }
};

}  // namespace

Schedule current_schedule();  // executor.cpp

struct Runtime::State {
  CudaDevice device;
  std::unique_ptr<RecordedCalls> recorded;
  std::chrono::steady_clock::time_point marks[2];

  void perform(std::function<void()> call) {
    if (recorded != nullptr) {
      recorded->calls.push_back(std::move(call));
    } else {
      call();
    }
  }
  void require_waiting(const char* what) const {
    if (recorded != nullptr)
      throw std::logic_error(std::string(what) + ": waits for the device, which a recorded step cannot");
  }
};

Runtime::Runtime(int ordinal) : state_(std::make_unique<State>()) {
  const PretendedGpu gpu = pretended_gpu();
  state_->device = {.ordinal = ordinal,
                    .name = "the host machine (no GPU: kernels executed on the CPU)",
                    .capability_major = gpu.major,
                    .capability_minor = gpu.minor,
                    .memory_bytes = std::size_t{1} << 34,
                    .multiprocessors = multiprocessors(),
                    .shared_per_block = gpu.shared_per_block,
                    .shared_per_multiprocessor = gpu.shared_per_multiprocessor};
}
Runtime::~Runtime() = default;

const CudaDevice& Runtime::device() const { return state_->device; }
std::size_t Runtime::free_bytes() const { return state_->device.memory_bytes; }
std::byte* Runtime::allocate(int ordinal, std::size_t bytes) noexcept {
  std::byte* const address = allocate_poisoned(bytes);
  if (address != nullptr) ownership().take(address, bytes, ordinal);
  return address;
}
void Runtime::deallocate(int /*ordinal*/, std::byte* address) noexcept {
  ownership().give_back(address);
  free_poisoned(address);
}

void Runtime::copy_to_device(std::byte* device, const std::byte* host, std::size_t bytes) {
  state_->require_waiting("a copy from the host");
  ownership().require(device, state_->device.ordinal);
  std::memcpy(device, host, bytes);
}
void Runtime::copy_to_host(std::byte* host, const std::byte* device, std::size_t bytes) {
  state_->require_waiting("a copy to the host");
  ownership().require(device, state_->device.ordinal);
  std::memcpy(host, device, bytes);
}
void Runtime::copy_on_device(std::byte* to, const std::byte* from, std::size_t bytes) {
  ownership().require(to, state_->device.ordinal);
  ownership().require(from, state_->device.ordinal);
  state_->perform([=] { std::memmove(to, from, bytes); });
}
void Runtime::set_bytes(std::byte* device, unsigned char value, std::size_t bytes) {
  ownership().require(device, state_->device.ordinal);
  state_->perform([=] { std::memset(device, value, bytes); });
}
void Runtime::synchronize() { state_->require_waiting("synchronize"); }

void Runtime::begin_recording() {
  state_->require_waiting("begin_recording");
  state_->recorded = std::make_unique<RecordedCalls>();
}
std::unique_ptr<Graph> Runtime::finish_recording() { return std::move(state_->recorded); }
void Runtime::abandon_recording() noexcept { state_->recorded.reset(); }
bool Runtime::recording() const { return state_->recorded != nullptr; }
void Runtime::replay(Graph& graph) {
  state_->require_waiting("replay");
  for (const auto& call : static_cast<RecordedCalls&>(graph).calls) call();
}

void Runtime::mark(int moment) { state_->marks[moment] = std::chrono::steady_clock::now(); }
double Runtime::milliseconds_between_marks() {
  return std::chrono::duration<double, std::milli>(state_->marks[1] - state_->marks[0]).count();
}
void Runtime::make_current() const {}
void* Runtime::stream() const { return nullptr; }

void execute_or_record(Runtime& runtime, const Launch& launch, std::function<void()> thread_body) {
  runtime.perform_on_host(
      [launch, body = std::move(thread_body)] { execute(launch, current_schedule(), body); });
}
void Runtime::perform_on_host(std::function<void()> call) { state_->perform(std::move(call)); }

std::unique_ptr<MemoryResource> make_pretended_device_memory() {
  return std::make_unique<PretendedDeviceMemory>();
}

}  // namespace fp16lab::engine::cpu_simt
