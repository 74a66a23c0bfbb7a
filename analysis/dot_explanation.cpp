#include "analysis/dot_explanation.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "numerics/formats/decimal.hpp"
#include "numerics/gemm/explained_product.hpp"
#include "numerics/gemm/order_steps.hpp"

namespace fp16lab::analysis {
namespace {

using boost::multiprecision::cpp_int;
using Json = nlohmann::ordered_json;
using Kind = Exact::Kind;

constexpr int short_digits = 10;       // for sums in text, which also gives the exact number
constexpr int most_dropped_bits = 24;  // shown after the last bit that is kept

/// significand * 2^exponent with an odd significand; 0 is 0 * 2^0.
struct Binary {
  cpp_int significand;
  int exponent = 0;
};

Binary binary_of(const Rational& x) {
  cpp_int significand = numerator(x);
  if (significand == 0) return {};
  const auto twos = static_cast<int>(lsb(cpp_int(abs(significand))));
  significand /= cpp_int(1) << twos;
  return {significand, twos - static_cast<int>(msb(denominator(x)))};
}

/// "0", "65504", "2^-25", "-33554431*2^-25".
std::string binary_text(const Rational& x) {
  constexpr int longest_integer = 1 << 20;
  if (denominator(x) == 1 && abs(x) < longest_integer) return numerator(x).str();
  const auto [significand, exponent] = binary_of(x);
  if (exponent == 0) return significand.str();
  if (abs(significand) == 1) return fmt::format("{}2^{}", significand < 0 ? "-" : "", exponent);
  return fmt::format("{}*2^{}", significand.str(), exponent);
}

Decimal decimal_of(const Rational& x) {
  Decimal sum;
  const auto [significand, exponent] = binary_of(x);
  cpp_int rest = abs(significand);
  for (int limb = 0; rest != 0; ++limb, rest >>= 32) {
    const auto low = static_cast<std::uint32_t>(rest & 0xffffffffU);
    // The subtraction of its negative adds the limb.
    if (low != 0) sum = sum - Decimal(Exact{Kind::finite, x > 0, low, exponent + 32 * limb, false});
  }
  return sum;
}

std::string special_text(const ExplainedNumber& number) {
  if (number.kind == Kind::nan) return "nan";
  const char* const magnitude = number.kind == Kind::infinite ? "inf" : "0";
  return fmt::format("{}{}", number.negative ? "-" : "", magnitude);
}

std::string binary_text(const ExplainedNumber& number) {
  return number.kind == Kind::finite ? binary_text(number.value) : special_text(number);
}

/// All digits, or correctly rounded to `digits` of them.
std::string decimal_text(const ExplainedNumber& number, int digits = 0) {
  if (number.kind != Kind::finite) return special_text(number);
  const Decimal decimal = decimal_of(number.value);
  return digits == 0 ? decimal.to_string() : decimal.to_string(digits);
}

std::string equal_texts(const std::string& left, const std::string& right) {
  return left == right ? left : left + " = " + right;
}

std::string bits_text(DType format, std::uint32_t word) {
  return fmt::format("{:0{}x}", word, 2 * size_of(format));
}

/// A finite operand's bits that the tensor core does not read; 0 where they make a NaN of an infinity.
Rational dropped(const ExplainedNumber& given, const ExplainedNumber& read) {
  return given.is_finite() ? Rational(given.value - read.value) : Rational(0);
}

/// "+ 01.0000|0110": a term in units of 2^max_exponent, in binary; the dropped bits follow the bar.
std::string aligned_text(const ExplainedTerm& term, const ExplainedStep& step) {
  const int fraction_bits = step.max_exponent - step.unit_exponent;
  const Rational unit = step.unit_exponent < 0 ? Rational(cpp_int(1), cpp_int(1) << -step.unit_exponent)
                                               : Rational(cpp_int(1) << step.unit_exponent);
  const auto bits_of_integer = [](const cpp_int& x, int count) {
    std::string bits;
    for (int i = count - 1; i >= 0; --i) bits += bit_test(x, static_cast<unsigned>(i)) ? '1' : '0';
    return bits;
  };
  const cpp_int kept = numerator(Rational(abs(term.kept) / unit));
  // A product is below 4, a group of products may be more.
  const int whole = std::max(2, kept == 0 ? 0 : static_cast<int>(msb(kept)) + 1 - fraction_bits);
  std::string text = bits_of_integer(kept, fraction_bits + whole);
  text.insert(static_cast<std::size_t>(whole), 1, '.');
  text = fmt::format("{} {}", term.number.negative ? '-' : '+', text);
  if (term.dropped == 0) return text;
  text += '|';
  Rational rest = abs(term.dropped) / unit;
  for (int i = 0; rest != 0; ++i) {
    if (i == most_dropped_bits) return text + "..";
    rest *= 2;
    const bool one = rest >= 1;
    text += one ? '1' : '0';
    if (one) rest -= 1;
  }
  return text;
}

/// Rows with columns as wide as their widest cell, after `indent` blanks.
std::string table_text(const std::vector<std::vector<std::string>>& rows, std::size_t indent) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line(indent, ' ');
    for (std::size_t i = 0; i < row.size(); ++i) line += fmt::format("{:<{}}", row[i], widths[i] + 2);
    line.resize(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

/// Between chains of a plan.
bool joins(const ExplainedStep& step) {
  return !step.terms.empty() && step.terms.front().source == ExplainedTerm::Source::partial;
}

std::string_view rounding_text(const TensorCoreModel& row, const ExplainedStep& step) {
  if (joins(step)) return "to nearest even";
  const auto stage = std::ranges::find(row.stages, step.kind, &Stage::sum);  // those of a kind round alike
  switch (stage->output) {
    case BlockOutput::fp32_toward_zero:
      return "toward zero";
    case BlockOutput::fp32_toward_zero_14_bits:
      return "toward zero, to 14 bits";
    case BlockOutput::fp32_nearest_even_flushed:
      return "to nearest even, subnormals to zero";
    case BlockOutput::fp16_nearest_even:
    case BlockOutput::fp32_nearest_even:
    case BlockOutput::fp64_nearest_even:
      break;
  }
  return "to nearest even";
}

std::size_t joins_until(const ExplainedDot& dot, std::size_t number) {
  return static_cast<std::size_t>(
      std::count_if(dot.steps.begin(), dot.steps.begin() + static_cast<std::ptrdiff_t>(number), joins));
}

/// "step 3": sums between chains have numbers of their own.
std::string step_name(const ExplainedDot& dot, std::size_t number) {
  return fmt::format("step {}", number - joins_until(dot, number));
}

/// A product; what a step gave, "step 3", as a partial sum "chain 2" or "sum 1"; or "+0".
std::string name_of_term(const ExplainedDot& dot, const ExplainedTerm& term) {
  using Source = ExplainedTerm::Source;
  if (term.source == Source::product) return fmt::format("a[{0}]*b[{0}]", term.k);
  if (term.source == Source::group)
    return fmt::format("a[{0}..{1}]*b[{0}..{1}]", term.k, term.k + term.count - 1);
  if (term.source == Source::padding) return "padding";
  if (term.k == ExplainedTerm::zero) return "+0";
  if (term.source != Source::partial) return term.k == 0 ? "c" : step_name(dot, term.k);
  const ExplainedStep& made = dot.steps[term.k - 1];
  if (made.chain > 0) return fmt::format("chain {}", made.chain);
  return fmt::format("sum {}", joins_until(dot, term.k));
}

/// "sum 2: chain 1 + chain 2", and of one term "sum 1: chain 1, to f16".
std::string join_text(const ExplainedDot& dot, const ExplainedStep& step, std::size_t number) {
  ExplainedTerm itself;
  itself.source = ExplainedTerm::Source::partial;
  itself.k = number;
  const std::string text =
      fmt::format("{}: {}", name_of_term(dot, itself), name_of_term(dot, step.terms.front()));
  return step.terms.size() == 1 ? fmt::format("{}, to {}", text, name_of(step.format))
                                : fmt::format("{} + {}", text, name_of_term(dot, step.terms.back()));
}

std::string step_text(const TensorCoreModel& row, const ExplainedDot& dot, std::size_t number) {
  const ExplainedStep& step = dot.steps[number - 1];
  const DType format = row.accumulator();
  const bool finite = step.sum.is_finite();
  std::string text = fmt::format("  {}: ", step_name(dot, number));
  if (joins(step))
    text = "  " + join_text(dot, step, number);
  else if (step.kind != Sum::aligned)
    text += step.kind == Sum::fma ? "an fma" : "an addition";
  else if (finite)
    text += fmt::format("a fused block, max exponent {}, unit 2^{}", step.max_exponent, step.unit_exponent);
  else
    text += "a fused block, nothing to align";
  if (step.kind != Sum::addition) {
    const ExplainedTerm& from = step.terms.front();
    text += fmt::format(", from {}", name_of_term(dot, from));
    if (from.k != ExplainedTerm::zero) text += fmt::format(" = {}", bits_text(format, step.c));
  }
  text += '\n';

  const bool aligned = step.kind == Sum::aligned && finite;
  std::vector<std::vector<std::string>> rows{{"term", "exact"}};
  if (aligned)
    rows[0].insert(rows[0].end(),
                   {"exponent", fmt::format("aligned, x 2^{}", step.max_exponent), "kept", "dropped"});
  for (const ExplainedTerm& term : step.terms) {
    rows.push_back({name_of_term(dot, term), binary_text(term.number)});
    if (aligned && term.number.kind == Kind::finite)
      rows.back().insert(rows.back().end(), {std::to_string(term.exponent), aligned_text(term, step),
                                             binary_text(term.kept), binary_text(term.dropped)});
  }
  text += table_text(rows, 4);
  text +=
      fmt::format("    sum {}\n", equal_texts(binary_text(step.sum), decimal_text(step.sum, short_digits)));
  text += fmt::format("    {}: {} = {}", rounding_text(row, step), bits_text(format, step.word),
                      equal_texts(binary_text(step.result), number_text(format, step.word)));
  if (finite && step.result.is_finite())
    text += step.result.value == step.sum.value
                ? ", exact"
                : fmt::format(", off by {}", binary_text(Rational(step.result.value - step.sum.value)));
  return text + '\n';
}

/// A finite dot product's error in parts: what alignments dropped, and what roundings of steps added.
struct ErrorParts {
  Rational alignment = 0, rounding = 0;
};

ErrorParts parts_of_error(const ExplainedDot& dot) {
  ErrorParts parts;
  for (const ExplainedStep& step : dot.steps) {
    for (const ExplainedTerm& term : step.terms) parts.alignment -= term.dropped;
    parts.rounding += step.result.value - step.sum.value;
  }
  return parts;
}

double in_ulps(const Rational& x, const ExplainedDot& dot) {
  return decimal_of(x).scaled_by_two(-dot.ulp_exponent).to_double();
}

double relative(const ExplainedDot& dot) {
  return static_cast<double>(Rational(*dot.error / abs(dot.exact.value)));
}

std::string error_text(const ExplainedDot& dot) {
  if (!dot.error) return dot.word == dot.nearest_word ? "none" : "not finite";
  if (*dot.error == 0 && dot.operand_error == 0) return "none, the result is the exact sum";
  const ErrorParts parts = parts_of_error(dot);
  std::string text = fmt::format("{:+.6g} ulp (an ulp is 2^{})", in_ulps(*dot.error, dot), dot.ulp_exponent);
  if (dot.exact.value != 0) text += fmt::format(", relative {:+.6g}", relative(dot));
  text += ';';
  if (dot.operand_error != 0)
    text += fmt::format(" from bits of operands {:+.6g} ulp,", in_ulps(dot.operand_error, dot));
  return text + fmt::format(" from alignment {:+.6g} ulp, from rounding {:+.6g} ulp{}",
                            in_ulps(parts.alignment, dot), in_ulps(parts.rounding, dot),
                            dot.word == dot.nearest_word ? "; correctly rounded" : "");
}

/// {"significand": "-3", "exponent": -25, "decimal": "..."}, all digits; "nan", "inf", "-inf" otherwise.
Json json_of(const Rational& x) {
  const auto [significand, exponent] = binary_of(x);
  return {{"significand", significand.str()}, {"exponent", exponent}, {"decimal", decimal_of(x).to_string()}};
}
Json json_of(const ExplainedNumber& number) {
  return number.is_finite() ? json_of(number.value) : Json(special_text(number));
}
Json json_of(DType format, std::uint32_t word, const ExplainedNumber& number) {
  return {{"bits", bits_text(format, word)}, {"value", decimal_text(number)}};
}
Json json_of(DType format, std::uint32_t word, const ExplainedNumber& read, const ExplainedNumber& given) {
  Json operand = json_of(format, word, read);
  if (dropped(given, read) != 0) operand["dropped"] = json_of(dropped(given, read));
  return operand;
}

Json json_of(const TensorCoreModel& row, const ExplainedDot& dot, std::size_t number, bool planned) {
  const ExplainedStep& step = dot.steps[number - 1];
  const bool finite = step.sum.is_finite();
  const bool aligned = step.kind == Sum::aligned && finite;
  Json terms = Json::array();
  for (const ExplainedTerm& term : step.terms) {
    const bool accumulator = term.source == ExplainedTerm::Source::accumulator;
    const bool blocks = term.source == ExplainedTerm::Source::blocks;
    Json entry = {{"term", accumulator ? "c"
                           : blocks    ? "blocks"
                                       : name_of_term(dot, term)},
                  {"exact", json_of(term.number)}};
    if (aligned) {
      const bool counts = term.number.kind == Kind::finite;
      entry["exponent"] = counts ? Json(term.exponent) : Json();
      entry["aligned"] = counts ? Json(aligned_text(term, step)) : Json();
      entry["kept"] = json_of(term.kept);
      entry["dropped"] = json_of(term.dropped);
    }
    terms.push_back(std::move(entry));
  }
  Json json = {
      {"step", step.kind == Sum::aligned ? "fused_block"
               : step.terms.size() == 1  ? "rounding"
                                         : name_of(step.kind)},
      {"c", bits_text(row.accumulator(), step.c)},
      {"max_exponent", aligned ? Json(step.max_exponent) : Json()},
      {"unit_exponent", aligned ? Json(step.unit_exponent) : Json()},
      {"terms", std::move(terms)},
      {"sum", json_of(step.sum)},
      {"result", json_of(row.accumulator(), step.word, step.result)},
      {"rounding",
       finite && step.result.is_finite() ? json_of(Rational(step.result.value - step.sum.value)) : Json()}};
  if (planned) json["chain"] = step.chain == 0 ? Json() : Json(step.chain);
  return json;
}

using Elements = std::vector<std::size_t>;

/// "0..511", "1, 5 .. 89", "0 1 32 33 ..": neighbours, equal distances, else the first elements.
std::string elements_text(const Elements& elements) {
  constexpr std::size_t most = 8;
  if (elements.size() > 2) {
    const std::size_t distance = elements[1] - elements[0];
    bool equal = true;
    for (std::size_t i = 1; i < elements.size(); ++i)
      equal = equal && elements[i] - elements[i - 1] == distance;
    if (equal && distance == 1) return fmt::format("{}..{}", elements.front(), elements.back());
    if (equal) return fmt::format("{}, {} .. {}", elements[0], elements[1], elements.back());
  }
  const std::span<const std::size_t> first(elements.data(), std::min(most, elements.size()));
  std::string text = fmt::format("{}", fmt::join(first, ", "));
  if (elements.size() > most) text += fmt::format(" .. {}", elements.back());
  return elements.empty() ? "none" : text;
}

/// The chains of a line's plan, in the order of their numbers.
std::vector<OrderStep> chains_of(const DotLine& line) {
  std::vector<OrderStep> steps = steps_of(*line.product, static_cast<std::int64_t>(line.a.size()));
  std::erase_if(steps, [](const OrderStep& step) { return step.kind != OrderStep::Kind::chain; });
  return steps;
}

/// "chain 2, of part 2: k = 128..255, from +0".
std::string chain_text(const DotLine& line, const OrderStep& chain, std::size_t number) {
  const auto range = static_cast<std::size_t>(chain.range);
  const bool in_parts = range < line.product->ranges.size() && line.product->ranges[range].parts > 1;
  return fmt::format("  chain {}{}: k = {}, from +0\n", number,
                     in_parts ? fmt::format(", of part {}", chain.part + 1) : "",
                     elements_text(elements_of(chain)));
}

}  // namespace

std::string number_text(DType format, std::uint64_t word) {
  return visit_dtype<is_floating>(format, [word](auto row) {
    using F = typename decltype(row)::Format;
    return shortest_text(RuntimeFormat::of<F>(), word >> ignored_bits<F>);
  });
}

ExplainedDot explained_dot(const DotLine& line) {
  if (line.product != nullptr)
    return explained_product(*line.product, line.a_format, line.a, line.b_format, line.b);
  return fp16lab::explained_dot(*line.row, line.a_format, line.a, line.b_format, line.b, line.c, line.scales);
}

std::string text_of(const DotLine& line, const ExplainedDot& dot) {
  const TensorCoreModel& row = line.product != nullptr ? *line.product->row : *line.row;
  const DType format = row.accumulator();
  std::string text = fmt::format("{}\n", line.text);
  if (line.product != nullptr)
    text += fmt::format("  plan {}{}: {}\n", line.plan, line.call, order_text(*line.product));
  text += fmt::format("  {}: {} * {} -> {}, {}\n", row.name, name_of(line.a_format), name_of(line.b_format),
                      name_of(format), stages_text(row));
  std::vector<std::vector<std::string>> operands;
  const auto operand = [&operands](const std::string& name, DType of, std::uint32_t word,
                                   const ExplainedNumber& read, const ExplainedNumber& given) {
    operands.back().insert(operands.back().end(),
                           {name, bits_text(of, word), binary_text(read), number_text(of, word)});
    // Only a TF32 register has bits that are dropped; its table has a column for them.
    if (of == DType::tf32)
      operands.back().push_back(
          dropped(given, read) == 0 ? "" : "and " + binary_text(dropped(given, read)) + ", dropped");
  };
  for (std::size_t k = 0; k < dot.a.size(); ++k) {
    operands.emplace_back();
    operand(fmt::format("a[{}]", k), line.a_format, line.a[k], dot.a[k], dot.a_given[k]);
    operand(fmt::format("b[{}]", k), line.b_format, line.b[k], dot.b[k], dot.b_given[k]);
  }
  const DType scale_format = line.scales.kind.format;
  const auto block = static_cast<std::size_t>(line.scales.kind.block);
  for (std::size_t i = 0; i < dot.a_scales.size(); ++i) {
    const std::string elements = fmt::format("[{}..{}]", i * block, (i + 1) * block - 1);
    operands.emplace_back();
    operand("scale a" + elements, scale_format, line.scales.a[i], dot.a_scales[i], dot.a_scales[i]);
    operand("scale b" + elements, scale_format, line.scales.b[i], dot.b_scales[i], dot.b_scales[i]);
  }
  operands.emplace_back();
  operand("c", format, line.c, dot.c, dot.c);
  text += table_text(operands, 2);
  const std::vector<OrderStep> chains = line.product != nullptr ? chains_of(line) : std::vector<OrderStep>{};
  std::size_t chain = 0;
  for (std::size_t i = 0; i < dot.steps.size(); ++i) {
    // Chains without products have no steps.
    for (; chain < dot.steps[i].chain; ++chain) text += chain_text(line, chains[chain], chain + 1);
    text += step_text(row, dot, i + 1);
  }

  const auto word_text = [&](std::uint32_t word, const ExplainedNumber& number) {
    return fmt::format("{} = {}", bits_text(format, word),
                       equal_texts(binary_text(number), decimal_text(number)));
  };
  std::vector<std::vector<std::string>> results{{"d", word_text(dot.word, dot.result)}};
  if (line.captured) results.push_back({"captured", bits_text(format, *line.captured) + ", not d"});
  results.push_back({"exact sum", equal_texts(binary_text(dot.exact), decimal_text(dot.exact))});
  results.push_back({"nearest", word_text(dot.nearest_word, dot.nearest)});
  results.push_back({"error", error_text(dot)});
  return text + table_text(results, 2);
}

std::string json_of(const DotLine& line, const ExplainedDot& dot) {
  const bool planned = line.product != nullptr;
  const TensorCoreModel& row = planned ? *line.product->row : *line.row;
  const DType format = row.accumulator();
  Json json = {{"line", line.number},
               {"row",
                {{"name", row.name},
                 {"block_size", row.block().products},
                 {"fraction_bits", row.block().fraction_bits},
                 {"exponent_floor", row.block().exponent_floor},
                 {"output", name_of(row.block().output)},
                 {"stages", stages_text(row)},
                 {"subnormal_accumulator", name_of(row.subnormal_accumulator)},
                 {"underflow_zero", name_of(row.underflow_zero)}}},
               {"a_format", name_of(line.a_format)},
               {"b_format", name_of(line.b_format)},
               {"accumulator", name_of(format)},
               {"a", Json::array()},
               {"b", Json::array()},
               {"c", json_of(format, line.c, dot.c)},
               {"steps", Json::array()}};
  if (planned) {
    json["plan"] = {{"name", line.plan}, {"order", order_text(*line.product)}, {"chains", Json::array()}};
    for (const OrderStep& chain : chains_of(line))
      json["plan"]["chains"].push_back(
          {{"range", chain.range}, {"part", chain.part}, {"elements", elements_of(chain)}});
  }
  for (std::size_t k = 0; k < dot.a.size(); ++k) {
    json["a"].push_back(json_of(line.a_format, line.a[k], dot.a[k], dot.a_given[k]));
    json["b"].push_back(json_of(line.b_format, line.b[k], dot.b[k], dot.b_given[k]));
  }
  if (line.scales.kind.block > 0)
    json["scales"] = {{"format", name_of(line.scales.kind.format)},
                      {"block", line.scales.kind.block},
                      {"a", Json::array()},
                      {"b", Json::array()}};
  for (std::size_t i = 0; i < dot.a_scales.size(); ++i) {
    json["scales"]["a"].push_back(json_of(line.scales.kind.format, line.scales.a[i], dot.a_scales[i]));
    json["scales"]["b"].push_back(json_of(line.scales.kind.format, line.scales.b[i], dot.b_scales[i]));
  }
  for (std::size_t i = 0; i < dot.steps.size(); ++i)
    json["steps"].push_back(json_of(row, dot, i + 1, planned));
  json["d"] = json_of(format, dot.word, dot.result);
  if (line.captured) json["captured"] = bits_text(format, *line.captured);
  json["exact"] = json_of(dot.exact);
  json["nearest"] = json_of(format, dot.nearest_word, dot.nearest);
  json["correctly_rounded"] = dot.word == dot.nearest_word;
  json["ulp_exponent"] = dot.exact.is_finite() ? Json(dot.ulp_exponent) : Json();
  json["error"] = dot.error ? json_of(*dot.error) : Json();
  if (dot.operand_error != 0) json["operand_error_ulp"] = in_ulps(dot.operand_error, dot);
  json["error_ulp"] = dot.error ? Json(in_ulps(*dot.error, dot)) : Json();
  json["error_relative"] = dot.error && dot.exact.value != 0 ? Json(relative(dot)) : Json();
  return json.dump() + '\n';
}

}  // namespace fp16lab::analysis
