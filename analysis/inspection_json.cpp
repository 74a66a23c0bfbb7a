// Inspections as JSON.
#include <nlohmann/json.hpp>

#include "analysis/inspection.hpp"
#include "numerics/text/named_enum.hpp"

namespace fp16lab::analysis {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const Code& code) {
  return {{"bits", code.hex},
          {"sign", code.sign},
          {"exponent", code.exponent_bits},
          {"fraction", code.fraction_bits},
          {"exponent_field", code.exponent},
          {"fraction_field", code.fraction},
          {"class", code.kind},
          {"formula", code.formula.empty() ? Json() : Json(code.formula)},
          {"value", code.value},
          {"short", code.short_value}};
}

Json json_of(const FormatReport& report) {
  const RuntimeFormat& format = report.format.format;
  Json json = {{"format", report.format.name},
               {"exponent_bits", format.exponent_bits},
               {"precision", format.precision},
               {"encoding", name_of(format.encoding)},
               {"has_infinity", format.has_infinity},
               {"ulp", report.ulp_exponent ? Json(report.ulp().to_string()) : Json()},
               {"ulp_exponent", report.ulp_exponent ? Json(*report.ulp_exponent) : Json()},
               {"tie", report.tie}};
  for (const RoundedValue& rounded : report.rounded) {
    Json entry = json_of(rounded.code);
    entry["error"] = rounded.error ? Json(rounded.error->to_string()) : Json();
    entry["error_ulp"] = rounded.error_ulp ? Json(rounded.error_ulp->to_double()) : Json();
    entry["flags"] = raised(rounded.flags);
    json["rounding"][name_of(rounded.rounding)] = std::move(entry);
  }
  if (report.stochastic)
    json["stochastic"] = {{"toward_zero", json_of(report.stochastic->toward_zero)},
                          {"away", json_of(report.stochastic->away)},
                          {"probability_away", report.stochastic->probability_away}};
  json["below"] = report.below ? json_of(*report.below) : Json();
  json["above"] = report.above ? json_of(*report.above) : Json();
  return json;
}

Json json_of(const Inspection& inspection) {
  const auto& [value, reports] = inspection;
  Json json = {{"input", value.text}, {"exact", value.exact()}};
  if (!value.nan.empty()) json["nan"] = value.nan;
  for (const FormatReport& report : reports) json["formats"].push_back(json_of(report));
  return json;
}

}  // namespace

std::string json_of(std::span<const Inspection> inspections, int indent) {
  Json json = Json::array();
  for (const Inspection& inspection : inspections) json.push_back(json_of(inspection));
  return json.dump(indent);
}

}  // namespace fp16lab::analysis
