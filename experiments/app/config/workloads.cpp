#include "experiments/app/config/workloads.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <stdexcept>
#include <string>

#include "engine/nn/models/char_model.hpp"
#include "engine/nn/models/gan.hpp"
#include "engine/nn/models/lenet5.hpp"
#include "engine/nn/models/mlp.hpp"
#include "engine/nn/models/model_pair.hpp"
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
using engine::data::LoaderOptions;
using engine::data::Targets;
using engine::nn::Module;
using reports::Quantity;

[[noreturn]] void fail(const std::string& what) { throw CommandError(ExitCode::usage, what); }

// classifier, autoencoder -----------------------------------------------------------------------------------

void check_widths(const RunConfig& config, std::string_view where) {
  if (config.model.widths.size() < 2)
    fail(fmt::format("{}: model.widths = {}: expected at least two widths, input and output", where,
                     config.model.widths));
}

std::unique_ptr<Module> make_mlp(Backend& backend, const RunConfig& config, std::string path = {}) {
  return std::make_unique<engine::nn::Mlp>(backend,
                                           engine::nn::MlpOptions{.widths = widths_of(config),
                                                                  .activation = config.model.activation,
                                                                  .path = std::move(path),
                                                                  .initialization = config.model.init,
                                                                  .seed = config.train.seed});
}

std::unique_ptr<Module> make_image_mlp(Backend& backend, const RunConfig& config, std::int64_t inputs,
                                       std::int64_t outputs, std::string_view outputs_are,
                                       std::string path = {}) {
  const std::vector<std::int64_t>& widths = config.model.widths;
  if (widths.front() != inputs)
    fail(fmt::format("model.widths begins with {}: expected {}, the pixels of an image of {}", widths.front(),
                     inputs, config.data.name));
  if (widths.back() != outputs)
    fail(fmt::format("model.widths ends with {}: expected {}, the {} of {}", widths.back(), outputs,
                     outputs_are, config.data.name));
  return make_mlp(backend, config, std::move(path));
}

std::unique_ptr<Module> make_classifier(Backend& backend, const RunConfig& config, const DataShape& shape) {
  return make_image_mlp(backend, config, shape.features(), shape.classes, "classes");
}

std::unique_ptr<Module> make_autoencoder(Backend& backend, const RunConfig& config, const DataShape& shape) {
  return make_image_mlp(backend, config, shape.features(), shape.features(), "pixels of an image");
}

double multiply_adds_of(const std::vector<std::int64_t>& widths) {
  double sum = 0;
  for (std::size_t i = 0; i + 1 < widths.size(); ++i)
    sum += static_cast<double>(widths[i]) * static_cast<double>(widths[i + 1]);
  return sum;
}

double mlp_multiply_adds(const RunConfig& config, const DataShape&) {
  return multiply_adds_of(widths_of(config));
}

// regression ------------------------------------------------------------------------------------------------

void check_regression(const RunConfig& config, std::string_view where) {
  check_widths(config, where);
  const std::int64_t divisor = config.model.scale_down;
  const auto require_multiple = [&](std::int64_t size, std::string_view key) {
    if (size % divisor != 0)
      fail(fmt::format("{}: model.scale_down = {} with {} in {}: expected a divisor of it", where, divisor,
                       size, key));
  };
  for (const std::int64_t width : config.model.widths) require_multiple(width, "model.widths");
  require_multiple(config.train.batch_size, "train.batch_size");
}

std::unique_ptr<Module> make_regression(Backend& backend, const RunConfig& config, const DataShape&) {
  return make_mlp(backend, config);
}

// gradient_penalty, two_models, gan -------------------------------------------------------------------------
// A step costs three times its forward pass, as everywhere; what these cost beyond that is in their
// multiply-adds.

std::unique_ptr<TrainingMethod> make_gradient_penalty(const RunConfig& config) {
  return std::make_unique<engine::GradientPenalty>(
      engine::GradientPenaltyOptions{.weight = static_cast<float>(config.model.penalty)});
}

/// Forward 1, backward 2, and backward through both 6.
double gradient_penalty_multiply_adds(const RunConfig& config, const DataShape& shape) {
  return 3 * mlp_multiply_adds(config, shape);
}

std::unique_ptr<Module> make_two_models(Backend& backend, const RunConfig& config, const DataShape& shape) {
  auto first = make_image_mlp(backend, config, shape.features(), shape.classes, "classes", "model0");
  return std::make_unique<engine::nn::ModelPair>(
      std::move(first),
      make_image_mlp(backend, config, shape.features(), shape.classes, "classes", "model1"));
}

std::unique_ptr<TrainingMethod> make_two_models_method(const RunConfig&) {
  return std::make_unique<engine::TwoModels>();
}

/// For each model: forward 1, and two losses' backward 4.
double two_models_multiply_adds(const RunConfig& config, const DataShape& shape) {
  return 2 * mlp_multiply_adds(config, shape) * 5 / 3;
}

void check_gan(const RunConfig& config, std::string_view where) {
  for (const auto& [key, widths] : {std::pair{"model.generator", &config.model.generator},
                                    {"model.discriminator", &config.model.discriminator}})
    if (widths->size() < 2)
      fail(fmt::format("{}: {} = {}: expected at least two widths, input and output", where, key, *widths));
  if (config.model.discriminator.back() != 1)
    fail(fmt::format("{}: model.discriminator ends with {}: expected 1, the logit of \"real\"", where,
                     config.model.discriminator.back()));
}

std::unique_ptr<Module> make_gan(Backend& backend, const RunConfig& config, const DataShape& shape) {
  for (const auto& [key, pixels] : {std::pair{"model.generator ends", config.model.generator.back()},
                                    {"model.discriminator begins", config.model.discriminator.front()}})
    if (pixels != shape.features())
      fail(fmt::format("{} with {}: expected {}, the pixels of an image of {}", key, pixels, shape.features(),
                       config.data.name));
  return std::make_unique<engine::nn::Gan>(backend,
                                           engine::nn::GanOptions{.generator = config.model.generator,
                                                                  .discriminator = config.model.discriminator,
                                                                  .activation = config.model.activation,
                                                                  .initialization = config.model.init,
                                                                  .seed = config.train.seed});
}

std::unique_ptr<TrainingMethod> make_gan_method(const RunConfig&) {
  return std::make_unique<engine::AdversarialTraining>();
}

/// The discriminator: real and fake forward and backward, 6, and for the generator's loss forward and
/// backward to its input, 2. The generator: 3.
double gan_multiply_adds(const RunConfig& config, const DataShape&) {
  return multiply_adds_of(config.model.discriminator) * 8 / 3 + multiply_adds_of(config.model.generator);
}

// lenet5 ----------------------------------------------------------------------------------------------------

constexpr std::int64_t lenet_size = 32;

void shape_lenet_images(const RunConfig& config, const DataShape& shape, LoaderOptions& options) {
  const std::int64_t missing = lenet_size - shape.height;
  if (shape.height != shape.width || missing < 0 || missing % 2 != 0)
    fail(
        fmt::format("lenet5 pads square images of an even number of pixels, at most {0} x {0}, to {0} x {0}; "
                    "those of {1} have {2} x {3}",
                    lenet_size, config.data.name, shape.height, shape.width));
  options.layout = config.model.layout;
  options.padding = missing / 2;
}

std::unique_ptr<Module> make_lenet(Backend& backend, const RunConfig& config, const DataShape& shape) {
  return std::make_unique<engine::nn::LeNet5>(backend,
                                              engine::nn::LeNet5Options{.channels = 1,
                                                                        .classes = shape.classes,
                                                                        .layout = config.model.layout,
                                                                        .initialization = config.model.init,
                                                                        .batch_norm = config.model.batch_norm,
                                                                        .seed = config.train.seed});
}

double lenet_multiply_adds(const RunConfig&, const DataShape& shape) {
  // conv1 6@5x5 on 28 x 28, conv2 16@6x5x5 on 10 x 10, fc 400-120-84-classes.
  return 28.0 * 28 * 6 * 25 + 10.0 * 10 * 16 * 150 + 400.0 * 120 + 120.0 * 84 +
         84.0 * static_cast<double>(shape.classes);
}

// charlm_lstm, charlm_transformer ---------------------------------------------------------------------------

std::unique_ptr<Module> make_char_lstm(Backend& backend, const RunConfig& config, const DataShape& shape) {
  return std::make_unique<engine::nn::CharLstm>(
      backend, engine::nn::CharLstmOptions{.symbols = shape.vocabulary,
                                           .embedding = config.model.embedding,
                                           .hidden = config.model.hidden,
                                           .layers = config.model.layers,
                                           .dropout = static_cast<float>(config.model.dropout),
                                           .seed = config.train.seed});
}

double char_lstm_multiply_adds(const RunConfig& config, const DataShape& shape) {
  const auto embedding = static_cast<double>(config.model.embedding);
  const auto hidden = static_cast<double>(config.model.hidden);
  const auto deeper = static_cast<double>(config.model.layers - 1);
  return static_cast<double>(config.model.context) *
         (4 * hidden * (embedding + hidden) + deeper * 8 * hidden * hidden +
          hidden * static_cast<double>(shape.vocabulary));
}

void check_heads(const RunConfig& config, std::string_view where) {
  if (config.model.embedding % config.model.heads != 0)
    fail(fmt::format("{}: model.embedding = {} with model.heads = {}: expected a multiple of the heads",
                     where, config.model.embedding, config.model.heads));
}

std::unique_ptr<Module> make_char_transformer(Backend& backend, const RunConfig& config,
                                              const DataShape& shape) {
  return std::make_unique<engine::nn::CharTransformer>(
      backend, engine::nn::CharTransformerOptions{.symbols = shape.vocabulary,
                                                  .context = config.model.context,
                                                  .embedding = config.model.embedding,
                                                  .heads = config.model.heads,
                                                  .layers = config.model.layers,
                                                  .dropout = static_cast<float>(config.model.dropout),
                                                  .seed = config.train.seed});
}

double char_transformer_multiply_adds(const RunConfig& config, const DataShape& shape) {
  const auto embedding = static_cast<double>(config.model.embedding);
  const auto context = static_cast<double>(config.model.context);
  // A block: qkv 3 E^2, out E^2, MLP 8 E^2; scores and mixing T E each, masked positions included.
  return context *
         (static_cast<double>(config.model.layers) * (12 * embedding * embedding + 2 * context * embedding) +
          embedding * static_cast<double>(shape.vocabulary));
}

constexpr KnownWorkload workloads[] = {
    {.name = "classifier",
     .description = "multilayer perceptron, softmax cross-entropy averaged over the batch",
     .data = DataKind::images,
     .loss = LossKind::cross_entropy,
     .metric = Quantity::accuracy,
     .check = check_widths,
     .make_model = make_classifier,
     .multiply_adds = mlp_multiply_adds},
    {.name = "autoencoder",
     .description = "multilayer perceptron that reproduces its input, MSE averaged over batch and outputs",
     .data = DataKind::images,
     .loss = LossKind::mse,
     .metric = Quantity::loss,
     .targets = Targets::inputs,
     .check = check_widths,
     .make_model = make_autoencoder,
     .multiply_adds = mlp_multiply_adds},
    {.name = "regression",
     .description = "multilayer perceptron on synthetic data, MSE averaged over batch and outputs",
     .data = DataKind::synthetic,
     .loss = LossKind::mse,
     .metric = Quantity::loss,
     .check = check_regression,
     .make_model = make_regression,
     .multiply_adds = mlp_multiply_adds},
    {.name = "gradient_penalty",
     .description = "classifier whose loss contains the norm of its own gradient (double backward)",
     .data = DataKind::images,
     .loss = LossKind::cross_entropy,
     .metric = Quantity::accuracy,
     .check = check_widths,
     .make_model = make_classifier,
     .make_method = make_gradient_penalty,
     .multiply_adds = gradient_penalty_multiply_adds},
    {.name = "two_models",
     .description = "two classifiers under the losses of 2a + 3b and 3a - 5b, an optimizer each",
     .data = DataKind::images,
     .loss = LossKind::cross_entropy,
     .metric = Quantity::accuracy,
     .check = check_widths,
     .make_model = make_two_models,
     .make_method = make_two_models_method,
     .multiply_adds = two_models_multiply_adds},
    {.name = "gan",
     .description = "generative adversarial network: perceptrons, binary cross-entropy, an optimizer each",
     .data = DataKind::images,
     .loss = LossKind::cross_entropy,
     .metric = Quantity::loss,
     .check = check_gan,
     .make_model = make_gan,
     .make_method = make_gan_method,
     .multiply_adds = gan_multiply_adds},
    {.name = "lenet5",
     .description = "LeNet-5 with ReLU and max pooling on images padded to 32 x 32",
     .data = DataKind::images,
     .loss = LossKind::cross_entropy,
     .metric = Quantity::accuracy,
     .shape_images = shape_lenet_images,
     .make_model = make_lenet,
     .multiply_adds = lenet_multiply_adds},
    {.name = "charlm_lstm",
     .description =
         "next-byte model of text: embedding, LSTM, linear head; cross-entropy averaged over bytes",
     .data = DataKind::text,
     .loss = LossKind::cross_entropy,
     .metric = Quantity::bits_per_character,
     .make_model = make_char_lstm,
     .multiply_adds = char_lstm_multiply_adds},
    {.name = "charlm_transformer",
     .description = "next-byte model of text: small GPT with causal attention, LayerNorm and a GELU MLP",
     .data = DataKind::text,
     .loss = LossKind::cross_entropy,
     .metric = Quantity::bits_per_character,
     .check = check_heads,
     .make_model = make_char_transformer,
     .multiply_adds = char_transformer_multiply_adds},
};

}  // namespace

std::string_view name_of(LossKind loss) {
  switch (loss) {
    case LossKind::cross_entropy:
      return "cross_entropy";
    case LossKind::mse:
      return "mse";
  }
  throw std::logic_error("unknown loss");
}

std::vector<std::int64_t> widths_of(const RunConfig& config) {
  std::vector<std::int64_t> widths = config.model.widths;
  for (std::int64_t& width : widths) width /= config.model.scale_down;
  return widths;
}

std::int64_t batch_size_of(const RunConfig& config) {
  return config.train.batch_size / config.model.scale_down;
}

std::span<const KnownWorkload> known_workloads() { return workloads; }

const KnownWorkload& workload_of(const RunConfig& config) {
  for (const KnownWorkload& workload : workloads)
    if (workload.name == config.model.name) return workload;
  fail(fmt::format("model.name = \"{}\": no such workload", config.model.name));
}

}  // namespace fp16lab::experiments
