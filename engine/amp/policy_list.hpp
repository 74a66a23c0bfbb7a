// The table of loss-scale policies: a row is a peer, with its rule (engine/amp/policies/), the rule's
// parameters, and their source. The host's descriptions (engine/amp/policy.cpp) and the device's programs
// (engine/train/device_programs.cu) are both made from it: a new peer of a known rule is a row here.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "engine/amp/policies/ada_loss.hpp"
#include "engine/amp/policies/constant.hpp"
#include "engine/amp/policies/counters.hpp"
#include "engine/amp/policies/layer_rule.hpp"
#include "engine/amp/policies/lost_mass.hpp"
#include "engine/amp/policies/openseq2seq_logmax.hpp"
#include "engine/amp/policies/popart.hpp"
#include "engine/amp/policy.hpp"

namespace fp16lab::engine::amp {

/// A rule as the table knows it: its functions, over the bytes of its Params and State.
struct PolicyRule {
  const PolicyFamily* family = nullptr;
  std::span<const PolicyParameter> parameters;
  bool wants_statistics = false;
  bool constant = false;
  bool per_layer = false;
  bool power_of_two_scales = true;
  void (*run)(StepState& step, const std::byte* parameters) = nullptr;  ///< the ScalarProgram's function
  /// Writes the program's parameters, and the state before the first step.
  void (*begin)(const PolicyValues& values, const Guards& guards, ScalarProgram& program,
                StepState& step) = nullptr;
  std::optional<std::string> (*stop)(const StepState& step, const PolicyValues& values) = nullptr;
};

/// `values` are checked, and all that the rule declares and the guards are among them.
template <class Rule>
void begin_policy(const PolicyValues& values, const Guards& guards, ScalarProgram& program, StepState& step) {
  using State = typename Rule::State;
  using Params = typename Rule::Params;
  static_assert(std::is_trivially_copyable_v<Params> && std::is_trivially_copyable_v<State>);
  static_assert(sizeof(PolicyProgram) + sizeof(Params) <= sizeof(program.parameters));
  const PolicyProgram head{.guards = guards};
  const Params params = Rule::params(values);
  std::memcpy(program.parameters.data(), &head, sizeof(head));
  std::memcpy(program.parameters.data() + sizeof(head), &params, sizeof(params));
  const State state = Rule::initial(params);
  std::memcpy(step.policy.data(), &state, sizeof(state));
  step.set_scale(applied_scale(static_cast<double>(state.scale), guards));
}

template <class Rule>
std::optional<std::string> stop_policy(const StepState& step, const PolicyValues& values) {
  typename Rule::State state;
  std::memcpy(&state, step.policy.data(), sizeof(state));
  return Rule::stop(state, values);
}

template <class Rule>
constexpr PolicyRule rule_of() {
  PolicyRule rule{.family = &Rule::family,
                  .parameters = Rule::parameters,
                  .run = &run_policy<Rule>,
                  .begin = &begin_policy<Rule>};
  if constexpr (requires { Rule::wants_statistics; }) rule.wants_statistics = Rule::wants_statistics;
  if constexpr (requires { Rule::constant; }) rule.constant = Rule::constant;
  if constexpr (requires { Rule::per_layer; }) rule.per_layer = Rule::per_layer;
  if constexpr (requires { Rule::power_of_two_scales; }) rule.power_of_two_scales = Rule::power_of_two_scales;
  if constexpr (requires { &Rule::stop; }) rule.stop = &stop_policy<Rule>;
  return rule;
}

struct PolicyDefault {
  std::string_view name;
  double value = 0;
};

struct PolicyRow {
  std::string_view name, rule_text, source;
  PolicyRule rule;
  /// Defaults of the rule's parameters and of guards; unused ones have no name.
  std::array<PolicyDefault, 8> defaults{};

  constexpr const PolicyDefault* find(std::string_view parameter) const {
    for (const PolicyDefault& one : defaults)
      if (one.name == parameter) return &one;
    return nullptr;
  }
};

/// Does not compile where a default names no parameter, or where a parameter has none.
template <class Rule, class... Defaults>
consteval PolicyRow peer(std::string_view name, std::string_view rule_text, std::string_view source,
                         Defaults... defaults) {
  PolicyRow row{.name = name,
                .rule_text = rule_text,
                .source = source,
                .rule = rule_of<Rule>(),
                .defaults = {PolicyDefault(defaults)...}};
  const auto knows = [](const auto& parameters, std::string_view wanted) {
    return std::any_of(parameters.begin(), parameters.end(),
                       [wanted](const PolicyParameter& parameter) { return parameter.name == wanted; });
  };
  for (const PolicyDefault& one : row.defaults)
    if (!one.name.empty() && !knows(Rule::parameters, one.name) && !knows(guard_parameters, one.name))
      throw "no such parameter";
  for (const PolicyParameter& parameter : Rule::parameters)
    if (parameter.fallback != parameter.fallback && row.find(parameter.name) == nullptr)
      throw "a parameter without a default";
  return row;
}

namespace policy_table {

struct Default {
  std::string_view name;
  constexpr PolicyDefault operator()(double value) const { return {name, value}; }
};
inline constexpr Default initial_scale{"initial_scale"}, growth{"growth_factor"}, backoff{"backoff_factor"},
    interval{"growth_interval"}, bad_steps{"bad_steps"}, hysteresis{"hysteresis"}, floor{"min_scale"},
    ceiling{"max_scale"}, finite_guard{"finite_guard"}, min_loss_scale{"min_loss_scale"},
    raise_error{"raise_error_at_min_scale"};

// What several rows say.
inline constexpr std::string_view constant = "S is constant; a step with a non-finite gradient is skipped";
inline constexpr std::string_view torch =
    "S *= backoff_factor on an overflow; S *= growth_factor after growth_interval good steps in a row";
inline constexpr std::string_view paddle =
    "S *= backoff_factor after bad_steps overflows in a row; S *= growth_factor after growth_interval good "
    "steps in a row";
inline constexpr std::string_view divides_to_1 =
    "S /= growth_factor on an overflow, not below 1; S *= growth_factor after growth_interval good steps "
    "in a row";
inline constexpr std::string_view deepspeed =
    "S /= growth_factor on an overflow after hysteresis - 1 others (since the last growth, or in a row), "
    "not below min_scale, where one more ends the run; S *= growth_factor after growth_interval good steps "
    "in a row, the first after an overflow not counted";
inline constexpr std::string_view megatron =
    "S *= backoff_factor on an overflow after hysteresis - 1 others since the last growth, not below "
    "min_scale; S *= growth_factor after growth_interval good steps in a row";
inline constexpr std::string_view fairseq =
    "S /= growth_factor on an overflow if tolerance of the steps since the last change overflowed; the run "
    "ends at an overflow after which S would be min_loss_scale or less; S *= growth_factor whenever "
    "growth_interval divides the number of steps since the last overflow";

using Paddle = BadSteps<TwoFactors<float>, GoodStep::clears_bad_steps>;

/// In the order of `fp16lab policy --list`.
inline constexpr std::array rows = {
    peer<NoScaling>("none", "S = 1; a step with a non-finite gradient is skipped", "plain FP16 training"),
    peer<FixedScaling>("fixed", constant,
                       "Micikevicius et al., Mixed Precision Training, ICLR 2018, section 3.2",
                       initial_scale(65536)),
    peer<TorchScaling>("torch", torch,
                       "pytorch/pytorch torch/amp/grad_scaler.py, aten/src/ATen/native/cuda/AmpKernels.cu",
                       initial_scale(65536), growth(2), backoff(0.5), interval(2000)),

    // Paddle in dynamic graphs: no floor, no ceiling and no check of the product, so the scale can fall to
    // 0 and grow to infinity. The scale is an FP32 tensor.
    peer<Paddle>("paddle", paddle, "PaddlePaddle/Paddle python/paddle/amp/grad_scaler.py, GradScaler",
                 initial_scale(65536), growth(2), backoff(0.5), interval(2000), bad_steps(1),
                 finite_guard(false)),
    // As Paddle 2.2 had it, and as the AMP guide still describes it: 2^15, 1000 steps, two overflows in a
    // row.
    peer<Paddle>(
        "paddle-2.2", paddle, "PaddlePaddle/Paddle release/2.2 python/paddle/amp/grad_scaler.py, GradScaler",
        initial_scale(32768), growth(2), backoff(0.5), interval(1000), bad_steps(2), finite_guard(false)),
    // The base class of GradScaler, with other defaults.
    peer<Paddle>("paddle-amp-scaler", paddle,
                 "PaddlePaddle/Paddle python/paddle/amp/grad_scaler.py, AmpScaler", initial_scale(32768),
                 growth(2), backoff(0.5), interval(1000), bad_steps(1), finite_guard(false)),
    // Paddle's static graphs: a floor of 1, and growth only where the product is finite. The peer's kernel
    // sets the gradients of an overflowed step to zero instead of skipping it; only Adam and AdamW skip.
    // Here every optimizer skips.
    peer<Paddle>("paddle-static", "as paddle, but S stays at 1 or above and finite",
                 "PaddlePaddle/Paddle python/paddle/static/amp/decorator.py, "
                 "paddle/phi/kernels/impl/amp_kernel_impl.h",
                 initial_scale(65536), growth(2), backoff(0.5), interval(2000), bad_steps(1), floor(1)),
    // The older form of `decorate`, with other defaults.
    peer<Paddle>(
        "paddle-static-legacy",
        "as paddle-static, but by default S *= 0.8, which is no power of two, after two overflows in a row",
        "PaddlePaddle/Paddle python/paddle/static/amp/decorator.py, decorate without master_weight",
        initial_scale(32768), growth(2), backoff(0.8), interval(1000), bad_steps(2), floor(1)),

    peer<FixedScaling>(
        "mindspore-fixed", constant,
        "mindspore-ai/mindspore python/mindspore/train/loss_scale_manager.py, FixedLossScaleManager",
        initial_scale(128)),
    peer<MindSporeScaling>(
        "mindspore",
        "S *= 1 / growth_factor on an overflow, not below 1; S *= growth_factor whenever growth_interval "
        "divides the number of steps since the last overflow; the run ends after more than overflow_limit "
        "overflows in a row",
        "mindspore-ai/mindspore python/mindspore/train/loss_scale_manager.py, DynamicLossScaleManager",
        initial_scale(16777216), growth(2), interval(2000), floor(1), finite_guard(false)),
    // The update on the device, which a training cell uses: the scale is FP32, and backing off multiplies
    // by the rounded reciprocal of the factor. The peer has no defaults; those here are of the
    // DynamicLossScaleManager that makes the cell.
    peer<GoodSteps<FactorAndReciprocal<float>>>(
        "mindspore-cell",
        "S *= 1 / growth_factor on an overflow, not below 1; S *= growth_factor after growth_interval good "
        "steps in a row",
        "mindspore-ai/mindspore python/mindspore/nn/wrap/loss_scale.py, DynamicLossScaleUpdateCell",
        initial_scale(16777216), growth(2), interval(2000), floor(1), finite_guard(false)),
    // For functional training loops: FP32, a true division, growth only where finite. The peer has no
    // defaults; those here are of DynamicLossScaleManager.
    peer<GoodSteps<OneFactor<float>>>("mindspore-amp", divides_to_1,
                                      "mindspore-ai/mindspore python/mindspore/amp.py, DynamicLossScaler",
                                      initial_scale(16777216), growth(2), interval(2000), floor(1)),

    // apex.amp's O1 and O2. The scale is a Python float, so FP64. The peer multiplies and divides by 2
    // whatever its argument scale_factor is; here the factors are honoured. It has no floor unless
    // min_loss_scale is given, so that its scale can walk to 0; here finite_guard stops it before.
    peer<GoodSteps<TwoFactors<double>>>("apex",
                                        "S *= backoff_factor on an overflow; S *= growth_factor after "
                                        "growth_interval good steps in a row, up to max_scale",
                                        "NVIDIA/apex at e13873de: apex/amp/scaler.py, LossScaler",
                                        initial_scale(65536), growth(2), backoff(0.5), interval(2000),
                                        ceiling(16777216)),
    // apex's older scaler, of FP16_Optimizer: from 2^32 down, with a floor of 1 and no check of the
    // product. It counts by the iteration of the last overflow. FP64.
    peer<GoodSteps<OneFactor<double>>>(
        "apex-fp16-utils",
        "S /= growth_factor on an overflow, not below 1; S *= growth_factor whenever growth_interval "
        "divides the number of steps since the last overflow",
        "NVIDIA/apex at e13873de: apex/fp16_utils/loss_scaler.py, DynamicLossScaler",
        initial_scale(4294967296), growth(2), interval(1000), floor(1), finite_guard(false)),
    // The kernel that NeMo runs: torch's rule after a count of forgiven overflows. Every good step gives
    // them all back, so isolated overflows never lower the scale. The kernel multiplies the FP32 scale in
    // FP64. The caller gives all values; those here are NeMo's.
    peer<Hysteresis<TwoFactors<float, double>, Refill::on_good_step>>(
        "apex-hysteresis",
        "S *= backoff_factor on an overflow after hysteresis - 1 others in a row; S *= growth_factor after "
        "growth_interval good steps in a row",
        "NVIDIA/apex at e13873de: csrc/update_scale_hysteresis.cu; NVIDIA/NeMo native_amp_* options",
        initial_scale(4294967296), growth(2), backoff(0.5), interval(1000), hysteresis(2)),

    peer<DeepSpeedScaling>("deepspeed", deepspeed,
                           "deepspeedai/DeepSpeed deepspeed/runtime/fp16/loss_scaler.py, DynamicLossScaler",
                           initial_scale(65536), growth(2), interval(1000), hysteresis(2), floor(1),
                           finite_guard(false)),
    // Fused FP16 optimizers without a configured scaler, and unfused ones.
    peer<DeepSpeedScaling>("deepspeed-fused", deepspeed,
                           "deepspeedai/DeepSpeed deepspeed/runtime/fp16/fused_optimizer.py",
                           initial_scale(4294967296), growth(2), interval(1000), hysteresis(1),
                           raise_error(false), floor(1), finite_guard(false)),
    peer<DeepSpeedScaling>("deepspeed-unfused", deepspeed,
                           "deepspeedai/DeepSpeed deepspeed/runtime/fp16/unfused_optimizer.py",
                           initial_scale(65536), growth(2), interval(1000), hysteresis(1), raise_error(false),
                           floor(0.25), finite_guard(false)),

    // Megatron-LM and two of its rule. Forgiven overflows come back only with growth: after the first
    // back-off every overflow backs off at once until the scale has grown again, however many good steps come
    // between. The products are FP32 tensors; Fast-LLM's are Python floats.
    peer<Hysteresis<TwoFactors<float>, Refill::on_growth>>(
        "megatron", megatron, "NVIDIA/Megatron-LM megatron/core/optimizer/grad_scaler.py, DynamicGradScaler",
        initial_scale(4294967296), growth(2), backoff(0.5), interval(1000), hysteresis(2), floor(1),
        finite_guard(false)),
    peer<Hysteresis<TwoFactors<float>, Refill::on_growth>>(
        "colossalai", megatron,
        "hpcaitech/ColossalAI colossalai/amp/naive_amp/grad_scaler/dynamic_grad_scaler.py",
        initial_scale(65536), growth(2), backoff(0.5), interval(1000), hysteresis(2), finite_guard(false)),
    peer<Hysteresis<TwoFactors<double>, Refill::on_growth>>(
        "fastllm", "as megatron, in FP64",
        "ServiceNow/Fast-LLM fast_llm/engine/optimizer/optimizer.py, DynamicGradScaler", initial_scale(65536),
        growth(2), backoff(0.5), interval(1000), hysteresis(2), floor(1), finite_guard(false)),

    peer<FairseqScaling>("fairseq", fairseq,
                         "facebookresearch/fairseq fairseq/optim/dynamic_loss_scaler.py, DynamicLossScaler",
                         initial_scale(32768), growth(2), interval(2000), min_loss_scale(1e-4),
                         finite_guard(false)),
    // What fairseq-train makes of its options, for one process and no accumulation: 2^14 / processes /
    // update_freq steps.
    peer<FairseqScaling>(
        "fairseq-train", fairseq,
        "facebookresearch/fairseq fairseq/dataclass/configs.py, fairseq/optim/fp16_optimizer.py",
        initial_scale(128), growth(2), interval(16384), min_loss_scale(1e-4), finite_guard(false)),
    peer<MetaseqScaling>("metaseq",
                         "as fairseq, but growth_interval is multiplied and divided with S, and S stays "
                         "where it would fall below min_loss_scale",
                         "facebookresearch/metaseq metaseq/optim/dynamic_loss_scaler.py, DynamicLossScaler",
                         initial_scale(4), growth(2), interval(256), min_loss_scale(0x1p-5),
                         finite_guard(false)),

    // Starts at its ceiling, 2^14. FP32. The peer counts a step in parallel with its update, in no order that
    // TensorFlow would keep: now and then a growth comes a step early or late. Here a step is counted before
    // the rule looks at it.
    peer<GoodSteps<OneFactor<float>>>(
        "openseq2seq-backoff",
        "S /= growth_factor on an overflow; S *= growth_factor whenever growth_interval divides the number "
        "of steps since the last overflow; within [min_scale, max_scale]",
        "NVIDIA/OpenSeq2Seq open_seq2seq/optimizers/automatic_loss_scaler.py, BackoffScaler",
        initial_scale(16384), growth(2), interval(2000), floor(1), ceiling(16384)),
    // TensorFlow 1's ExponentialUpdateLossScaleManager. Good steps do not clear the count of bad ones, so
    // two overflows back off however far apart they are, unless a growth came between them. The peer has no
    // default for initial scale and growth interval; those here are of Paddle's legacy form, which copied
    // the rest.
    peer<BadSteps<TwoFactors<float>, GoodStep::keeps_bad_steps>>(
        "tf1-exponential",
        "S *= backoff_factor after bad_steps overflows since the last change of S; S *= growth_factor "
        "after growth_interval good steps in a row",
        "tensorflow/tensorflow r1.15 tensorflow/contrib/mixed_precision/python/loss_scale_manager.py",
        initial_scale(32768), growth(2), backoff(0.8), interval(1000), bad_steps(2), floor(1)),
    // TensorFlow 2: FP32, a floor of 1, growth only where finite. Keras 3 has neither floor nor check, and
    // its factor is fixed at 2.
    peer<GoodSteps<OneFactor<float>>>(
        "keras2", divides_to_1,
        "keras-team/tf-keras tf_keras/mixed_precision/loss_scale_optimizer.py, LossScaleOptimizer",
        initial_scale(32768), growth(2), interval(2000), floor(1)),
    peer<GoodSteps<OneFactor<float>>>(
        "keras3",
        "S /= growth_factor on an overflow; S *= growth_factor after growth_interval good steps in a row",
        "keras-team/keras keras/src/optimizers/loss_scale_optimizer.py, LossScaleOptimizer",
        initial_scale(32768), growth(2), interval(2000), finite_guard(false)),
    // FP32, a floor of 1, growth only where finite. The peer's floor is lost whenever its scale passes
    // through jit or tree_map (tree_unflatten drops it), so that one below 1 does not last; a floor here is
    // a parameter of the policy. The peer has no default for the initial scale; this one is of its
    // documentation.
    peer<GoodSteps<OneFactor<float>>>("jmp",
                                      "S /= growth_factor on an overflow, not below min_scale; S *= "
                                      "growth_factor after growth_interval good steps in a row",
                                      "deepmind/jmp jmp/_src/loss_scale.py, DynamicLossScale",
                                      initial_scale(32768), growth(2), interval(2000), floor(1)),
    peer<FlaxScaling>(  // the floor is the smallest normal FP32 number
        "flax",
        "S *= backoff_factor on an overflow; S *= growth_factor after growth_interval good steps in a row "
        "and, with extra_good_step, one more",
        "google/flax flax/training/dynamic_scale.py, DynamicScale", initial_scale(65536), growth(2),
        backoff(0.5), interval(2000), floor(0x1p-126)),
    peer<ChainerScaling>("chainer",
                         "S *= 2 in every good step before the first overflow, S *= 2^(1 / "
                         "growth_interval) in every one after it; S *= backoff_factor on an overflow",
                         "chainer/chainer chainer/optimizer.py, Optimizer.loss_scaling", initial_scale(1),
                         backoff(0.5), interval(1000), floor(1), ceiling(65504)),
    peer<MxnetScaling>("mxnet",
                       "as apex, but each change of S comes into force one step later than it is decided",
                       "apache/mxnet python/mxnet/contrib/amp/loss_scaler.py, LossScaler",
                       initial_scale(65536), growth(2), backoff(0.5), interval(2000), ceiling(16777216)),

    peer<LogMaxScaling>("openseq2seq-logmax",
                        "S = 2^(log_max - (mu + overflow_std_dev sigma)), where mu and sigma are running "
                        "averages of log2 of the largest unscaled weight gradient; an overflow counts as "
                        "log_max",
                        "NVIDIA/OpenSeq2Seq open_seq2seq/optimizers/automatic_loss_scaler.py, LogMaxScaler",
                        initial_scale(1), floor(1), ceiling(16384)),
    peer<PopartScaling>(
        "popart",
        "every update_period steps S *= backoff_factor if more than threshold_upper_count_proportion of the "
        "gradients are above bin_edge_location x the largest number (FP16: 65504), else S *= growth_factor",
        "graphcore/popart willow/include/popart/sessionoptions.hpp (AutomaticLossScalingSettings), "
        "willow/src/popx/op/lossscaleupdatex.cpp",
        initial_scale(1), growth(2), backoff(0.5)),
    peer<LostMassScaling>("lost-mass",
                          "S is a power of two: it rises to headroom_bits below overflow when more than "
                          "target_lost_mass of the gradients' L1 norm is lost, and falls to there when the "
                          "largest recent gradients come nearer; an overflow lowers it by the known excess",
                          "fp16lab engine/amp/policies/lost_mass.hpp", initial_scale(65536), floor(0x1p-24),
                          ceiling(0x1p39)),
    peer<AdaLossScaling>(
        ada_loss_policy,
        "at every product of the backward pass the gradient is multiplied by a power of two, chosen from "
        "its deviation so that a share n_uf_threshold underflows",
        "Zhao et al., arXiv 1910.12385 and IJCAI 2020; kumasento/ada-loss ada_loss/ada_loss.py",
        initial_scale(1)),

    // The gradient of a layer's output carries S times the layer's scale; layers that scaler.groups does not
    // name have scale 1. A layer whose gradients overflow backs off, the others count on; the step is skipped
    // for all of them. Ours differs (engine/amp/scalers/layer_scaler.cpp): scales are FP32, not FP64; it
    // applies the power of two at or below; and it also blames an overflow on the layer before the first one
    // that shows it.
    peer<NamedLayers>(layerwise_policy,
                      "every layer that scaler.groups names has a scale with torch's rule; an overflow in "
                      "any skips the step",
                      "facebookresearch/fairscale fairscale/optim/layerwise_gradient_scaler.py",
                      initial_scale(1), growth(2), backoff(0.5), interval(10000), floor(0x1p-126),
                      ceiling(0x1p127)),
    // scaler.groups = ["fc1=2^8", "*=2^4"]: patterns and initial scales; a layer belongs to the first
    // pattern that matches, one that matches none has scale 1. Gradients that cross from one group into
    // another are multiplied by the ratio of their scales. Each group grows by 2^(1/1000) after a good step
    // and shrinks by 2^(-1/2) after its own overflow; the step is skipped for all. What is applied is the
    // power of two at or below the scale, so ratios are exact.
    peer<NamedLayers>(groups_policy,
                      "every group of layers in scaler.groups has a scale that moves with the group's own "
                      "overflows; an overflow in any skips the step",
                      "mindspore-ai/mindspore boost/group_loss_scale_manager.py, boost/boost_cell_wrapper.py",
                      initial_scale(1), growth(1.0006933874625807), backoff(0.7071067811865476), interval(1)),
};

/// "policy.NAME", the name of each row's ScalarProgram, with a final 0.
inline constexpr auto program_names = [] {
  constexpr std::string_view prefix = "policy.";
  std::array<std::array<char, 32>, rows.size()> names{};
  for (std::size_t i = 0; i < rows.size(); ++i)
    std::copy(rows[i].name.begin(), rows[i].name.end(),
              std::copy(prefix.begin(), prefix.end(), names[i].begin()));
  return names;
}();

}  // namespace policy_table
}  // namespace fp16lab::engine::amp
