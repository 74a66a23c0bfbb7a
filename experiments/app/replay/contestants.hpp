// The policies of a replay, with their parameters.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/amp/policy.hpp"
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

}  // namespace fp16lab::experiments
