// The seam between the probe's questions and what executes the instructions: a GPU, or the emulator in tests.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "experiments/tensor_core_probe/instruction.hpp"
#include "numerics/arithmetic/gpu_half.hpp"

namespace fp16lab::probe {

/// Operands for `count` executions of one instruction; a word holds one element's bits (TF32: a register).
struct Tiles {
  std::size_t count = 0;
  std::vector<std::uint32_t> a;  ///< count x m x k
  std::vector<std::uint32_t>
      b;  ///< count x n x k: B transposed, so that a column is contiguous like a row of A
  std::vector<std::uint32_t> c;  ///< count x m x n
};

/// Zeros for `count` executions.
inline Tiles make_tiles(const Instruction& in, std::size_t count) {
  const auto size = [&](int x, int y) {
    return count * static_cast<std::size_t>(x) * static_cast<std::size_t>(y);
  };
  return {count, std::vector<std::uint32_t>(size(in.m, in.k)), std::vector<std::uint32_t>(size(in.n, in.k)),
          std::vector<std::uint32_t>(size(in.m, in.n))};
}

/// A scalar instruction outside the tensor core.
enum class HalfOperation : std::uint8_t {
  add,          ///< add.rn.f16
  mul,          ///< mul.rn.f16
  fma,          ///< fma.rn.f16
  cvt_f16_f32,  ///< cvt.{rn,rz,rm,rp}.f16.f32
  cvt_f32_f16,  ///< cvt.f32.f16
};

struct HalfInstruction {
  HalfOperation operation;
  ptx::Modifiers modifiers;
  bool packed = false;  ///< .f16x2: the operand words hold two halves each
  Rounding rounding = Rounding::nearest_even;
};

struct DeviceInfo {
  std::string name;  ///< "NVIDIA H200"
  Capability capability;
  int driver_version = 0;   ///< the highest CUDA version the driver supports, as CUDA counts: 13000 for 13.0
  int runtime_version = 0;  ///< of the CUDA runtime, alike
  std::string driver;       ///< the driver's own version, "580.65.06"; empty where the system does not tell
};

/// A recorded device was asked for what its file does not have.
class NotRecorded : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Device {
 public:
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  virtual ~Device() = default;

  virtual const DeviceInfo& info() const = 0;
  /// Whether the device and this build have the instruction.
  virtual bool has(const Instruction& instruction) const = 0;
  /// D, count x m x n words. `scale_d` is wgmma's operand: false tells it to ignore C. std::runtime_error if
  /// the device fails.
  virtual std::vector<std::uint32_t> run(const Instruction& instruction, const Tiles& tiles,
                                         bool scale_d) = 0;
  /// Whether run computes what it is given. A recorded device knows only what its file has: NotRecorded
  /// otherwise, and sweeps are not asked of it.
  virtual bool computes() const { return true; }
  /// Element by element; y and z may be empty where the operation does not read them.
  virtual std::vector<std::uint32_t> run(const HalfInstruction& instruction, std::span<const std::uint32_t> x,
                                         std::span<const std::uint32_t> y,
                                         std::span<const std::uint32_t> z) = 0;
};

/// The first CUDA device; null with the `reason` if there is none, or none in this build.
std::unique_ptr<Device> open_cuda_device(std::string& reason);

}  // namespace fp16lab::probe
