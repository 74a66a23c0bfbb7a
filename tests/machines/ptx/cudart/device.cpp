#include "tests/machines/ptx/cudart/device.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "tests/machines/ptx/cudart/errors.hpp"

namespace fp16lab::engine::ptx::cudart {

namespace {

constexpr std::size_t kib = 1024;
constexpr Capability capabilities[] = {
    {7, 5, 64 * kib, 64 * kib, 0, 1024, 16},     {8, 0, 164 * kib, 163 * kib, kib, 2048, 32},
    {8, 6, 100 * kib, 99 * kib, kib, 1536, 16},  {8, 9, 100 * kib, 99 * kib, kib, 1536, 24},
    {9, 0, 228 * kib, 227 * kib, kib, 2048, 32},
};

/// A launch's values, as cudaLaunchKernel copies them.
struct Parameters {
  std::vector<std::byte> bytes;
  std::vector<std::size_t> offsets;
  std::vector<const void*> addresses() const {
    std::vector<const void*> result;
    for (const std::size_t offset : offsets) result.push_back(bytes.data() + offset);
    return result;
  }
};

Parameters copied(const KernelFacts& kernel, const void* const* values) {
  Parameters result;
  result.offsets = kernel.parameter_offsets;
  for (std::size_t i = 0; i < kernel.parameter_bytes.size(); ++i) {
    result.bytes.resize(kernel.parameter_offsets[i] + kernel.parameter_bytes[i]);
    std::memcpy(result.bytes.data() + kernel.parameter_offsets[i], values[i], kernel.parameter_bytes[i]);
  }
  return result;
}

}  // namespace

const Capability& capability_of(int architecture) {
  for (const Capability& capability : capabilities)
    if (capability.major * 10 + capability.minor == architecture) return capability;
  throw std::invalid_argument("architecture " + std::to_string(architecture) +
                              " is none of 75, 80, 86, 89, 90");
}

Device::Device(int ordinal, const Settings& settings)
    : ordinal_(ordinal), settings_(settings), capability_(capability_of(settings.architecture)) {
  streams.push_back(std::make_shared<Stream>(*this));
}

std::string Device::name() const {
  return "the PTX machine (no GPU: PTX of compute capability " + std::to_string(capability_.major) + "." +
         std::to_string(capability_.minor) + " executed on the CPU)";
}

std::byte* Device::allocate(std::size_t bytes) {
  if (bytes > free_bytes()) return nullptr;
  std::byte* const address = memory_.allocate(bytes, "cudaMalloc");
  if (address == nullptr) return nullptr;
  allocations_[address] = bytes;
  taken_ += bytes;
  return address;
}

void Device::free(std::byte* address) {
  const auto found = allocations_.find(address);
  require(found != allocations_.end(), cudaErrorInvalidValue);
  memory_.free(address);
  taken_ -= found->second;
  allocations_.erase(found);
}

bool Device::owns(const void* address, std::size_t bytes) const {
  auto next = allocations_.upper_bound(address);
  if (next == allocations_.begin()) return false;
  const auto& [begin, size] = *--next;
  const auto offset =
      static_cast<std::size_t>(static_cast<const std::byte*>(address) - static_cast<const std::byte*>(begin));
  return offset < size && bytes <= size - offset;
}

void Device::require_owned(const char* what, const void* address, std::size_t bytes) const {
  if (!owns(address, bytes))
    throw DeviceFault(cudaErrorIllegalAddress,
                      std::string(what) + " of " + std::to_string(bytes) +
                          " bytes: its device memory is no more when it is executed");
}

KernelExecutor& Device::executor() {
  if (executor_ == nullptr) executor_ = settings_.make_executor(settings_, memory_);
  return *executor_;
}

const KernelFacts& Device::kernel(const std::string& mangled_name) {
  require(executor().architecture() <= settings_.architecture, cudaErrorNoKernelImageForDevice);
  const KernelFacts* const found = executor().find(mangled_name);
  if (found == nullptr) {
    say("no text of FP16LAB_PTX has the kernel " + mangled_name);
    throw Refusal{cudaErrorInvalidDeviceFunction};
  }
  return *found;
}

std::size_t Device::dynamic_limit(const KernelFacts& kernel) const {
  const auto found = dynamic_limits_.find(kernel.name);
  if (found != dynamic_limits_.end()) return found->second;
  return default_shared_bytes - std::min(default_shared_bytes, kernel.static_shared_bytes);
}

void Device::set_dynamic_limit(const KernelFacts& kernel, int bytes) {
  require(
      bytes >= 0 && static_cast<std::size_t>(bytes) + kernel.static_shared_bytes <= capability_.shared_opt_in,
      cudaErrorInvalidValue);
  dynamic_limits_[kernel.name] = static_cast<std::size_t>(bytes);
}

void Device::check(const KernelFacts& kernel, const Grid& grid) const {
  const std::uint64_t threads = std::uint64_t{grid.block_x} * grid.block_y * grid.block_z;
  require(grid.x > 0 && grid.y > 0 && grid.z > 0 && threads > 0, cudaErrorInvalidConfiguration);
  require(grid.x <= 0x7fffffffu && grid.y <= 65535 && grid.z <= 65535, cudaErrorInvalidConfiguration);
  require(grid.block_x <= 1024 && grid.block_y <= 1024 && grid.block_z <= 64 && threads <= 1024,
          cudaErrorInvalidConfiguration);
  require(threads <= kernel.max_threads, cudaErrorInvalidValue);
  require(grid.dynamic_shared_bytes <= dynamic_limit(kernel), cudaErrorInvalidValue);
}

Operation Device::prepare(const KernelFacts& kernel, const Grid& grid, const void* const* parameters) {
  return [this, facts = &kernel, grid, values = copied(kernel, parameters)] {
    try {
      executor().launch(*facts, grid, values.addresses().data());
    } catch (const Fault& fault) {
      throw DeviceFault(error_of_fault(fault.kind()), fault.what());
    }
  };
}

int Device::blocks_of_multiprocessor(const KernelFacts& kernel, int threads,
                                     std::size_t dynamic_bytes) const {
  require(threads > 0, cudaErrorInvalidValue);
  const int warps = (threads + 31) / 32;
  if (static_cast<std::uint32_t>(threads) > kernel.max_threads || dynamic_bytes > dynamic_limit(kernel))
    return 0;
  const std::size_t shared = kernel.static_shared_bytes + dynamic_bytes + capability_.shared_reserved;
  int blocks =
      std::min(capability_.blocks_of_multiprocessor, capability_.threads_of_multiprocessor / (32 * warps));
  if (shared > 0) blocks = std::min(blocks, static_cast<int>(capability_.shared_of_multiprocessor / shared));
  return blocks;
}

void Device::synchronize() {
  const std::vector<std::shared_ptr<Stream>> all = streams;
  for (const std::shared_ptr<Stream>& stream : all) stream->run_all();
}

void Device::perform(const Operation& operation) {
  if (failure_ != cudaSuccess) return;
  try {
    operation();
  } catch (const DeviceFault& fault) {
    failure_ = fault.error();
    say("device " + std::to_string(ordinal_) + ": " + fault.what());
  } catch (const std::exception& error) {
    failure_ = cudaErrorLaunchFailure;
    say("device " + std::to_string(ordinal_) + ": " + error.what());
  }
}

}  // namespace fp16lab::engine::ptx::cudart
