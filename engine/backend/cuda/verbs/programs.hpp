// The scalar programs that a device knows: a kernel of one thread each, found by name.
#pragma once

#include <cstddef>
#include <span>

#include "engine/backend/cuda/runtime/runtime.hpp"
#include "engine/backend/step_state.hpp"

namespace fp16lab::engine::gpu {

/// The bytes of a program's parameters, as its kernel gets them.
struct ProgramParameters {
  alignas(8) std::byte bytes[sizeof(ScalarProgram::parameters)];
};

struct DeviceProgram {
  const char* name;
  void (*function)(StepState& state, const std::byte* parameters);  ///< what the host would call
  void (*run)(Runtime& runtime, const char* name, StepState* state, const ProgramParameters& parameters);
};

/// Set by a library whose callers have copies of the host's functions, at other addresses
/// (runtime/plugin.hpp): a program is then known by its name alone, and the border's digest says that both
/// are made from one source.
extern bool called_across_border;

/// All of them, in the order of engine/train/device_programs.cu, which defines this function: a program is in
/// a header of the module that runs it, and engine/train may include all of those modules.
std::span<const DeviceProgram> device_programs();

}  // namespace fp16lab::engine::gpu
