// fp16lab inspect: one value in every format and rounding mode, as text or as JSON.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <stdexcept>

#include "analysis/inspection.hpp"
#include "analysis/rounding_edges.hpp"
#include "experiments/app/commands.hpp"
#include "numerics/text/named_enum.hpp"

namespace fp16lab::experiments {
namespace {

using analysis::Code, analysis::FormatReport, analysis::Inspection, analysis::RoundedValue;
using analysis::StochasticRounding;

struct InspectCommand {
  CommonOptions common;
  std::vector<std::string> values;
  std::vector<std::string> formats;    ///< names or "E,P[,numbers]"; empty: all named formats
  std::vector<std::string> roundings;  ///< names; empty: all
  bool whole = false;                  ///< --long
  bool edges = false;
  bool json = false;
};

constexpr int short_digits = 7;

/// How many significant digits a text has that Decimal wrote.
int digits_of(std::string_view text) {
  const std::string_view plain = text.substr(0, text.find('e'));
  const std::size_t first = plain.find_first_of("123456789");
  return first == std::string_view::npos
             ? 0
             : static_cast<int>(
                   std::ranges::count_if(plain.substr(first), [](char c) { return c >= '0' && c <= '9'; }));
}

/// "0x4780 = 65536". The digits are those that tell the code from its neighbours, and so many more that they add
/// up with `beside`, an error or an ulp, as it is printed; of an exact result all, unless they are very many.
std::string code_text(const FormatReport& report, const Code& code, const std::optional<Decimal>& beside) {
  constexpr int most_exact_digits = 17;
  std::string text = code.short_value;
  if (beside && report.format.format.is_finite(code.bits) && digits_of(text) > 0) {
    const Decimal value(report.format.format.decode(code.bits));
    if (!beside->is_zero())
      text = value.to_string(std::max(digits_of(text), value.leading() - beside->leading() + short_digits));
    else if (digits_of(code.value) <= most_exact_digits)
      text = code.value;
  }
  return fmt::format("{} = {}", code.hex, text);
}

std::string rounded_text(const FormatReport& report, const RoundedValue& rounded) {
  return code_text(report, rounded.code, rounded.error);
}

/// Of a neighbour of the result.
std::string neighbour_text(const FormatReport& report, const Code& code) {
  return code_text(report, code, report.ulp_exponent ? std::optional(report.ulp()) : std::nullopt);
}

/// To four digits, and to as many more as show that it is not quite half an ulp or a whole one.
std::string ulps_text(const Decimal& ulps) {
  constexpr int digits = 4, most_digits = 40;
  for (int more = digits; more <= most_digits; ++more) {
    const std::string text = ulps.to_string(more);
    const std::string_view size = std::string_view(text).substr(ulps.negative() ? 1 : 0);
    if ((size != "0.5" && size != "1") || ulps.to_string() == text)
      return (ulps.negative() ? "" : "+") + text;
  }
  return fmt::format("not quite {}", ulps.to_string(digits));
}

/// "  error -0.49995 = -0.49995 ulp", and, for a value midway, which way it went.
std::string error_text(const FormatReport& report, const RoundedValue& rounded) {
  std::string text;
  if (rounded.error && rounded.error->is_zero()) text = "  exact";
  if (rounded.error && !rounded.error->is_zero())
    text = fmt::format("  error {}{}", rounded.error->negative() ? "" : "+",
                       rounded.error->to_string(short_digits));
  if (rounded.error_ulp && !rounded.error->is_zero()) text += " = " + ulps_text(*rounded.error_ulp) + " ulp";
  if (report.tie && rounded.rounding == Rounding::nearest_even) text += "  tie, to even";
  if (report.tie && rounded.rounding == Rounding::nearest_away) text += "  tie, away from zero";
  const std::vector<std::string> flags = analysis::raised(rounded.flags);
  return flags.empty() ? text : fmt::format("{}  [{}]", text, fmt::join(flags, " "));
}

std::string stochastic_text(const FormatReport& report, const StochasticRounding& stochastic) {
  if (stochastic.toward_zero.bits == stochastic.away.bits)
    return fmt::format("always {}", neighbour_text(report, stochastic.away));
  return fmt::format(
      "up in magnitude with probability {:.6g}{} to {}, else {}", stochastic.probability_away,
      stochastic.probability_away == 0.5 && !report.tie ? " (not a tie, but nearer to one than 2^-32)" : "",
      neighbour_text(report, stochastic.away), neighbour_text(report, stochastic.toward_zero));
}

void print_line(const char* label, const std::string& text) { fmt::print("    {:<13} {}\n", label, text); }

void print_fields(const FormatReport& report) {
  const Code& code = report.code();
  const RuntimeFormat& format = report.format.format;
  print_line("fields", fmt::format("{}{}{}{}  {}", format.has_sign ? fmt::format("{} ", code.sign) : "",
                                   code.exponent_bits, format.fraction_bits > 0 ? " " : "",
                                   code.fraction_bits, code.kind));
  print_line("value", code.formula.empty() ? code.value : fmt::format("{} = {}", code.formula, code.value));
  if (report.ulp_exponent)
    print_line("ulp", fmt::format("2^{} = {}", *report.ulp_exponent, report.ulp().to_string(short_digits)));
  if (report.below) print_line("next below", neighbour_text(report, *report.below));
  if (report.above) print_line("next above", neighbour_text(report, *report.above));
}

void print_roundings(const FormatReport& report) {
  std::size_t width = 0;
  for (const RoundedValue& rounded : report.rounded)
    width = std::max(width, rounded_text(report, rounded).size());
  for (const RoundedValue& rounded : report.rounded)
    print_line(name_of(rounded.rounding),
               fmt::format("{:<{}}{}", rounded_text(report, rounded), width, error_text(report, rounded)));
  if (report.stochastic) print_line("stochastic", stochastic_text(report, *report.stochastic));
}

void print_details(const FormatReport& report) {
  const RuntimeFormat& format = report.format.format;
  fmt::print("\n  {} ({}{} + {} bits), {}\n", report.format.name, format.has_sign ? "1 + " : "",
             format.exponent_bits, format.fraction_bits, name_of(report.rounded.front().rounding));
  print_fields(report);
  print_roundings(report);
}

/// A line for each format; of a single one its fields too, and of several roundings that were asked for each.
void print_text(const Inspection& inspection, const InspectCommand& command) {
  const auto& [value, reports] = inspection;
  const std::string exact = value.nan.empty() ? value.exact() : value.nan;
  fmt::print("{}{}\n\n", value.text, exact == value.text ? "" : " = " + exact);
  std::size_t width = 0;
  for (const FormatReport& report : reports)
    width = std::max(width, rounded_text(report, report.rounded.front()).size());
  for (const FormatReport& report : reports) {
    fmt::print("  {} {:<{}}{}\n", report.format.name, rounded_text(report, report.rounded.front()), width,
               error_text(report, report.rounded.front()));
    if (command.whole) continue;
    if (reports.size() == 1) print_fields(report);
    if (command.roundings.size() > 1 || (report.stochastic && !command.roundings.empty()))
      print_roundings(report);
  }
  if (command.whole)
    for (const FormatReport& report : reports) print_details(report);
}

ExitCode print_edges() {
  const std::vector<analysis::Claim> claims = analysis::rounding_edges();
  fmt::print("{}{}\n", analysis::claims_lines(claims), analysis::claims_count(claims));
  return analysis::any_mismatch(claims) ? ExitCode::mismatch : ExitCode::ok;
}

ExitCode run_inspect(const InspectCommand& command) {
  if (command.edges) return print_edges();
  if (command.values.empty())
    throw CommandError(ExitCode::usage, "inspect: expected a VALUE, such as 0.1 or f16:0x045e");
  std::vector<Inspection> inspections;
  try {
    std::vector<analysis::NamedFormat> formats;
    for (const std::string& text : command.formats) formats.push_back(analysis::parse_format(text));
    if (formats.empty() && !command.whole && !command.json) formats = analysis::usual_formats();
    std::vector<Rounding> roundings;
    for (const std::string& text : command.roundings) roundings.push_back(analysis::parse_rounding(text));
    std::vector<analysis::InspectedValue> values;
    for (const std::string& text : command.values) values.push_back(analysis::parse_value(text));
    for (const analysis::InspectedValue& value : values)
      inspections.push_back(analysis::inspect(value, formats, roundings));
  } catch (const std::invalid_argument& error) {
    throw CommandError(ExitCode::usage, error.what());
  }
  if (command.json) {
    fmt::print("{}\n", analysis::json_of(inspections, 2));
    return ExitCode::ok;
  }
  for (std::size_t i = 0; i < inspections.size(); ++i) {
    if (i > 0) fmt::print("\n");
    print_text(inspections[i], command);
  }
  return ExitCode::ok;
}

}  // namespace

Command inspect_command() {
  return {
      .name = "inspect",
      .description =
          "Show a value in every format: bits, number, error, ties and exception flags (tininess after "
          "rounding);\nfor one format, or with --long, also fields and formula, exact decimal, ulp and "
          "neighbours. --long adds every\nrounding mode, and how likely stochastic rounding goes up. "
          "Numbers have the fewest digits that identify them.",
      .examples =
          "  fp16lab inspect 0.00006666666 2^-25 65519.99\n"
          "  fp16lab inspect f16:0x045e -inf --format FP16 --format 6,10 --rounding upward --json",
      .uses = {},
      .declare = [](Options& options) -> Command::Run {
        auto command = std::make_shared<InspectCommand>();
        options.add(
            "VALUE", command->values,
            "Decimal, hexadecimal float (0x1.8p-3), power of two (2^-24), inf, nan, or bits after the name "
            "of a format: f16:0x3c00, e2m1:0x7, or one of your own, 6,10:0x1234");
        options
            .add("--format", command->formats,
                 "Only this format (repeatable): one of fp16lab list formats, or your own as "
                 "EXPONENT_BITS,PRECISION (FP16 is 5,11), and perhaps ,ENCODING, which says what codes are "
                 "no numbers: " +
                     known_names<Encoding>() + " (E4M3 is 4,4,numbers, E2M1 2,2,finite)")
            .type("FORMAT")
            .repeatable()
            .offers({.words = [] {
              std::vector<std::string> names;
              for (const analysis::NamedFormat& named : analysis::named_formats())
                names.push_back(named.name);
              return names;
            }});
        options
            .add("--rounding", command->roundings,
                 fmt::format("Only this rounding (repeatable): {}",
                             fmt::join(analysis::rounding_names(), ", ")))
            .type("MODE")
            .repeatable()
            .offers(offer_words(analysis::rounding_names()));
        options.flag("--long", command->whole,
                     "Show fields, formula, ulp, neighbours and every rounding of every format");
        options.flag("--edges", command->edges,
                     "Instead of a value, show what happens at every edge of FP16 rounding (ties, "
                     "overflow, underflow, NaN, ...), one question and answer a line");
        options.flag("--json", command->json, "Print JSON instead of text, in full");
        return [command](const CommonOptions& common) {
          command->common = common;
          return run_inspect(*command);
        };
      }};
}

}  // namespace fp16lab::experiments
