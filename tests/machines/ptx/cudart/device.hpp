// A device that the library pretends to have: what CUDA documents of its architecture, its memory, its
// kernels, and whether it has failed.
#pragma once

#include <driver_types.h>

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/machines/ptx/cudart/queue.hpp"
#include "tests/machines/ptx/machine.hpp"

namespace fp16lab::engine::ptx::cudart {

/// Source: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
struct Capability {
  int major, minor;
  std::size_t shared_of_multiprocessor;  ///< bytes
  std::size_t shared_opt_in;             ///< most that a block may have
  std::size_t shared_reserved;           ///< also taken from the multiprocessor's for each block
  int threads_of_multiprocessor, blocks_of_multiprocessor;
};
/// 75, 80, 86, 89, 90; std::invalid_argument for others.
const Capability& capability_of(int architecture);

/// A block's shared memory where a kernel was not given more by cudaFuncSetAttribute.
inline constexpr std::size_t default_shared_bytes = 48 * 1024;

/// Executes kernels: the PTX machine, or a test's replacement.
class KernelExecutor {
 public:
  virtual ~KernelExecutor() = default;
  /// The texts' architecture; a device executes those of its own and of older architectures.
  virtual int architecture() const = 0;
  virtual bool has(std::string_view mangled_name) const = 0;
  /// nullptr: no text has it. Decodes it.
  virtual const KernelFacts* find(std::string_view mangled_name) = 0;
  /// Throws Fault.
  virtual void launch(const KernelFacts& kernel, const Grid& grid, const void* const* parameters) = 0;
};

struct Settings {
  int devices = 1;
  int architecture = 90;
  int multiprocessors = 4;
  std::size_t memory_bytes = std::size_t{4} << 30;
  std::function<std::unique_ptr<KernelExecutor>(const Settings&, DeviceMemory&)> make_executor = {};
};

class Device {
 public:
  Device(int ordinal, const Settings& settings);
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device() = default;

  int ordinal() const { return ordinal_; }
  const Settings& settings() const { return settings_; }
  const Capability& capability() const { return capability_; }
  std::string name() const;

  // ---- memory ----
  /// nullptr: the device has no more.
  std::byte* allocate(std::size_t bytes);
  void free(std::byte* address);
  std::size_t free_bytes() const { return settings_.memory_bytes - taken_; }
  /// Is [address, address + bytes) in one allocation?
  bool owns(const void* address, std::size_t bytes) const;
  /// DeviceFault, unless it still does when a copy is executed.
  void require_owned(const char* what, const void* address, std::size_t bytes) const;

  // ---- kernels ----
  bool has_kernel(const std::string& mangled_name) { return executor().has(mangled_name); }
  /// Refusal: no kernel of that name, or none for this architecture.
  const KernelFacts& kernel(const std::string& mangled_name);
  int kernel_architecture() { return executor().architecture(); }
  /// The most dynamic shared memory that a launch may ask for.
  std::size_t dynamic_limit(const KernelFacts& kernel) const;
  void set_dynamic_limit(const KernelFacts& kernel, int bytes);
  /// Refusal with CUDA's error unless CUDA would launch this.
  void check(const KernelFacts& kernel, const Grid& grid) const;
  /// With the parameters' values of now.
  Operation prepare(const KernelFacts& kernel, const Grid& grid, const void* const* parameters);
  int blocks_of_multiprocessor(const KernelFacts& kernel, int threads, std::size_t dynamic_bytes) const;

  // ---- work ----
  std::vector<std::shared_ptr<Stream>> streams;  ///< [0]: the legacy default stream
  Stream& default_stream() { return *streams.front(); }
  /// All streams that do not capture.
  void synchronize();
  /// Does nothing once the device has failed.
  void perform(const Operation& operation);
  /// cudaSuccess, or why every call fails.
  cudaError_t failure() const { return failure_; }

 private:
  KernelExecutor& executor();
  int ordinal_;
  const Settings& settings_;
  const Capability& capability_;
  DeviceMemory memory_;
  std::map<const void*, std::size_t> allocations_;
  std::size_t taken_ = 0;
  std::unique_ptr<KernelExecutor> executor_;  ///< made when it is first asked
  std::map<std::string, std::size_t, std::less<>> dynamic_limits_;
  cudaError_t failure_ = cudaSuccess;
};

}  // namespace fp16lab::engine::ptx::cudart
