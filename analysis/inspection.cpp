#include "analysis/inspection.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <stdexcept>

#include "numerics/formats/dtype.hpp"
#include "numerics/formats/dtype_spelling.hpp"
#include "numerics/text/named_enum.hpp"
#include "numerics/text/nearest_name.hpp"

namespace fp16lab::analysis {
namespace {

[[noreturn]] void refuse(const std::string& message) { throw std::invalid_argument(message); }

std::vector<Rounding> every_rounding() {
  std::vector<Rounding> all(std::begin(all_roundings), std::end(all_roundings));
  all.push_back(Rounding::stochastic);
  return all;
}

/// "6,10" or "4,4,numbers"; nothing for a text that does not begin with a digit. Errors quote `typed`.
std::optional<NamedFormat> parse_own_format(const std::string& text, const std::string& typed) {
  if (text.empty() || std::isdigit(static_cast<unsigned char>(text.front())) == 0) return std::nullopt;
  const char* const end = text.data() + text.size();
  int exponent_bits = 0;
  int precision = 0;
  const auto first = std::from_chars(text.data(), end, exponent_bits);
  if (first.ec == std::errc{} && first.ptr != end && *first.ptr == ',') {
    const auto second = std::from_chars(first.ptr + 1, end, precision);
    const std::string_view rest(second.ptr, static_cast<std::size_t>(end - second.ptr));
    const std::optional<Encoding> encoding =
        rest.empty() ? Encoding::ieee : enumerator_called<Encoding>(rest.substr(1));
    if (second.ec == std::errc{} && encoding && (rest.empty() || rest.front() == ',')) {
      try {
        return NamedFormat{text, text, RuntimeFormat(exponent_bits, precision, *encoding)};
      } catch (const std::invalid_argument& error) {
        refuse(fmt::format("'{}': {}", typed, error.what()));
      }
    }
  }
  refuse(fmt::format(
      "'{}': expected EXPONENT_BITS,PRECISION, such as 6,10, and perhaps ,ENCODING: {}, such as 4,4,numbers",
      typed, known_names<Encoding>()));
}

std::optional<NamedFormat> find_format(const std::string& text, const std::string& typed) {
  if (const std::optional<DType> dtype = dtype_spelled<is_floating>(text))
    for (const NamedFormat& format : named_formats())
      if (format.prefix == name_of(*dtype)) return format;
  return parse_own_format(text, typed);
}

std::string formula_of(const RuntimeFormat& format, const Code& code) {
  const std::string sign = format.has_sign ? fmt::format("(-1)^{} ", code.sign) : "";
  const std::uint64_t one = format.fraction_mask + 1;  // the fraction's unit is 1/one
  if (code.exponent == 0 && format.has_zero)
    return fmt::format("{}2^({}) ({}/{})", sign, format.emin, code.fraction, one);
  const std::string power = fmt::format("{}2^({}-{})", sign, code.exponent, format.bias);
  return one == 1 ? power : fmt::format("{} (1+{}/{})", power, code.fraction, one);
}

Code code_of(const RuntimeFormat& format, std::uint64_t bits) {
  const Exact exact = format.decode(bits);
  Code code;
  code.bits = bits;
  code.hex = fmt::format("0x{:0{}x}", bits, (format.width + 3) / 4);
  code.sign = exact.sign ? 1 : 0;
  code.exponent = (bits & format.exponent_mask) >> format.fraction_bits;
  code.fraction = bits & format.fraction_mask;
  code.exponent_bits = fmt::format("{:0{}b}", code.exponent, format.exponent_bits);
  if (format.fraction_bits > 0)
    code.fraction_bits = fmt::format("{:0{}b}", code.fraction, format.fraction_bits);
  switch (exact.kind) {
    case Exact::Kind::nan:
      code.kind = code.value = code.short_value = "nan";
      return code;
    case Exact::Kind::infinite:
      code.kind = "infinity";
      code.value = code.short_value = exact.sign ? "-inf" : "inf";
      return code;
    case Exact::Kind::zero:
      code.kind = "zero";
      break;
    case Exact::Kind::finite:
      code.kind = code.exponent == 0 && format.has_zero ? "subnormal" : "normal";
      break;
  }
  const Decimal value(exact);
  code.formula = formula_of(format, code);
  code.value = value.to_string();
  code.short_value = shortest_text(format, bits);
  return code;
}

std::uint64_t round_with(const RuntimeFormat& format, const Exact& exact, std::uint32_t random_bits) {
  ArithmeticOptions options = Rounding::stochastic;
  options.random_bits = random_bits;
  return format.round(exact, options);
}

StochasticRounding stochastic_rounding(const RuntimeFormat& format, const Exact& exact) {
  const std::uint64_t low = round_with(format, exact, 0);
  const std::uint64_t high = round_with(format, exact, 0xffffffffu);
  StochasticRounding result{code_of(format, low), code_of(format, high), 0};
  if (low == high) return result;
  // The result is monotonic in the random word: bisect for the first one that goes away from zero.
  std::uint64_t stays = 0;
  std::uint64_t goes = 0xffffffffu;
  while (goes - stays > 1) {
    const std::uint64_t middle = (stays + goes) / 2;
    (round_with(format, exact, static_cast<std::uint32_t>(middle)) == low ? stays : goes) = middle;
  }
  constexpr double words = 4294967296.0;
  result.probability_away = (words - static_cast<double>(goes)) / words;
  return result;
}

/// Half an ulp beyond the next number toward zero; an ulp as if larger numbers than the largest followed.
bool is_tie(const RuntimeFormat& format, const Decimal& value, const Code& toward_zero) {
  const Exact low = format.decode(toward_zero.bits);
  const Decimal rest = value.magnitude() - Decimal(low).magnitude();
  const int ulp = low.kind == Exact::Kind::zero ? format.exponent_of_min_subnormal : low.exponent;
  return (rest - Decimal(Exact{Exact::Kind::finite, false, 1, ulp - 1, false})).is_zero();
}

}  // namespace

const std::vector<NamedFormat>& named_formats() {
  static const std::vector<NamedFormat> formats = [] {
    std::vector<NamedFormat> list;
    for (const DType dtype : dtypes<is_floating>)
      visit_dtype<is_floating>(dtype, [&](auto row) {
        using F = typename decltype(row)::Format;
        list.push_back({title_of(dtype), std::string(row.name), RuntimeFormat::of<F>()});
      });
    return list;
  }();
  return formats;
}

std::vector<NamedFormat> usual_formats() {
  std::vector<NamedFormat> list;
  for (const NamedFormat& format : named_formats()) {
    const DType dtype = *dtype_called<is_floating>(format.prefix);
    if (!is_byte_format(dtype) || is_fp8(dtype) || dtype == DType::e2m1) list.push_back(format);
  }
  return list;
}

NamedFormat parse_format(const std::string& text) {
  if (std::optional<NamedFormat> format = find_format(text, text)) return *format;
  std::vector<std::string> known;
  for (const NamedFormat& format : named_formats()) known.push_back(format.name);
  refuse(fmt::format("unknown format '{}': expected one of {}, or EXPONENT_BITS,PRECISION{}", text,
                     fmt::join(known, ", "), did_you_mean(text, known)));
}

std::vector<std::string> rounding_names() {
  std::vector<std::string> names;
  for (const Rounding rounding : every_rounding()) names.emplace_back(name_of(rounding));
  return names;
}

Rounding parse_rounding(const std::string& text) {
  for (const Rounding rounding : every_rounding())
    if (text == name_of(rounding)) return rounding;
  const std::vector<std::string> known = rounding_names();
  refuse(fmt::format("unknown rounding '{}': expected one of {}{}", text, fmt::join(known, ", "),
                     did_you_mean(text, known)));
}

std::string InspectedValue::exact() const {
  if (number.kind == Exact::Kind::nan) return "nan";
  if (number.kind == Exact::Kind::infinite) return number.value.negative() ? "-inf" : "inf";
  return number.value.to_string();
}

InspectedValue parse_value(const std::string& text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) {
    return {text, parse_number(text), "", false};
  }
  const std::optional<NamedFormat> format = find_format(text.substr(0, colon), text);
  if (!format) {
    std::string known;
    for (const NamedFormat& named : named_formats()) known += named.prefix + ":, ";
    refuse(fmt::format("'{}': expected one of the prefixes {}or EXPONENT_BITS,PRECISION:", text, known));
  }
  std::string_view digits = std::string_view(text).substr(colon + 1);
  if (digits.starts_with("0x") || digits.starts_with("0X")) digits.remove_prefix(2);
  std::uint64_t bits = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), bits, 16);
  if (error == std::errc::invalid_argument || end != digits.data() + digits.size())
    refuse(fmt::format("'{}': expected hexadecimal bits, such as {}:0x3c", text, format->prefix));
  const int width = format->format.width;
  if (error == std::errc::result_out_of_range || (width < 64 && bits >> width != 0))
    refuse(fmt::format("'{}': {} has {} bits", text, format->name, width));

  const Exact exact = format->format.decode(bits);
  InspectedValue value{text, {}, "", false};
  value.number.kind = exact.kind;
  if (exact.kind == Exact::Kind::zero || exact.kind == Exact::Kind::finite)
    value.number.value = Decimal(exact);
  else if (exact.sign)
    value.number.value = value.number.value.negated();
  if (exact.kind != Exact::Kind::nan) return value;
  const RuntimeFormat& own = format->format;
  value.signaling = own.has_infinity && (bits & own.quiet_bit) == 0;
  value.nan = !own.has_infinity
                  ? "quiet NaN"
                  : fmt::format("{} NaN, payload {:#x}", value.signaling ? "signaling" : "quiet",
                                bits & own.fraction_mask & ~own.quiet_bit);
  return value;
}

FormatReport report_on(const InspectedValue& value, const NamedFormat& named,
                       const std::vector<Rounding>& roundings) {
  const RuntimeFormat& format = named.format;
  const Exact exact = value.number.to_exact();
  const bool finite = exact.kind == Exact::Kind::zero || exact.kind == Exact::Kind::finite;

  FormatReport report{named, {}, {}, {}, {}, {}, false};
  const auto add = [&](Rounding rounding) {
    RoundedValue& rounded = report.rounded.emplace_back();
    rounded.rounding = rounding;
    rounded.code = code_of(format, format.round(exact, rounding, &rounded.flags));
    rounded.flags.invalid = rounded.flags.invalid || value.signaling;
  };
  for (const Rounding rounding : roundings)
    if (rounding != Rounding::stochastic) add(rounding);
  if (report.rounded.empty()) add(Rounding::nearest_even);

  const std::uint64_t principal = report.code().bits;
  if (format.is_finite(principal)) {
    const Exact decoded = format.decode(principal);
    report.ulp_exponent =
        decoded.kind == Exact::Kind::zero ? format.exponent_of_min_subnormal : decoded.exponent;
  }
  if (!format.is_nan(principal)) {
    report.below = code_of(format, format.next_down(principal));
    report.above = code_of(format, format.next_up(principal));
  }
  for (RoundedValue& rounded : report.rounded) {
    if (!finite || !format.is_finite(rounded.code.bits)) continue;
    rounded.error = Decimal(format.decode(rounded.code.bits)) - value.number.value;
    if (report.ulp_exponent) rounded.error_ulp = rounded.error->scaled_by_two(-*report.ulp_exponent);
  }
  if (finite)
    report.tie =
        is_tie(format, value.number.value, code_of(format, format.round(exact, Rounding::toward_zero)));
  if (std::find(roundings.begin(), roundings.end(), Rounding::stochastic) != roundings.end())
    report.stochastic = stochastic_rounding(format, exact);
  return report;
}

std::vector<std::string> raised(const ExceptionFlags& flags) {
  std::vector<std::string> names;
  if (flags.invalid) names.emplace_back("invalid");
  if (flags.divide_by_zero) names.emplace_back("divide_by_zero");
  if (flags.overflow) names.emplace_back("overflow");
  if (flags.underflow) names.emplace_back("underflow");
  if (flags.inexact) names.emplace_back("inexact");
  return names;
}

Decimal FormatReport::ulp() const {
  return Decimal(Exact{Exact::Kind::finite, false, 1, ulp_exponent.value(), false});
}

Inspection inspect(const InspectedValue& value, std::span<const NamedFormat> formats,
                   std::vector<Rounding> roundings) {
  if (formats.empty()) formats = named_formats();
  if (roundings.empty()) roundings = every_rounding();
  Inspection inspection{value, {}};
  for (const NamedFormat& format : formats) inspection.formats.push_back(report_on(value, format, roundings));
  return inspection;
}

}  // namespace fp16lab::analysis
