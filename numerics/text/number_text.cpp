#include "numerics/text/number_text.hpp"

#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace fp16lab {

nlohmann::ordered_json json_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

std::string csv_number(double value) { return std::isnan(value) ? "nan" : fmt::format("{}", value); }

}  // namespace fp16lab
