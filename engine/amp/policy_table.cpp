#include "engine/amp/policy_table.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "engine/amp/policies/apex.hpp"
#include "engine/amp/policies/apex_fp16_utils.hpp"
#include "engine/amp/policies/apex_hysteresis.hpp"
#include "engine/amp/policies/chainer.hpp"
#include "engine/amp/policies/deepspeed.hpp"
#include "engine/amp/policies/fairseq.hpp"
#include "engine/amp/policies/ada_loss.hpp"
#include "engine/amp/policies/fixed.hpp"
#include "engine/amp/policies/groups.hpp"
#include "engine/amp/policies/layerwise.hpp"
#include "engine/amp/policies/flax.hpp"
#include "engine/amp/policies/jmp.hpp"
#include "engine/amp/policies/keras2.hpp"
#include "engine/amp/policies/keras3.hpp"
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

namespace fp16lab::engine::amp {
namespace {

template <class Policy>
inline constexpr bool stops = requires(const typename Policy::State& state, const PolicySettings& values) {
  Policy::stop(state, values);
};

template <class Policy>
std::optional<std::string> stop_of(const StepState& step, const PolicySettings& values) {
  typename Policy::State state;
  std::memcpy(&state, step.policy.data(), sizeof(state));
  return Policy::stop(state, values);
}

template <class Policy>
ScalePolicy build(const PolicyEntry& entry, const PolicyValues& values, const Guards& guards) {
  using State = typename Policy::State;
  using Program = PolicyProgram<Policy>;
  static_assert(std::is_trivially_copyable_v<typename Policy::Params> && std::is_trivially_copyable_v<State>);
  static_assert(sizeof(Program) <= sizeof(ScalarProgram::parameters));
  ScalePolicy policy;
  policy.name = entry.description.name;
  policy.values = values.all();
  policy.wants_statistics = Policy::wants_statistics;
  if constexpr (stops<Policy>) policy.stop = &stop_of<Policy>;
  Program program{};
  program.guards = guards;
  program.params = Policy::params(values);
  policy.update.name = entry.description.program;
  policy.update.function = &run_policy<Policy>;
  std::memcpy(policy.update.parameters.data(), &program, sizeof(program));
  const State state = Policy::initial(program.params);
  std::memcpy(policy.initial.policy.data(), &state, sizeof(state));
  policy.initial.set_scale(applied_scale(static_cast<double>(state.scale), guards));
  return policy;
}

bool declares(const std::vector<PolicyParameter>& parameters, std::string_view name) {
  return std::any_of(parameters.begin(), parameters.end(),
                     [name](const PolicyParameter& parameter) { return parameter.name == name; });
}

/// `program`: "policy.NAME", the key under which a device back end finds the policy.
template <class Policy>
PolicyEntry entry(std::string_view program) {
  PolicyDescription description{.name = Policy::name,
                                .program = program,
                                .rule = Policy::rule,
                                .source = Policy::source,
                                .parameters = {Policy::parameters.begin(), Policy::parameters.end()},
                                .wants_statistics = Policy::wants_statistics};
  if constexpr (requires { Policy::power_of_two_scales; })
    description.power_of_two_scales = Policy::power_of_two_scales;
  if constexpr (requires { Policy::per_layer; }) description.per_layer = Policy::per_layer;
  if constexpr (requires { Policy::constant; }) description.constant = Policy::constant;
  for (const PolicyParameter& guard : guard_parameters)
    if (!declares(description.parameters, guard.name)) description.parameters.push_back(guard);
  return {.description = std::move(description), .build = &build<Policy>};
}

}  // namespace

std::span<const PolicyEntry> policy_table() {
  static const std::vector<PolicyEntry> table = {
      entry<NoScaling>("policy.none"),
      entry<FixedScaling>("policy.fixed"),
      entry<TorchScaling>("policy.torch"),
      entry<PaddleScaling>("policy.paddle"),
      entry<Paddle22Scaling>("policy.paddle-2.2"),
      entry<PaddleAmpScaling>("policy.paddle-amp-scaler"),
      entry<PaddleStaticScaling>("policy.paddle-static"),
      entry<PaddleStaticLegacyScaling>("policy.paddle-static-legacy"),
      entry<MindSporeFixedScaling>("policy.mindspore-fixed"),
      entry<MindSporeScaling>("policy.mindspore"),
      entry<MindSporeCellScaling>("policy.mindspore-cell"),
      entry<MindSporeAmpScaling>("policy.mindspore-amp"),
      entry<ApexScaling>("policy.apex"),
      entry<ApexFp16UtilsScaling>("policy.apex-fp16-utils"),
      entry<ApexHysteresisScaling>("policy.apex-hysteresis"),
      entry<DeepSpeedScaling>("policy.deepspeed"),
      entry<DeepSpeedFusedScaling>("policy.deepspeed-fused"),
      entry<DeepSpeedUnfusedScaling>("policy.deepspeed-unfused"),
      entry<MegatronScaling>("policy.megatron"),
      entry<ColossalAiScaling>("policy.colossalai"),
      entry<FastLlmScaling>("policy.fastllm"),
      entry<FairseqScaling>("policy.fairseq"),
      entry<FairseqTrainScaling>("policy.fairseq-train"),
      entry<MetaseqScaling>("policy.metaseq"),
      entry<OpenSeq2SeqBackoffScaling>("policy.openseq2seq-backoff"),
      entry<Tf1ExponentialScaling>("policy.tf1-exponential"),
      entry<Keras2Scaling>("policy.keras2"),
      entry<Keras3Scaling>("policy.keras3"),
      entry<JmpScaling>("policy.jmp"),
      entry<FlaxScaling>("policy.flax"),
      entry<ChainerScaling>("policy.chainer"),
      entry<MxnetScaling>("policy.mxnet"),
      entry<LogMaxScaling>("policy.openseq2seq-logmax"),
      entry<PopartScaling>("policy.popart"),
      entry<LostMassScaling>("policy.lost-mass"),
      entry<AdaLossScaling>("policy.ada-loss"),
      entry<LayerwiseScaling>("policy.layerwise"),
      entry<GroupScaling>("policy.groups"),
  };
  return table;
}

}  // namespace fp16lab::engine::amp
