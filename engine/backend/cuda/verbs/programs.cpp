#include "engine/backend/cuda/verbs/programs.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "engine/backend/cuda/verbs/backend_impl.hpp"

namespace fp16lab::engine::gpu {

namespace {

const DeviceProgram& known(const ScalarProgram& wanted) {
  const std::span<const DeviceProgram> programs = device_programs();
  const auto found = std::find_if(programs.begin(), programs.end(),
                                  [&](const DeviceProgram& program) { return wanted.name == program.name; });
  if (found == programs.end()) {
    std::string names;
    for (const DeviceProgram& program : programs)
      names += (names.empty() ? "" : ", ") + std::string(program.name);
    throw std::invalid_argument("run: the device has no program \"" + std::string(wanted.name) +
                                "\"; it has " + names + " (engine/train/device_programs.cu)");
  }
  if (!called_across_border && found->function != wanted.function)
    throw std::invalid_argument("run: the device has another function than the caller under the name \"" +
                                std::string(wanted.name) + "\" (engine/train/device_programs.cu)");
  return *found;
}

}  // namespace

bool called_across_border = false;

void CudaBackend::do_run(const ScalarProgram& program, Tensor& step) {
  const DeviceProgram& known_program = known(program);
  ProgramParameters parameters;
  std::copy(program.parameters.begin(), program.parameters.end(), parameters.bytes);
  known_program.run(runtime_, known_program.name, reinterpret_cast<StepState*>(step.data()), parameters);
}

}  // namespace fp16lab::engine::gpu
