// Kernels from PTX files, executed by the PTX machine.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "tests/machines/ptx/cudart/device.hpp"

namespace fp16lab::engine::ptx::cudart {

/// Executes ptx_texts(places). What it makes throws std::invalid_argument: there is no text, one is wrong, or
/// FP16LAB_PTX_ORDER, FP16LAB_PTX_RACES or FP16LAB_PTX_GRID has no value of theirs.
std::function<std::unique_ptr<KernelExecutor>(const Settings&, DeviceMemory&)> ptx_executor_maker(
    const std::string& places);

}  // namespace fp16lab::engine::ptx::cudart
