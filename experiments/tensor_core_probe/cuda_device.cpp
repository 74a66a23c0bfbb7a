// The probe's device: memory, packing, launches, errors.
#include <cuda_runtime_api.h>

#include <fstream>
#include <iterator>
#include <limits>
#include <stdexcept>

#include "experiments/tensor_core_probe/kernels.hpp"

namespace fp16lab::probe {
namespace {

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess)
    throw std::runtime_error(std::string("CUDA failed at ") + what + ": " + cudaGetErrorString(error));
}

/// Device memory that only grows; one for each role, reused from call to call.
class Buffer {
 public:
  Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { cudaFree(memory_); }

  std::uint32_t* resize(std::size_t words) {
    if (words > capacity_) {
      cudaFree(memory_);
      memory_ = nullptr;
      capacity_ = 0;
      void* raw = nullptr;
      check(cudaMalloc(&raw, words * sizeof(std::uint32_t)), "cudaMalloc");
      memory_ = static_cast<std::uint32_t*>(raw);
      capacity_ = words;
    }
    return memory_;
  }
  /// Null for no words.
  const std::uint32_t* upload(std::span<const std::uint32_t> words) {
    if (words.empty()) return nullptr;
    std::uint32_t* memory = resize(words.size());
    check(cudaMemcpy(memory, words.data(), words.size_bytes(), cudaMemcpyHostToDevice),
          "the copy to the device");
    return memory;
  }
  std::vector<std::uint32_t> download(std::size_t words) const {
    std::vector<std::uint32_t> result(words);
    check(cudaMemcpy(result.data(), memory_, words * sizeof(std::uint32_t), cudaMemcpyDeviceToHost),
          "the kernel, or the copy from the device");
    return result;
  }

 private:
  std::uint32_t* memory_ = nullptr;
  std::size_t capacity_ = 0;
};

/// Elements of `bytes` bytes side by side, the first in the low byte.
std::vector<std::uint32_t> packed(std::span<const std::uint32_t> elements, int bytes) {
  const std::size_t per_word = 4 / static_cast<std::size_t>(bytes);
  const std::uint32_t mask = 0xffffffffU >> (32 - 8 * bytes);
  std::vector<std::uint32_t> words(elements.size() / per_word);
  for (std::size_t i = 0; i < elements.size(); ++i)
    words[i / per_word] |= (elements[i] & mask) << (8 * static_cast<std::size_t>(bytes) * (i % per_word));
  return words;
}

/// The driver's version is no part of the CUDA API; Linux tells it here.
std::string driver_name() {
  std::ifstream file("/sys/module/nvidia/version");
  std::string text;
  std::getline(file, text);
  return text;
}

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(const cudaDeviceProp& properties) {
    info_.name = properties.name;
    info_.capability = {properties.major, properties.minor};
    info_.driver = driver_name();
    check(cudaDriverGetVersion(&info_.driver_version), "cudaDriverGetVersion");
    check(cudaRuntimeGetVersion(&info_.runtime_version), "cudaRuntimeGetVersion");
    architecture_ = mma_kernel_architecture();
  }

  const DeviceInfo& info() const override { return info_; }

  bool has(const Instruction& instruction) const override {
    if (instruction.unit == Unit::wgmma) return info_.capability.major == 9 && info_.capability.minor == 0;
    if (instruction.m == 8) return false;  // Volta's, for which nothing here is compiled
    const bool since_75 =
        instruction.operands == DType::f16 && (instruction.k == 8 || instruction.unit == Unit::wmma);
    if (size_of(instruction.operands) > 1) return architecture_ >= (since_75 ? 75 : 80);
    return architecture_ >= 89 && mma_kernels_have_fp8() &&
           (instruction.accumulator == DType::f32 || mma_kernels_have_fp8_f16());
  }

  std::vector<std::uint32_t> run(const Instruction& instruction, const Tiles& tiles, bool scale_d) override {
    if (tiles.count > static_cast<std::size_t>(std::numeric_limits<int>::max()))
      throw std::invalid_argument("too many tiles for one launch");
    const int bytes = static_cast<int>(size_of(instruction.operands));
    const DeviceTiles on_device{static_cast<int>(tiles.count), x_.upload(packed(tiles.a, bytes)),
                                y_.upload(packed(tiles.b, bytes)), z_.upload(tiles.c),
                                result_.resize(tiles.c.size())};
    switch (instruction.unit) {
      case Unit::mma:
        launch_mma(instruction.opcode, on_device);
        break;
      case Unit::wmma:
        launch_wmma(instruction.opcode, on_device);
        break;
      case Unit::wgmma:
        launch_wgmma(instruction.opcode, on_device, scale_d);
        break;
    }
    check(cudaGetLastError(), "a kernel launch");
    return result_.download(tiles.c.size());
  }

  std::vector<std::uint32_t> run(const HalfInstruction& instruction, std::span<const std::uint32_t> x,
                                 std::span<const std::uint32_t> y,
                                 std::span<const std::uint32_t> z) override {
    const std::uint32_t* x_on_device = x_.upload(x);
    const std::uint32_t* y_on_device = y_.upload(y);
    const std::uint32_t* z_on_device = z_.upload(z);
    launch_half(instruction, x_on_device, y_on_device, z_on_device, result_.resize(x.size()),
                static_cast<std::uint32_t>(x.size()));
    check(cudaGetLastError(), "a kernel launch");
    return result_.download(x.size());
  }

 private:
  DeviceInfo info_;
  int architecture_ = 0;
  Buffer x_, y_, z_, result_;
};

}  // namespace

std::unique_ptr<Device> open_cuda_device(std::string& reason) {
  int count = 0;
  cudaError_t error = cudaGetDeviceCount(&count);
  cudaDeviceProp properties;
  if (error == cudaSuccess && count > 0) error = cudaGetDeviceProperties(&properties, 0);
  if (error != cudaSuccess || count == 0) {
    int driver_version = 0;
    cudaDriverGetVersion(&driver_version);
    reason = driver_version == 0    ? "there is no NVIDIA driver"
             : error == cudaSuccess ? "there is no CUDA device"
                                    : cudaGetErrorString(error);
    return nullptr;
  }
  auto device = std::make_unique<CudaDevice>(properties);
  if (mma_kernel_architecture() == 0) {
    reason = device->info().name + ": V100 is emulated; this program runs on 7.5 and newer";
    return nullptr;
  }
  return device;
}

}  // namespace fp16lab::probe
