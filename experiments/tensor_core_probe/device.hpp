// The devices that can be asked beside the emulator (emulated_device.hpp): a GPU, and the capture of one.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>

#include "experiments/tensor_core_probe/capture_file.hpp"

namespace fp16lab::probe {

/// The first CUDA device; null with the `reason` if there is none, or none in this build.
std::unique_ptr<Device> open_cuda_device(std::string& reason);

/// One of wgmma's instructions for each of `count` tiles, on compute capability 9.0 alone: it is compiled for
/// sm_90a. The caller checks cudaGetLastError().
void launch_wgmma(const Instruction& in, unsigned count, const DeviceTiles& tiles, bool scale_d);

/// It answers what the file has and computes nothing: `has` is true of instructions in the capture, and `run`
/// looks each tile up by its operands. std::runtime_error if the capture's operands cannot be made again.
std::unique_ptr<Device> open_recorded_device(const Capture& capture, int threads);

/// A device was asked for what it cannot answer: an instruction that it lacks, or operands that are not in a
/// capture.
class NotAnswered : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace fp16lab::probe
