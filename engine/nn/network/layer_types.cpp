#include "engine/nn/network/layer_types.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "engine/autograd/ops.hpp"
#include "engine/nn/attention.hpp"
#include "engine/nn/conv2d.hpp"
#include "engine/nn/dropout.hpp"
#include "engine/nn/embedding.hpp"
#include "engine/nn/linear.hpp"
#include "engine/nn/lstm.hpp"
#include "engine/nn/models/mlp.hpp"
#include "engine/nn/normalization.hpp"
#include "numerics/text/nearest_name.hpp"

namespace fp16lab::engine::nn {
namespace {

using Kind = ArgumentKind;
using Values = std::span<const Variable>;
using Pair = std::array<std::int64_t, 2>;

void require(bool holds, const std::string& what) {
  if (!holds) throw std::invalid_argument(what);
}

void require_numbers(const Signal& input) {
  require(input.vocabulary == 0, "takes numbers, not symbols; begin with an embedding");
}

// shapes ------------------------------------------------------------------------------------------------------

/// The axes of images in the network's layout.
struct Image {
  std::int64_t channels, height, width;

  Image(const Signal& signal, Layout layout) {
    require_numbers(signal);
    require(signal.extents.size() == 3 && signal.rows == 1, "takes images, (N, channels, height, width)");
    const bool first = layout == Layout::nchw;
    channels = signal.extents[first ? 0 : 2];
    height = signal.extents[first ? 1 : 0];
    width = signal.extents[first ? 2 : 1];
  }
  Image(std::int64_t c, std::int64_t h, std::int64_t w) : channels(c), height(h), width(w) {}

  Signal signal(Layout layout) const {
    if (layout == Layout::nchw) return {.extents = {channels, height, width}};
    return {.extents = {height, width, channels}};
  }
};

std::int64_t window_extent(std::int64_t extent, std::int64_t kernel, std::int64_t stride,
                           std::int64_t padding, std::int64_t dilation = 1) {
  const std::int64_t span = dilation * (kernel - 1) + 1;
  require(extent + 2 * padding >= span,
          fmt::format("a window of {} does not fit into {} with a padding of {}", span, extent, padding));
  return (extent + 2 * padding - span) / stride + 1;
}

/// x as the signal has it, for the rows that there are.
Variable shaped(const Variable& x, const Signal& from, const Signal& to) {
  const std::int64_t examples = x.shape()[0] / from.rows;
  std::vector<std::int64_t> extents{examples * to.rows};
  extents.insert(extents.end(), to.extents.begin(), to.extents.end());
  return ops::reshape(x, Shape(extents));
}

std::size_t axis_of(const LayerPlace& place, std::int64_t axis, std::size_t rank) {
  const auto signed_rank = static_cast<std::int64_t>(rank);
  require(axis >= -signed_rank && axis < signed_rank,
          fmt::format("axis {}: expected {} to {}", axis, -signed_rank, signed_rank - 1));
  (void)place;
  return static_cast<std::size_t>(axis < 0 ? axis + signed_rank : axis);
}

BuiltLayer elementwise(const LayerPlace& place, Variable (*function)(const Variable&)) {
  require_numbers(place.inputs[0]);
  return {.output = place.inputs[0], .module = nullptr, .forward = [function](Tape&, Values x) {
            return function(x[0]);
          }};
}

// layers with parameters --------------------------------------------------------------------------------------

RowInitialization init_of(const LayerPlace& place, std::string_view name = "init") {
  return place.arguments.initialization(name, {.rule = place.network.initialization});
}

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
  require(outputs >= 1, "needs out_features, because the data do not say how many");
  const RowInitialization init = init_of(place);
  Signal output = input;
  output.extents.back() = outputs;
  return {.output = output,
          .module = std::make_unique<Linear>(place.backend, place.path,
                                             LinearOptions{.inputs = input.extents.back(),
                                                           .outputs = outputs,
                                                           .bias = place.arguments.boolean("bias"),
                                                           .initialization = init.rule,
                                                           .deviation = init.deviation,
                                                           .seed = place.network.seed})};
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
    for (const Activation one : all_activations())
      if (name_of(one) == place.arguments.text(name)) return one;
    throw std::logic_error("mlp: unknown activation");
  };
  const RowInitialization init = init_of(place);
  require(init.deviation == 0, "init: expected a name; deviations are for linear, embedding and attention");
  const std::string path =
      place.named ? place.path : place.prefix.substr(0, place.prefix.size() - (place.prefix.empty() ? 0 : 1));
  return {.output = {.extents = {widths.back()}, .rows = input.rows},
          .module = std::make_unique<Mlp>(place.backend, MlpOptions{.widths = widths,
                                                                    .activation = activation("activation"),
                                                                    .output = activation("output"),
                                                                    .path = path,
                                                                    .initialization = init.rule,
                                                                    .seed = place.network.seed})};
}

/// What both convolutions have.
struct Filters {
  Pair kernel;
  Conv2dGeometry geometry;
  RowInitialization init;

  explicit Filters(const LayerPlace& place)
      : kernel(place.arguments.pair("kernel_size")),
        geometry{.stride = place.arguments.pair("stride"),
                 .padding = place.arguments.pair("padding"),
                 .dilation = place.arguments.pair("dilation"),
                 .layout = place.network.layout,
                 .groups = place.arguments.integer("groups")},
        init(init_of(place)) {
    require(init.deviation == 0, "init: expected a name; deviations are for linear, embedding and attention");
  }
};

BuiltLayer build_conv2d(const LayerPlace& place) {
  const Image input(place.inputs[0], place.network.layout);
  const Filters filters(place);
  const Conv2dGeometry& geometry = filters.geometry;
  const auto extent = [&](std::int64_t size, std::size_t axis) {
    return window_extent(size, filters.kernel[axis], geometry.stride[axis], geometry.padding[axis],
                         geometry.dilation[axis]);
  };
  const Image output(place.arguments.integer("out_channels"), extent(input.height, 0),
                     extent(input.width, 1));
  return {.output = output.signal(geometry.layout),
          .module = std::make_unique<Conv2d>(place.backend, place.path,
                                             Conv2dOptions{.inputs = input.channels,
                                                           .outputs = output.channels,
                                                           .kernel = filters.kernel,
                                                           .geometry = geometry,
                                                           .bias = place.arguments.boolean("bias"),
                                                           .initialization = filters.init.rule,
                                                           .seed = place.network.seed})};
}

BuiltLayer build_conv_transpose2d(const LayerPlace& place) {
  const Image input(place.inputs[0], place.network.layout);
  const Filters filters(place);
  const Conv2dGeometry& geometry = filters.geometry;
  const Pair more = place.arguments.pair("output_padding");
  const auto extent = [&](std::int64_t size, std::size_t axis) {
    const std::int64_t result = (size - 1) * geometry.stride[axis] - 2 * geometry.padding[axis] +
                                geometry.dilation[axis] * (filters.kernel[axis] - 1) + more[axis] + 1;
    require(result >= 1, fmt::format("the output would have an extent of {}", result));
    return result;
  };
  const Image output(place.arguments.integer("out_channels"), extent(input.height, 0),
                     extent(input.width, 1));
  return {.output = output.signal(geometry.layout),
          .module = std::make_unique<ConvTranspose2d>(
              place.backend, place.path,
              ConvTranspose2dOptions{.inputs = input.channels,
                                     .outputs = output.channels,
                                     .kernel = filters.kernel,
                                     .geometry = geometry,
                                     .output_padding = more,
                                     .bias = place.arguments.boolean("bias"),
                                     .initialization = filters.init.rule,
                                     .seed = place.network.seed})};
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
  return {.output = input,
          .module = std::make_unique<LayerNorm>(place.backend, place.path, input.extents.back(),
                                                place.arguments.real("eps"))};
}

BuiltLayer build_rms_norm(const LayerPlace& place) {
  const Signal& input = place.inputs[0];
  require_numbers(input);
  require(!input.extents.empty(), "takes (N, ..., features)");
  return {.output = input,
          .module = std::make_unique<RmsNorm>(place.backend, place.path, input.extents.back(),
                                              place.arguments.real("eps"))};
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
  return {.output = output,
          .module = std::make_unique<Embedding>(place.backend, place.path,
                                                EmbeddingOptions{.symbols = symbols,
                                                                 .features = output.extents.back(),
                                                                 .deviation = place.arguments.real("init"),
                                                                 .seed = place.network.seed})};
}

BuiltLayer build_position_embedding(const LayerPlace& place) {
  const Signal& input = place.inputs[0];
  require(!input.extents.empty(), "takes (N, T, ...)");
  const std::int64_t features = place.arguments.integer("embedding_dim");
  // (T, features), the same for all examples: it broadcasts in an add.
  return {.output = {.extents = {input.extents[0], features}},
          .module =
              std::make_unique<PositionEmbedding>(place.backend, place.path,
                                                  EmbeddingOptions{.symbols = input.extents[0],
                                                                   .features = features,
                                                                   .deviation = place.arguments.real("init"),
                                                                   .seed = place.network.seed})};
}

BuiltLayer build_lstm(const LayerPlace& place) {
  const Signal& input = place.inputs[0];
  require_numbers(input);
  require(input.extents.size() == 2 && input.rows == 1, "takes (N, T, features)");
  const std::int64_t hidden = place.arguments.integer("hidden_size");
  return {.output = {.extents = {input.extents[0], hidden}},
          .module = std::make_unique<Lstm>(place.backend, place.path,
                                           LstmOptions{.inputs = input.extents[1],
                                                       .hidden = hidden,
                                                       .layers = place.arguments.integer("num_layers"),
                                                       .dropout = place.arguments.real("dropout"),
                                                       .seed = place.network.seed})};
}

BuiltLayer build_attention(const LayerPlace& place) {
  const Signal& input = place.inputs[0];
  require_numbers(input);
  require(input.extents.size() == 2 && input.rows == 1, "takes (N, T, features)");
  const RowInitialization init = place.arguments.initialization("init", {}),
                          out_init = place.arguments.initialization("out_init", {});
  require(init.rule == Initialization::torch_linear && out_init.rule == Initialization::torch_linear,
          "init, out_init: expected torch_linear or a deviation");
  return {.output = input,
          .module =
              std::make_unique<SelfAttention>(place.backend, place.path,
                                              AttentionOptions{.features = input.extents[1],
                                                               .heads = place.arguments.integer("num_heads"),
                                                               .causal = place.arguments.boolean("causal"),
                                                               .dropout = place.arguments.real("dropout"),
                                                               .deviation = init.deviation,
                                                               .output_deviation = out_init.deviation,
                                                               .seed = place.network.seed})};
}

BuiltLayer build_dropout(const LayerPlace& place) {
  require_numbers(place.inputs[0]);
  return {.output = place.inputs[0],
          .module = std::make_unique<Dropout>(place.path, place.arguments.real("p"))};
}

// pooling -----------------------------------------------------------------------------------------------------

BuiltLayer pooled(const LayerPlace& place, const Pool2dGeometry& geometry,
                  Variable (*function)(const Variable&, const Pool2dGeometry&)) {
  const Image input(place.inputs[0], geometry.layout);
  const auto extent = [&](std::int64_t size, std::size_t axis) {
    require(2 * geometry.padding[axis] <= geometry.kernel[axis],
            fmt::format("padding {}: expected at most half of the kernel, {}", geometry.padding[axis],
                        geometry.kernel[axis]));
    return window_extent(size, geometry.kernel[axis], geometry.stride[axis], geometry.padding[axis]);
  };
  return {.output =
              Image(input.channels, extent(input.height, 0), extent(input.width, 1)).signal(geometry.layout),
          .module = nullptr,
          .forward = [geometry, function](Tape&, Values x) { return function(x[0], geometry); }};
}

Pool2dGeometry pool_of(const LayerPlace& place) {
  const LayerArguments& arguments = place.arguments;
  Pool2dGeometry geometry{.kernel = arguments.pair("kernel_size"),
                          .padding = arguments.pair("padding"),
                          .layout = place.network.layout};
  geometry.stride = arguments.has("stride") ? arguments.pair("stride") : geometry.kernel;
  return geometry;
}

BuiltLayer build_max_pool(const LayerPlace& place) { return pooled(place, pool_of(place), ops::max_pool2d); }
BuiltLayer build_average_pool(const LayerPlace& place) {
  return pooled(place, pool_of(place), ops::average_pool2d);
}

BuiltLayer build_adaptive_pool(const LayerPlace& place) {
  const Image input(place.inputs[0], place.network.layout);
  const Pair output = place.arguments.pair("output_size");
  require(input.height % output[0] == 0 && input.width % output[1] == 0,
          fmt::format("output_size = [{}, {}]: expected divisors of {} and {}", output[0], output[1],
                      input.height, input.width));
  const Pair window{input.height / output[0], input.width / output[1]};
  return pooled(place, {.kernel = window, .stride = window, .layout = place.network.layout},
                ops::average_pool2d);
}

// shapes and joins --------------------------------------------------------------------------------------------

BuiltLayer build_flatten(const LayerPlace& place) {
  const Signal& input = place.inputs[0];
  const std::size_t rank = input.extents.size() + 1;
  const std::size_t first = axis_of(place, place.arguments.integer("start_dim"), rank);
  const std::size_t last = axis_of(place, place.arguments.integer("end_dim"), rank);
  require(first <= last, "start_dim is behind end_dim");
  Signal output{.rows = input.rows, .vocabulary = input.vocabulary};
  std::int64_t merged = 1;
  for (std::size_t axis = std::max<std::size_t>(first, 1); axis <= last; ++axis)
    merged *= input.extents[axis - 1];
  if (first == 0) output.rows *= merged;
  for (std::size_t axis = 1; axis < rank; ++axis) {
    if (axis < first || axis > last) output.extents.push_back(input.extents[axis - 1]);
    if (axis == first) output.extents.push_back(merged);
  }
  return {
      .output = output, .module = nullptr, .computes = false, .forward = [input, output](Tape&, Values x) {
        return shaped(x[0], input, output);
      }};
}

BuiltLayer build_unflatten(const LayerPlace& place) {
  const Signal& input = place.inputs[0];
  const std::vector<std::int64_t> sizes = place.arguments.list("unflattened_size");
  const std::int64_t elements =
      std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
  require(elements == input.elements(),
          fmt::format("unflattened_size has {} elements; expected {}", elements, input.elements()));
  const Signal output{.extents = sizes, .rows = input.rows, .vocabulary = input.vocabulary};
  return {
      .output = output, .module = nullptr, .computes = false, .forward = [input, output](Tape&, Values x) {
        return shaped(x[0], input, output);
      }};
}

BuiltLayer build_softmax(const LayerPlace& place) {
  const Signal& input = place.inputs[0];
  require_numbers(input);
  const auto axis =
      static_cast<int>(axis_of(place, place.arguments.integer("dim"), input.extents.size() + 1));
  require(axis != 0, "dim = 0 is the batch");
  return {.output = input, .module = nullptr, .forward = [axis](Tape&, Values x) {
            return ops::softmax(x[0], axis);
          }};
}

BuiltLayer build_identity(const LayerPlace& place) {
  require(place.named, "needs a name, under which the gradient of its input is observed");
  return {.output = place.inputs[0], .module = nullptr, .computes = false, .forward = [](Tape&, Values x) {
            return ops::watch(x[0], SlotLabel::input);
          }};
}

/// All shapes equal, or the later ones the trailing part of the first.
BuiltLayer joined(const LayerPlace& place, Variable (*function)(const Variable&, const Variable&)) {
  const Signal& first = place.inputs[0];
  require_numbers(first);
  for (const Signal& other : place.inputs.subspan(1)) {
    const bool trailing = other.extents.size() <= first.extents.size() &&
                          std::equal(other.extents.rbegin(), other.extents.rend(), first.extents.rbegin());
    require(trailing && other.rows == first.rows && other.vocabulary == 0, "expected equal shapes");
  }
  return {.output = first, .module = nullptr, .forward = [function](Tape&, Values x) {
            Variable all = x[0];
            for (const Variable& one : x.subspan(1)) all = function(all, one);
            return all;
          }};
}

BuiltLayer build_concat(const LayerPlace& place) {
  Signal output = place.inputs[0];
  const std::size_t axis = axis_of(place, place.arguments.integer("dim"), output.extents.size() + 1);
  require(axis != 0, "dim = 0 is the batch");
  for (const Signal& other : place.inputs.subspan(1)) {
    Signal expected = other;
    require(other.extents.size() == output.extents.size(), "expected shapes that differ along dim only");
    expected.extents[axis - 1] = output.extents[axis - 1];
    require(expected == output, "expected shapes that differ along dim only");
    output.extents[axis - 1] += other.extents[axis - 1];
  }
  return {.output = output, .module = nullptr, .forward = [axis](Tape&, Values x) {
            return ops::concat(x, static_cast<int>(axis));
          }};
}

// the table ---------------------------------------------------------------------------------------------------

Variable gelu_exact(const Variable& x) { return ops::gelu(x); }
Variable gelu_tanh(const Variable& x) { return ops::gelu(x, ops::GeluKind::tanh); }

LayerArgument init_argument() {
  return {.name = "init",
          .kind = Kind::initialization,
          .help = "of the weights; without it model.init",
          .optional = true};
}
std::vector<LayerArgument> pool_arguments() {
  return {{.name = "kernel_size", .kind = Kind::counts, .help = "rows and columns"},
          {.name = "stride", .kind = Kind::counts, .help = "without it kernel_size", .optional = true},
          {.name = "padding", .kind = Kind::sizes, .standard = 0, .help = "at most half of the kernel"}};
}
/// Of both convolutions, and `more`.
std::vector<LayerArgument> filter_arguments(std::vector<LayerArgument> more) {
  const LayerValue zero = std::int64_t{0}, one = std::int64_t{1};
  std::vector<LayerArgument> all{
      {.name = "out_channels", .kind = Kind::count, .help = "filters"},
      {.name = "kernel_size", .kind = Kind::counts, .help = "rows and columns"},
      {.name = "stride", .kind = Kind::counts, .standard = one, .help = "vertical and horizontal"},
      {.name = "padding", .kind = Kind::sizes, .standard = zero, .help = "of zeros, on each side"},
      {.name = "dilation", .kind = Kind::counts, .standard = one, .help = "between the taps"},
      {.name = "groups",
       .kind = Kind::count,
       .standard = one,
       .help = "parts of the channels that do not see each other; as many as channels: depthwise"},
      {.name = "bias", .kind = Kind::boolean, .standard = true, .help = "has b"},
      init_argument()};
  all.insert(all.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  return all;
}
std::vector<LayerArgument> batch_norm_arguments() {
  return {{.name = "eps", .kind = Kind::real, .standard = 1e-5, .help = "added to the variance"},
          {.name = "momentum", .kind = Kind::real, .standard = 0.1, .help = "of the running statistics"}};
}

std::vector<std::string> activation_names() {
  std::vector<std::string> names;
  for (const Activation one : all_activations()) names.emplace_back(name_of(one));
  return names;
}

std::vector<LayerType> make_types() {
  const LayerValue zero = std::int64_t{0}, one = std::int64_t{1};
  return {
      {"linear",
       "y = x W^T + b over the last axis",
       {{.name = "out_features",
         .kind = Kind::count,
         .help = "without it as many as the data has classes, symbols or targets",
         .optional = true},
        {.name = "bias", .kind = Kind::boolean, .standard = true, .help = "has b"},
        init_argument()},
       false,
       build_linear},
      {"mlp",
       "linear layers fc1, fc2, ... with an activation between them; without a name they stand where it "
       "stands",
       {{.name = "widths", .kind = Kind::list, .help = "out_features of each"},
        {.name = "activation",
         .kind = Kind::text,
         .standard = "relu",
         .help = "after every layer but the last",
         .choices = activation_names()},
        {.name = "output",
         .kind = Kind::text,
         .standard = "none",
         .help = "activation after the last layer",
         .choices = activation_names()},
        init_argument()},
       false,
       build_mlp},
      {"conv2d", "cross-correlation with learned filters", filter_arguments({}), false, build_conv2d},
      {"conv_transpose2d", "its transpose: from small images to large ones",
       filter_arguments({{.name = "output_padding",
                          .kind = Kind::sizes,
                          .standard = zero,
                          .help = "rows and columns added to the output, less than the stride"}}),
       false, build_conv_transpose2d},
      {"batch_norm1d", "(N, features) normalised over the batch", batch_norm_arguments(), false,
       build_batch_norm},
      {"batch_norm2d", "images normalised per channel over the batch", batch_norm_arguments(), false,
       build_batch_norm},
      {"layer_norm",
       "normalised over the last axis",
       {{.name = "eps", .kind = Kind::real, .standard = 1e-5, .help = "added to the variance"}},
       false,
       build_layer_norm},
      {"rms_norm",
       "divided by the root of the mean of squares over the last axis",
       {{.name = "eps", .kind = Kind::real, .standard = 0x1p-23, .help = "added to the mean"}},
       false,
       build_rms_norm},
      {"group_norm",
       "images normalised over groups of channels",
       {{.name = "num_groups", .kind = Kind::count, .help = "divides the channels"},
        {.name = "eps", .kind = Kind::real, .standard = 1e-5, .help = "added to the variance"}},
       false,
       build_group_norm},
      {"max_pool2d", "the maximum of each window", pool_arguments(), false, build_max_pool},
      {"avg_pool2d", "the mean of each window, padding counted", pool_arguments(), false, build_average_pool},
      {"adaptive_avg_pool2d",
       "means of equal windows, as many as output_size says",
       {{.name = "output_size", .kind = Kind::counts, .help = "rows and columns; divisors of the input's"}},
       false,
       build_adaptive_pool},
      {"dropout",
       "zeroes elements at random while training",
       {{.name = "p", .kind = Kind::real, .standard = 0.5, .help = "probability, in [0, 1)"}},
       false,
       build_dropout},
      {"embedding",
       "a learned vector for each symbol",
       {{.name = "embedding_dim", .kind = Kind::count, .help = "numbers of a vector"},
        {.name = "num_embeddings",
         .kind = Kind::count,
         .help = "without it the symbols that the data has",
         .optional = true},
        {.name = "init", .kind = Kind::real, .standard = 1.0, .help = "deviation of the initial weights"}},
       false,
       build_embedding},
      {"position_embedding",
       "a learned vector for each position of (N, T, ...), to be added",
       {{.name = "embedding_dim", .kind = Kind::count, .help = "numbers of a vector"},
        {.name = "init", .kind = Kind::real, .standard = 1.0, .help = "deviation of the initial weights"}},
       false,
       build_position_embedding},
      {"lstm",
       "long short-term memory over (N, T, features)",
       {{.name = "hidden_size", .kind = Kind::count, .help = "state width"},
        {.name = "num_layers", .kind = Kind::count, .standard = one, .help = "depth"},
        {.name = "dropout", .kind = Kind::real, .standard = 0.0, .help = "between layers, in [0, 1)"}},
       false,
       build_lstm},
      {"multihead_attention",
       "self-attention over (N, T, features)",
       {{.name = "num_heads", .kind = Kind::count, .help = "divides the features"},
        {.name = "causal",
         .kind = Kind::boolean,
         .standard = false,
         .help = "position t sees positions up to t"},
        {.name = "dropout",
         .kind = Kind::real,
         .standard = 0.0,
         .help = "of the attention weights, in [0, 1)"},
        {.name = "init",
         .kind = Kind::initialization,
         .help = "deviation of the weights of q, k and v",
         .optional = true},
        {.name = "out_init",
         .kind = Kind::initialization,
         .help = "deviation of the output's weights",
         .optional = true}},
       false,
       build_attention},
      {"relu", "max(x, 0)", {}, false, [](const LayerPlace& p) { return elementwise(p, ops::relu); }},
      {"tanh",
       "hyperbolic tangent",
       {},
       false,
       [](const LayerPlace& p) { return elementwise(p, ops::tanh); }},
      {"sigmoid",
       "1 / (1 + exp(-x))",
       {},
       false,
       [](const LayerPlace& p) { return elementwise(p, ops::sigmoid); }},
      {"gelu",
       "x Phi(x)",
       {{.name = "approximate",
         .kind = Kind::text,
         .standard = "none",
         .help = "of Phi",
         .choices = {"none", "tanh"}}},
       false,
       [](const LayerPlace& p) {
         return elementwise(p, p.arguments.text("approximate") == "tanh" ? gelu_tanh : gelu_exact);
       }},
      {"softmax",
       "exp(x) over its sum along an axis",
       {{.name = "dim",
         .kind = Kind::integer,
         .standard = std::int64_t{-1},
         .help = "the axis; 0 is the batch"}},
       false,
       build_softmax},
      {"flatten",
       "merges axes",
       {{.name = "start_dim", .kind = Kind::integer, .standard = one, .help = "the first; 0 is the batch"},
        {.name = "end_dim", .kind = Kind::integer, .standard = std::int64_t{-1}, .help = "the last"}},
       false,
       build_flatten},
      {"unflatten",
       "gives all axes but the batch new extents",
       {{.name = "unflattened_size", .kind = Kind::list, .help = "the extents"}},
       false,
       build_unflatten},
      {"identity", "x, whose gradient is observed under the row's name", {}, false, build_identity},
      {"add",
       "the sum of its inputs; later ones may be (T, features) beside (N, T, features)",
       {},
       true,
       [](const LayerPlace& p) { return joined(p, ops::add); }},
      {"multiply",
       "the product of its inputs, likewise",
       {},
       true,
       [](const LayerPlace& p) { return joined(p, ops::multiply); }},
      {"concat",
       "its inputs one behind the other",
       {{.name = "dim", .kind = Kind::integer, .standard = one, .help = "the axis; 0 is the batch"}},
       true,
       build_concat},
  };
}

}  // namespace

std::int64_t Signal::elements() const {
  return std::accumulate(extents.begin(), extents.end(), std::int64_t{1}, std::multiplies<>());
}

std::string Signal::to_string() const {
  std::string text = rows == 1 ? "(N" : fmt::format("({} N", rows);
  for (const std::int64_t extent : extents) text += fmt::format(", {}", extent);
  return text + ")" + (vocabulary > 0 ? fmt::format(" of {} symbols", vocabulary) : "");
}

std::span<const LayerType> layer_types() {
  static const std::vector<LayerType> types = make_types();
  return types;
}

const LayerType& layer_type(std::string_view name) {
  std::vector<std::string_view> known;
  for (const LayerType& type : layer_types()) {
    if (type.name == name) return type;
    known.push_back(type.name);
  }
  throw std::invalid_argument(fmt::format("there is no type '{}': {}", name, known_are(name, known)));
}

}  // namespace fp16lab::engine::nn
