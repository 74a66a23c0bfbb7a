// fp16lab inspect: one value in every format and rounding mode, as text or as JSON.
#include <fmt/format.h>

#include <memory>
#include <stdexcept>

#include "analysis/inspection.hpp"
#include "experiments/app/commands.hpp"
#include "numerics/formats/dtype.hpp"

namespace fp16lab::experiments {
namespace {

using analysis::Code, analysis::FormatReport, analysis::Inspection, analysis::RoundedValue;
using analysis::StochasticRounding;

struct InspectCommand {
  CommonOptions common;
  std::vector<std::string> values;
  std::vector<std::string> formats;    ///< names or "E,P[,numbers]"; empty: all named formats
  std::vector<std::string> roundings;  ///< names; empty: all
  bool json = false;
};

constexpr int short_digits = 7;

std::string short_text(const Code& code) { return fmt::format("{} = {}", code.hex, code.short_value); }

std::string error_text(const RoundedValue& rounded) {
  if (!rounded.error) return "";
  if (rounded.error->is_zero()) return "  exact";
  const std::string error = fmt::format("  error {}{}", rounded.error->negative() ? "" : "+",
                                        rounded.error->to_string(short_digits));
  return rounded.error_ulp ? fmt::format("{} = {:+.4g} ulp", error, *rounded.error_ulp) : error;
}

std::string stochastic_text(const StochasticRounding& stochastic) {
  if (stochastic.toward_zero.bits == stochastic.away.bits)
    return fmt::format("always {}", short_text(stochastic.away));
  return fmt::format("up in magnitude with probability {:.6g} to {}, else {}", stochastic.probability_away,
                     short_text(stochastic.away), short_text(stochastic.toward_zero));
}

void print_line(const char* label, const std::string& text) { fmt::print("    {:<13} {}\n", label, text); }

void print_details(const FormatReport& report) {
  const RuntimeFormat& format = report.format.format;
  const Code& code = report.code();
  fmt::print("\n  {} (1 + {} + {} bits), {}\n", report.format.name, format.exponent_bits,
             format.fraction_bits, name_of(report.rounded.front().rounding));
  print_line("fields",
             fmt::format("{} {} {}  {}", code.sign, code.exponent_bits, code.fraction_bits, code.kind));
  print_line("value", code.formula.empty() ? code.value : fmt::format("{} = {}", code.formula, code.value));
  if (report.ulp_exponent)
    print_line("ulp", fmt::format("2^{} = {}", *report.ulp_exponent, report.ulp().to_string(short_digits)));
  if (report.below) print_line("next below", short_text(*report.below));
  if (report.above) print_line("next above", short_text(*report.above));

  std::size_t width = 0;
  for (const RoundedValue& rounded : report.rounded) width = std::max(width, short_text(rounded.code).size());
  for (const RoundedValue& rounded : report.rounded) {
    const std::vector<std::string> flags = analysis::raised(rounded.flags);
    print_line(name_of(rounded.rounding),
               fmt::format("{:<{}}{}{}", short_text(rounded.code), width, error_text(rounded),
                           flags.empty() ? "" : fmt::format("  [{}]", fmt::join(flags, " "))));
  }
  if (report.stochastic) print_line("stochastic", stochastic_text(*report.stochastic));
}

void print_text(const Inspection& inspection) {
  const auto& [value, reports] = inspection;
  const std::string exact = value.nan.empty() ? value.exact() : value.nan;
  fmt::print("{}{}\n\n", value.text, exact == value.text ? "" : " = " + exact);
  for (const FormatReport& report : reports)
    fmt::print("  {} {}\n", report.format.name, short_text(report.code()));
  for (const FormatReport& report : reports) print_details(report);
}

ExitCode run_inspect(const InspectCommand& command) {
  std::vector<Inspection> inspections;
  try {
    std::vector<analysis::NamedFormat> formats;
    for (const std::string& text : command.formats) formats.push_back(analysis::parse_format(text));
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
    print_text(inspections[i]);
  }
  return ExitCode::ok;
}

/// "f16:0x3c00, bf16:, tf32: (19 bits), ": the prefixes of bit patterns.
std::string bit_prefixes() {
  std::string text;
  for (const DType dtype : dtypes<is_floating>) {
    const int width = visit_dtype<is_floating>(dtype, [](auto row) { return decltype(row)::Format::width; });
    const bool whole_bytes = width == 8 * static_cast<int>(size_of(dtype));
    text += fmt::format("{}:{}{}, ", name_of(dtype), dtype == DType::f16 ? "0x3c00" : "",
                        whole_bytes ? "" : fmt::format(" ({} bits)", width));
  }
  return text;
}

/// "FP16, BF16, ".
std::string format_titles() {
  std::string text;
  for (const DType dtype : dtypes<is_floating>) text += title_of(dtype) + ", ";
  return text;
}

}  // namespace

Command inspect_command() {
  return {.name = "inspect",
          .description =
              "One value in every format and rounding mode: bits, fields and formula, exact decimal, ulp, "
              "neighbours,\nerrors, exception flags (tininess after rounding), and how likely stochastic "
              "rounding goes up",
          .examples =
              "  fp16lab inspect 0.00006666666 2^-25 65519.99\n"
              "  fp16lab inspect f16:0x045e -inf --format FP16 --format 6,10 --rounding upward --json",
          .uses = {},
          .declare = [](Options& options) -> Command::Run {
            auto command = std::make_shared<InspectCommand>();
            options
                .add("VALUE", command->values,
                     "Decimal, hexadecimal float (0x1.8p-3), power of two (2^-24), inf, nan, or bits: " +
                         bit_prefixes() + "or a format of your own, 6,10:0x1234")
                .required();
            options
                .add("--format", command->formats,
                     "Only this format (repeatable): " + format_titles() +
                         "or your own as "
                         "EXPONENT_BITS,PRECISION (FP16 is 5,11); ',numbers' after it makes the top binade "
                         "numbers "
                         "and its last code the only NaN (E4M3 is 4,4,numbers)")
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
                     "Only this rounding (repeatable): nearest_even, toward_zero, upward, downward, "
                     "nearest_away, stochastic")
                .type("MODE")
                .repeatable()
                .offers(offer_words(
                    {"nearest_even", "toward_zero", "upward", "downward", "nearest_away", "stochastic"}));
            options.flag("--json", command->json, "JSON instead of text");
            return [command](const CommonOptions& common) {
              command->common = common;
              return run_inspect(*command);
            };
          }};
}

}  // namespace fp16lab::experiments
