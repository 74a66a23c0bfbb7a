// A capture in the place of a GPU: it answers what the file has and computes nothing.
#pragma once

#include "experiments/tensor_core_probe/capture_file.hpp"

namespace fp16lab::probe {

/// Its `has` is true of instructions in the capture; `run` looks each tile up by its operands and throws
/// NotRecorded for one that the capture does not have. `computes` is false. std::runtime_error if the
/// capture's operands cannot be made again.
std::unique_ptr<Device> open_recorded_device(const Capture& capture, int threads);

}  // namespace fp16lab::probe
