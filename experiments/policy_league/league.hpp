// The league of loss-scale policies: what each would have done on the same recorded gradients, and what came of it when
// the networks were trained with it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/paired_interval.hpp"
#include "experiments/sweep.hpp"
#include "numerics/files/replay_file.hpp"

namespace fp16lab::experiments {

/// Growth intervals that are longer become this long: the runs are short.
inline constexpr std::int64_t league_interval = 20;
inline constexpr std::string_view league_reference = "fp32";
inline constexpr std::string_view league_ours = "lost-mass", league_peer = "torch";
/// Why the initial scale of layers: layerwise and groups want to be told which layers there are.
inline constexpr std::string_view league_groups = "[\"*=2^8\"]";

/// The exponents of the fixed scales.
std::vector<int> league_scales(bool quick);
std::string scale_variant(int log2_scale);              ///< "fixed-2p-8"
std::string policy_variant(const std::string& policy);  ///< "policy-torch"

/// FP32, every policy and the fixed scales on the workloads of a sweep file. `quick`: one seed, twelve steps and a few
/// policies, for tests.
SweepPlan league_plan(const CommonOptions& common, bool quick);
/// The policies that take part, in the order of the table.
std::vector<std::string> league_policies(bool quick);

/// A variant's runs on a workload.
struct TrainedRuns {
  int complete = 0, planned = 0;
  std::vector<double> final_losses{};  ///< test loss, one a complete run; infinite where it diverged
  std::vector<double> differences{};   ///< to the FP32 run of the same seed, percent of its loss
  std::optional<analysis::PairedInterval> paired{};  ///< of the differences
  std::uint64_t steps = 0, skipped = 0;
  /// Of the gradients that the runs' casts took: recorded, and of their mass the middle of the bounds. None in FP32.
  std::optional<double> underflow{}, lost_l1{};
  double seconds_per_step = 0;
};

struct LeagueRow {
  std::string workload, policy;
  std::vector<ReplayedPolicy> replays{};  ///< one a seed
  /// The same with every parameter as the policy has it, growth intervals too; of the two that claim 1 compares.
  std::vector<ReplayedPolicy> own_replays{};
  TrainedRuns trained{};
};

/// A fixed scale: what the FP32 run of the same seed says that it loses, and what training with it lost.
struct FixedScale {
  std::string workload;
  int log2_scale = 0;
  ReplayInterval lost_count{}, lost_l1{}, lost_l2{};  ///< mean over seeds
  TrainedRuns trained{};
};

/// The scales that an FP32 run allowed.
struct AllowedScales {
  std::string workload;
  std::int64_t seed = 0;
  ReplayBand band{};
};

struct League {
  std::vector<std::string> workloads{};
  std::vector<LeagueRow> rows{};  ///< workload by workload; the first of each is FP32's
  std::vector<FixedScale> fixed{};
  std::vector<AllowedScales> allowed{};
  const LeagueRow& row(std::string_view workload, std::string_view policy) const;
};

/// From what is on disk.
League measure(const SweepPlan& plan, bool quick);

std::string league_csv(const League& league);
std::string fixed_csv(const League& league);
/// One table a workload.
std::string league_text(const League& league);

enum class ClaimVerdict { holds, fails, undecided };
std::string_view name_of(ClaimVerdict verdict);
struct LeagueClaim {
  std::string claim, criterion;
  std::string measured{};
  ClaimVerdict verdict = ClaimVerdict::undecided;
};
/// Criteria fixed before anything was measured.
std::vector<LeagueClaim> judge(const League& league);
/// The same of a quick league, whose runs are too short to decide anything.
std::vector<LeagueClaim> judge_quick(const League& league);

/// Writes and draws the figures; returns why gnuplot drew nothing, or an empty string.
std::string draw_league(const League& league, const std::filesystem::path& folder);

}  // namespace fp16lab::experiments
