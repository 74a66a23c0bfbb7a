#include "engine/nn/network/layer_types.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <stdexcept>
#include <utility>

#include "engine/autograd/ops.hpp"
#include "engine/nn/models/mlp.hpp"
#include "engine/nn/network/layer_builders.hpp"
#include "numerics/formats/fp32_range.hpp"
#include "numerics/text/nearest_name.hpp"

namespace fp16lab::engine::nn {
namespace {

/// What the integers of an argument may be.
struct Bounds {
  std::int64_t least, most;
};

Bounds bounds_of(const LayerArgument& argument) {
  switch (argument.kind) {
    case ArgumentKind::axis:
      return {-Shape::max_rank, Shape::max_rank - 1};
    case ArgumentKind::sizes:
      return {0, argument.most};
    default:
      return {1, argument.most};
  }
}

bool within(const Bounds& bounds, const LayerValue& value) {
  const auto* const one = std::get_if<std::int64_t>(&value);
  return one != nullptr && *one >= bounds.least && *one <= bounds.most;
}

bool all_within(const Bounds& bounds, const LayerValue& value) {
  const auto* const list = std::get_if<std::vector<std::int64_t>>(&value);
  return list != nullptr &&
         std::ranges::all_of(*list, [&](std::int64_t x) { return within(bounds, LayerValue(x)); });
}

bool one_or_two_within(const Bounds& bounds, const LayerValue& value) {
  const auto* const list = std::get_if<std::vector<std::int64_t>>(&value);
  return list == nullptr ? within(bounds, value)
                         : !list->empty() && list->size() <= 2 && all_within(bounds, value);
}

std::optional<double> number_of(const LayerValue& value) {
  if (const auto* real = std::get_if<double>(&value)) return *real;
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return static_cast<double>(*integer);
  return std::nullopt;
}

std::optional<Initialization> initialization_called(const LayerValue& value) {
  const auto* name = std::get_if<std::string>(&value);
  return name == nullptr ? std::nullopt : enumerator_called<Initialization>(*name);
}

bool fits(const LayerArgument& argument, const LayerValue& value) {
  switch (argument.kind) {
    case ArgumentKind::count:
    case ArgumentKind::axis:
      return within(bounds_of(argument), value);
    case ArgumentKind::counts:
    case ArgumentKind::sizes:
      return one_or_two_within(bounds_of(argument), value);
    case ArgumentKind::list:
      return all_within(bounds_of(argument), value);
    case ArgumentKind::real: {
      const std::optional<double> number = number_of(value);
      return number && fp32_holds(*number);
    }
    case ArgumentKind::boolean:
      return std::holds_alternative<bool>(value);
    case ArgumentKind::text:
      return std::holds_alternative<std::string>(value) &&
             (argument.choices.empty() ||
              std::ranges::find(argument.choices, std::get<std::string>(value)) != argument.choices.end());
    case ArgumentKind::initialization: {
      const std::optional<double> deviation = number_of(value);
      return initialization_called(value) || (deviation && fp32_holds(*deviation) && *deviation > 0);
    }
  }
  throw std::logic_error("unknown kind of argument");
}

using namespace layers;
using Kind = ArgumentKind;

Variable gelu_exact(const Variable& x) { return ops::gelu(x); }
Variable gelu_tanh(const Variable& x) { return ops::gelu(x, ops::GeluKind::tanh); }

LayerArgument init_argument() {
  return {.name = "init",
          .kind = Kind::initialization,
          .help = "initial weights; default: model.init",
          .optional = true};
}
std::vector<LayerArgument> pool_arguments() {
  return {{.name = "kernel_size", .kind = Kind::counts, .help = "rows and columns"},
          {.name = "stride", .kind = Kind::counts, .help = "default: kernel_size", .optional = true},
          {.name = "padding", .kind = Kind::sizes, .standard = 0, .help = "at most half of the kernel"}};
}
/// The arguments of both convolutions, and `more`.
std::vector<LayerArgument> filter_arguments(std::vector<LayerArgument> more) {
  const LayerValue zero = std::int64_t{0}, one = std::int64_t{1};
  std::vector<LayerArgument> all{
      {.name = "out_channels", .kind = Kind::count, .help = "filters"},
      {.name = "kernel_size", .kind = Kind::counts, .help = "rows and columns"},
      {.name = "stride", .kind = Kind::counts, .standard = one, .help = "vertical and horizontal"},
      {.name = "padding", .kind = Kind::sizes, .standard = zero, .help = "zeros on each side"},
      {.name = "dilation", .kind = Kind::counts, .standard = one, .help = "distance of the taps"},
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
  return {
      {.name = "eps", .kind = Kind::real, .standard = 1e-5, .help = "added to the variance"},
      {.name = "momentum", .kind = Kind::real, .standard = 0.1, .help = "rate of the running statistics"}};
}

std::vector<std::string> activation_names() {
  const auto names = names_of(Activation{});
  return {names.begin(), names.end()};
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
       "linear layers fc1, fc2, ... with an activation between them; without a name, they replace the row "
       "itself",
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
       "means of equal windows, output_size of them",
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
        {.name = "num_layers", .kind = Kind::count, .standard = one, .help = "depth", .most = 1024},
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
         .help = "probability of dropping an attention weight, in [0, 1)"},
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
         .help = "approximation of Phi",
         .choices = {"none", "tanh"}}},
       false,
       [](const LayerPlace& p) {
         return elementwise(p, p.arguments.text("approximate") == "tanh" ? gelu_tanh : gelu_exact);
       }},
      {"softmax",
       "exp(x) over its sum along an axis",
       {{.name = "dim",
         .kind = Kind::axis,
         .standard = std::int64_t{-1},
         .help = "the axis; 0 is the batch"}},
       false,
       build_softmax},
      {"flatten",
       "merges axes",
       {{.name = "start_dim", .kind = Kind::axis, .standard = one, .help = "the first; 0 is the batch"},
        {.name = "end_dim", .kind = Kind::axis, .standard = std::int64_t{-1}, .help = "the last"}},
       false,
       build_flatten},
      {"unflatten",
       "gives all axes but the batch new extents",
       {{.name = "unflattened_size", .kind = Kind::list, .help = "the extents"}},
       false,
       build_unflatten},
      {"identity", "x; under a name, its gradient is observed", {}, false, build_identity},
      {"add",
       "the sum of its inputs; later ones may be (T, features) with (N, T, features)",
       {},
       true,
       [](const LayerPlace& p) { return joined(p, ops::add); }},
      {"multiply",
       "the product of its inputs, likewise",
       {},
       true,
       [](const LayerPlace& p) { return joined(p, ops::multiply); }},
      {"concat",
       "its inputs one after the other",
       {{.name = "dim", .kind = Kind::axis, .standard = one, .help = "the axis; 0 is the batch"}},
       true,
       build_concat},
  };
}

}  // namespace

std::string text_of(const LayerValue& value) {
  struct Writer {
    std::string operator()(bool x) const { return x ? "true" : "false"; }
    std::string operator()(std::int64_t x) const { return fmt::format("{}", x); }
    std::string operator()(double x) const {
      const std::string text = fmt::format("{}", x);
      return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
    }
    std::string operator()(const std::string& x) const { return '"' + x + '"'; }
    std::string operator()(const std::vector<std::int64_t>& x) const { return fmt::format("{}", x); }
  };
  return std::visit(Writer{}, value);
}

std::string expectation_of(const LayerArgument& argument) {
  const auto [least, most] = bounds_of(argument);
  const std::string bounds = fmt::format("from {} to {}", least, most);
  switch (argument.kind) {
    case ArgumentKind::count:
    case ArgumentKind::axis:
      return "an integer " + bounds;
    case ArgumentKind::counts:
    case ArgumentKind::sizes:
      return "an integer or a pair of them, " + bounds;
    case ArgumentKind::list:
      return "a list of integers " + bounds;
    case ArgumentKind::real:
      return "a number that FP32 holds";
    case ArgumentKind::boolean:
      return "true or false";
    case ArgumentKind::text:
      return argument.choices.empty() ? "text" : fmt::format("one of {}", fmt::join(argument.choices, ", "));
    case ArgumentKind::initialization:
      return "one of " + known_names<Initialization>() + ", or a normal distribution's deviation above 0";
  }
  throw std::logic_error("unknown kind of argument");
}

LayerArguments::LayerArguments(std::string_view type, std::span<const LayerArgument> known,
                               const LayerRow& row)
    : type_(type), known_(known), row_(&row) {
  for (const auto& [name, value] : row.arguments) {
    const auto argument = std::ranges::find(known, name, &LayerArgument::name);
    if (argument == known.end()) {
      std::vector<std::string_view> names;
      for (const LayerArgument& one : known) names.push_back(one.name);
      throw std::invalid_argument(
          fmt::format("{} has no argument '{}': {}; every row may have name, input, to_float and frozen",
                      type, name, names.empty() ? "it has none" : known_are(name, names)));
    }
    if (!fits(*argument, value))
      throw std::invalid_argument(
          fmt::format("{} = {}: expected {}", name, text_of(value), expectation_of(*argument)));
  }
  for (const LayerArgument& argument : known)
    if (!argument.standard && !argument.optional && given(argument.name) == nullptr)
      throw std::invalid_argument(
          fmt::format("{} needs {}: {}", type, argument.name, expectation_of(argument)));
}

const LayerValue* LayerArguments::given(std::string_view name) const {
  for (const auto& [given_name, value] : row_->arguments)
    if (given_name == name) return &value;
  return nullptr;
}

const LayerValue& LayerArguments::value(std::string_view name) const {
  if (const LayerValue* const own = given(name)) return *own;
  const auto argument = std::ranges::find(known_, name, &LayerArgument::name);
  if (argument == known_.end() || !argument->standard)
    throw std::logic_error(fmt::format("{}: argument '{}' is not listed with a value", type_, name));
  return *argument->standard;
}

std::int64_t LayerArguments::integer(std::string_view name) const {
  return std::get<std::int64_t>(value(name));
}

std::array<std::int64_t, 2> LayerArguments::pair(std::string_view name) const {
  const LayerValue& both = value(name);
  if (const auto* one = std::get_if<std::int64_t>(&both)) return {*one, *one};
  const auto& list = std::get<std::vector<std::int64_t>>(both);
  return {list.front(), list.back()};
}

std::vector<std::int64_t> LayerArguments::list(std::string_view name) const {
  return std::get<std::vector<std::int64_t>>(value(name));
}

float LayerArguments::real(std::string_view name) const {
  return static_cast<float>(number_of(value(name)).value());
}

bool LayerArguments::boolean(std::string_view name) const { return std::get<bool>(value(name)); }

std::string LayerArguments::text(std::string_view name) const { return std::get<std::string>(value(name)); }

RowInitialization LayerArguments::initialization(std::string_view name, RowInitialization otherwise) const {
  const LayerValue* const own = given(name);
  if (own == nullptr) return otherwise;
  if (const std::optional<Initialization> rule = initialization_called(*own)) return {.rule = *rule};
  return {.deviation = static_cast<float>(number_of(*own).value())};
}

std::int64_t Signal::elements() const { return product_of(extents); }

Shape Signal::shape(std::int64_t batch) const {
  std::vector<std::int64_t> all{(Extent(batch) * rows).value()};
  all.insert(all.end(), extents.begin(), extents.end());
  return Shape(all);
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
