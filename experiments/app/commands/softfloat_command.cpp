// fp16lab softfloat: scalar arithmetic as a filter in Berkeley TestFloat's line format.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <memory>
#include <utility>

#include "experiments/app/commands.hpp"
#include "experiments/app/commands/line_filter.hpp"
#include "experiments/app/commands/softfloat_functions.hpp"
#include "numerics/text/nearest_name.hpp"

namespace fp16lab::experiments {
namespace {

struct SoftfloatCommand {
  CommonOptions common;
  std::string function;                ///< as TestFloat names it
  std::string rounding = "near_even";  ///< TestFloat's names
  std::string tininess = "after";      ///< "before" or "after" rounding
  bool exact = false;                  ///< roundings to integers raise inexact
  bool list = false;
};

constexpr std::array<std::pair<std::string_view, Rounding>, 5> roundings = {
    {{"near_even", Rounding::nearest_even},
     {"minMag", Rounding::toward_zero},
     {"min", Rounding::downward},
     {"max", Rounding::upward},
     {"near_maxMag", Rounding::nearest_away}}};
constexpr std::array<std::pair<std::string_view, Tininess>, 2> tininesses = {
    {{"before", Tininess::before_rounding}, {"after", Tininess::after_rounding}}};

template <class Choices>
auto chosen(const char* option, const std::string& name, const Choices& choices) {
  std::vector<std::string_view> known;
  for (const auto& [choice, value] : choices) {
    if (choice == name) return value;
    known.push_back(choice);
  }
  throw CommandError(ExitCode::usage,
                     fmt::format("softfloat: {} '{}': {}", option, name, known_are(name, known)));
}

const SoftfloatFunction& function_named(const std::string& name) {
  std::vector<std::string> known;
  for (const SoftfloatFunction& function : softfloat_functions()) {
    if (function.name == name) return function;
    known.push_back(function.name);
  }
  throw CommandError(ExitCode::usage, fmt::format("softfloat: unknown function '{}'{} (--list shows all)",
                                                  name, did_you_mean(name, known)));
}

constexpr int digits_of(SoftfloatType type) { return (type.bits + 3) / 4; }

/// Takes one number of at most `bits` bits, and the blanks around it, off the line's front.
bool take_number(std::string_view& line, int bits, std::uint64_t& value) {
  const auto blank = [](char c) { return c == ' ' || c == '\t'; };
  std::size_t i = 0;
  while (i < line.size() && blank(line[i])) ++i;
  const std::size_t first = i;
  value = 0;
  for (; i < line.size() && !blank(line[i]); ++i) {
    const std::uint8_t digit = digit_values[static_cast<unsigned char>(line[i])];
    if (digit == 16 || value >> 60 != 0) return false;
    value = value << 4 | digit;
  }
  if (i == first || (bits < 64 && value >> bits != 0)) return false;
  while (i < line.size() && blank(line[i])) ++i;
  line.remove_prefix(i);
  return true;
}

void append_hex(std::string& output, std::uint64_t value, int digits) {
  for (int i = digits - 1; i >= 0; --i) output += "0123456789ABCDEF"[(value >> (4 * i)) & 15];
}

/// TestFloat's coding of the flags.
std::uint64_t bits_of(const ExceptionFlags& flags) {
  return (flags.inexact ? 1u : 0u) | (flags.underflow ? 2u : 0u) | (flags.overflow ? 4u : 0u) |
         (flags.divide_by_zero ? 8u : 0u) | (flags.invalid ? 16u : 0u);
}

[[noreturn]] void refuse(const SoftfloatFunction& function, std::string_view line, std::uint64_t number) {
  std::string types;
  for (const SoftfloatType& type : function.operands)
    types += fmt::format("{}{} ({} bits)", types.empty() ? "" : " ", type.name, type.bits);
  throw CommandError(ExitCode::usage,
                     fmt::format("softfloat: line {}: {}: expected the operands of {} in hexadecimal, {}, or "
                                 "these, the result and the flags",
                                 number, quoted(line), function.name, types, function.result.name));
}

void answer(const SoftfloatFunction& function, const SoftfloatOptions& options, std::string_view line,
            std::uint64_t number, std::string& output) {
  std::array<std::uint64_t, 3> operands{};
  std::string_view rest = line;
  for (std::size_t i = 0; i < function.operands.size(); ++i)
    if (!take_number(rest, function.operands[i].bits, operands[i])) refuse(function, line, number);
  if (!rest.empty()) {  // somebody else's result and flags, as testfloat_gen FUNCTION prints them
    std::uint64_t ignored = 0;
    if (!take_number(rest, function.result.bits, ignored) || !take_number(rest, 5, ignored) || !rest.empty())
      refuse(function, line, number);
  }
  ExceptionFlags flags;
  const std::uint64_t result = function.evaluate(operands.data(), options, flags);
  for (std::size_t i = 0; i < function.operands.size(); ++i) {
    append_hex(output, operands[i], digits_of(function.operands[i]));
    output += ' ';
  }
  append_hex(output, result, digits_of(function.result));
  output += ' ';
  append_hex(output, bits_of(flags), 2);
  output += '\n';
}

void print_functions() {
  for (const SoftfloatFunction& function : softfloat_functions()) {
    std::string operands;
    for (const SoftfloatType& type : function.operands)
      operands += (operands.empty() ? "" : " ") + std::string(type.name);
    fmt::print("{}\t{}\t{}\n", function.name, operands, function.result.name);
  }
}

ExitCode run_softfloat(const SoftfloatCommand& command) {
  if (command.list) {
    print_functions();
    return ExitCode::ok;
  }
  if (command.function.empty())
    throw CommandError(ExitCode::usage, "softfloat: expected a FUNCTION, such as f16_add (--list shows all)");
  const SoftfloatFunction& function = function_named(command.function);
  SoftfloatOptions options;
  options.arithmetic.rounding = chosen("--rounding", command.rounding, roundings);
  options.arithmetic.tininess = chosen("--tininess", command.tininess, tininesses);
  options.exact = command.exact;
  filter_lines([&](std::string_view line, std::uint64_t number, std::string& output) {
    answer(function, options, line, number, output);
  });
  return ExitCode::ok;
}

}  // namespace

Command softfloat_command() {
  return {
      .name = "softfloat",
      .description =
          "Act as a filter for Berkeley TestFloat: each input line holds one call's operands in\nhexadecimal "
          "(a result and flags after them are ignored), each output line these operands, the result and\nthe "
          "exception flags (1 inexact, 2 underflow, 4 overflow, 8 divide by zero, 16 invalid). Integers out "
          "of\nrange become the nearest one, NaN becomes 0; NaN results are the canonical NaN.",
      .examples =
          "  testfloat_gen f16_mulAdd | fp16lab softfloat f16_mulAdd | testfloat_ver f16_mulAdd\n"
          "  echo 3C00 4200 | fp16lab softfloat f16_div --rounding max --tininess before",
      .uses = {},
      .declare = [](Options& options) -> Command::Run {
        auto command = std::make_shared<SoftfloatCommand>();
        options
            .add("FUNCTION", command->function,
                 "FORMAT_ and add, sub, mul, mulAdd, div, rem, sqrt, roundToInt, eq, le, lt, eq_signaling, "
                 "le_quiet or lt_quiet; or TYPE_to_TYPE. Formats: f16, f32, f64, bf16, tf32, e4m3, e5m2; "
                 "integers: ui32, ui64, i32, i64")
            .offers({.words = [] {
              std::vector<std::string> names;
              for (const SoftfloatFunction& function : softfloat_functions()) names.push_back(function.name);
              return names;
            }});
        options
            .add("--rounding", command->rounding,
                 "near_even (default), minMag (towards zero), min (down), max (up), near_maxMag (ties away)")
            .type("MODE")
            .offers(offer_words({"near_even", "minMag", "min", "max", "near_maxMag"}));
        options
            .add("--tininess", command->tininess,
                 "Underflow is detected before or after rounding (default: after)")
            .type("WHEN")
            .offers(offer_words({"before", "after"}));
        options.flag("--exact,!--notexact", command->exact,
                     "roundToInt and F_to_INTEGER raise inexact, or never do (default)");
        options.flag("--list", command->list, "List all functions: name, operands, result");
        return [command](const CommonOptions& common) {
          command->common = common;
          return run_softfloat(*command);
        };
      }};
}

}  // namespace fp16lab::experiments
