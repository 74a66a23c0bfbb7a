// One value in every format and rounding: its bits, neighbours and errors. What `fp16lab inspect` and the
// playground show.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "numerics/formats/decimal.hpp"
#include "numerics/formats/rounding.hpp"
#include "numerics/formats/runtime_format.hpp"

namespace fp16lab::analysis {

/// A format as the user names it.
struct NamedFormat {
  std::string name;    ///< "FP16", or "6,10" as typed
  std::string prefix;  ///< format of bit patterns: "f16"
  RuntimeFormat format;
};

const std::vector<NamedFormat>& named_formats();
/// Those of tensors, sums and casts: FP16 to FP64, FP8 and FP4.
std::vector<NamedFormat> usual_formats();

/// A name or a prefix in any case, or "E,P" or "E,P,numbers". std::invalid_argument otherwise.
NamedFormat parse_format(const std::string& text);

/// All of enum Rounding, as `inspect --rounding` and Python's `mode=` take them.
std::vector<std::string> rounding_names();

/// The rounding of this name. std::invalid_argument otherwise.
Rounding parse_rounding(const std::string& text);

/// A value as typed, or the exact value of a typed bit pattern.
struct InspectedValue {
  std::string text;
  ParsedNumber number;
  std::string nan;         ///< a typed NaN's bits: "quiet NaN, payload 0x1"
  bool signaling = false;  ///< is that NaN one that conversions answer with the invalid flag?

  std::string exact() const;  ///< all digits, "inf", "-inf" or "nan"
};

/// A number (numerics/formats/decimal.hpp) or a bit pattern, "f16:0x045e". std::invalid_argument quotes any
/// other text.
InspectedValue parse_value(const std::string& text);

/// One code of one format, taken apart.
struct Code {
  std::uint64_t bits = 0;
  std::string hex;  ///< "0x045e"
  int sign = 0;
  std::uint64_t exponent = 0;  ///< the stored fields as numbers
  std::uint64_t fraction = 0;
  std::string exponent_bits, fraction_bits;  ///< and in binary
  std::string kind;                          ///< zero, subnormal, normal, infinity, nan
  std::string formula;                       ///< "(-1)^0 2^(1-15) (1+94/1024)"; infinities and NaNs have none
  std::string value;                         ///< exact decimal, "inf", "-inf", "nan"
  std::string short_value;                   ///< the same in the fewest digits that read back (shortest_text)
};

/// "invalid", "divide_by_zero", "overflow", "underflow", "inexact": those that are raised.
std::vector<std::string> raised(const ExceptionFlags& flags);

struct RoundedValue {
  Rounding rounding = Rounding::nearest_even;
  Code code;
  ExceptionFlags flags;
  std::optional<Decimal> error;      ///< rounded - exact, where both are finite
  std::optional<Decimal> error_ulp;  ///< in ulps of the report
};

/// The results of stochastic rounding, by the share of the 2^32 random words that lead there.
struct StochasticRounding {
  Code toward_zero, away;
  double probability_away = 0;  ///< 0 where both are the same code
};

struct FormatReport {
  NamedFormat format;
  std::vector<RoundedValue> rounded;  ///< at least one; the first is the principal result
  std::optional<StochasticRounding> stochastic;
  std::optional<int> ulp_exponent;  ///< one ulp at the principal result is 2^this, where that is finite
  std::optional<Code> below, above;
  bool tie =
      false;  ///< is the value midway between two numbers, so that nearest_even and nearest_away choose?

  const Code& code() const { return rounded.front().code; }
  Decimal ulp() const;  ///< where there is an ulp_exponent
};

/// Rounds `value` to `format` in each of `roundings`; the principal result is that of the first one which is
/// not stochastic, to nearest even if there is none.
FormatReport report_on(const InspectedValue& value, const NamedFormat& format,
                       const std::vector<Rounding>& roundings);

struct Inspection {
  InspectedValue value;
  std::vector<FormatReport> formats;
};

/// report_on for each of `formats`; where there are none all named ones, and all roundings.
Inspection inspect(const InspectedValue& value, std::span<const NamedFormat> formats,
                   std::vector<Rounding> roundings);

/// What `fp16lab inspect --json` writes: an array, an object each. One line with an `indent` of -1.
std::string json_of(std::span<const Inspection> inspections, int indent);

}  // namespace fp16lab::analysis
