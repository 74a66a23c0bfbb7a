// JSON side of the run folder.
#include <fmt/core.h>

#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "numerics/files/run_text.hpp"

namespace fp16lab {
namespace {

using Json = nlohmann::ordered_json;

Json number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

const Json& member(const Json& object, std::string_view key) {
  if (!object.is_object()) throw std::runtime_error(fmt::format("expected an object with the key '{}'", key));
  const auto found = object.find(key);
  if (found == object.end()) throw std::runtime_error(fmt::format("the key '{}' is missing", key));
  return *found;
}

[[noreturn]] void wrong_type(std::string_view key, std::string_view expected, const Json& value) {
  std::string shown = value.dump();
  if (shown.size() > 40) shown = shown.substr(0, 40) + "...";
  throw std::runtime_error(fmt::format("'{}' must be {}, not {}", key, expected, shown));
}

double get_number(const Json& object, std::string_view key) {
  const Json& value = member(object, key);
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

std::string as_string(const Json& value, std::string_view key) {
  if (!value.is_string()) wrong_type(key, "a string", value);
  return value.get<std::string>();
}

std::string get_string(const Json& object, std::string_view key) {
  return as_string(member(object, key), key);
}

std::optional<std::string> get_optional(const Json& object, std::string_view key) {
  const Json& value = member(object, key);
  if (value.is_null()) return std::nullopt;
  return as_string(value, key);
}

const Json& get_array(const Json& object, std::string_view key) {
  const Json& value = member(object, key);
  if (!value.is_array()) wrong_type(key, "an array", value);
  return value;
}

std::vector<std::string> get_strings(const Json& object, std::string_view key) {
  std::vector<std::string> strings;
  for (const Json& item : get_array(object, key)) strings.push_back(as_string(item, key));
  return strings;
}

Json optional_string(const std::optional<std::string>& value) { return value ? Json(*value) : Json(nullptr); }

Json parse(std::string_view text) {
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& error) {
    throw std::runtime_error(fmt::format("not valid JSON at byte {}", error.byte));
  }
}

/// Text of unknown origin (arguments, paths) may not be UTF-8: such bytes become U+FFFD instead of an
/// exception.
std::string dump(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

Json histogram_json(const ExponentHistogram& histogram) {
  int first = 0, last = ExponentHistogram::bin_count;
  const auto count = [&](int i) { return histogram.bins[static_cast<std::size_t>(i)]; };
  while (first < last && count(first) == 0) ++first;
  while (last > first && count(last - 1) == 0) --last;
  Json counts = Json::array();
  for (int i = first; i < last; ++i) counts.push_back(count(i));
  return {{"zero", histogram.zero},
          {"inf", histogram.infinite},
          {"nan", histogram.nan},
          {"first_exponent", first == last ? 0 : ExponentHistogram::min_exponent + first},
          {"counts", std::move(counts)}};
}

ExponentHistogram histogram_of(const Json& object, std::string_view key) {
  const Json& json = member(object, key);
  ExponentHistogram histogram;
  histogram.zero = get_count(json, "zero");
  histogram.infinite = get_count(json, "inf");
  histogram.nan = get_count(json, "nan");
  const Json& counts = get_array(json, "counts");
  const std::int64_t first = get_integer(json, "first_exponent");
  const std::int64_t end = first + static_cast<std::int64_t>(counts.size());
  if (first < ExponentHistogram::min_exponent || end > ExponentHistogram::max_exponent + 1)
    throw std::runtime_error(fmt::format("'{}' has bins {}..{}, outside {}..{}", key, first, end - 1,
                                         ExponentHistogram::min_exponent, ExponentHistogram::max_exponent));
  auto bin = static_cast<std::size_t>(first - ExponentHistogram::min_exponent);
  for (const Json& count : counts) histogram.bins[bin++] = as_count(count, "counts");
  return histogram;
}

}  // namespace

namespace {

Json backend_json(const std::optional<BackendRecord>& record) {
  if (!record) return nullptr;
  return {{"device", record->device},
          {"tensor_core", record->tensor_core},
          {"note", record->note},
          {"capability", optional_string(record->capability)},
          {"runtime", optional_string(record->runtime)},
          {"gemm", optional_string(record->gemm)}};
}

BackendRecord backend_of(const Json& json) {
  if (!json.is_object()) wrong_type("backend", "an object or null", json);
  return {.device = get_string(json, "device"),
          .tensor_core = get_string(json, "tensor_core"),
          .note = get_string(json, "note"),
          .capability = get_optional(json, "capability"),
          .runtime = get_optional(json, "runtime"),
          .gemm = get_optional(json, "gemm")};
}

}  // namespace

std::string to_json(const Manifest& manifest) {
  Json seeds = Json::object();
  for (const auto& [name, seed] : manifest.seeds) seeds[name] = seed;
  Json data = Json::array();
  for (const DataFile& file : manifest.data) data.push_back({{"path", file.path}, {"sha256", file.sha256}});
  Json resumptions = Json::array();
  for (const Resumption& resumption : manifest.resumptions)
    resumptions.push_back(
        {{"step", resumption.step}, {"time", resumption.time}, {"git_hash", resumption.git_hash}});
  const Json json = {{"schema", run_schema_name},
                     {"schema_version", run_schema_version},
                     {"state", name_of(manifest.state)},
                     {"message", manifest.message},
                     {"start", manifest.start},
                     {"end", optional_string(manifest.end)},
                     {"resumptions", std::move(resumptions)},
                     {"argv", manifest.argv},
                     {"seeds", std::move(seeds)},
                     {"git_hash", manifest.git_hash},
                     {"cpu", manifest.cpu},
                     {"threads", manifest.threads},
                     {"compiler", manifest.compiler},
                     {"flags", manifest.flags},
                     {"gemm_target", manifest.gemm_target},
                     {"gpu", optional_string(manifest.gpu)},
                     {"driver", optional_string(manifest.driver)},
                     {"backend", backend_json(manifest.backend)},
                     {"data", std::move(data)},
                     {"config", manifest.config}};
  return dump(json, 2) + "\n";
}

Manifest parse_manifest(std::string_view text) {
  const Json json = parse(text);
  if (const std::string schema = get_string(json, "schema"); schema != run_schema_name)
    throw std::runtime_error(fmt::format("'schema' is '{}', not '{}'", schema, run_schema_name));
  if (const std::int64_t version = get_integer(json, "schema_version");
      version < 1 || version > run_schema_version)
    throw std::runtime_error(
        fmt::format("schema version {}, but this build reads versions 1 to {}", version, run_schema_version));
  Manifest manifest;
  const std::string state = get_string(json, "state");
  if (const std::optional<ExitState> known = exit_state_of(state))
    manifest.state = *known;
  else
    throw std::runtime_error(
        fmt::format("'state' is '{}'; known are running, finished, stopped, diverged, failed", state));
  manifest.message = get_string(json, "message");
  manifest.start = get_string(json, "start");
  manifest.end = get_optional(json, "end");
  manifest.argv = get_strings(json, "argv");
  const Json& seeds = member(json, "seeds");
  if (!seeds.is_object()) wrong_type("seeds", "an object", seeds);
  for (const auto& [name, seed] : seeds.items()) manifest.seeds[name] = as_count(seed, name);
  manifest.git_hash = get_string(json, "git_hash");
  manifest.cpu = get_string(json, "cpu");
  manifest.threads = static_cast<int>(get_integer(json, "threads"));
  manifest.compiler = get_string(json, "compiler");
  manifest.flags = get_string(json, "flags");
  manifest.gemm_target = get_string(json, "gemm_target");
  manifest.gpu = get_optional(json, "gpu");
  manifest.driver = get_optional(json, "driver");
  if (json.contains("backend") && !json.at("backend").is_null())
    manifest.backend = backend_of(member(json, "backend"));
  for (const Json& file : get_array(json, "data"))
    manifest.data.push_back({get_string(file, "path"), get_string(file, "sha256")});
  if (json.contains("resumptions"))
    for (const Json& resumption : get_array(json, "resumptions"))
      manifest.resumptions.push_back({get_count(resumption, "step"), get_string(resumption, "time"),
                                      get_string(resumption, "git_hash")});
  manifest.config = get_string(json, "config");
  return manifest;
}

std::string to_json_line(const HistogramRow& row) {
  const Json json = {{"step", row.step},
                     {"tensor", row.tensor},
                     {"kind", row.kind},
                     {"dtype", name_of(row.dtype)},
                     {"loss_scale", number(row.loss_scale)},
                     {"before", histogram_json(row.before)},
                     {"after", histogram_json(row.after)}};
  return dump(json, -1);
}

HistogramRow parse_histogram_row(std::string_view line) {
  const Json json = parse(line);
  HistogramRow row;
  row.step = get_count(json, "step");
  row.tensor = get_string(json, "tensor");
  row.kind = get_string(json, "kind");
  const std::string dtype = get_string(json, "dtype");
  bool known = false;
  for (const DType candidate : {DType::f32, DType::f16, DType::bf16, DType::f64})
    if (name_of(candidate) == dtype) {
      row.dtype = candidate;
      known = true;
    }
  if (!known) throw std::runtime_error(fmt::format("'dtype' is '{}'; known are f32, f16, bf16, f64", dtype));
  row.loss_scale = get_number(json, "loss_scale");
  row.before = histogram_of(json, "before");
  row.after = histogram_of(json, "after");
  return row;
}

std::string_view name_of(OverflowKind kind) {
  constexpr std::array<std::string_view, 3> names = {"gradient", "loss", "both"};
  return names[static_cast<std::size_t>(kind)];
}

std::string to_json_line(const OverflowRow& row) {
  const Json json = {{"step", row.step},
                     {"kind", name_of(row.kind)},
                     {"loss_scale", number(row.loss_scale)},
                     {"optimizers", row.optimizers},
                     {"parameters", row.parameters}};
  return dump(json, -1);
}

OverflowRow parse_overflow_row(std::string_view line) {
  const Json json = parse(line);
  OverflowRow row;
  row.step = get_count(json, "step");
  const std::string kind = get_string(json, "kind");
  if (kind == name_of(OverflowKind::gradient))
    row.kind = OverflowKind::gradient;
  else if (kind == name_of(OverflowKind::loss))
    row.kind = OverflowKind::loss;
  else if (kind == name_of(OverflowKind::both))
    row.kind = OverflowKind::both;
  else
    throw std::runtime_error(fmt::format("'kind' is '{}'; known are gradient, loss, both", kind));
  row.loss_scale = get_number(json, "loss_scale");
  row.optimizers = get_strings(json, "optimizers");
  row.parameters = get_strings(json, "parameters");
  return row;
}

}  // namespace fp16lab
