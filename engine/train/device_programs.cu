// The scalar programs of the engine, compiled for the device, as a part of libfp16lab_cuda.so. A new program
// is one line of the table; policies are there by engine/amp/policy_list.hpp.
#include <array>
#include <cstddef>
#include <utility>

#include "engine/amp/policy.hpp"
#include "engine/amp/policy_list.hpp"
#include "engine/amp/scalers/scaler_programs.hpp"
#include "engine/backend/cuda/runtime/launch.hpp"
#include "engine/backend/cuda/verbs/programs.hpp"
#include "engine/optim/optimizer_programs.hpp"
#include "engine/train/iteration_programs.hpp"

namespace fp16lab::engine::gpu {

namespace {

using Program = void (*)(StepState& state, const std::byte* parameters);

template <Program program>
__global__ void call(StepState* state, ProgramParameters parameters) {
  program(*state, parameters.bytes);
}

template <Program program>
void launch_call(Runtime& runtime, const char* name, StepState* state, const ProgramParameters& parameters) {
  launch(runtime, name, &call<program>, {.threads = 1}, state, parameters);
}

template <Program program>
constexpr DeviceProgram entry(const char* name) {
  return {.name = name, .function = program, .run = &launch_call<program>};
}

template <std::size_t... policy>
constexpr auto programs_with(std::index_sequence<policy...>) {
  return std::array{
      entry<&amp::clear_found_inf_program>("scaler.clear_found_inf"),
      entry<&amp::merge_found_inf_program>("scaler.merge_found_inf"),
      entry<&amp::set_aside_found_inf_program>("scaler.set_aside_found_inf"),
      entry<&amp::bring_back_found_inf_program>("scaler.bring_back_found_inf"),
      entry<amp::policy_table::rows[policy].rule.run>(amp::policy_table::program_names[policy].data())...,
      entry<&optim::begin_iteration_program>("optimizer.begin_iteration"),
      entry<&optim::advance_steps_program>("optimizer.advance_steps"),
      entry<&begin_iteration_program>("train.begin_iteration"),
      entry<&begin_rescue_program>("train.begin_rescue"),
      entry<&note_loss_overflow_program>("train.note_loss_overflow"),
      entry<&keep_norm_program>("train.keep_norm"),
      entry<&total_norm_program>("train.total_norm"),
      entry<&unscale_norm_program>("train.unscale_norm"),
  };
}

constexpr auto programs = programs_with(std::make_index_sequence<amp::policy_table::rows.size()>{});

}  // namespace

std::span<const DeviceProgram> device_programs() { return programs; }

}  // namespace fp16lab::engine::gpu
