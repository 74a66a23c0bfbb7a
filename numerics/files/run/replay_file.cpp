#include "numerics/files/run/replay_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "numerics/files/disk/atomic_file.hpp"
#include "numerics/files/disk/folder.hpp"
#include "numerics/files/disk/read_file.hpp"
#include "numerics/files/run/run_json_values.hpp"
#include "numerics/files/run/sealed_json.hpp"
#include "numerics/text/nesting.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab {
namespace {

using run_json::as_count;
using run_json::as_number;
using run_json::get_array;
using run_json::get_flag;
using run_json::get_string;
using run_json::Json;
using run_json::member;
using run_json::wrong_type;

// Writing.

Json numbers(const std::vector<double>& values) {
  Json array = Json::array();
  for (const double value : values) array.push_back(json_number(value));
  return array;
}

Json interval(const ReplayInterval& value) {
  return Json::array({json_number(value.lower), json_number(value.upper)});
}

constexpr ReplayInterval unknown_share{0, 1};
/// What is lost, each with its key.
constexpr std::array<std::pair<std::string_view, ReplayInterval ReplayedPolicy::*>, 4> losses{
    {{"lost_count", &ReplayedPolicy::lost_count},
     {"lost_l1", &ReplayedPolicy::lost_l1},
     {"lost_l2", &ReplayedPolicy::lost_l2},
     {"cosine", &ReplayedPolicy::cosine}}};

/// Why the traces of a policy cannot be right, or an empty string.
std::string trace_error(const ReplayedPolicy& policy) {
  if (policy.log2_scale_lower.size() != policy.steps.size() ||
      policy.log2_scale_upper.size() != policy.steps.size())
    return fmt::format("policy '{}': steps has {} entries, log2_scale_lower {}, log2_scale_upper {}",
                       policy.label, policy.steps.size(), policy.log2_scale_lower.size(),
                       policy.log2_scale_upper.size());
  for (const auto* steps : {&policy.steps, &policy.skipped_lower, &policy.skipped_upper})
    if (std::adjacent_find(steps->begin(), steps->end(), std::greater_equal<>()) != steps->end())
      return fmt::format("policy '{}': its step numbers do not ascend", policy.label);
  if (!std::includes(policy.skipped_upper.begin(), policy.skipped_upper.end(), policy.skipped_lower.begin(),
                     policy.skipped_lower.end()))
    return fmt::format("policy '{}': skipped_lower has a step that skipped_upper lacks", policy.label);
  return {};
}

std::string band_error(const ReplayBand& band) {
  const std::size_t n = band.steps.size();
  if (band.log2_highest.size() == n && band.log2_one_percent.size() == n && band.log2_lossless.size() == n)
    return {};
  return fmt::format("band: steps has {} entries, log2_highest {}, log2_one_percent {}, log2_lossless {}", n,
                     band.log2_highest.size(), band.log2_one_percent.size(), band.log2_lossless.size());
}

Json policy_json(const ReplayedPolicy& policy) {
  Json parameters = Json::object();
  for (const auto& [name, value] : policy.parameters) parameters[name] = json_number(value);
  Json json{{"name", policy.name},
            {"label", policy.label},
            {"parameters", std::move(parameters)},
            {"source", policy.source},
            {"per_layer", policy.per_layer},
            {"note", policy.note},
            {"replayed", policy.replayed},
            {"exact", policy.exact},
            {"steps", policy.steps},
            {"log2_scale_lower", numbers(policy.log2_scale_lower)},
            {"log2_scale_upper", numbers(policy.log2_scale_upper)},
            {"skipped_lower", policy.skipped_lower},
            {"skipped_upper", policy.skipped_upper},
            {"skips", interval(policy.skips)},
            {"wasted_steps", interval(policy.wasted_steps)},
            {"seconds", json_number(policy.seconds)}};
  for (const auto& [key, share] : losses)
    json[key] = policy.any_applied ? interval(policy.*share) : Json(nullptr);
  return json;
}

// Reading.

std::vector<double> get_numbers(const Json& object, std::string_view key) {
  std::vector<double> values;
  for (const Json& item : get_array(object, key)) values.push_back(as_number(item, key));
  return values;
}

std::vector<std::uint64_t> get_counts(const Json& object, std::string_view key) {
  std::vector<std::uint64_t> values;
  for (const Json& item : get_array(object, key)) values.push_back(as_count(item, key));
  return values;
}

ReplayInterval get_interval(const Json& object, std::string_view key) {
  const Json& value = member(object, key);
  if (!value.is_array() || value.size() != 2) wrong_type(key, "[lower, upper]", value);
  const ReplayInterval interval{as_number(value[0], key), as_number(value[1], key)};
  if (interval.lower > interval.upper) wrong_type(key, "[lower, upper] with lower <= upper", value);
  return interval;
}

ReplayedPolicy policy_of(const Json& json) {
  ReplayedPolicy policy;
  policy.name = get_string(json, "name");
  policy.label = get_string(json, "label");
  const Json& parameters = member(json, "parameters");
  if (!parameters.is_object()) wrong_type("parameters", "an object", parameters);
  for (const auto& [name, value] : parameters.items())
    policy.parameters.emplace_back(printable(name), as_number(value, name));
  policy.source = get_string(json, "source");
  policy.per_layer = get_flag(json, "per_layer");
  policy.note = get_string(json, "note");
  policy.replayed = get_flag(json, "replayed");
  policy.exact = get_flag(json, "exact");
  policy.steps = get_counts(json, "steps");
  policy.log2_scale_lower = get_numbers(json, "log2_scale_lower");
  policy.log2_scale_upper = get_numbers(json, "log2_scale_upper");
  policy.skipped_lower = get_counts(json, "skipped_lower");
  policy.skipped_upper = get_counts(json, "skipped_upper");
  policy.skips = get_interval(json, "skips");
  policy.wasted_steps = get_interval(json, "wasted_steps");
  policy.any_applied = !member(json, losses.front().first).is_null();
  for (const auto& [key, share] : losses) {
    const Json& value = member(json, key);
    if (value.is_null() == policy.any_applied)
      throw std::runtime_error(
          fmt::format("policy '{}': '{}' must be null with 'lost_count', and only then", policy.label, key));
    policy.*share = policy.any_applied ? get_interval(json, key) : unknown_share;
  }
  policy.seconds = as_number(member(json, "seconds"), "seconds");
  if (const std::string error = trace_error(policy); !error.empty()) throw std::runtime_error(error);
  return policy;
}

ReplayBand band_of(const Json& json) {
  ReplayBand band{.steps = get_counts(json, "steps"),
                  .log2_highest = get_numbers(json, "log2_highest"),
                  .log2_one_percent = get_numbers(json, "log2_one_percent"),
                  .log2_lossless = get_numbers(json, "log2_lossless")};
  if (const std::string error = band_error(band); !error.empty()) throw std::runtime_error(error);
  return band;
}

// CSV.

std::string csv_interval(const ReplayInterval& value) {
  return csv_number(value.lower) + ',' + csv_number(value.upper);
}

}  // namespace

std::string to_json(const ReplayFile& replay) {
  if (const std::string error = band_error(replay.band); !error.empty())
    throw std::invalid_argument("replay.json: " + error);
  Json policies = Json::array();
  for (const ReplayedPolicy& policy : replay.policies) {
    if (const std::string error = trace_error(policy); !error.empty())
      throw std::invalid_argument("replay.json: " + error);
    policies.push_back(policy_json(policy));
  }
  const Json json = {{"schema", replay_schema_name},
                     {"schema_version", replay_schema_version},
                     {"run", replay.run},
                     {"workload", replay.workload},
                     {"total_steps", replay.total_steps},
                     {"observed_steps", replay.observed_steps},
                     {"exact", replay.exact},
                     {"notes", replay.notes},
                     {"band",
                      {{"steps", replay.band.steps},
                       {"log2_highest", numbers(replay.band.log2_highest)},
                       {"log2_one_percent", numbers(replay.band.log2_one_percent)},
                       {"log2_lossless", numbers(replay.band.log2_lossless)}}},
                     {"policies", std::move(policies)}};
  // Folder names may not be UTF-8: such bytes become U+FFFD instead of an exception.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

ReplayFile parse_replay(std::string_view text) {
  const Json json = parse_json(text);
  if (const std::string schema = get_string(json, "schema"); schema != replay_schema_name)
    throw std::runtime_error(fmt::format("'schema' is '{}', not '{}'", schema, replay_schema_name));
  const Json& version = member(json, "schema_version");
  if (!version.is_number_integer() || version.get<std::int64_t>() < 1 ||
      version.get<std::int64_t>() > replay_schema_version)
    throw std::runtime_error(fmt::format("schema version {}, but this build reads versions 1 to {}",
                                         version.dump(), replay_schema_version));
  ReplayFile replay;
  replay.run = get_string(json, "run");
  replay.workload = get_string(json, "workload");
  replay.total_steps = as_count(member(json, "total_steps"), "total_steps");
  replay.observed_steps = as_count(member(json, "observed_steps"), "observed_steps");
  replay.exact = get_flag(json, "exact");
  for (const Json& note : get_array(json, "notes")) {
    if (!note.is_string()) wrong_type("notes", "an array of strings", note);
    replay.notes.push_back(run_json::as_string(note, "notes"));
  }
  replay.band = band_of(member(json, "band"));
  for (const Json& policy : get_array(json, "policies")) replay.policies.push_back(policy_of(policy));
  replay.altered = json.contains(run_json::seal_key) && !run_json::is_sealed(text);
  return replay;
}

std::string summary_csv(const ReplayFile& replay) {
  std::string csv = std::string(replay_summary_columns) + '\n';
  const auto columns =
      static_cast<std::size_t>(std::count(replay_summary_columns.begin(), replay_summary_columns.end(), ','));
  for (const ReplayedPolicy& policy : replay.policies) {
    csv += policy.name + ',' + csv_text(policy.label);
    if (!policy.replayed || policy.steps.empty()) {
      csv += std::string(columns - 1, ',') + '\n';
      continue;
    }
    csv += fmt::format(",{},{},{}", policy.exact ? 1 : 0, csv_interval(policy.skips),
                       csv_interval(policy.wasted_steps));
    for (const auto& [key, share] : losses)
      csv += ',' + (policy.any_applied ? csv_interval(policy.*share) : ",");
    csv += fmt::format(",{},{},{}\n", csv_number(policy.log2_scale_lower.back()),
                       csv_number(policy.log2_scale_upper.back()), csv_number(policy.seconds));
  }
  return csv;
}

std::string traces_csv(const ReplayFile& replay) {
  std::string csv = std::string(replay_trace_columns) + '\n';
  for (const ReplayedPolicy& policy : replay.policies) {
    if (policy.steps.empty()) continue;
    const std::string head = policy.name + ',' + csv_text(policy.label);
    std::vector<std::uint64_t> rows;
    std::set_union(policy.steps.begin(), policy.steps.end(), policy.skipped_upper.begin(),
                   policy.skipped_upper.end(), std::back_inserter(rows));
    std::size_t entry = 0;
    for (const std::uint64_t step : rows) {
      while (entry + 1 < policy.steps.size() && policy.steps[entry + 1] <= step) ++entry;
      const auto in = [step](const std::vector<std::uint64_t>& steps) {
        return std::binary_search(steps.begin(), steps.end(), step) ? 1 : 0;
      };
      csv += fmt::format("{},{},{},{},{},{}\n", head, step, csv_number(policy.log2_scale_lower[entry]),
                         csv_number(policy.log2_scale_upper[entry]), in(policy.skipped_lower),
                         in(policy.skipped_upper));
    }
  }
  return csv;
}

void write_replay(const std::filesystem::path& folder, const ReplayFile& replay) {
  const std::string json = to_json(replay);  // checks before anything is written
  make_folders(folder);
  write_file_atomically(folder / replay_name::traces, traces_csv(replay));
  write_file_atomically(folder / replay_name::summary, summary_csv(replay));
  write_file_atomically(folder / replay_name::json, run_json::sealed(json.substr(0, json.size() - 1)));
}

ReplayFile read_replay(const std::filesystem::path& file_or_folder) {
  std::error_code ignored;
  const std::filesystem::path path = std::filesystem::is_directory(file_or_folder, ignored)
                                         ? file_or_folder / replay_name::json
                                         : file_or_folder;
  const std::string text = read_file(path, longest::table);
  try {
    ReplayFile replay = parse_replay(text);
    if (replay.altered)
      replay.notes.push_back(fmt::format("{} is not what fp16lab replay wrote (it has another SHA-256)",
                                         path.filename().string()));
    return replay;
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(fmt::format("{}: {}", path.string(), printable(error.what())));
  }
}

}  // namespace fp16lab
