#include "engine/amp/policy_parameters.hpp"

#include <fmt/format.h>

#include <cmath>
#include <stdexcept>

namespace fp16lab::engine::amp {
namespace {

bool in_range(const PolicyParameter& parameter, double value) {
  return (parameter.minimum_excluded ? value > parameter.minimum : value >= parameter.minimum) &&
         (parameter.maximum_excluded ? value < parameter.maximum : value <= parameter.maximum);
}

}  // namespace

std::string expectation_of(const PolicyParameter& parameter) {
  if (parameter.kind == PolicyParameter::Kind::boolean) return "true or false";
  const auto bound = [](double value) {
    return std::isfinite(value) && value != 0 && std::abs(std::log2(std::abs(value))) >= 31 &&
                   std::exp2(std::round(std::log2(value))) == value
               ? fmt::format("2^{:g}", std::log2(value))
               : fmt::format("{:.17g}", value);
  };
  std::string text = parameter.kind == PolicyParameter::Kind::integer ? "an integer" : "a finite number";
  if (std::isfinite(parameter.minimum))
    text += fmt::format(" {} {}", parameter.minimum_excluded ? "above" : "from", bound(parameter.minimum));
  const bool closed = !parameter.minimum_excluded && !parameter.maximum_excluded;  // "from 0 up to 1"
  if (std::isfinite(parameter.maximum))
    text += fmt::format(" {}{} {}", std::isfinite(parameter.minimum) && !closed ? "and " : "",
                        parameter.maximum_excluded ? "below" : "up to", bound(parameter.maximum));
  return text;
}

void check_value(const PolicyParameter& parameter, double value) {
  const auto narrow = static_cast<double>(static_cast<float>(value));
  bool good = std::isfinite(value) && in_range(parameter, value);
  if (parameter.kind == PolicyParameter::Kind::real)
    good = good && std::isfinite(narrow) && in_range(parameter, narrow);
  if (parameter.kind == PolicyParameter::Kind::integer) good = good && std::trunc(value) == value;
  if (parameter.kind == PolicyParameter::Kind::boolean) good = good && (value == 0.0 || value == 1.0);
  if (!good)
    throw std::invalid_argument(
        fmt::format("scaler.{} = {}: must be {}", parameter.name, value, expectation_of(parameter)));
  if (parameter.name == "initial_scale" && narrow != value)
    throw std::invalid_argument(fmt::format(
        "scaler.initial_scale = {}: must be an FP32 number; the nearest one is {}", value, narrow));
}

double PolicyValues::real(std::string_view name) const {
  const auto found = values_.find(name);
  if (found == values_.end())
    throw std::out_of_range(fmt::format("the policy declares no parameter \"{}\"", name));
  return found->second;
}

}  // namespace fp16lab::engine::amp
