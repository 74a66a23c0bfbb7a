// The playground page's questions to the library, as C functions of text: compiled to WebAssembly, the same
// sources as everywhere else. An answer is JSON, valid until the next call; {"error": "..."} for a wrong
// question.
#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/dot_explanation.hpp"
#include "analysis/inspection.hpp"
#include "analysis/suggested_scale.hpp"

#define FP16LAB_ENTRY extern "C" __attribute__((visibility("default")))

namespace fp16lab::playground {
namespace {

using Json = nlohmann::ordered_json;

template <class Body>
const char* answer(const Body& body) {
  static std::string text;
  try {
    text = body();
  } catch (const std::exception& error) {
    text = Json{{"error", error.what()}}.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  return text.c_str();
}

/// The parts of `text` between blanks and commas.
std::vector<std::string> parts_of(std::string_view text) {
  constexpr std::string_view between = " ,;\t\r\n";
  std::vector<std::string> parts;
  for (std::size_t i = text.find_first_not_of(between); i != std::string_view::npos;) {
    const std::size_t end = std::min(text.find_first_of(between, i), text.size());
    parts.emplace_back(text.substr(i, end - i));
    i = text.find_first_not_of(between, end);
  }
  return parts;
}

template <class Integer>
Integer integer_of(std::string_view text, int base) {
  Integer value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc{} || end != text.data() + text.size())
    throw std::invalid_argument("'" + std::string(text) + "' is not an integer");
  return value;
}

std::vector<std::uint32_t> words_of(std::string_view text) {
  std::vector<std::uint32_t> words;
  for (const std::string& part : parts_of(text)) words.push_back(integer_of<std::uint32_t>(part, 16));
  return words;
}

/// What an operand's register holds below the number itself.
int bits_below(DType format) {
  if (!is_low_precision(format)) return 0;
  return visit_dtype<is_low_precision>(format,
                                       [](auto row) { return ignored_bits<typename decltype(row)::Format>; });
}

std::string hex(std::uint64_t word, std::size_t digits) {
  std::string text;
  for (std::size_t i = digits; i-- > 0;) text += "0123456789abcdef"[word >> (4 * i) & 15];
  return text;
}

/// A format of operands or of accumulators.
DType format_called(std::string_view name) {
  if (const auto dtype = dtype_called<is_floating>(name); dtype && *dtype != DType::f64) return *dtype;
  return operand_format(name);  // which says what there is
}

/// Numbers as they are typed, each rounded once to nearest even.
Json typed_words(DType format, std::string_view text) {
  const analysis::NamedFormat named = analysis::parse_format(std::string(name_of(format)));
  Json words = Json::array(), values = Json::array(), exact = Json::array();
  for (const std::string& part : parts_of(text)) {
    const analysis::InspectedValue value = analysis::parse_value(part);
    const analysis::FormatReport report = analysis::report_on(value, named, {Rounding::nearest_even});
    const analysis::RoundedValue& rounded = report.rounded.front();
    words.push_back(hex(rounded.code.bits << bits_below(format), 2 * size_of(format)));
    values.push_back(rounded.code.short_value);
    exact.push_back(!rounded.flags.inexact);
  }
  return {{"words", std::move(words)}, {"values", std::move(values)}, {"exact", std::move(exact)}};
}

Json rows() {
  Json list = Json::array();
  for (const TensorCoreModel& row : tensor_core_models()) {
    Json operands = Json::array();
    for (const DType format : dtypes<is_low_precision>)
      if (row.operands.contains(format)) operands.push_back(name_of(format));
    list.push_back({{"name", row.name},
                    {"hardware", row.hardware},
                    {"operands", std::move(operands)},
                    {"accumulator", name_of(row.accumulator())},
                    {"block_size", row.block().products},
                    {"fraction_bits", row.block().fraction_bits},
                    {"exponent_floor", row.block().exponent_floor},
                    {"output", name_of(row.block().output)},
                    {"stages", stages_text(row)},
                    {"evidence", name_of(row.evidence)},
                    {"source", row.source}});
  }
  return list;
}

std::string dot(std::string_view model, std::string_view a_format, std::string_view b_format,
                std::string_view accumulator, std::string_view a_text, std::string_view b_text,
                std::string_view c_text) {
  const std::vector<std::uint32_t> a = words_of(a_text), b = words_of(b_text), c = words_of(c_text);
  if (c.size() != 1) throw std::invalid_argument("c is one number");
  analysis::DotLine line;
  line.number = 1;
  line.a_format = operand_format(a_format);
  line.b_format = operand_format(b_format);
  line.row = &tensor_core_model(model, line.a_format, line.b_format, accumulator_format(accumulator));
  line.a = a;
  line.b = b;
  line.c = c.front();
  line.d = fused_dot_add(*line.row, line.a_format, a, line.b_format, b, line.c);
  const ExplainedDot explained = analysis::explained_dot(line);
  if (explained.word != line.d)
    throw std::logic_error("the result of the steps and the direct result differ: a bug in fp16lab");
  return analysis::json_of(line, explained);
}

/// "zero infinite nan smallest greatest first_exponent counts...", the extremes as FP32 bits.
ExponentHistogram histogram_of(std::string_view text) {
  const std::vector<std::string> parts = parts_of(text);
  if (parts.size() < 6) throw std::invalid_argument("a histogram has six numbers before its counts");
  ExponentHistogram histogram;
  histogram.zero = integer_of<std::uint64_t>(parts[0], 10);
  histogram.infinite = integer_of<std::uint64_t>(parts[1], 10);
  histogram.nan = integer_of<std::uint64_t>(parts[2], 10);
  histogram.smallest = integer_of<std::uint32_t>(parts[3], 10);
  histogram.greatest = integer_of<std::uint32_t>(parts[4], 10);
  const int first = integer_of<int>(parts[5], 10) - ExponentHistogram::min_exponent;
  if (first < 0 || first + static_cast<int>(parts.size()) - 6 > ExponentHistogram::bin_count)
    throw std::invalid_argument("a histogram's exponents are -150 to 127");
  for (std::size_t i = 6; i < parts.size(); ++i)
    histogram.bins[static_cast<std::size_t>(first) + i - 6] = integer_of<std::uint64_t>(parts[i], 10);
  return histogram;
}

constexpr std::array zone_names{"lost", "subnormal", "normal", "overflow"};

Json interval(double lower, double upper) { return Json::array({lower, upper}); }

/// For every bin that counted something: exponent, count, the zones of its smallest and of its greatest
/// value.
Json bins_of(const ExponentHistogram& histogram, const FormatRange& range, double scale) {
  Json bins = Json::array();
  const ZoneEdges<Binary32> edges(range, scale);
  for (int bin = 0; bin < ExponentHistogram::bin_count; ++bin) {
    const std::uint64_t count = histogram.bins[static_cast<std::size_t>(bin)];
    if (count == 0) continue;
    const BinZones zones = zones_of_bin(histogram, bin, edges);
    bins.push_back(
        Json::array({bin + ExponentHistogram::min_exponent, count, static_cast<std::size_t>(zones.first),
                     static_cast<std::size_t>(zones.last)}));
  }
  return bins;
}

/// `values` carried `recorded`; the answer is for 2^log2_scale.
Json zones(const ExponentHistogram& values, double recorded, DType format, int log2_scale) {
  analysis::ScaledHistograms gradients;
  gradients.add(values, recorded);
  const FormatRange range = range_of(format);
  const double scale = std::scalbn(1.0, log2_scale);
  const RangeCounts counts = gradients.at_scale(range, scale);
  const ZoneMass mass = gradients.mass_at(range, scale);
  Json json = {{"zero", counts.zero},
               {"infinite", counts.infinite},
               {"nan", counts.nan},
               {"finite", values.finite_nonzero()}};
  for (std::size_t zone = 0; zone < zone_names.size(); ++zone) {
    const MassInterval share = mass.l1[zone].share();
    json["zones"][zone_names[zone]] = Json::array({counts[zone].lower, counts[zone].upper});
    json["l1"][zone_names[zone]] = interval(share.lower, share.upper);
  }
  const std::optional<MassInterval> cosine = gradients.cosine_at(range, scale);
  json["cosine"] = cosine ? interval(cosine->lower, cosine->upper) : Json();
  json["edges"] = {{"lost", range.tie_to_zero},
                   {"normal", range.smallest_normal},
                   {"overflow", range.overflow_threshold()},
                   {"reached", range.threshold_overflows}};
  json["bins"] = bins_of(values, range, scale / recorded);
  const analysis::SuggestedScale suggestion = analysis::suggest_scale(gradients, format);
  const auto power = [](const std::optional<int>& k) { return k ? Json(*k) : Json(); };
  json["suggested"] = {{"scale", power(suggestion.suggested)},
                       {"least", power(suggestion.least)},
                       {"greatest", power(suggestion.greatest)},
                       {"needs_none", suggestion.needs_none},
                       {"reasoning", suggestion.reasoning}};
  return json;
}

}  // namespace
}  // namespace fp16lab::playground

using namespace fp16lab;
using namespace fp16lab::playground;

/// As `fp16lab inspect VALUE --json` answers, in one line. `format`: a format of the user's own ("6,10") that
/// the answer has too, or "".
FP16LAB_ENTRY const char* fp16lab_playground_inspect(const char* value, const char* format) {
  return answer([&] {
    std::vector<analysis::NamedFormat> formats = analysis::named_formats();
    if (*format != 0) formats.push_back(analysis::parse_format(format));
    const std::array inspections{analysis::inspect(analysis::parse_value(value), formats, {})};
    return analysis::json_of(inspections, -1);
  });
}

/// {"words", "values", "exact"} of numbers with blanks or commas between them.
FP16LAB_ENTRY const char* fp16lab_playground_words(const char* format, const char* numbers) {
  return answer([&] { return typed_words(format_called(format), numbers).dump(); });
}

/// The table of tensor cores.
FP16LAB_ENTRY const char* fp16lab_playground_rows() {
  return answer([] { return rows().dump(); });
}

/// As `fp16lab mma --explain --json` answers a line of these words.
FP16LAB_ENTRY const char* fp16lab_playground_dot(const char* model, const char* a_format,
                                                 const char* b_format, const char* accumulator, const char* a,
                                                 const char* b, const char* c) {
  return answer([&] { return dot(model, a_format, b_format, accumulator, a, b, c); });
}

/// Zones of a histogram, "zero infinite nan smallest greatest first_exponent counts...", of values that
/// carried the loss scale `recorded`, in `format` at 2^log2_scale.
FP16LAB_ENTRY const char* fp16lab_playground_zones(const char* histogram, double recorded, const char* format,
                                                   int log2_scale) {
  return answer(
      [&] { return zones(histogram_of(histogram), recorded, format_called(format), log2_scale).dump(); });
}
