// The list of loss-scale policies. The host's table (engine/amp/policy.cpp) and the device's programs
// (engine/train/device_programs.cu) are both made from it: a new policy is its header and a row here.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

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

namespace fp16lab::engine::amp {

template <class... Policies>
struct PolicyList {};

/// In the order of `fp16lab policy --list`.
using ScalePolicies = PolicyList<  //
    NoScaling, FixedScaling, TorchScaling, PaddleScaling, Paddle22Scaling, PaddleAmpScaling,
    PaddleStaticScaling, PaddleStaticLegacyScaling, MindSporeFixedScaling, MindSporeScaling,
    MindSporeCellScaling, MindSporeAmpScaling, ApexScaling, ApexFp16UtilsScaling, ApexHysteresisScaling,
    DeepSpeedScaling, DeepSpeedFusedScaling, DeepSpeedUnfusedScaling, MegatronScaling, ColossalAiScaling,
    FastLlmScaling, FairseqScaling, FairseqTrainScaling, MetaseqScaling, OpenSeq2SeqBackoffScaling,
    Tf1ExponentialScaling, Keras2Scaling, Keras3Scaling, JmpScaling, FlaxScaling, ChainerScaling,
    MxnetScaling, LogMaxScaling, PopartScaling, LostMassScaling, AdaLossScaling, LayerwiseScaling,
    GroupScaling>;

/// "policy.NAME": the name of the policy's ScalarProgram, with a final 0.
template <class Policy>
inline constexpr auto policy_program_name = [] {
  constexpr std::string_view prefix = "policy.";
  std::array<char, prefix.size() + Policy::name.size() + 1> text{};
  std::copy(Policy::name.begin(), Policy::name.end(), std::copy(prefix.begin(), prefix.end(), text.begin()));
  return text;
}();

}  // namespace fp16lab::engine::amp
