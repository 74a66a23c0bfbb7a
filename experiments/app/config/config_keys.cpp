// The one table of configuration keys.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "engine/amp/policy.hpp"
#include "engine/data/dataset.hpp"
#include "experiments/app/config/config.hpp"
#include "experiments/app/registry.hpp"

namespace fp16lab::experiments {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
/// The largest integer up to which every integer is a double: ranges are kept in doubles.
constexpr double largest_integer = 9007199254740991.0;
constexpr ConfigRange any{};
constexpr ConfigRange counts{0, largest_integer};
constexpr ConfigRange positive_counts{1, largest_integer};
constexpr ConfigRange not_negative{0, infinity, false, true};
constexpr ConfigRange positive{0, infinity, true, true};
constexpr ConfigRange below_one{0, 1, false, true};
/// A loss scale must survive as an FP32 number with a finite reciprocal.
constexpr ConfigRange scales{0x1p-126, 0x1p126};

std::vector<std::string> auto_or_bool() { return {"auto", "true", "false"}; }
std::vector<std::string> auto_or(std::vector<std::string> names) {
  names.insert(names.begin(), "auto");
  return names;
}
std::vector<std::string> fp8_choices() {
  std::vector<std::string> choices{"none"};
  choices.insert(choices.end(), dtype_names<is_fp8>.begin(), dtype_names<is_fp8>.end());
  return choices;
}

#define FP16LAB_FIELD(path) [](RunConfig& config) -> ConfigField { return &config.path; }

std::vector<ConfigKey> make_keys() {
  return {
      {"model.name", FP16LAB_FIELD(model.name), any, workload_names(),
       "the workload: model, targets and loss"},
      {"model.widths",
       FP16LAB_FIELD(model.widths),
       positive_counts,
       {},
       "of perceptrons: layer widths, the input's first"},
      {"model.activation", FP16LAB_FIELD(model.activation), any, activation_names(),
       "of perceptrons: between layers"},
      {"model.init", FP16LAB_FIELD(model.init), any, init_names(),
       "initial weights of perceptrons and lenet5"},
      {"model.layout", FP16LAB_FIELD(model.layout), any, {"nchw", "nhwc"}, "of lenet5: order of the axes"},
      {"model.batch_norm",
       FP16LAB_FIELD(model.batch_norm),
       any,
       {},
       "of lenet5: BatchNorm between convolutions and their activations"},
      {"model.embedding",
       FP16LAB_FIELD(model.embedding),
       positive_counts,
       {},
       "of charlm_lstm and charlm_transformer: features of a symbol"},
      {"model.hidden", FP16LAB_FIELD(model.hidden), positive_counts, {}, "of charlm_lstm: state width"},
      {"model.heads",
       FP16LAB_FIELD(model.heads),
       positive_counts,
       {},
       "of charlm_transformer: attention heads; divides model.embedding"},
      {"model.layers",
       FP16LAB_FIELD(model.layers),
       positive_counts,
       {},
       "of charlm_lstm and charlm_transformer: depth"},
      {"model.context",
       FP16LAB_FIELD(model.context),
       positive_counts,
       {},
       "of charlm_lstm and charlm_transformer: symbols in a window"},
      {"model.dropout",
       FP16LAB_FIELD(model.dropout),
       below_one,
       {},
       "of charlm_lstm (between layers) and charlm_transformer: probability"},
      {"model.penalty",
       FP16LAB_FIELD(model.penalty),
       not_negative,
       {},
       "of gradient_penalty: weight of the gradient's norm in the loss"},
      {"model.generator",
       FP16LAB_FIELD(model.generator),
       positive_counts,
       {},
       "of gan: layer widths of the generator, the noise first"},
      {"model.discriminator",
       FP16LAB_FIELD(model.discriminator),
       positive_counts,
       {},
       "of gan: layer widths of the discriminator, ending with 1"},
      {"model.scale_down",
       FP16LAB_FIELD(model.scale_down),
       positive_counts,
       {},
       "of regression: model.widths and train.batch_size are divided by this, nothing else changes"},

      {"data.name", FP16LAB_FIELD(data.name), any, dataset_names(), "the data set"},
      {"data.path",
       FP16LAB_FIELD(data.path),
       any,
       {},
       "its folder, or a text file; empty: $FP16LAB_DATA, then the system's"},
      {"data.subset",
       FP16LAB_FIELD(data.subset),
       counts,
       {},
       "first n training images, or bytes of text; 0: all"},
      {"data.test_subset",
       FP16LAB_FIELD(data.test_subset),
       counts,
       {},
       "first n test images, or bytes of text (or all, where a file asks for more than there are); 0: all"},
      {"data.normalise",
       FP16LAB_FIELD(data.normalise),
       any,
       {"unit", "standard"},
       "of images; unit: p/255; standard: mean 0 and deviation 1 over the training set"},
      {"data.batches",
       FP16LAB_FIELD(data.batches),
       {1, 4294967295},
       {},
       "of synthetic data: batches an epoch"},

      {"train.steps",
       FP16LAB_FIELD(train.steps),
       counts,
       {},
       "optimizer steps; 0: as many as train.epochs gives"},
      {"train.epochs",
       FP16LAB_FIELD(train.epochs),
       counts,
       {},
       "passes over the data where train.steps is 0"},
      {"train.batch_size",
       FP16LAB_FIELD(train.batch_size),
       positive_counts,
       {},
       "images, or windows of text, a micro-batch"},
      {"train.accumulate", FP16LAB_FIELD(train.accumulate), positive_counts, {}, "micro-batches a step"},
      {"train.accumulate_mode",
       FP16LAB_FIELD(train.accumulate_mode),
       any,
       {"mean", "sum"},
       "mean: the loss is divided by train.accumulate; sum: it is not"},
      {"train.clip_norm",
       FP16LAB_FIELD(train.clip_norm),
       not_negative,
       {},
       "largest L2 norm of the gradients; 0: off"},
      {"train.clip_value",
       FP16LAB_FIELD(train.clip_value),
       not_negative,
       {},
       "largest magnitude of a gradient's element, after clip_norm; 0: off"},
      {"train.seed",
       FP16LAB_FIELD(train.seed),
       counts,
       {},
       "of weights and shuffling, up to 9007199254740991"},
      {"train.perturb_ulps",
       FP16LAB_FIELD(train.perturb_ulps),
       {0, 4194304},
       {},
       "every non-zero initial weight is moved by this many FP32 ulps, up or down by train.seed: what training makes of "
       "that by itself. 0: none"},
      {"train.evaluate_every", FP16LAB_FIELD(train.evaluate_every), counts, {}, "steps; 0: only at the end"},
      {"train.skip_limit",
       FP16LAB_FIELD(train.skip_limit),
       counts,
       {},
       "consecutive skipped steps that end the run as diverged; 0: no limit"},
      {"train.graph",
       FP16LAB_FIELD(train.graph),
       any,
       {},
       "of cuda: a step is captured once as a CUDA graph and replayed, with the same bits (--graph)"},

      {"optimizer.name", FP16LAB_FIELD(optimizer.name), any, optimizer_names(), "the update rule"},
      {"optimizer.lr", FP16LAB_FIELD(optimizer.lr), not_negative, {}, "learning rate"},
      {"optimizer.momentum", FP16LAB_FIELD(optimizer.momentum), below_one, {}, "of sgd"},
      {"optimizer.nesterov", FP16LAB_FIELD(optimizer.nesterov), any, {}, "of sgd; needs a momentum"},
      {"optimizer.weight_decay",
       FP16LAB_FIELD(optimizer.weight_decay),
       not_negative,
       {},
       "L2 for sgd and adam, decoupled for adamw"},
      {"optimizer.beta1", FP16LAB_FIELD(optimizer.beta1), below_one, {}, "of adam and adamw"},
      {"optimizer.beta2", FP16LAB_FIELD(optimizer.beta2), below_one, {}, "of adam and adamw"},
      {"optimizer.epsilon", FP16LAB_FIELD(optimizer.epsilon), positive, {}, "of adam and adamw"},
      {"optimizer.loss_scale",
       FP16LAB_FIELD(optimizer.loss_scale),
       scales,
       {},
       "divides every gradient: what scaler.drop_overflow_update = false leaves to the optimizer"},

      {"schedule.name", FP16LAB_FIELD(schedule.name), any, schedule_names(), "of the learning rate"},
      {"schedule.warmup_steps",
       FP16LAB_FIELD(schedule.warmup_steps),
       counts,
       {},
       "linear rise to optimizer.lr, of any schedule"},
      {"schedule.total_steps",
       FP16LAB_FIELD(schedule.total_steps),
       counts,
       {},
       "cosine: where it ends; 0: with the run"},
      {"schedule.minimum_factor",
       FP16LAB_FIELD(schedule.minimum_factor),
       {0, 1},
       {},
       "cosine: last learning rate over the first"},
      {"schedule.step_interval",
       FP16LAB_FIELD(schedule.step_interval),
       counts,
       {},
       "step: steps between drops"},
      {"schedule.step_factor",
       FP16LAB_FIELD(schedule.step_factor),
       {0, 1, true, false},
       {},
       "step: learning rate times this at a drop"},

      {"amp.level", FP16LAB_FIELD(amp.level), any, amp_level_names(),
       "O0: FP32; others as amp.dialect means them (fp16lab list shows each)"},
      {"amp.dtype", FP16LAB_FIELD(amp.dtype), any, {"f16", "bf16"}, "the 16-bit type, called low below"},
      {"amp.dialect", FP16LAB_FIELD(amp.dialect), any, amp_dialect_names(), "whose levels and op lists"},
      {"amp.white",
       FP16LAB_FIELD(amp.white),
       any,
       {},
       "ops that compute in low besides the dialect's own, by our name or the dialect's"},
      {"amp.black", FP16LAB_FIELD(amp.black), any, {}, "ops that compute in FP32 besides the dialect's own"},
      {"amp.excluded",
       FP16LAB_FIELD(amp.excluded),
       any,
       {},
       "patterns of layers that stay FP32; * stands for any characters, ? for one"},
      {"amp.use_guard",
       FP16LAB_FIELD(amp.use_guard),
       any,
       {},
       "low only inside guarded regions: amp.guard, and what a model guards itself"},
      {"amp.guard", FP16LAB_FIELD(amp.guard), any, {}, "patterns of guarded layers, with amp.use_guard"},
      {"amp.to_float",
       FP16LAB_FIELD(amp.to_float),
       any,
       {},
       "PATTERN=DTYPE (f32, f16, bf16): layers that compute in that type; wins over all else"},
      {"amp.keep_batchnorm_fp32", FP16LAB_FIELD(amp.keep_batchnorm_fp32), any, auto_or_bool(),
       "of a low model: BatchNorm's parameters stay FP32; auto: as the level says"},
      {"amp.master_weights", FP16LAB_FIELD(amp.master_weights), any, auto_or_bool(),
       "of a low model: FP32 weights behind the low ones; auto: as the level says"},
      {"amp.master_gradients", FP16LAB_FIELD(amp.master_gradients), any, auto_or_bool(),
       "of a low model: gradients add up in FP32; auto: as the level says"},
      {"amp.low_inputs", FP16LAB_FIELD(amp.low_inputs), any, auto_or_bool(),
       "the network's inputs are cast to low; auto: as the level says"},
      {"amp.low_loss", FP16LAB_FIELD(amp.low_loss), any, auto_or_bool(),
       "the loss is computed from low outputs and rounded to low; auto: no"},
      {"amp.use_promote",
       FP16LAB_FIELD(amp.use_promote),
       any,
       {},
       "of paddle's O2: false makes ops in no list low, whatever their inputs"},
      {"amp.allow_banned",
       FP16LAB_FIELD(amp.allow_banned),
       any,
       {},
       "of apex: compute banned ops in FP32 instead of refusing them"},
      {"amp.fp8_operands", FP16LAB_FIELD(amp.fp8_operands), any, fp8_choices(),
       "an experiment: operands of products are rounded to FP8 first"},
      {"amp.fp8_gradients", FP16LAB_FIELD(amp.fp8_gradients), any, fp8_choices(),
       "the same for the gradients in the products of the backward pass"},
      {"amp.save_dtype",
       FP16LAB_FIELD(amp.save_dtype),
       any,
       {"", "f32", "f16", "bf16", "f64"},
       "also write weights.safetensors, cast to this type, with every checkpoint and at the end; empty: no"},

      {"scaler.policy", FP16LAB_FIELD(scaler.policy), any, auto_or(policy_names()),
       "how the loss scale moves; auto: as the level brings it (mindspore's O2, apex's O1 and O2), else none"},
      {"scaler.power_of_two",
       FP16LAB_FIELD(scaler.power_of_two),
       any,
       {"any", "warn", "round_down"},
       "scales that are no powers of two make unscaling inexact: take them, say so, or use the power below"},
      {"scaler.enabled",
       FP16LAB_FIELD(scaler.enabled),
       any,
       {},
       "false: nothing is scaled, unscaled, checked or skipped"},
      {"scaler.drop_overflow_update",
       FP16LAB_FIELD(scaler.drop_overflow_update),
       any,
       {},
       "false (policies none and fixed): gradients are neither checked nor unscaled and every step is taken; "
       "optimizer.loss_scale has to divide"},
      {"scaler.per_loss",
       FP16LAB_FIELD(scaler.per_loss),
       any,
       {},
       "of models with several losses (two_models, gan): each loss has a scale of its own; records show that "
       "of loss 0"},
      {"scaler.rescue",
       FP16LAB_FIELD(scaler.rescue),
       {0, 1000},
       {},
       "how often the backward pass of an overflowed step is done again at the lower scale that the policy "
       "decides, before the step is skipped; keeps the values of all micro-batches until then. 0: never"},
      {"scaler.groups",
       FP16LAB_FIELD(scaler.groups),
       any,
       {},
       "of layerwise and groups: PATTERN=SCALE, layers by a pattern of their weights' names and the scale that "
       "they begin with (\"fc1=2^8\", \"*=2^4\"); the first match counts"},

      {"backend.device",
       FP16LAB_FIELD(backend.device),
       any,
       {"emulated", "cuda", "auto"},
       "auto: cuda where a device can run it, else emulated"},
      {"backend.tensor_core", FP16LAB_FIELD(backend.tensor_core), any, auto_or(tensor_core_names()),
       "whose matrix arithmetic FP16 products follow; auto: emulated hopper, or the device's own"},
      {"backend.accumulator",
       FP16LAB_FIELD(backend.accumulator),
       any,
       {"f32", "f16"},
       "of emulated: what tensor cores sum products of FP16 in; those of FP8 are summed in FP32 always"},
      {"backend.ordinal",
       FP16LAB_FIELD(backend.ordinal),
       {0, 2147483647},
       {},
       "of cuda: which device, as fp16lab devices numbers them"},
      {"backend.gemm",
       FP16LAB_FIELD(backend.gemm),
       any,
       {"auto", "mma", "cublas", "cublas-any-order"},
       "of cuda: who multiplies. mma: our own kernel; cublas: cuBLASLt where it was seen to give the same "
       "bits; auto: "
       "whichever suits a shape; cublas-any-order: what is fastest, whatever its bits"},
      {"backend.pins",
       FP16LAB_FIELD(backend.pins),
       any,
       {},
       "of cuda: a file that keeps from run to run which algorithms of cuBLASLt give the same bits; empty: "
       "none"},

      {"observe.histograms_every",
       FP16LAB_FIELD(observe.histograms_every),
       counts,
       {},
       "steps between gradient histograms; 0: none"},
      {"observe.explain_overflow",
       FP16LAB_FIELD(observe.explain_overflow),
       any,
       {},
       "find the operation that made the first Inf or NaN of every step with an overflow (slower, same bits)"},

      {"checkpoint.every", FP16LAB_FIELD(checkpoint.every), counts, {}, "steps between checkpoints; 0: none"},
      {"checkpoint.keep",
       FP16LAB_FIELD(checkpoint.keep),
       counts,
       {},
       "newest checkpoints that stay in the run folder; 0: all"},

      {"report.margin.loss",
       FP16LAB_FIELD(report.margin_loss),
       positive,
       {},
       "in percent: a final loss (or bits per character) that is off FP32's by less counts as equal"},
      {"report.margin.accuracy",
       FP16LAB_FIELD(report.margin_accuracy),
       positive,
       {},
       "the same of an accuracy, in points"},
  };
}

#undef FP16LAB_FIELD

std::string bounds_text(const ConfigRange& range) {
  const auto number = [](double x) { return fmt::format("{}", x); };
  const bool unbounded = std::isinf(range.maximum) || range.maximum == largest_integer;
  if (range.minimum == 0 && range.minimum_excluded && unbounded) return "above 0";
  if (unbounded) return number(range.minimum) + (range.minimum_excluded ? " excluded, and more" : " or more");
  return fmt::format("from {}{} to {}{}", number(range.minimum), range.minimum_excluded ? " (excluded)" : "",
                     number(range.maximum), range.maximum_excluded ? " (excluded)" : "");
}

std::string choices_text(const std::vector<std::string>& choices) {
  std::string text;
  for (const std::string& choice : choices) {
    if (!text.empty()) text += ", ";
    text += choice.empty() ? "\"\"" : choice;
  }
  return text;
}

/// A key for every parameter of any loss-scale policy, behind scaler.policy.
std::vector<ConfigKey> with_policy_parameters(std::vector<ConfigKey> keys) {
  const auto policy =
      std::find_if(keys.begin(), keys.end(), [](const ConfigKey& key) { return key.name == "scaler.policy"; });
  std::vector<ConfigKey> parameters;
  for (const engine::amp::PolicyParameter& parameter : engine::amp::policy_parameters()) {
    const std::string name(parameter.name);
    std::string users;
    for (const engine::amp::PolicyDescription& description : engine::amp::scale_policies())
      if (description.find(name) != nullptr) users += (users.empty() ? "" : ", ") + std::string(description.name);
    const bool common = std::any_of(engine::amp::guard_parameters.begin(), engine::amp::guard_parameters.end(),
                                    [&name](const auto& guard) { return guard.name == name; });
    parameters.push_back({.name = "scaler." + name,
                          .field = [name](RunConfig& config) -> ConfigField {
                            return &config.scaler.parameters[name];
                          },
                          .range = {parameter.minimum, parameter.maximum, parameter.minimum_excluded,
                                    parameter.maximum_excluded},
                          .choices = {},
                          .doc = fmt::format("{} (of {})", parameter.help, common ? "every policy" : users),
                          .parameter = &parameter});
  }
  keys.insert(policy + 1, std::make_move_iterator(parameters.begin()), std::make_move_iterator(parameters.end()));
  return keys;
}

}  // namespace

std::span<const ConfigKey> config_keys() {
  static const std::vector<ConfigKey> keys = with_policy_parameters(make_keys());
  return keys;
}

std::string expectation_of(const ConfigKey& key) {
  RunConfig defaults;
  const ConfigField field = key.field(defaults);
  if (std::holds_alternative<std::string*>(field))
    return key.choices.empty() ? "text" : "one of " + choices_text(key.choices);
  if (key.parameter != nullptr) return engine::amp::expectation_of(*key.parameter);
  if (std::holds_alternative<bool*>(field)) return "true or false";
  if (std::holds_alternative<std::vector<std::int64_t>*>(field))
    return fmt::format("a list of integers, each {}", bounds_text(key.range));
  if (std::holds_alternative<std::vector<std::string>*>(field)) return "a list of texts, none of them empty";
  return fmt::format("{}, {}", std::holds_alternative<double*>(field) ? "a number" : "an integer",
                     bounds_text(key.range));
}

}  // namespace fp16lab::experiments
