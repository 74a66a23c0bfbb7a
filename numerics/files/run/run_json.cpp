// JSON of the run folder beside what the descriptions of its records say: the manifest's schema and seal, its
// numbers of rows, and where a culprit's element is.
#include <fmt/core.h>

#include <ctime>

#include "numerics/files/run/record_json.hpp"
#include "numerics/files/run/run_schema.hpp"
#include "numerics/files/run/sealed_json.hpp"

namespace fp16lab {

using namespace run_json;

static void append_json(std::string& text, const RunRows& rows) {
  text += '{';
  for (const LineFileName& file : line_files) {
    if (file.rows == &RunRows::recipe && rows.recipe == 0) continue;
    text.append(text.back() == '{' ? "\"" : ",\"").append(file.name).append("\":");
    append_count(text, rows.*file.rows);
  }
  if (!rows.sha256.empty()) {
    text.append(",\"").append(seal_key).append("\":");
    append_value(text, rows.sha256);
  }
  text += '}';
}

static void read_json(const Json& json, std::string_view key, RunRows& rows) {
  if (!json.is_object()) wrong_type(key, "an object or null", json);
  for (const LineFileName& file : line_files)
    if (file.rows != &RunRows::recipe || json.contains(file.name))
      rows.*file.rows = get_count(json, file.name);
  if (json.contains(seal_key)) read_value(json.at(std::string(seal_key)), seal_key, {}, rows.sha256);
}

std::string to_json(const RunRows& rows) {
  std::string text;
  append_json(text, rows);
  return text;
}

RunRows parse_run_rows(std::string_view text) {
  RunRows rows;
  read_json(parse_json(text), "rows", rows);
  return rows;
}

std::string to_json(const Manifest& manifest) {
  std::string text =
      fmt::format(R"({{"schema":"{}","schema_version":{})", run_schema_name, run_schema_version);
  append_members(text, manifest);
  return sealed(dump(parse_json(text += '}'), 2));
}

Manifest parse_manifest(std::string_view text) {
  const Json json = parse_json(text);
  require_schema(json, run_schema_name, run_schema_version);
  Manifest manifest;
  read_members(json, manifest);
  // If the folder has digests, a manifest without its own was changed too.
  manifest.altered =
      (json.contains(seal_key) || (manifest.rows && !manifest.rows->sha256.empty())) && !is_sealed(text);
  return manifest;
}

std::vector<std::uint64_t> CulpritRow::index() const {
  std::vector<std::uint64_t> index(shape.size());
  std::uint64_t rest = element;
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    const auto extent = static_cast<std::uint64_t>(shape[axis] > 0 ? shape[axis] : 1);
    index[axis] = rest % extent;
    rest /= extent;
  }
  return index;
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", parts.tm_year + 1900, parts.tm_mon + 1,
                     parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec);
}

}  // namespace fp16lab
