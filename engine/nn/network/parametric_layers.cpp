#include <fmt/format.h>

#include <memory>
#include <stdexcept>
#include <utility>

#include "engine/nn/attention.hpp"
#include "engine/nn/conv2d.hpp"
#include "engine/nn/dropout.hpp"
#include "engine/nn/embedding.hpp"
#include "engine/nn/linear.hpp"
#include "engine/nn/lstm.hpp"
#include "engine/nn/models/mlp.hpp"
#include "engine/nn/network/layer_builders.hpp"
#include "engine/nn/normalization.hpp"

namespace fp16lab::engine::nn::layers {
namespace {

using Pair = std::array<std::int64_t, 2>;

RowInitialization init_of(const LayerPlace& place, std::string_view name = "init") {
  return place.arguments.initialization(name, {.rule = place.network.initialization});
}

/// What both convolutions have.
Conv2dOptions filters_of(const LayerPlace& place, std::int64_t inputs) {
  const RowInitialization init = init_of(place);
  require(init.deviation == 0, "init: expected a name; deviations are for linear, embedding and attention");
  return {.inputs = inputs,
          .outputs = place.arguments.integer("out_channels"),
          .kernel = place.arguments.pair("kernel_size"),
          .geometry = {.stride = place.arguments.pair("stride"),
                       .padding = place.arguments.pair("padding"),
                       .dilation = place.arguments.pair("dilation"),
                       .layout = place.network.layout,
                       .groups = place.arguments.integer("groups")},
          .bias = place.arguments.boolean("bias"),
          .initialization = init.rule,
          .seed = place.network.seed};
}

/// Cells that an LSTM computes one after the other.
constexpr std::int64_t most_cells = 65536;

/// GCC 12 destroys `output` twice where the module's constructor throws within the braces of a BuiltLayer.
BuiltLayer built(Signal output, std::unique_ptr<Module> module) {
  return {.output = std::move(output), .module = std::move(module)};
}

}  // namespace

BuiltLayer build_linear(const LayerPlace& place) {
  const Signal& input = place.inputs[0];
  require_numbers(input);
  require(!input.extents.empty(), "takes (N, ..., features)");
  std::int64_t outputs = place.network.outputs;
  if (place.arguments.has("out_features")) {
    const std::int64_t given = place.arguments.integer("out_features"), divisor = place.network.scale_down;
    require(given % divisor == 0,
            fmt::format("out_features = {} with model.scale_down = {}: expected a divisor of it", given,
                        divisor));
    outputs = given / divisor;
  }
  require(outputs >= 1, "needs out_features, because the data does not determine it");
  const RowInitialization init = init_of(place);
  Signal output = input;
  output.extents.back() = outputs;
  return built(output, std::make_unique<Linear>(place.backend, place.path,
                                                LinearOptions{.inputs = input.extents.back(),
                                                              .outputs = outputs,
                                                              .bias = place.arguments.boolean("bias"),
                                                              .initialization = init.rule,
                                                              .deviation = init.deviation,
                                                              .seed = place.network.seed}));
}

BuiltLayer build_mlp(const LayerPlace& place) {
  const Signal& input = place.inputs[0];
  require_numbers(input);
  require(input.extents.size() == 1, "takes (N, features); flatten first");
  std::vector<std::int64_t> widths{input.extents[0]};
  for (const std::int64_t width : place.arguments.list("widths")) {
    require(width >= 1 && width % place.network.scale_down == 0,
            fmt::format("width {} with model.scale_down = {}: expected a multiple of it", width,
                        place.network.scale_down));
    widths.push_back(width / place.network.scale_down);
  }
  require(widths.size() > 1, "widths: expected one or more");
  const auto activation = [&](std::string_view name) {
    return enumerator_called<Activation>(place.arguments.text(name)).value();
  };
  const RowInitialization init = init_of(place);
  require(init.deviation == 0, "init: expected a name; deviations are for linear, embedding and attention");
  const std::string path =
      place.named ? place.path : place.prefix.substr(0, place.prefix.size() - (place.prefix.empty() ? 0 : 1));
  return built({.extents = {widths.back()}, .rows = input.rows},
               std::make_unique<Mlp>(place.backend, MlpOptions{.widths = widths,
                                                               .activation = activation("activation"),
                                                               .output = activation("output"),
                                                               .path = path,
                                                               .initialization = init.rule,
                                                               .seed = place.network.seed}));
}

BuiltLayer build_conv2d(const LayerPlace& place) {
  const Image input(place.inputs[0], place.network.layout);
  const Conv2dOptions filters = filters_of(place, input.channels);
  const Conv2dGeometry& geometry = filters.geometry;
  const auto extent = [&](std::int64_t size, std::size_t axis) {
    return window_extent(size, filters.kernel[axis], geometry.stride[axis], geometry.padding[axis],
                         geometry.dilation[axis]);
  };
  const Image output(filters.outputs, extent(input.height, 0), extent(input.width, 1));
  return built(output.signal(geometry.layout), std::make_unique<Conv2d>(place.backend, place.path, filters));
}

BuiltLayer build_conv_transpose2d(const LayerPlace& place) {
  const Image input(place.inputs[0], place.network.layout);
  const Conv2dOptions filters = filters_of(place, input.channels);
  const Conv2dGeometry& geometry = filters.geometry;
  const Pair more = place.arguments.pair("output_padding");
  const auto extent = [&](std::int64_t size, std::size_t axis) {
    const std::int64_t result =
        ((Extent(size) - 1) * geometry.stride[axis] - Extent(2) * geometry.padding[axis] +
         (Extent(filters.kernel[axis]) - 1) * geometry.dilation[axis] + more[axis] + 1)
            .value();
    require(result >= 1, fmt::format("the output would have an extent of {}", result));
    return result;
  };
  const Image output(filters.outputs, extent(input.height, 0), extent(input.width, 1));
  return built(output.signal(geometry.layout),
               std::make_unique<ConvTranspose2d>(place.backend, place.path, filters, more));
}

BuiltLayer build_batch_norm(const LayerPlace& place) {
  const Signal& input = place.inputs[0];
  require_numbers(input);
  const bool image = input.extents.size() == 3 && input.rows == 1;
  require(image || input.extents.size() == 1, "takes (N, features) or images");
  return {
      .output = input,
      .module = std::make_unique<BatchNorm>(
          place.backend, place.path,
          BatchNormOptions{.features = image ? Image(input, place.network.layout).channels : input.extents[0],
                           .epsilon = place.arguments.real("eps"),
                           .momentum = place.arguments.real("momentum"),
                           .layout = place.network.layout})};
}

BuiltLayer build_layer_norm(const LayerPlace& place) {
  const Signal& input = place.inputs[0];
  require_numbers(input);
  require(!input.extents.empty(), "takes (N, ..., features)");
  return built(input, std::make_unique<LayerNorm>(place.backend, place.path, input.extents.back(),
                                                  place.arguments.real("eps")));
}

BuiltLayer build_rms_norm(const LayerPlace& place) {
  const Signal& input = place.inputs[0];
  require_numbers(input);
  require(!input.extents.empty(), "takes (N, ..., features)");
  return built(input, std::make_unique<RmsNorm>(place.backend, place.path, input.extents.back(),
                                                place.arguments.real("eps")));
}

BuiltLayer build_group_norm(const LayerPlace& place) {
  const Image input(place.inputs[0], place.network.layout);
  return {
      .output = place.inputs[0],
      .module = std::make_unique<GroupNorm>(place.backend, place.path,
                                            GroupNormOptions{.groups = place.arguments.integer("num_groups"),
                                                             .channels = input.channels,
                                                             .epsilon = place.arguments.real("eps"),
                                                             .layout = place.network.layout})};
}

BuiltLayer build_embedding(const LayerPlace& place) {
  const Signal& input = place.inputs[0];
  require(input.vocabulary > 0, "takes symbols, not numbers");
  std::int64_t symbols = input.vocabulary;
  if (place.arguments.has("num_embeddings")) symbols = place.arguments.integer("num_embeddings");
  require(symbols >= input.vocabulary,
          fmt::format("num_embeddings = {}: expected at least {}, the symbols that there are", symbols,
                      input.vocabulary));
  Signal output{.extents = input.extents, .rows = input.rows};
  output.extents.push_back(place.arguments.integer("embedding_dim"));
  return built(output, std::make_unique<Embedding>(place.backend, place.path,
                                                   EmbeddingOptions{.symbols = symbols,
                                                                    .features = output.extents.back(),
                                                                    .deviation = place.arguments.real("init"),
                                                                    .seed = place.network.seed}));
}

BuiltLayer build_position_embedding(const LayerPlace& place) {
  const Signal& input = place.inputs[0];
  require(!input.extents.empty(), "takes (N, T, ...)");
  const std::int64_t features = place.arguments.integer("embedding_dim");
  // (T, features), the same for all examples: it broadcasts in an add.
  return built({.extents = {input.extents[0], features}},
               std::make_unique<PositionEmbedding>(place.backend, place.path,
                                                   EmbeddingOptions{.symbols = input.extents[0],
                                                                    .features = features,
                                                                    .deviation = place.arguments.real("init"),
                                                                    .seed = place.network.seed}));
}

BuiltLayer build_lstm(const LayerPlace& place) {
  const Signal& input = place.inputs[0];
  require_numbers(input);
  require(input.extents.size() == 2 && input.rows == 1, "takes (N, T, features)");
  const std::int64_t hidden = place.arguments.integer("hidden_size"),
                     layers = place.arguments.integer("num_layers"), steps = input.extents[0];
  require(steps * layers <= most_cells,
          fmt::format("num_layers = {} over T = {} steps: expected at most {} cells, one a layer and step",
                      layers, steps, most_cells));
  return built({.extents = {input.extents[0], hidden}},
               std::make_unique<Lstm>(place.backend, place.path,
                                      LstmOptions{.inputs = input.extents[1],
                                                  .hidden = hidden,
                                                  .layers = layers,
                                                  .dropout = place.arguments.real("dropout"),
                                                  .seed = place.network.seed}));
}

BuiltLayer build_attention(const LayerPlace& place) {
  const Signal& input = place.inputs[0];
  require_numbers(input);
  require(input.extents.size() == 2 && input.rows == 1, "takes (N, T, features)");
  const RowInitialization init = place.arguments.initialization("init", {}),
                          out_init = place.arguments.initialization("out_init", {});
  require(init.rule == Initialization::torch_linear && out_init.rule == Initialization::torch_linear,
          "init, out_init: expected torch_linear or a deviation");
  return built(input,
               std::make_unique<SelfAttention>(place.backend, place.path,
                                               AttentionOptions{.features = input.extents[1],
                                                                .heads = place.arguments.integer("num_heads"),
                                                                .causal = place.arguments.boolean("causal"),
                                                                .dropout = place.arguments.real("dropout"),
                                                                .deviation = init.deviation,
                                                                .output_deviation = out_init.deviation,
                                                                .seed = place.network.seed}));
}

BuiltLayer build_dropout(const LayerPlace& place) {
  require_numbers(place.inputs[0]);
  return built(place.inputs[0], std::make_unique<Dropout>(place.path, place.arguments.real("p")));
}

}  // namespace fp16lab::engine::nn::layers
