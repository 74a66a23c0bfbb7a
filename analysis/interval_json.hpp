// Bounds as JSON: [lower, upper]. Internal to analysis/.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "numerics/histogram/zones.hpp"

namespace fp16lab::analysis {

using Json = nlohmann::ordered_json;

inline Json interval(const CountInterval& count) { return Json::array({count.lower, count.upper}); }
inline Json interval(const MassInterval& mass) { return Json::array({mass.lower, mass.upper}); }
/// null: unknown.
inline Json interval(const std::optional<MassInterval>& mass) {
  return mass ? interval(*mass) : Json(nullptr);
}

}  // namespace fp16lab::analysis
