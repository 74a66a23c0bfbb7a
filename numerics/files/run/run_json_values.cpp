#include "numerics/files/run/run_json_values.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "numerics/formats/bits.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab::run_json {

const Json& member(const Json& object, std::string_view key) {
  if (!object.is_object()) throw std::runtime_error(fmt::format("expected an object with the key '{}'", key));
  const auto found = object.find(key);
  if (found == object.end()) throw std::runtime_error(fmt::format("the key '{}' is missing", key));
  return *found;
}

[[noreturn]] void wrong_type(std::string_view key, std::string_view expected, const Json& value) {
  std::string shown = dump(value, -1);
  if (shown.size() > 40) shown = shown.substr(0, 40) + "...";
  throw std::runtime_error(fmt::format("'{}' must be {}, not {}", key, expected, shown));
}

double as_number(const Json& value, std::string_view key) {
  if (value.is_number()) return value.get<double>();
  if (value == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (value == "Infinity") return std::numeric_limits<double>::infinity();
  if (value == "-Infinity") return -std::numeric_limits<double>::infinity();
  wrong_type(key, "a number, \"NaN\", \"Infinity\" or \"-Infinity\"", value);
}

std::uint64_t as_count(const Json& value, std::string_view key) {
  if (!value.is_number_unsigned()) wrong_type(key, "a whole number >= 0", value);
  return value.get<std::uint64_t>();
}

std::int64_t get_integer(const Json& object, std::string_view key) {
  const Json& value = member(object, key);
  if (!value.is_number_integer()) wrong_type(key, "a whole number", value);
  return value.get<std::int64_t>();
}

std::uint64_t get_count(const Json& object, std::string_view key) {
  return as_count(member(object, key), key);
}

std::string as_text(const Json& value, std::string_view key) {
  if (!value.is_string()) wrong_type(key, "a string", value);
  return value.get<std::string>();
}

std::string as_string(const Json& value, std::string_view key) { return printable(as_text(value, key)); }

namespace {

void make_printable(Json& json) {
  if (json.is_string()) json = printable(json.get_ref<const std::string&>());
  if (json.is_structured())
    for (Json& part : json) make_printable(part);
}

}  // namespace

std::string as_document(const Json& value, std::string_view key) {
  if (value.is_null()) return {};
  if (!value.is_object()) wrong_type(key, "an object or null", value);
  Json document = value;
  make_printable(document);
  return dump(document, -1);
}

void require_schema(const Json& document, std::string_view name, int version) {
  if (const std::string schema = as_string(member(document, "schema"), "schema"); schema != name)
    throw std::runtime_error(fmt::format("'schema' is '{}', not '{}'", shown(schema), name));
  const Json& given = member(document, "schema_version");
  if (!given.is_number_integer() || given < 1 || given > version)
    throw std::runtime_error(fmt::format("schema version {}, but this build reads versions 1 to {}",
                                         shown(dump(given, -1)), version));
}

DType as_dtype(const Json& value, std::string_view key) {
  const std::string name = as_string(value, key);
  if (const std::optional<DType> dtype = dtype_called<is_file_float>(name)) return *dtype;
  auto known = dtypes<is_file_float>;
  std::ranges::sort(known);  // by id
  std::string names;
  for (const DType dtype : known) names += fmt::format("{}{}", names.empty() ? "" : ", ", name_of(dtype));
  throw std::runtime_error(fmt::format("'{}' is '{}'; known are {}", key, shown(name), names));
}

std::string dump(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

void append_count(std::string& text, std::uint64_t count) {
  std::array<char, 20> digits{};
  const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), count);
  text.append(digits.data(), end);
}

void append_histogram(std::string& text, const ExponentHistogram& histogram) {
  std::size_t first = 0, last = histogram.bins.size();
  while (first < last && histogram.bins[first] == 0) ++first;
  while (last > first && histogram.bins[last - 1] == 0) --last;
  text += "{\"zero\":";
  append_count(text, histogram.zero);
  text += ",\"inf\":";
  append_count(text, histogram.infinite);
  text += ",\"nan\":";
  append_count(text, histogram.nan);
  text += ",\"first_exponent\":";
  text += std::to_string(first == last ? 0 : ExponentHistogram::min_exponent + static_cast<int>(first));
  text += ",\"counts\":[";
  for (std::size_t i = first; i < last; ++i) {
    if (i > first) text += ',';
    append_count(text, histogram.bins[i]);
  }
  text += ']';
  if (histogram.greatest != 0) {
    text += ",\"smallest\":" + dump(static_cast<double>(float_from_bits(histogram.smallest)), -1);
    text += ",\"greatest\":" + dump(static_cast<double>(float_from_bits(histogram.greatest)), -1);
  }
  text += '}';
}

namespace {

/// The FP32 bits of json[key], which must be a number of bin `exponent`.
std::uint32_t extreme_of(const Json& json, std::string_view key, int exponent) {
  const double value = as_number(member(json, key), key);
  const auto narrow = static_cast<float>(value);
  const std::uint32_t bits = bits_of(narrow);
  if (!(value > 0) || static_cast<double>(narrow) != value || bits >= Binary32::infinity ||
      ExponentHistogram::bin_of(bits) != exponent - ExponentHistogram::min_exponent)
    throw std::runtime_error(fmt::format("'{}' is {}; expected an FP32 number of the bin (2^{}, 2^{}]", key,
                                         value, exponent, exponent + 1));
  return bits;
}

}  // namespace

ExponentHistogram as_histogram(const Json& json, std::string_view key) {
  ExponentHistogram histogram;
  histogram.zero = get_count(json, "zero");
  histogram.infinite = get_count(json, "inf");
  histogram.nan = get_count(json, "nan");
  const Json& counts = member(json, "counts");
  if (!counts.is_array()) wrong_type("counts", "an array", counts);
  const std::int64_t first = get_integer(json, "first_exponent");
  const std::int64_t end = first + static_cast<std::int64_t>(counts.size());
  if (first < ExponentHistogram::min_exponent || end > ExponentHistogram::max_exponent + 1)
    throw std::runtime_error(fmt::format("'{}' has bins {}..{}, outside {}..{}", key, first, end - 1,
                                         ExponentHistogram::min_exponent, ExponentHistogram::max_exponent));
  int lowest = ExponentHistogram::max_exponent, highest = ExponentHistogram::min_exponent;
  auto bin = static_cast<std::size_t>(first - ExponentHistogram::min_exponent);
  for (const Json& count : counts) {
    histogram.bins[bin] = as_count(count, "counts");
    if (histogram.bins[bin] > 0) {
      highest = static_cast<int>(bin) + ExponentHistogram::min_exponent;
      lowest = std::min(lowest, highest);
    }
    ++bin;
  }
  // Folders from before there were extremes have none, and their bin (2^-127, 2^-126] holds everything below
  // too.
  if (lowest <= highest && (json.contains("smallest") || json.contains("greatest"))) {
    histogram.smallest = extreme_of(json, "smallest", lowest);
    histogram.greatest = extreme_of(json, "greatest", highest);
    if (histogram.smallest > histogram.greatest)
      throw std::runtime_error(fmt::format("'smallest' of '{}' is above its 'greatest'", key));
  }
  return histogram;
}

}  // namespace fp16lab::run_json
