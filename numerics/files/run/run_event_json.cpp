// JSON side of the run folder: overflows and their culprits.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "numerics/files/run/run_json_values.hpp"
#include "numerics/files/run/run_text.hpp"
#include "numerics/text/nesting.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab {

using namespace run_json;

std::string_view name_of(OverflowKind kind) {
  constexpr std::array<std::string_view, 3> names = {"gradient", "loss", "both"};
  return names[static_cast<std::size_t>(kind)];
}

std::string to_json_line(const OverflowRow& row) {
  Json json = {{"step", row.step},
               {"kind", name_of(row.kind)},
               {"loss_scale", json_number(row.loss_scale)},
               {"optimizers", row.optimizers},
               {"parameters", row.parameters}};
  if (row.rescue)
    json["rescue"] = {{"attempts", row.rescue->attempts},
                      {"loss_scale", json_number(row.rescue->loss_scale)},
                      {"rescued", row.rescue->rescued}};
  return dump(json, -1);
}

OverflowRow parse_overflow_row(std::string_view line) {
  const Json json = parse_json(line);
  OverflowRow row;
  row.step = get_count(json, "step");
  const std::string kind = get_string(json, "kind");
  if (kind == name_of(OverflowKind::gradient))
    row.kind = OverflowKind::gradient;
  else if (kind == name_of(OverflowKind::loss))
    row.kind = OverflowKind::loss;
  else if (kind == name_of(OverflowKind::both))
    row.kind = OverflowKind::both;
  else
    throw std::runtime_error(fmt::format("'kind' is '{}'; known are gradient, loss, both", kind));
  row.loss_scale = get_number(json, "loss_scale");
  row.optimizers = get_strings(json, "optimizers");
  row.parameters = get_strings(json, "parameters");
  if (json.contains("rescue")) {
    const Json& rescue = member(json, "rescue");
    row.rescue = {.attempts = get_count(rescue, "attempts"),
                  .loss_scale = get_number(rescue, "loss_scale"),
                  .rescued = get_flag(rescue, "rescued")};
  }
  return row;
}

namespace {

constexpr std::array<std::string_view, 2> pass_names = {"forward", "backward"};
constexpr std::array<std::string_view, 6> cause_names = {"operation", "infinity", "parameter",
                                                         "data",      "constant", "loss_scale"};
constexpr std::array<std::string_view, 5> verdict_names = {"fp32_cast", "lower_scale", "model", "data",
                                                           "unknown"};

/// The enumerator whose name object[key] is.
template <class Enum, std::size_t count>
Enum get_named(const Json& object, std::string_view key, const std::array<std::string_view, count>& names) {
  const std::string name = get_string(object, key);
  const auto known = std::find(names.begin(), names.end(), name);
  if (known == names.end()) throw std::runtime_error(fmt::format("'{}' is '{}'", key, name));
  return static_cast<Enum>(known - names.begin());
}

std::vector<std::int64_t> get_shape(const Json& object, std::string_view key) {
  std::vector<std::int64_t> shape;
  for (const Json& extent : get_array(object, key))
    shape.push_back(static_cast<std::int64_t>(as_count(extent, key)));
  return shape;
}

Json operand_json(const CulpritOperandRow& operand) {
  return {{"name", operand.name},
          {"dtype", name_of(operand.dtype)},
          {"shape", operand.shape},
          {"smallest", json_number(operand.smallest)},
          {"greatest", json_number(operand.greatest)},
          {"histogram", histogram_json(operand.histogram)}};
}

/// The element's place by axis, outermost first.
Json index_json(std::uint64_t element, const std::vector<std::int64_t>& shape) {
  std::vector<std::uint64_t> index(shape.size());
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    const auto extent = static_cast<std::uint64_t>(shape[axis] > 0 ? shape[axis] : 1);
    index[axis] = element % extent;
    element /= extent;
  }
  return index;
}

}  // namespace

std::string_view name_of(CulpritPass pass) { return pass_names[static_cast<std::size_t>(pass)]; }
std::string_view name_of(CulpritCause cause) { return cause_names[static_cast<std::size_t>(cause)]; }
std::string_view name_of(CulpritVerdict verdict) { return verdict_names[static_cast<std::size_t>(verdict)]; }

std::string to_json_line(const CulpritRow& row) {
  Json operands = Json::array();
  for (const CulpritOperandRow& operand : row.operands) operands.push_back(operand_json(operand));
  const Json json = {{"step", row.step},
                     {"pass", name_of(row.pass)},
                     {"cause", name_of(row.cause)},
                     {"op", row.op},
                     {"part", row.part},
                     {"layer", row.layer},
                     {"tensor", row.tensor},
                     {"dtype", name_of(row.dtype)},
                     {"shape", row.shape},
                     {"micro_batch", row.micro_batch},
                     {"loss_scale", json_number(row.loss_scale)},
                     {"element", row.element},
                     {"index", index_json(row.element, row.shape)},
                     {"value", json_number(row.value)},
                     {"nonfinite", row.nonfinite},
                     {"wide_value", row.wide_value ? json_number(*row.wide_value) : Json(nullptr)},
                     {"wide_greatest", json_number(row.wide_greatest)},
                     {"wide", row.wide ? histogram_json(*row.wide) : Json(nullptr)},
                     {"operands", std::move(operands)},
                     {"reached", row.reached},
                     {"verdict", name_of(row.verdict)},
                     {"black", row.black},
                     {"excluded", row.excluded},
                     {"binades", row.binades},
                     {"finite_scale", row.finite_scale ? json_number(*row.finite_scale) : Json(nullptr)},
                     {"advice", row.advice}};
  return dump(json, -1);
}

CulpritRow parse_culprit_row(std::string_view line) {
  const Json json = parse_json(line);
  CulpritRow row;
  row.step = get_count(json, "step");
  row.pass = get_named<CulpritPass>(json, "pass", pass_names);
  row.cause = get_named<CulpritCause>(json, "cause", cause_names);
  row.op = get_string(json, "op");
  row.part = get_string(json, "part");
  row.layer = get_string(json, "layer");
  row.tensor = get_string(json, "tensor");
  row.dtype = get_dtype(json, "dtype");
  row.shape = get_shape(json, "shape");
  row.micro_batch = get_count(json, "micro_batch");
  row.loss_scale = get_number(json, "loss_scale");
  row.element = get_count(json, "element");
  row.value = get_number(json, "value");
  row.nonfinite = get_count(json, "nonfinite");
  if (!member(json, "wide_value").is_null()) row.wide_value = get_number(json, "wide_value");
  row.wide_greatest = get_number(json, "wide_greatest");
  if (!member(json, "wide").is_null()) row.wide = histogram_of(json, "wide");
  for (const Json& operand : get_array(json, "operands"))
    row.operands.push_back({.name = get_string(operand, "name"),
                            .dtype = get_dtype(operand, "dtype"),
                            .shape = get_shape(operand, "shape"),
                            .smallest = get_number(operand, "smallest"),
                            .greatest = get_number(operand, "greatest"),
                            .histogram = histogram_of(operand, "histogram")});
  row.reached = get_flag(json, "reached");
  row.verdict = get_named<CulpritVerdict>(json, "verdict", verdict_names);
  row.black = get_string(json, "black");
  row.excluded = get_string(json, "excluded");
  row.binades = get_count(json, "binades");
  if (json.contains("finite_scale") && !member(json, "finite_scale").is_null())
    row.finite_scale = get_number(json, "finite_scale");
  row.advice = get_string(json, "advice");
  return row;
}

}  // namespace fp16lab
