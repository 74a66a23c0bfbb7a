// experiments/capture/capture.cu without its GPU part: what it writes when fp16lab's own model computes.
#pragma once

#include <string>

#include "experiments/tensor_core_probe/emulated_device.hpp"

namespace fp16lab::testing_support {

/// The text that capture.cu would write on `device`. FP16 of the device's plain instructions, too.
std::string rehearsed_capture(probe::EmulatedDevice& device);

}  // namespace fp16lab::testing_support
