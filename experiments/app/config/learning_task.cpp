#include "experiments/app/config/learning_task.hpp"

#include <fmt/format.h>

#include <array>
#include <stdexcept>
#include <string>
#include <utility>

#include "engine/nn/network/network.hpp"
#include "engine/train/methods/gan.hpp"
#include "engine/train/methods/gradient_penalty.hpp"
#include "engine/train/methods/two_models.hpp"
#include "experiments/app/exit_code.hpp"

namespace fp16lab::experiments {
namespace {

using engine::Backend;
using engine::LossKind;
using engine::TrainingMethod;
using engine::data::DataKind;
using engine::data::Targets;
using engine::nn::Module;
using reports::Quantity;

[[noreturn]] void fail(const std::string& what) { throw CommandError(ExitCode::usage, what); }

using engine::nn::LayerBlock;
using engine::nn::Network;
using engine::nn::NetworkOptions;
using engine::nn::NetworkRows;
using engine::nn::Signal;

DataKind kind_of(const RunConfig& config) {
  for (const engine::data::DatasetInfo& info : engine::data::known_datasets())
    if (info.name == config.data.name) return info.kind;
  fail(fmt::format("data.name = \"{}\": no such data", config.data.name));
}

bool learns_inputs(const RunConfig& config) {
  const DataKind kind = kind_of(config);
  if (config.data.targets || kind == DataKind::arrays) return config.data.targets == Targets::inputs;
  return kind == DataKind::images && config.model.loss != LossKind::cross_entropy;
}

std::unique_ptr<Network> make_rows(Backend& backend, const RunConfig& config, const NetworkRows& rows,
                                   const Signal& input, std::int64_t outputs) {
  return std::make_unique<Network>(backend, rows,
                                   NetworkOptions{.input = input,
                                                  .outputs = outputs,
                                                  .batch = batch_size_of(config),
                                                  .layout = config.model.layout,
                                                  .initialization = config.model.init,
                                                  .scale_down = config.model.scale_down,
                                                  .seed = config.train.seed});
}

void require_network_output(const Network& network, const Signal& expected, std::string_view what) {
  const Signal& output = network.output();
  if (output.rows == expected.rows && output.elements() == expected.elements()) return;
  const engine::nn::NetworkLayer& last = network.layers().back();
  const bool flattens = expected.extents.size() == 1 && output.extents.size() > 1;
  fail(fmt::format("the network ends with {}, '{}' ({}); expected {}, {}{}", output.to_string(), last.path,
                   last.type, expected.to_string(), what,
                   flattens ? "; is there a flatten before the linear rows?" : ""));
}

std::string targets_text(const RunConfig& config) {
  if (learns_inputs(config))
    return fmt::format("the {} of {}", kind_of(config) == DataKind::images ? "images" : "inputs",
                       config.data.name);
  const bool classes = kind_of(config) == DataKind::arrays && config.model.loss == LossKind::cross_entropy;
  return fmt::format("what {} is compared with in {}{}", name_of(config.model.loss), config.data.name,
                     classes ? "; data.classes says how many classes there are" : "");
}

std::unique_ptr<Network> make_network_of(Backend& backend, const RunConfig& config, const DataShape& shape,
                                         const NetworkRows& rows) {
  auto network = make_rows(backend, config, rows, shape.input, shape.output.elements());
  require_network_output(*network, shape.output, targets_text(config));
  return network;
}

/// The blocks of a method that trains two networks.
std::array<NetworkRows, 2> two_blocks(const RunConfig& config) {
  const std::span<const std::string_view> names = models_of(config.train.method);
  const std::vector<LayerBlock>& blocks = config.model.rows;
  if (blocks.size() != 2 || blocks[0].name != names[0] || blocks[1].name != names[1] ||
      blocks[0].repeat != 1 || blocks[1].repeat != 1)
    fail(fmt::format(
        "train.method = \"{}\": expected two [[model.block]], \"{}\" and \"{}\", and no other rows",
        name_of(config.train.method), names[0], names[1]));
  return {NetworkRows{blocks[0]}, NetworkRows{blocks[1]}};
}

}  // namespace

void check_task(const RunConfig& config, std::string_view where) {
  try {
    engine::nn::placed(config.model.rows);
  } catch (const std::invalid_argument& error) {
    if (const std::string_view what = error.what(); what.starts_with(where))  // with its line
      fail(std::string(what));
    refuse_config(where, error.what());
  }
  const DataKind kind = kind_of(config);
  const bool cross_entropy = config.model.loss == LossKind::cross_entropy,
             images = kind == DataKind::images || kind == DataKind::arrays;
  const auto refuse = [&](std::string_view what) {
    refuse_config(where, fmt::format("model.loss = \"{}\" on {}: {}", name_of(config.model.loss),
                                     config.data.name, what));
  };
  if (kind == DataKind::text && !cross_entropy) refuse("text has symbols; expected cross_entropy");
  if (kind == DataKind::synthetic && cross_entropy && config.data.classes == 0)
    refuse("its targets are numbers; expected data.classes, or another loss");
  if (kind == DataKind::synthetic && !cross_entropy && config.data.classes != 0)
    refuse("its targets are classes; expected cross_entropy, or data.classes = 0");
  if (images && cross_entropy && learns_inputs(config))
    refuse("pixels are no classes; expected data.targets = \"labels\", or another loss");
  if (kind == DataKind::images && !cross_entropy && !learns_inputs(config))
    refuse("labels are classes; expected cross_entropy, or data.targets = \"inputs\"");
  if (!images && (config.train.method == Method::two_models || config.train.method == Method::gan))
    refuse_config(where, fmt::format("train.method = \"{}\": expected a data.name of images",
                                     name_of(config.train.method)));
  if (kind != DataKind::synthetic) return;
  if (config.data.inputs.empty()) refuse_config(where, "data.inputs = []: expected one number or more");
  if (config.model.scale_down != 1 && config.data.inputs.size() > 1)
    refuse_config(where, fmt::format("model.scale_down = {} with data.inputs of {} axes: expected one",
                                     config.model.scale_down, config.data.inputs.size()));
  for (const auto& [key, size] : {std::pair{"train.batch_size", config.train.batch_size},
                                  {"data.inputs", config.data.inputs.back()},
                                  {"data.outputs", config.data.outputs}})
    if (size % config.model.scale_down != 0)
      refuse_config(where, fmt::format("model.scale_down = {} with {} in {}: expected a divisor of it",
                                       config.model.scale_down, size, key));
}

LearningTask task_of(const RunConfig& config) {
  LearningTask task{.data = kind_of(config), .loss = config.model.loss};
  task.loss.label_smoothing = static_cast<float>(config.model.label_smoothing);
  task.loss.one_hot = config.model.one_hot;
  if (config.amp.dialect == engine::amp::Dialect::paddle ||
      config.amp.dialect == engine::amp::Dialect::mindspore)
    task.loss.soft = engine::ops::SoftmaxGradient::fused;
  task.loss.delta = static_cast<float>(config.model.huber_delta);
  if (config.model.loss != LossKind::cross_entropy || config.train.method == Method::gan)
    task.metric = Quantity::loss;
  else if (task.data == DataKind::text)
    task.metric = Quantity::bits_per_character;
  if (learns_inputs(config)) task.targets = Targets::inputs;
  return task;
}

std::span<const std::string_view> models_of(Method method) {
  if (method == Method::two_models) return engine::TwoModels::names;
  if (method == Method::gan) return engine::AdversarialTraining::names;
  return {};
}

std::vector<std::unique_ptr<Network>> make_networks(Backend& backend, const RunConfig& config,
                                                    const DataShape& shape) {
  std::vector<std::unique_ptr<Network>> networks;
  if (config.train.method == Method::two_models) {
    for (const NetworkRows& rows : two_blocks(config))
      networks.push_back(make_network_of(backend, config, shape, rows));
  } else if (config.train.method == Method::gan) {
    const auto [generator, discriminator] = two_blocks(config);
    networks.push_back(
        make_rows(backend, config, generator, {.extents = {config.model.noise}}, shape.input.elements()));
    require_network_output(*networks.back(), shape.input, fmt::format("the images of {}", config.data.name));
    networks.push_back(make_rows(backend, config, discriminator, shape.input, 1));
    require_network_output(*networks.back(), {.extents = {1}}, "the logit of \"real\"");
  } else {
    networks.push_back(make_network_of(backend, config, shape, config.model.rows));
  }
  return networks;
}

std::unique_ptr<Module> make_model(Backend& backend, const RunConfig& config, const DataShape& shape) {
  std::vector<std::unique_ptr<Network>> networks = make_networks(backend, config, shape);
  if (networks.size() == 1) return std::move(networks.front());
  if (config.train.method == Method::two_models)
    return std::make_unique<engine::nn::ModelPair>(std::move(networks[0]), std::move(networks[1]));
  return std::make_unique<engine::nn::Gan>(std::move(networks[0]), std::move(networks[1]),
                                           config.model.noise);
}

std::unique_ptr<TrainingMethod> make_method(const RunConfig& config) {
  if (config.train.method == Method::two_models) return std::make_unique<engine::TwoModels>();
  if (config.train.method == Method::gan) return std::make_unique<engine::AdversarialTraining>();
  if (config.train.method == Method::gradient_penalty)
    return std::make_unique<engine::GradientPenalty>(
        engine::GradientPenaltyOptions{.weight = static_cast<float>(config.train.penalty)});
  return nullptr;
}

std::vector<std::int64_t> synthetic_inputs(const RunConfig& config) {
  std::vector<std::int64_t> shape = config.data.inputs;
  shape.back() /= config.model.scale_down;
  return shape;
}
std::int64_t synthetic_outputs(const RunConfig& config) {
  return config.data.outputs / config.model.scale_down;
}
std::int64_t batch_size_of(const RunConfig& config) {
  return config.train.batch_size / config.model.scale_down;
}

}  // namespace fp16lab::experiments
