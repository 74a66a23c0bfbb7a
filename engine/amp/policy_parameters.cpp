#include "engine/amp/policy_parameters.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "engine/amp/unmet_expectation.hpp"
#include "numerics/formats/fp32_range.hpp"

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
               : fmt::format("{}", value);
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

std::string nearest_fp32(double value) {
  const auto [below, above] = fp32_neighbours(value);
  // In FP64's digits: those of FP32 would show 0.1 as 0.1.
  return fmt::format("an FP32 number; the nearest ones are {} and {}", static_cast<double>(below),
                     static_cast<double>(above));
}

std::string unmet_expectation(const PolicyParameter& parameter, double value) {
  bool good = std::isfinite(value) && in_range(parameter, value);
  if (parameter.kind == PolicyParameter::Kind::real)
    good = good && fp32_holds(value) && in_range(parameter, static_cast<double>(static_cast<float>(value)));
  if (parameter.kind == PolicyParameter::Kind::integer) good = good && std::trunc(value) == value;
  if (parameter.kind == PolicyParameter::Kind::boolean) good = good && (value == 0.0 || value == 1.0);
  if (!good)
    return expectation_of(parameter) +
           (in_range(parameter, value) && std::isfinite(value) && !fp32_holds(value) ? ", which FP32 holds"
                                                                                     : "");
  if (parameter.name == "initial_scale" && static_cast<double>(static_cast<float>(value)) != value)
    return nearest_fp32(value);
  return "";
}

void check_value(const PolicyParameter& parameter, double value) {
  if (const std::string expected = unmet_expectation(parameter, value); !expected.empty())
    throw std::invalid_argument(fmt::format("scaler.{} = {}: must be {}", parameter.name, value, expected));
}

double PolicyValues::real(std::string_view name) const {
  const auto found = values_.find(name);
  if (found == values_.end())
    throw std::out_of_range(fmt::format("the policy declares no parameter \"{}\"", name));
  return found->second;
}

Guards guards_of(const PolicyValues& values) {
  const double ceiling = values.real("max_scale");
  return {.min_scale = values.real("min_scale"),
          .max_scale = ceiling == 0 ? std::numeric_limits<double>::infinity() : ceiling,
          .finite_guard = values.enabled("finite_guard") ? 1u : 0u};
}

}  // namespace fp16lab::engine::amp
