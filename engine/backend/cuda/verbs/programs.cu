// The scalar programs of the engine, compiled for the device. A new one is one line of the table.
//
// A program is host and device code in a header of the room that runs it, so this is the one file below engine/backend/
// that includes rooms above it; nothing here is known to any of them.
#include "engine/backend/cuda/verbs/programs.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>

#include "engine/amp/policies/ada_loss.hpp"
#include "engine/amp/policies/apex.hpp"
#include "engine/amp/policies/apex_fp16_utils.hpp"
#include "engine/amp/policies/apex_hysteresis.hpp"
#include "engine/amp/policies/chainer.hpp"
#include "engine/amp/policies/deepspeed.hpp"
#include "engine/amp/policies/fairseq.hpp"
#include "engine/amp/policies/fixed.hpp"
#include "engine/amp/policies/flax.hpp"
#include "engine/amp/policies/groups.hpp"
#include "engine/amp/policies/jmp.hpp"
#include "engine/amp/policies/keras2.hpp"
#include "engine/amp/policies/keras3.hpp"
#include "engine/amp/policies/layerwise.hpp"
#include "engine/amp/policies/lost_mass.hpp"
#include "engine/amp/policies/megatron.hpp"
#include "engine/amp/policies/metaseq.hpp"
#include "engine/amp/policies/mindspore.hpp"
#include "engine/amp/policies/mindspore_amp.hpp"
#include "engine/amp/policies/mindspore_cell.hpp"
#include "engine/amp/policies/mxnet.hpp"
#include "engine/amp/policies/none.hpp"
#include "engine/amp/policies/openseq2seq_backoff.hpp"
#include "engine/amp/policies/openseq2seq_logmax.hpp"
#include "engine/amp/policies/paddle.hpp"
#include "engine/amp/policies/paddle_static.hpp"
#include "engine/amp/policies/popart.hpp"
#include "engine/amp/policies/tf1_exponential.hpp"
#include "engine/amp/policies/torch.hpp"
#include "engine/amp/policy.hpp"
#include "engine/amp/scalers/scaler_programs.hpp"
#include "engine/backend/cuda/runtime/launch.hpp"
#include "engine/backend/cuda/verbs/backend_impl.hpp"
#include "engine/optim/optimizer_programs.hpp"
#include "engine/train/iteration_programs.hpp"

namespace fp16lab::engine::FP16LAB_MACHINE {

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

constexpr std::array programs = {
    entry<&amp::clear_found_inf_program>("scaler.clear_found_inf"),
    entry<&amp::merge_found_inf_program>("scaler.merge_found_inf"),
    entry<&amp::run_policy<amp::NoScaling>>("policy.none"),
    entry<&amp::run_policy<amp::FixedScaling>>("policy.fixed"),
    entry<&amp::run_policy<amp::TorchScaling>>("policy.torch"),
    entry<&amp::run_policy<amp::PaddleScaling>>("policy.paddle"),
    entry<&amp::run_policy<amp::Paddle22Scaling>>("policy.paddle-2.2"),
    entry<&amp::run_policy<amp::PaddleAmpScaling>>("policy.paddle-amp-scaler"),
    entry<&amp::run_policy<amp::PaddleStaticScaling>>("policy.paddle-static"),
    entry<&amp::run_policy<amp::PaddleStaticLegacyScaling>>("policy.paddle-static-legacy"),
    entry<&amp::run_policy<amp::MindSporeFixedScaling>>("policy.mindspore-fixed"),
    entry<&amp::run_policy<amp::MindSporeScaling>>("policy.mindspore"),
    entry<&amp::run_policy<amp::MindSporeCellScaling>>("policy.mindspore-cell"),
    entry<&amp::run_policy<amp::MindSporeAmpScaling>>("policy.mindspore-amp"),
    entry<&amp::run_policy<amp::ApexScaling>>("policy.apex"),
    entry<&amp::run_policy<amp::ApexFp16UtilsScaling>>("policy.apex-fp16-utils"),
    entry<&amp::run_policy<amp::ApexHysteresisScaling>>("policy.apex-hysteresis"),
    entry<&amp::run_policy<amp::DeepSpeedScaling>>("policy.deepspeed"),
    entry<&amp::run_policy<amp::DeepSpeedFusedScaling>>("policy.deepspeed-fused"),
    entry<&amp::run_policy<amp::DeepSpeedUnfusedScaling>>("policy.deepspeed-unfused"),
    entry<&amp::run_policy<amp::MegatronScaling>>("policy.megatron"),
    entry<&amp::run_policy<amp::ColossalAiScaling>>("policy.colossalai"),
    entry<&amp::run_policy<amp::FastLlmScaling>>("policy.fastllm"),
    entry<&amp::run_policy<amp::FairseqScaling>>("policy.fairseq"),
    entry<&amp::run_policy<amp::FairseqTrainScaling>>("policy.fairseq-train"),
    entry<&amp::run_policy<amp::MetaseqScaling>>("policy.metaseq"),
    entry<&amp::run_policy<amp::OpenSeq2SeqBackoffScaling>>("policy.openseq2seq-backoff"),
    entry<&amp::run_policy<amp::Tf1ExponentialScaling>>("policy.tf1-exponential"),
    entry<&amp::run_policy<amp::Keras2Scaling>>("policy.keras2"),
    entry<&amp::run_policy<amp::Keras3Scaling>>("policy.keras3"),
    entry<&amp::run_policy<amp::JmpScaling>>("policy.jmp"),
    entry<&amp::run_policy<amp::FlaxScaling>>("policy.flax"),
    entry<&amp::run_policy<amp::ChainerScaling>>("policy.chainer"),
    entry<&amp::run_policy<amp::MxnetScaling>>("policy.mxnet"),
    entry<&amp::run_policy<amp::LogMaxScaling>>("policy.openseq2seq-logmax"),
    entry<&amp::run_policy<amp::PopartScaling>>("policy.popart"),
    entry<&amp::run_policy<amp::LostMassScaling>>("policy.lost-mass"),
    entry<&amp::run_policy<amp::AdaLossScaling>>("policy.ada-loss"),
    entry<&amp::run_policy<amp::LayerwiseScaling>>("policy.layerwise"),
    entry<&amp::run_policy<amp::GroupScaling>>("policy.groups"),
    entry<&optim::begin_iteration_program>("optimizer.begin_iteration"),
    entry<&optim::advance_steps_program>("optimizer.advance_steps"),
    entry<&begin_iteration_program>("train.begin_iteration"),
    entry<&begin_rescue_program>("train.begin_rescue"),
    entry<&note_loss_overflow_program>("train.note_loss_overflow"),
    entry<&keep_norm_program>("train.keep_norm"),
    entry<&total_norm_program>("train.total_norm"),
    entry<&unscale_norm_program>("train.unscale_norm"),
};

const DeviceProgram& known(const ScalarProgram& wanted) {
  const auto found = std::find_if(programs.begin(), programs.end(),
                                  [&](const DeviceProgram& program) { return wanted.name == program.name; });
  if (found == programs.end()) {
    std::string names;
    for (const DeviceProgram& program : programs)
      names += (names.empty() ? "" : ", ") + std::string(program.name);
    throw std::invalid_argument("run: the device has no program \"" + std::string(wanted.name) +
                                "\"; it has " + names + " (engine/backend/cuda/verbs/programs.cu)");
  }
  if (found->function != wanted.function)
    throw std::invalid_argument("run: the device has another function than the caller under the name \"" +
                                std::string(wanted.name) + "\" (engine/backend/cuda/verbs/programs.cu)");
  return *found;
}

}  // namespace

std::span<const DeviceProgram> device_programs() { return programs; }

void CudaBackend::run(const ScalarProgram& program, Tensor& step) {
  checks::step_state("run", step);
  checks::scalar_program(program);
  const DeviceProgram& known_program = known(program);
  ProgramParameters parameters;
  std::copy(program.parameters.begin(), program.parameters.end(), parameters.bytes);
  known_program.run(runtime_, known_program.name, reinterpret_cast<StepState*>(step.data()), parameters);
}

}  // namespace fp16lab::engine::FP16LAB_MACHINE
