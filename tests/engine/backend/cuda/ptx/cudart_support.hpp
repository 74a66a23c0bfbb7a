// The CUDA runtime of the PTX machine with kernels that are functions of this test, called as nvcc's host
// code does.
#pragma once

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/machines/ptx/cudart/simulation.hpp"

extern "C" void __cudaUnregisterFatBinary(void** handle);
extern "C" void __cudaRegisterFunction(void** handle, const char* host_function, char* device_function,
                                       const char* device_name, int thread_limit, uint3* thread, uint3* block,
                                       dim3* block_extent, dim3* grid_extent, int* warp_size);

namespace fp16lab::engine::ptx::test {

using cudart::KernelExecutor;
using cudart::Settings;
using cudart::Simulation;

/// A kernel of this test: one pointer, one int.
struct Stub {
  KernelFacts facts;
  std::function<void(std::byte* memory, int number)> body;
};

class StubExecutor final : public KernelExecutor {
 public:
  StubExecutor(int architecture, const std::map<std::string, Stub>& stubs)
      : architecture_(architecture), stubs_(stubs) {}
  int architecture() const override { return architecture_; }
  bool has(std::string_view name) const override { return stubs_.contains(std::string(name)); }
  const KernelFacts* find(std::string_view name) override {
    const auto found = stubs_.find(std::string(name));
    return found == stubs_.end() ? nullptr : &found->second.facts;
  }
  void launch(const KernelFacts& kernel, const Grid&, const void* const* parameters) override {
    stubs_.at(kernel.name)
        .body(*static_cast<std::byte* const*>(parameters[0]), *static_cast<const int*>(parameters[1]));
  }

 private:
  int architecture_;
  const std::map<std::string, Stub>& stubs_;
};

class Cudart : public testing::Test {
 protected:
  /// Two devices with 1 MiB each; PTX of `texts`.
  explicit Cudart(int architecture = 90, int texts = 80) {
    add("note", [this](std::byte*, int number) { noted_.push_back(number); });
    add("set", [](std::byte* memory, int number) { *reinterpret_cast<int*>(memory) = number; });
    start(architecture, texts);
  }
  ~Cudart() override {
    for (void*& unit : units_) __cudaUnregisterFatBinary(&unit);
    cudaGetLastError();
    Simulation::instance().reset({.devices = 0});
  }

  void start(int architecture, int texts) {
    Settings settings;
    settings.devices = 2;
    settings.architecture = architecture;
    settings.memory_bytes = std::size_t{1} << 20;
    settings.make_executor = [this, texts](const Settings&, DeviceMemory&) {
      return std::make_unique<StubExecutor>(texts, stubs_);
    };
    Simulation::instance().reset(settings);
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
  }

  Stub& add(const std::string& name, std::function<void(std::byte*, int)> body) {
    Stub& stub = stubs_[name];
    stub.facts.name = name;
    stub.facts.parameter_offsets = {0, 8};
    stub.facts.parameter_bytes = {8, 4};
    stub.body = std::move(body);
    return stub;
  }
  /// The host function of a kernel: an address that nothing else has.
  const void* host_function(const std::string& name, int unit = 0) {
    const char* const address =
        host_functions_.try_emplace(name, std::make_unique<char>()).first->second.get();
    __cudaRegisterFunction(&units_.at(static_cast<std::size_t>(unit)), address, nullptr,
                           host_functions_.find(name)->first.c_str(), -1, nullptr, nullptr, nullptr, nullptr,
                           nullptr);
    return address;
  }

  cudaError_t launch(const std::string& name, std::byte* memory, int number, dim3 grid = {1, 1, 1},
                     dim3 block = {32, 1, 1}, std::size_t shared = 0) {
    void* parameters[] = {&memory, &number};
    return cudaLaunchKernel(host_function(name), grid, block, parameters, shared, stream_);
  }
  cudaError_t note(int number) { return launch("note", nullptr, number); }

  std::byte* memory(std::size_t bytes) {
    void* address = nullptr;
    EXPECT_EQ(cudaMalloc(&address, bytes), cudaSuccess);
    return static_cast<std::byte*>(address);
  }
  int* page_locked(int value) {
    void* address = nullptr;
    EXPECT_EQ(cudaMallocHost(&address, sizeof(int)), cudaSuccess);
    *static_cast<int*>(address) = value;
    return static_cast<int*>(address);
  }
  cudaError_t to_device(std::byte* device, const int* host) {
    return cudaMemcpyAsync(device, host, sizeof(int), cudaMemcpyHostToDevice, stream_);
  }
  cudaError_t to_host(int* host, const std::byte* device) {
    return cudaMemcpyAsync(host, device, sizeof(int), cudaMemcpyDeviceToHost, stream_);
  }
  cudaError_t wait() { return cudaStreamSynchronize(stream_); }
  int value_at(const std::byte* device) {
    int value = 0;
    EXPECT_EQ(to_host(&value, device), cudaSuccess);
    EXPECT_EQ(wait(), cudaSuccess);
    return value;
  }

  std::map<std::string, Stub> stubs_;
  std::map<std::string, std::unique_ptr<char>> host_functions_;
  std::array<void*, 2> units_{};  ///< sources: their addresses are handles
  cudaStream_t stream_ = nullptr;
  std::vector<int> noted_;
};

}  // namespace fp16lab::engine::ptx::test
