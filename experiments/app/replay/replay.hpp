// What every loss-scale policy would have done on a recorded run, and what it would have cost.
//
// What a replay cannot know: the weights went the recorded run's way, so a step that a policy skips here was
// taken there (or the other way round); and an upstream flush to zero, at the recorded scale or at another,
// is not undone or repeated (experiments/app/replay/step_outcome.hpp). Recorded without rounding (amp.level =
// "O0") the histograms hold what the gradients were before any cast: the best source.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/amp/policy.hpp"
#include "experiments/app/replay/policy_replay.hpp"
#include "numerics/files/run/replay_file.hpp"

namespace fp16lab::experiments {

struct ContestantOptions {
  std::vector<std::string> policies{};  ///< names or aliases; empty: all of scale_policies()
  /// "POLICY.PARAMETER=VALUE" for one policy, "scaler.PARAMETER=VALUE" for all that have the parameter; in
  /// order.
  std::vector<std::string> settings{};
  /// Growth intervals that are longer become this long.
  std::optional<std::int64_t> interval{};
};

struct Contestant {
  engine::amp::ScalePolicy policy;
  ReplayedPolicy row;  ///< name, label, parameters, source, per_layer, and what may be wrong with its scales
};

/// std::invalid_argument for unknown policies and parameters (with the nearest names), for values out of
/// range, and for settings of a policy that does not take part.
std::vector<Contestant> contestants(const ContestantOptions& options);

/// A fixed scale as a contestant under another name.
Contestant fixed_contestant(double scale, std::string name, std::string label, std::string source);

inline constexpr std::string_view oracle_name = "oracle";

struct ReplayOptions {
  ContestantOptions contestants{};
  bool recorded_only = false;  ///< only steps with histograms count; else steps without hold the last ones
  bool oracle = true;          ///< a row for the best fixed power of two in hindsight
  std::size_t state_limit = default_state_limit;
};

/// Reads the run's histograms twice, one step at a time. std::runtime_error as RecordedRun,
/// std::invalid_argument as contestants(). Per-layer policies are listed and not replayed.
ReplayFile replay_run(const std::filesystem::path& run, const ReplayOptions& options);

/// "3", "3..5"; of shares in percent, "0.12", "0.1..0.3".
std::string interval_text(const ReplayInterval& interval);
std::string percent_text(const ReplayInterval& share);
/// "2^16", "2^14..2^16", "2^15.678".
std::string log2_range_text(double log2_lower, double log2_upper);

/// One row a policy, in their order.
std::string replay_table(const ReplayFile& replay);

}  // namespace fp16lab::experiments
