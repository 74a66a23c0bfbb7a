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
#include "numerics/files/run/record_csv.hpp"
#include "numerics/files/run/record_json.hpp"
#include "numerics/files/run/sealed_json.hpp"
#include "numerics/text/nesting.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab {

static void append_json(std::string& text, const ReplayInterval& interval) {
  run_json::append_value(text, std::vector{interval.lower, interval.upper});
}

static void read_json(const run_json::Json& json, std::string_view key, ReplayInterval& interval) {
  if (!json.is_array() || json.size() != 2) run_json::wrong_type(key, "[lower, upper]", json);
  interval = {run_json::as_number(json[0], key), run_json::as_number(json[1], key)};
  if (interval.lower > interval.upper) run_json::wrong_type(key, "[lower, upper] with lower <= upper", json);
}

namespace {

using run_json::Json;
using run_json::member;

constexpr ReplayInterval unknown_share{0, 1};
/// The losses, each with its key.
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

}  // namespace

static void append_json(std::string& text, const ReplayedPolicy& policy) {
  run_json::append_members(text += '{', policy);
  for (const auto& [key, share] : losses) {
    text.append(",\"").append(key).append("\":");
    run_json::append_value(text, policy.any_applied ? std::optional(policy.*share) : std::nullopt);
  }
  text += '}';
}

static void read_json(const Json& json, std::string_view, ReplayedPolicy& policy) {
  run_json::read_members(json, policy);
  policy.any_applied = !member(json, losses.front().first).is_null();
  for (const auto& [key, share] : losses) {
    const Json& value = member(json, key);
    if (value.is_null() == policy.any_applied)
      throw std::runtime_error(
          fmt::format("policy '{}': '{}' must be null with 'lost_count', and only then", policy.label, key));
    policy.*share = unknown_share;
    if (policy.any_applied) read_json(value, key, policy.*share);
  }
}

/// Why the traces of a replay cannot be right, or an empty string.
static std::string error_of(const ReplayFile& replay) {
  std::string error = band_error(replay.band);
  for (const ReplayedPolicy& policy : replay.policies)
    if (error.empty()) error = trace_error(policy);
  return error;
}

std::string to_json(const ReplayFile& replay) {
  if (const std::string error = error_of(replay); !error.empty())
    throw std::invalid_argument("replay.json: " + error);
  std::string text =
      fmt::format(R"({{"schema":"{}","schema_version":{})", replay_schema_name, replay_schema_version);
  run_json::append_members(text, replay);
  return text += "}\n";
}

ReplayFile parse_replay(std::string_view text) {
  const Json json = parse_json(text);
  run_json::require_schema(json, replay_schema_name, replay_schema_version);
  ReplayFile replay;
  run_json::read_members(json, replay);
  if (const std::string error = error_of(replay); !error.empty()) throw std::runtime_error(error);
  replay.altered = json.contains(run_json::seal_key) && !run_json::is_sealed(text);
  return replay;
}

std::string summary_csv(const ReplayFile& replay) {
  std::string csv = csv_header<ReplaySummaryRow>() + '\n';
  for (const ReplayedPolicy& policy : replay.policies) {
    ReplaySummaryRow row{.policy = policy.name, .label = policy.label};
    if (policy.replayed && !policy.steps.empty()) {
      const auto put = [](const ReplayInterval& interval, auto& lower, auto& upper) {
        lower = interval.lower;
        upper = interval.upper;
      };
      row.exact = policy.exact;
      put(policy.skips, row.skips_lower, row.skips_upper);
      put(policy.wasted_steps, row.wasted_lower, row.wasted_upper);
      if (policy.any_applied) {
        put(policy.lost_count, row.lost_count_lower, row.lost_count_upper);
        put(policy.lost_l1, row.lost_l1_lower, row.lost_l1_upper);
        put(policy.lost_l2, row.lost_l2_lower, row.lost_l2_upper);
        put(policy.cosine, row.cosine_lower, row.cosine_upper);
      }
      row.final_log2_scale_lower = policy.log2_scale_lower.back();
      row.final_log2_scale_upper = policy.log2_scale_upper.back();
      row.seconds = policy.seconds;
    }
    csv += to_csv(row) + '\n';
  }
  return csv;
}

std::string traces_csv(const ReplayFile& replay) {
  std::string csv = csv_header<ReplayTraceRow>() + '\n';
  for (const ReplayedPolicy& policy : replay.policies) {
    if (policy.steps.empty()) continue;
    std::vector<std::uint64_t> rows;
    std::set_union(policy.steps.begin(), policy.steps.end(), policy.skipped_upper.begin(),
                   policy.skipped_upper.end(), std::back_inserter(rows));
    std::size_t entry = 0;
    for (const std::uint64_t step : rows) {
      while (entry + 1 < policy.steps.size() && policy.steps[entry + 1] <= step) ++entry;
      const auto in = [step](const std::vector<std::uint64_t>& steps) {
        return std::binary_search(steps.begin(), steps.end(), step);
      };
      csv += to_csv(ReplayTraceRow{.policy = policy.name,
                                   .label = policy.label,
                                   .step = step,
                                   .log2_scale_lower = policy.log2_scale_lower[entry],
                                   .log2_scale_upper = policy.log2_scale_upper[entry],
                                   .skipped_lower = in(policy.skipped_lower),
                                   .skipped_upper = in(policy.skipped_upper)}) +
             '\n';
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
