// The one table of configuration keys.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <iterator>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "engine/data/dataset.hpp"
#include "experiments/app/config/config.hpp"
#include "experiments/app/registry.hpp"

namespace fp16lab::experiments {
namespace {

using Choices = std::vector<std::string>;

constexpr double infinity = std::numeric_limits<double>::infinity();
/// The largest integer up to which every integer is a double: ranges are kept in doubles.
constexpr double largest_integer = 9007199254740991.0;
constexpr ConfigRange counts{0, largest_integer};
constexpr ConfigRange positive_counts{1, largest_integer};
constexpr ConfigRange not_negative{0, infinity, false, true};
constexpr ConfigRange positive{0, infinity, true, true};
constexpr ConfigRange below_one{0, 1, false, true};
/// A loss scale must survive as an FP32 number with a finite reciprocal.
constexpr ConfigRange scales{0x1p-126, 0x1p126};

Choices auto_or(Choices names) {
  names.insert(names.begin(), std::string(automatic_policy));
  return names;
}

/// Values of an option by their names in files: enumerators, and what may be left open.
template <class Value>
using Named = std::vector<std::pair<std::string, Value>>;

template <class Value>
Named<Value> named(std::span<const Value> values) {
  Named<Value> all;
  for (const Value value : values) all.emplace_back(name_of(value), value);
  return all;
}

Named<std::optional<bool>> auto_or_bool() { return {{"auto", {}}, {"true", true}, {"false", false}}; }
Named<engine::Fp8Rounding> fp8_formats() {
  Named<engine::Fp8Rounding> formats{{"none", {}}};
  for (const DType dtype : dtypes<is_fp8>) formats.emplace_back(name_of(dtype), dtype);
  return formats;
}
Named<std::optional<DType>> saved_dtypes() {
  return {{"", {}}, {"f32", DType::f32}, {"f16", DType::f16}, {"bf16", DType::bf16}, {"f64", DType::f64}};
}
Named<engine::Layout> layouts() { return {{"nchw", engine::Layout::nchw}, {"nhwc", engine::Layout::nhwc}}; }
Named<engine::AccumulateMode> accumulate_modes() {
  return {{"mean", engine::AccumulateMode::mean}, {"sum", engine::AccumulateMode::sum}};
}
Named<engine::amp::PowerOfTwo> powers_of_two() {
  using enum engine::amp::PowerOfTwo;
  return {{"any", any}, {"warn", warn}, {"round_down", round_down}};
}

Named<engine::amp::LowRounding> low_roundings() {
  using enum engine::amp::LowRounding;
  return {{"nearest", nearest},
          {"stochastic", stochastic},
          {"stochastic_weights", stochastic_weights},
          {"stochastic_gradients", stochastic_gradients}};
}

Choices observed_tensors() {
  Choices names;
  for (const Observed observed : all_observed) names.emplace_back(name_of(observed));
  return names;
}

template <class Field>
concept Integer = std::integral<Field> && !std::same_as<Field, bool>;

template <class Field>
constexpr ConfigType type_of() {
  if constexpr (std::same_as<Field, std::string>) return ConfigType::text;
  if constexpr (Integer<Field>) return ConfigType::integer;
  if constexpr (std::same_as<Field, double>) return ConfigType::real;
  if constexpr (std::same_as<Field, bool>) return ConfigType::boolean;
  if constexpr (std::same_as<Field, std::vector<std::int64_t>>) return ConfigType::integers;
  if constexpr (std::same_as<Field, std::vector<std::string>>) return ConfigType::texts;
}

/// `get`: a field of a configuration, const or not.
template <class Get>
ConfigKey key(std::string name, Get get, std::string doc, ConfigRange range = {}) {
  using Field = std::remove_reference_t<decltype(get(std::declval<RunConfig&>()))>;
  using Value = std::conditional_t<Integer<Field>, std::int64_t, Field>;
  return {
      .name = std::move(name),
      .type = type_of<Field>(),
      .read = [get](const RunConfig& config) -> ConfigValue { return static_cast<Value>(get(config)); },
      .write = [get](RunConfig& config,
                     const ConfigValue& value) { get(config) = static_cast<Field>(std::get<Value>(value)); },
      .doc = std::move(doc),
      .range = range};
}

template <class Get>
ConfigKey key(std::string name, Get get, std::string doc, Choices choices) {
  ConfigKey with_choices = key(std::move(name), get, std::move(doc));
  with_choices.choices = std::move(choices);
  return with_choices;
}

template <class Get, class Value>
ConfigKey key(std::string name, Get get, std::string doc, const Named<Value>& names) {
  Choices choices;
  for (const auto& [choice, value] : names) choices.push_back(choice);
  const auto read = [get, names](const RunConfig& config) -> ConfigValue {
    const auto found = std::ranges::find(names, get(config), &std::pair<std::string, Value>::second);
    if (found == names.end()) throw std::logic_error("a value that no name stands for");
    return found->first;
  };
  const auto write = [get, names](RunConfig& config, const ConfigValue& text) {
    get(config) =
        std::ranges::find(names, std::get<std::string>(text), &std::pair<std::string, Value>::first)->second;
  };
  return {.name = std::move(name),
          .type = ConfigType::text,
          .read = read,
          .write = write,
          .doc = std::move(doc),
          .range = {},
          .choices = std::move(choices)};
}

// A key of another name than its field's, and one of the same.
#define FP16LAB_KEY_AS(name, path, ...) \
  key(                                  \
      name, [](auto& config) -> auto& { return config.path; }, __VA_ARGS__)
#define FP16LAB_KEY(path, ...) FP16LAB_KEY_AS(#path, path, __VA_ARGS__)

std::vector<ConfigKey> make_keys() {
  return {
      FP16LAB_KEY(model.name, "what tables and figures call the network"),
      FP16LAB_KEY(model.loss, "what the rows are trained to make small", named(engine::nn::all_losses())),
      FP16LAB_KEY(model.label_smoothing, "of cross_entropy: shared among all classes", below_one),
      FP16LAB_KEY(model.one_hot, "of cross_entropy: computed from the probabilities of one-hot targets"),
      FP16LAB_KEY(model.huber_delta, "of huber: where the loss becomes straight", positive),
      FP16LAB_KEY(model.noise, "of train.method = gan: numbers that the generator is given", positive_counts),
      FP16LAB_KEY(model.init, "initial weights, where a row does not say its own",
                  named(engine::nn::all_initializations())),
      FP16LAB_KEY(model.layout, "of images: order of the axes", layouts()),
      FP16LAB_KEY(model.context, "of text: symbols in a window", positive_counts),
      FP16LAB_KEY(model.scale_down,
                  "of synthetic data: widths (out_features of linear rows, data.inputs, data.outputs) and "
                  "train.batch_size are divided by this, nothing else changes",
                  positive_counts),

      FP16LAB_KEY(data.name, "the data set", dataset_names()),
      FP16LAB_KEY(data.path,
                  "its folder; a text file; of arrays: their file, or the folder of their files; empty: "
                  "$FP16LAB_DATA, then the system's"),
      FP16LAB_KEY(data.train,
                  "of arrays: inputs and targets to train with, by name (of an array of data.path; in a "
                  "folder, of a file, or FILE:ARRAY)"),
      FP16LAB_KEY(data.test, "of arrays: inputs and targets to test with, likewise"),
      FP16LAB_KEY(data.test_size,
                  "of arrays: not 0: a part of data.train is the test set instead of data.test: below 1 a "
                  "share, else a number of examples",
                  not_negative),
      FP16LAB_KEY(data.test_seed, "which part: drawn by this seed; 0: the last examples", counts),
      FP16LAB_KEY(data.layout,
                  "of arrays: what an example is; auto: tokens for integers wider than a byte, images where "
                  "one axis can be channels",
                  named(engine::data::all_example_kinds())),
      FP16LAB_KEY(data.classes,
                  "of arrays: how many there are; 0: one more than the greatest target. Of synthetic data: "
                  "0: targets are numbers",
                  counts),
      FP16LAB_KEY(data.subset, "first n training examples, or symbols of text; 0: all", counts),
      FP16LAB_KEY(data.test_subset,
                  "first n test examples, or symbols of text (or all, where a file asks for more than there "
                  "are); 0: all",
                  counts),
      FP16LAB_KEY(data.tokens, "of text: what a symbol is; words: with the space before them, or marks",
                  named(engine::data::all_tokens())),
      FP16LAB_KEY(
          data.normalise,
          "unit: bytes p as p/255, other numbers as they are; standard: besides, mean 0 and deviation "
          "1 over the training set, by channel",
          Choices{"unit", "standard"}),
      FP16LAB_KEY(data.padding, "of images: rows and columns added on each side, as pixel 0", counts),
      FP16LAB_KEY(data.flip,
                  "of images: training images are mirrored left to right, every other one by chance"),
      FP16LAB_KEY(
          data.crop_padding,
          "of images: training images are moved by up to so many rows and columns by chance (a random "
          "crop of the image padded by pixel 0); 0: not",
          counts),
      FP16LAB_KEY(data.targets,
                  "labels, or inputs for an autoencoder; auto: labels for cross_entropy and of arrays, else "
                  "inputs",
                  Choices{"auto", "labels", "inputs"}),
      FP16LAB_KEY(data.batches, "of synthetic data: batches an epoch", ConfigRange{1, 4294967295}),
      FP16LAB_KEY(data.inputs, "of synthetic data: numbers of an example, or its shape, such as [3, 32, 32]",
                  positive_counts),
      FP16LAB_KEY(data.outputs, "of synthetic data: numbers of a target", positive_counts),

      FP16LAB_KEY(train.steps, "optimizer steps; 0: as many as train.epochs gives", counts),
      FP16LAB_KEY(train.epochs, "passes over the data where train.steps is 0", counts),
      FP16LAB_KEY(train.batch_size, "images, or windows of text, a micro-batch", positive_counts),
      FP16LAB_KEY(train.accumulate, "micro-batches a step", positive_counts),
      FP16LAB_KEY(train.accumulate_mode, "mean: the loss is divided by train.accumulate; sum: it is not",
                  accumulate_modes()),
      FP16LAB_KEY(train.clip_norm, "largest L2 norm of the gradients; 0: off", not_negative),
      FP16LAB_KEY(train.clip_value, "largest magnitude of a gradient's element, after clip_norm; 0: off",
                  not_negative),
      FP16LAB_KEY(
          train.method,
          "how a step goes. gradient_penalty: the norm of the loss's gradient joins the loss; two_models "
          "and gan: two blocks, each a network with an optimizer",
          training_methods()),
      FP16LAB_KEY(train.penalty, "of gradient_penalty: weight of the gradient's norm in the loss",
                  not_negative),
      FP16LAB_KEY(train.seed, "of weights and shuffling, up to 9007199254740991", counts),
      FP16LAB_KEY(train.initial,
                  "safetensors file of the initial weights, by the names that --dump-initial gives them; "
                  "empty: drawn from train.seed (--load-initial)"),
      FP16LAB_KEY(train.perturb_ulps,
                  "every non-zero initial weight is moved by this many FP32 ulps, up or down by train.seed: "
                  "what training makes of that by itself. 0: none",
                  ConfigRange{0, 4194304}),
      FP16LAB_KEY(train.evaluate_every, "steps; 0: only at the end", counts),
      FP16LAB_KEY(train.skip_limit, "consecutive skipped steps that end the run as diverged; 0: no limit",
                  counts),
      FP16LAB_KEY(
          train.graph,
          "of cuda: a step is captured once as a CUDA graph and replayed, with the same bits (--graph)"),

      FP16LAB_KEY(optimizer.name, "the update rule", optimizer_names()),
      FP16LAB_KEY_AS("optimizer.lr", optimizer.learning_rate, "learning rate", not_negative),
      FP16LAB_KEY(optimizer.momentum, "of sgd and rmsprop", below_one),
      FP16LAB_KEY(optimizer.dampening, "of sgd: the gradient enters the momentum times 1 minus this",
                  below_one),
      FP16LAB_KEY(optimizer.nesterov, "of sgd; needs a momentum, and no dampening"),
      FP16LAB_KEY(optimizer.weight_decay,
                  "L2 for sgd, adam and rmsprop, decoupled for adamw, a part of the update for lamb and "
                  "adam_weight_decay",
                  not_negative),
      FP16LAB_KEY(optimizer.beta1, "of adam, adamw, lamb and adam_weight_decay", below_one),
      FP16LAB_KEY(optimizer.beta2, "of adam, adamw, lamb and adam_weight_decay", below_one),
      FP16LAB_KEY(optimizer.alpha, "of rmsprop: how much of its averages stays", below_one),
      FP16LAB_KEY(optimizer.centered,
                  "of rmsprop: divide by the deviation of the gradients from their average"),
      FP16LAB_KEY(optimizer.epsilon, "of all but sgd", positive),
      FP16LAB_KEY(
          optimizer.kahan,
          "16-bit weights without master weights keep what rounding takes from their updates, and add "
          "it to the next one (Kahan's sum)"),
      FP16LAB_KEY(optimizer.loss_scale,
                  "divides every gradient: what scaler.drop_overflow_update = false leaves to the optimizer",
                  scales),

      FP16LAB_KEY_AS("schedule.name", optimizer.schedule.name, "of the learning rate", schedule_names()),
      FP16LAB_KEY_AS("schedule.warmup_steps", optimizer.schedule.warmup_steps,
                     "linear rise to optimizer.lr, of any schedule", counts),
      FP16LAB_KEY_AS("schedule.total_steps", optimizer.schedule.total_steps,
                     "cosine, linear, polynomial: where they end; 0: with the run", counts),
      FP16LAB_KEY_AS("schedule.minimum_factor", optimizer.schedule.minimum_factor,
                     "cosine, linear, polynomial: last learning rate over the first", ConfigRange{0, 1}),
      FP16LAB_KEY_AS("schedule.step_interval", optimizer.schedule.step_interval, "step: steps between drops",
                     counts),
      FP16LAB_KEY_AS("schedule.step_factor", optimizer.schedule.step_factor,
                     "step: learning rate times this at a drop", ConfigRange{0, 1, true, false}),
      FP16LAB_KEY_AS("schedule.power", optimizer.schedule.power,
                     "polynomial: of the share of the steps that are left", positive),
      FP16LAB_KEY_AS("schedule.gamma", optimizer.schedule.gamma,
                     "exponential: learning rate times this at every step", ConfigRange{0, 1, true, false}),

      FP16LAB_KEY(amp.level, "O0: FP32; others as amp.dialect means them (fp16lab list shows each)",
                  named(engine::amp::all_levels())),
      FP16LAB_KEY(amp.dtype,
                  "the 16-bit type, called low below; tf32, at O1 and OD: tensors stay FP32, and operands of "
                  "low products are rounded to TF32 (torch's allow_tf32)",
                  Named<DType>{{"f16", DType::f16}, {"bf16", DType::bf16}, {"tf32", DType::tf32}}),
      FP16LAB_KEY(amp.dialect, "whose levels and op lists", named(engine::amp::all_dialects())),
      FP16LAB_KEY(amp.white,
                  "ops that compute in low besides the dialect's own, by our name or the dialect's"),
      FP16LAB_KEY(amp.black, "ops that compute in FP32 besides the dialect's own"),
      FP16LAB_KEY(amp.excluded, "patterns of layers that stay FP32; * stands for any characters, ? for one"),
      FP16LAB_KEY(amp.use_guard,
                  "low only inside guarded regions: amp.guard, and what a model guards itself"),
      FP16LAB_KEY(amp.guard, "patterns of guarded layers, with amp.use_guard"),
      FP16LAB_KEY(amp.to_float,
                  "PATTERN=DTYPE (f32, f16, bf16): layers that compute in that type; wins over all else"),
      FP16LAB_KEY(amp.keep_batchnorm_fp32,
                  "of a low model: BatchNorm's parameters stay FP32; auto: as the level says",
                  auto_or_bool()),
      FP16LAB_KEY(amp.master_weights,
                  "of a low model: FP32 weights behind the low ones; auto: as the level says",
                  auto_or_bool()),
      FP16LAB_KEY(amp.master_gradients, "of a low model: gradients add up in FP32; auto: as the level says",
                  auto_or_bool()),
      FP16LAB_KEY(amp.low_inputs, "the network's inputs are cast to low; auto: as the level says",
                  auto_or_bool()),
      FP16LAB_KEY(amp.low_loss, "the loss is computed from low outputs and rounded to low; auto: no",
                  auto_or_bool()),
      FP16LAB_KEY(amp.use_promote, "of paddle's O2: false makes ops in no list low, whatever their inputs"),
      FP16LAB_KEY(amp.allow_banned, "of apex: compute banned ops in FP32 instead of refusing them"),
      FP16LAB_KEY(amp.fp8_operands, "an experiment: operands of products are rounded to FP8 first",
                  fp8_formats()),
      FP16LAB_KEY(amp.fp8_gradients, "the same for the gradients in the products of the backward pass",
                  fp8_formats()),
      FP16LAB_KEY(
          amp.rounding,
          "to 16 bits; stochastic: up or down by chance, right on average: gradients in backward passes, and "
          "updates of 16-bit weights without master weights (the others: one of the two)",
          low_roundings()),
      FP16LAB_KEY_AS("amp.save_dtype", checkpoint.save_dtype,
                     "also write weights.safetensors, cast to this type, with every checkpoint and at the "
                     "end; empty: no",
                     saved_dtypes()),

      FP16LAB_KEY(scaler.policy,
                  "how the loss scale moves; auto: as the level brings it (mindspore's O2, apex's O1 and "
                  "O2), else none",
                  auto_or(policy_names())),
      FP16LAB_KEY(scaler.power_of_two,
                  "scales that are no powers of two make unscaling inexact: take them, say so, or use the "
                  "power below",
                  powers_of_two()),
      FP16LAB_KEY(scaler.enabled, "false: nothing is scaled, unscaled, checked or skipped"),
      FP16LAB_KEY(scaler.drop_overflow_update,
                  "false (policies none and fixed): gradients are neither checked nor unscaled and every "
                  "step is taken; optimizer.loss_scale has to divide"),
      FP16LAB_KEY(scaler.per_loss,
                  "of models with several losses (two_models, gan): each loss has a scale of its own; "
                  "records show that of loss 0"),
      FP16LAB_KEY(scaler.rescue,
                  "how often the backward pass of an overflowed step is done again at the lower scale that "
                  "the policy decides, before the step is skipped; keeps the values of all micro-batches "
                  "until then. 0: never",
                  ConfigRange{0, 1000}),
      FP16LAB_KEY(scaler.groups,
                  "of layerwise and groups: PATTERN=SCALE, layers by a pattern of their weights' names and "
                  "the scale that they begin with (\"fc1=2^8\", \"*=2^4\"); the first match counts"),

      FP16LAB_KEY(backend.device, "auto: cuda where a device can run it, else emulated",
                  Choices{"emulated", "cuda", "auto"}),
      FP16LAB_KEY(backend.tensor_core,
                  "whose matrix arithmetic FP16 products follow; auto: emulated hopper, or the device's own",
                  auto_or(tensor_core_names())),
      FP16LAB_KEY(
          backend.accumulator,
          "of emulated: what tensor cores sum products of FP16 in; those of FP8 are summed in FP32 always",
          Choices{"f32", "f16"}),
      FP16LAB_KEY(backend.ordinal, "of cuda: which device, as fp16lab devices numbers them",
                  ConfigRange{0, 2147483647}),
      FP16LAB_KEY(
          backend.gemm,
          "of cuda: who multiplies. mma: our own kernel; cublas: cuBLASLt where it was seen to give the same "
          "bits; auto: whichever suits a shape; cublas-any-order: what is fastest, whatever its bits",
          Choices{"auto", "mma", "cublas", "cublas-any-order"}),
      FP16LAB_KEY(backend.pins,
                  "of cuda: a file that keeps from run to run which algorithms of cuBLASLt give the same "
                  "bits; empty: none"),

      FP16LAB_KEY(observe.histograms_every, "steps between histograms of what observe.tensors says; 0: none",
                  counts),
      FP16LAB_KEY(observe.tensors,
                  "what is counted: gradients and activations before and after their casts, weights and "
                  "their copies in 16 bits, updates against weights, moments and momenta. Same bits",
                  observed_tensors()),
      FP16LAB_KEY(observe.names,
                  "patterns of the tensors that are counted, such as \"layer1.*\"; empty: all"),
      FP16LAB_KEY(observe.explain_overflow,
                  "find the operation that made the first Inf or NaN of every step with an overflow (slower, "
                  "same bits)"),

      FP16LAB_KEY(checkpoint.every, "steps between checkpoints; 0: none", counts),
      FP16LAB_KEY(checkpoint.keep, "newest checkpoints that stay in the run folder; 0: all", counts),

      FP16LAB_KEY_AS(
          "report.margin.loss", report.margin_loss,
          "in percent: a final loss (or bits per character) that is off FP32's by less counts as equal",
          positive),
      FP16LAB_KEY_AS("report.margin.accuracy", report.margin_accuracy, "the same of an accuracy, in points",
                     positive),
  };
}

#undef FP16LAB_KEY
#undef FP16LAB_KEY_AS

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
  const auto policy = std::find_if(keys.begin(), keys.end(),
                                   [](const ConfigKey& key) { return key.name == "scaler.policy"; });
  std::vector<ConfigKey> parameters;
  for (const engine::amp::PolicyParameter& parameter : engine::amp::policy_parameters()) {
    const std::string name(parameter.name);
    std::string users;
    for (const engine::amp::PolicyDescription& description : engine::amp::scale_policies())
      if (description.find(name) != nullptr)
        users += (users.empty() ? "" : ", ") + std::string(description.name);
    const bool common =
        std::any_of(engine::amp::guard_parameters.begin(), engine::amp::guard_parameters.end(),
                    [&name](const auto& guard) { return guard.name == name; });
    const auto read = [name](const RunConfig& config) -> ConfigValue {
      if (config.scaler.policy == automatic_policy) return {};
      const std::optional<double> value = config.scaler.parameter(name);
      return value ? ConfigValue(*value) : ConfigValue();
    };
    const auto write = [name](RunConfig& config, const ConfigValue& value) {
      config.scaler.parameters.insert_or_assign(name, std::get<double>(value));
    };
    parameters.push_back({.name = "scaler." + name,
                          .type = ConfigType::parameter,
                          .read = read,
                          .write = write,
                          .doc = fmt::format("{} (of {})", parameter.help, common ? "every policy" : users),
                          .range = {parameter.minimum, parameter.maximum, parameter.minimum_excluded,
                                    parameter.maximum_excluded},
                          .parameter = &parameter});
  }
  keys.insert(policy + 1, std::make_move_iterator(parameters.begin()),
              std::make_move_iterator(parameters.end()));
  return keys;
}

}  // namespace

std::span<const ConfigKey> config_keys() {
  static const std::vector<ConfigKey> keys = with_policy_parameters(make_keys());
  return keys;
}

std::string expectation_of(const ConfigKey& key) {
  switch (key.type) {
    case ConfigType::text:
      return key.choices.empty() ? "text" : "one of " + choices_text(key.choices);
    case ConfigType::integer:
      return "an integer, " + bounds_text(key.range);
    case ConfigType::real:
      return "a number, " + bounds_text(key.range);
    case ConfigType::boolean:
      return "true or false";
    case ConfigType::integers:
      return "an integer or a list of them, each " + bounds_text(key.range);
    case ConfigType::texts:
      return key.choices.empty() ? "a list of texts, none of them empty"
                                 : "a list, each one of " + choices_text(key.choices);
    case ConfigType::parameter:
      return engine::amp::expectation_of(*key.parameter);
  }
  throw std::logic_error("unknown type of key");
}

}  // namespace fp16lab::experiments
