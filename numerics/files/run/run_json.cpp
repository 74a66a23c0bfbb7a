// JSON side of the run folder: the manifest and the histograms.
#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "numerics/files/run/run_json_values.hpp"
#include "numerics/files/run/run_text.hpp"
#include "numerics/files/run/sealed_json.hpp"
#include "numerics/text/nesting.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab {

using namespace run_json;

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

Json rows_json(const std::optional<RunRows>& rows) {
  if (!rows) return nullptr;
  Json json = Json::object();
  for (const LineFileName& file : line_files) json[std::string(file.name)] = *rows.*file.rows;
  if (!rows->sha256.empty()) json[std::string(seal_key)] = rows->sha256;
  return json;
}

RunRows rows_of(const Json& json) {
  if (!json.is_object()) wrong_type("rows", "an object or null", json);
  RunRows rows;
  for (const LineFileName& file : line_files) rows.*file.rows = get_count(json, file.name);
  if (!json.contains(seal_key)) return rows;
  const Json& digests = member(json, seal_key);
  if (!digests.is_object()) wrong_type(seal_key, "an object", digests);
  for (const auto& [name, digest] : digests.items()) rows.sha256[name] = as_string(digest, name);
  return rows;
}

struct MemoryField {
  std::string_view name;
  std::uint64_t RunMemory::*bytes;
};
constexpr std::array<MemoryField, 6> memory_fields{{{"parameters", &RunMemory::parameters},
                                                    {"masters", &RunMemory::masters},
                                                    {"gradients", &RunMemory::gradients},
                                                    {"optimizer", &RunMemory::optimizer},
                                                    {"activations", &RunMemory::activations},
                                                    {"peak", &RunMemory::peak}}};

Json memory_json(const std::optional<RunMemory>& memory) {
  if (!memory) return nullptr;
  Json json = Json::object();
  for (const MemoryField& field : memory_fields) json[std::string(field.name)] = *memory.*field.bytes;
  return json;
}

RunMemory memory_of(const Json& json) {
  if (!json.is_object()) wrong_type("memory", "an object or null", json);
  RunMemory memory;
  for (const MemoryField& field : memory_fields) memory.*field.bytes = get_count(json, field.name);
  return memory;
}

/// Is the member there, and not null?
bool has(const Json& json, std::string_view name) {
  return json.contains(name) && !json.at(std::string(name)).is_null();
}

Json ranks_json(const std::optional<RankRecord>& ranks) {
  if (!ranks) return nullptr;
  return {{"library", ranks->library}, {"hosts", ranks->hosts}};
}

}  // namespace

std::string to_json(const RunRows& rows) { return dump(rows_json(rows), -1); }
RunRows parse_run_rows(std::string_view text) { return rows_of(parse_json(text)); }

std::string to_json(const Manifest& manifest) {
  Json seeds = Json::object();
  for (const auto& [name, seed] : manifest.seeds) seeds[name] = seed;
  Json data = Json::array();
  for (const DataFile& file : manifest.data) data.push_back({{"path", file.path}, {"sha256", file.sha256}});
  Json resumptions = Json::array();
  for (const Resumption& resumption : manifest.resumptions)
    resumptions.push_back(
        {{"step", resumption.step}, {"time", resumption.time}, {"git_hash", resumption.git_hash}});
  const Json json = {
      {"schema", run_schema_name},
      {"schema_version", run_schema_version},
      {"name", manifest.name},
      {"state", name_of(manifest.state)},
      {"message", manifest.message},
      {"start", manifest.start},
      {"end", optional_string(manifest.end)},
      {"resumptions", std::move(resumptions)},
      {"rows", rows_json(manifest.rows)},
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
      {"ranks", ranks_json(manifest.ranks)},
      {"data", std::move(data)},
      {"memory", memory_json(manifest.memory)},
      {"seconds_per_step", manifest.seconds_per_step ? json_number(*manifest.seconds_per_step) : Json()},
      {"model", manifest.model.empty() ? Json() : parse_json(manifest.model)},
      {"config", manifest.config}};
  return sealed(dump(json, 2));
}

Manifest parse_manifest(std::string_view text) {
  const Json json = parse_json(text);
  if (const std::string schema = get_string(json, "schema"); schema != run_schema_name)
    throw std::runtime_error(fmt::format("'schema' is '{}', not '{}'", schema, run_schema_name));
  if (const std::int64_t version = get_integer(json, "schema_version");
      version < 1 || version > run_schema_version)
    throw std::runtime_error(
        fmt::format("schema version {}, but this build reads versions 1 to {}", version, run_schema_version));
  Manifest manifest;
  if (json.contains("name")) manifest.name = get_string(json, "name");
  const std::string state = get_string(json, "state");
  if (const std::optional<ExitState> known = exit_state_of(state))
    manifest.state = *known;
  else
    throw std::runtime_error(
        fmt::format("'state' is '{}'; known are running, finished, stopped, diverged, failed", state));
  manifest.message = get_string(json, "message");
  manifest.start = get_string(json, "start");
  manifest.end = get_optional(json, "end");
  for (const Json& word : get_array(json, "argv")) manifest.argv.push_back(as_text(word, "argv"));
  const Json& seeds = member(json, "seeds");
  if (!seeds.is_object()) wrong_type("seeds", "an object", seeds);
  for (const auto& [name, seed] : seeds.items()) manifest.seeds[printable(name)] = as_count(seed, name);
  manifest.git_hash = get_string(json, "git_hash");
  manifest.cpu = get_string(json, "cpu");
  manifest.threads = static_cast<int>(get_integer(json, "threads"));
  manifest.compiler = get_string(json, "compiler");
  manifest.flags = get_string(json, "flags");
  manifest.gemm_target = get_string(json, "gemm_target");
  manifest.gpu = get_optional(json, "gpu");
  manifest.driver = get_optional(json, "driver");
  if (has(json, "backend")) manifest.backend = backend_of(member(json, "backend"));
  if (has(json, "ranks")) {
    const Json& ranks = member(json, "ranks");
    manifest.ranks = {.library = get_string(ranks, "library"), .hosts = get_strings(ranks, "hosts")};
  }
  for (const Json& file : get_array(json, "data"))
    manifest.data.push_back({get_string(file, "path"), get_string(file, "sha256")});
  if (json.contains("resumptions"))
    for (const Json& resumption : get_array(json, "resumptions"))
      manifest.resumptions.push_back({get_count(resumption, "step"), get_string(resumption, "time"),
                                      get_string(resumption, "git_hash")});
  if (has(json, "rows")) manifest.rows = rows_of(member(json, "rows"));
  if (has(json, "memory")) manifest.memory = memory_of(member(json, "memory"));
  if (has(json, "seconds_per_step")) manifest.seconds_per_step = get_number(json, "seconds_per_step");
  if (has(json, "model")) {
    if (!json.at("model").is_object()) wrong_type("model", "an object or null", json.at("model"));
    Json model = json.at("model");
    make_printable(model);
    manifest.model = dump(model, -1);
  }
  manifest.config = as_text(member(json, "config"), "config");
  // Of a folder that has digests, a manifest without its own was changed too.
  manifest.altered =
      (json.contains(seal_key) || (manifest.rows && !manifest.rows->sha256.empty())) && !is_sealed(text);
  return manifest;
}

std::string to_json_line(const HistogramRow& row) {
  std::string text;
  text.reserve(1024);
  const auto append_text = [&text](std::string_view key, std::string_view value) {
    text += ",\"";
    text += key;
    text += "\":";
    text += dump(value, -1);
  };
  text += "{\"step\":";
  append_count(text, row.step);
  append_text("tensor", row.tensor);
  if (row.observed != Observed::gradients) append_text("observed", name_of(row.observed));
  append_text("kind", row.kind);
  append_text("dtype", name_of(row.dtype));
  if (row.intermediate) text += ",\"intermediate\":true";
  text += ",\"loss_scale\":" + dump(json_number(row.loss_scale), -1);
  if (row.unmoved) {
    text += ",\"unmoved\":";
    append_count(text, *row.unmoved);
  }
  text += ",\"before\":";
  append_histogram(text, row.before);
  text += ",\"after\":";
  append_histogram(text, row.after);
  return text += '}';
}

HistogramRow parse_histogram_row(std::string_view line) {
  const Json json = parse_json(line);
  HistogramRow row;
  row.step = get_count(json, "step");
  row.tensor = get_string(json, "tensor");
  if (json.contains("observed")) row.observed = get_observed(json, "observed");
  row.kind = get_string(json, "kind");
  row.dtype = get_dtype(json, "dtype");
  if (json.contains("intermediate")) row.intermediate = get_flag(json, "intermediate");
  row.loss_scale = get_number(json, "loss_scale");
  if (json.contains("unmoved")) row.unmoved = get_count(json, "unmoved");
  row.before = histogram_of(json, "before");
  row.after = histogram_of(json, "after");
  return row;
}

}  // namespace fp16lab
