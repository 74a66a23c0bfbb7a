// fp16lab inspect: one value in every format and rounding mode.
#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "experiments/commands.hpp"
#include "numerics/decimal.hpp"
#include "numerics/format.hpp"
#include "numerics/rounding.hpp"

namespace fp16lab::experiments {
namespace {

using Json = nlohmann::ordered_json;

/// A value as typed, or the exact value of a typed bit pattern.
struct Value {
  std::string text;
  ParsedNumber number;
};

struct Fields {
  std::string bits;  ///< "0x045e"
  int sign = 0;
  std::string exponent;  ///< the stored field, binary
  std::string fraction;
  std::string value_class;  ///< zero, subnormal, normal, infinity, nan
  std::string value;        ///< exact decimal, "inf", "-inf", "nan"
};

struct Rounded {
  Rounding rounding;
  Fields fields;
  std::optional<Decimal> error;     ///< rounded - exact, where both are finite
  std::optional<double> error_ulp;  ///< in units of the format's ulp at the nearest result
};

struct FormatReport {
  std::string name;
  std::string layout;
  std::vector<Rounded> rounded;
  std::optional<std::string> ulp;  ///< where the nearest result is finite
  std::optional<Fields> below, above;
};

template <class F>
std::string hex_of(typename F::Bits bits) {
  return fmt::format("0x{:0{}x}", bits, (F::width + 3) / 4);
}

template <class F>
Fields fields_of(SmallFloat<F> x) {
  Fields fields;
  fields.bits = hex_of<F>(x.bits());
  fields.sign = x.sign() ? 1 : 0;
  fields.exponent =
      fmt::format("{:0{}b}", (x.magnitude() & F::exponent_mask) >> F::fraction_bits, F::exponent_bits);
  fields.fraction = fmt::format("{:0{}b}", x.magnitude() & F::fraction_mask, F::fraction_bits);
  fields.value_class = x.is_nan()         ? "nan"
                       : x.is_infinite()  ? "infinity"
                       : x.is_zero()      ? "zero"
                       : x.is_subnormal() ? "subnormal"
                                          : "normal";
  fields.value = x.is_nan()        ? "nan"
                 : x.is_infinite() ? (x.sign() ? "-inf" : "inf")
                                   : Decimal(decode(x)).to_string();
  return fields;
}

/// The next number towards +infinity (or towards -infinity), zeros of both signs being one number.
template <class F>
SmallFloat<F> neighbour(SmallFloat<F> x, bool up) {
  using Bits = typename F::Bits;
  if (x.is_zero())
    return SmallFloat<F>::from_bits(static_cast<Bits>((up ? 0 : F::sign_mask) | F::min_subnormal));
  if (x.is_infinite() && x.sign() != up) return x;  // nothing lies beyond
  const bool away_from_zero = up != x.sign();
  return SmallFloat<F>::from_bits(static_cast<Bits>(x.bits() + (away_from_zero ? 1 : -1)));
}

template <class F>
FormatReport report_of(const char* name, const Value& value) {
  FormatReport report;
  report.name = name;
  report.layout = fmt::format("1 + {} + {} bits", F::exponent_bits, F::fraction_bits);

  Exact exact = value.number.value.to_exact();
  if (value.number.kind == Exact::Kind::infinite || value.number.kind == Exact::Kind::nan)
    exact.kind = value.number.kind;
  const SmallFloat<F> nearest = round_pack<F>(exact, Rounding::nearest_even);

  std::optional<Decimal> ulp;
  if (nearest.is_finite()) {
    // One unit in the last place at `nearest`: the weight of its lowest significand bit.
    const int exponent = nearest.is_zero() ? F::exponent_of_min_subnormal : decode(nearest).exponent;
    Exact unit;
    unit.kind = Exact::Kind::finite;
    unit.significand = 1;
    unit.exponent = exponent;
    ulp = Decimal(unit);
    report.ulp = ulp->to_string();
  }
  if (!nearest.is_nan()) {
    report.below = fields_of(neighbour(nearest, false));
    report.above = fields_of(neighbour(nearest, true));
  }
  for (const Rounding rounding : all_roundings) {
    const SmallFloat<F> result = round_pack<F>(exact, rounding);
    Rounded rounded{rounding, fields_of(result), std::nullopt, std::nullopt};
    if (result.is_finite() && value.number.kind != Exact::Kind::infinite) {
      rounded.error = Decimal(decode(result)) - value.number.value;
      if (ulp) rounded.error_ulp = rounded.error->to_double() / ulp->to_double();
    }
    report.rounded.push_back(std::move(rounded));
  }
  return report;
}

std::vector<FormatReport> reports_of(const Value& value) {
  return {report_of<Binary16>("FP16", value), report_of<BrainFloat16>("BF16", value),
          report_of<TensorFloat32>("TF32", value), report_of<Binary32>("FP32", value),
          report_of<Fp8E5M2>("E5M2", value)};
}

template <class F>
ParsedNumber number_of_bits(std::uint64_t bits, const std::string& text) {
  if (bits >> F::width != 0)
    throw CommandError(ExitCode::usage, fmt::format("'{}': expected at most {} bits", text, F::width));
  const auto x = SmallFloat<F>::from_bits(static_cast<typename F::Bits>(bits));
  const Exact exact = decode(x);
  ParsedNumber number;
  number.kind = exact.kind;
  if (x.is_finite())
    number.value = Decimal(exact);
  else if (x.sign())
    number.value = number.value.negated();
  return number;
}

/// "f16:0x045e": a bit pattern; anything else is a number.
Value parse_value(const std::string& text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) {
    try {
      return {text, parse_number(text)};
    } catch (const std::invalid_argument& error) {
      throw CommandError(ExitCode::usage, error.what());
    }
  }
  const std::string prefix = text.substr(0, colon);
  std::string_view digits = std::string_view(text).substr(colon + 1);
  if (digits.starts_with("0x") || digits.starts_with("0X")) digits.remove_prefix(2);
  std::uint64_t bits = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), bits, 16);
  if (digits.empty() || error != std::errc{} || end != digits.data() + digits.size())
    throw CommandError(ExitCode::usage,
                       fmt::format("'{}': expected hexadecimal bits, such as f16:0x3c00", text));
  if (prefix == "f16") return {text, number_of_bits<Binary16>(bits, text)};
  if (prefix == "bf16") return {text, number_of_bits<BrainFloat16>(bits, text)};
  if (prefix == "f32") return {text, number_of_bits<Binary32>(bits, text)};
  if (prefix == "e5m2") return {text, number_of_bits<Fp8E5M2>(bits, text)};
  throw CommandError(ExitCode::usage,
                     fmt::format("'{}': expected one of the prefixes f16:, bf16:, f32:, e5m2:", text));
}

std::string exact_text(const Value& value) {
  if (value.number.kind == Exact::Kind::nan) return "nan";
  if (value.number.kind == Exact::Kind::infinite) return value.number.value.negative() ? "-inf" : "inf";
  return value.number.value.to_string();
}

Json json_of(const Fields& fields) {
  return {{"bits", fields.bits},         {"sign", fields.sign},         {"exponent", fields.exponent},
          {"fraction", fields.fraction}, {"class", fields.value_class}, {"value", fields.value}};
}

Json json_of(const Value& value) {
  Json json = {{"input", value.text}, {"exact", exact_text(value)}};
  for (const FormatReport& report : reports_of(value)) {
    Json format = {{"format", report.name}, {"ulp", report.ulp ? Json(*report.ulp) : Json()}};
    for (const Rounded& rounded : report.rounded) {
      Json entry = json_of(rounded.fields);
      entry["error"] = rounded.error ? Json(rounded.error->to_string()) : Json();
      entry["error_ulp"] = rounded.error_ulp ? Json(*rounded.error_ulp) : Json();
      format["rounding"][name_of(rounded.rounding)] = std::move(entry);
    }
    format["below"] = report.below ? json_of(*report.below) : Json();
    format["above"] = report.above ? json_of(*report.above) : Json();
    json["formats"].push_back(std::move(format));
  }
  return json;
}

std::string error_text(const Rounded& rounded) {
  if (!rounded.error) return "";
  if (rounded.error->is_zero()) return "exact";
  return fmt::format("error {} ({:+.4g} ulp)", rounded.error->to_string(), rounded.error_ulp.value_or(0));
}

void print_text(const Value& value) {
  const std::string exact = exact_text(value);
  fmt::print("{}{}\n", value.text, exact == value.text ? "" : " = " + exact);
  for (const FormatReport& report : reports_of(value)) {
    fmt::print("\n  {} ({})\n", report.name, report.layout);
    for (const Rounded& rounded : report.rounded)
      fmt::print("    {:<12}  {}  {} {} {}  {:<9}  {}  {}\n", name_of(rounded.rounding), rounded.fields.bits,
                 rounded.fields.sign, rounded.fields.exponent, rounded.fields.fraction,
                 rounded.fields.value_class, rounded.fields.value, error_text(rounded));
    if (report.ulp) fmt::print("    ulp           {}\n", *report.ulp);
    if (report.below) fmt::print("    next below    {}  {}\n", report.below->bits, report.below->value);
    if (report.above) fmt::print("    next above    {}  {}\n", report.above->bits, report.above->value);
  }
}

}  // namespace

ExitCode run_inspect(const InspectCommand& command) {
  std::vector<Value> values;
  for (const std::string& text : command.values) values.push_back(parse_value(text));
  if (command.json) {
    Json json = Json::array();
    for (const Value& value : values) json.push_back(json_of(value));
    fmt::print("{}\n", json.dump(2));
    return ExitCode::ok;
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i > 0) fmt::print("\n");
    print_text(values[i]);
  }
  return ExitCode::ok;
}

}  // namespace fp16lab::experiments
