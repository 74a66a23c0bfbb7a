#include "engine/nn/network/layer_arguments.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

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

}  // namespace fp16lab::engine::nn
