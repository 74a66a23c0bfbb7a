#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "analysis/comparison.hpp"
#include "engine/amp/policy.hpp"
#include "experiments/policy_league/league.hpp"
#include "experiments/policy_league/rank_correlation.hpp"
#include "experiments/replay/replay_output.hpp"

namespace fp16lab::experiments {
namespace {

constexpr int workloads_needed = 3;
constexpr double rise_in_binades = 1;
constexpr double overflowing_share = 0.1;

/// a <= b for certain, not for certain, or as their middles have it.
struct Order {
  bool holds = false;
  bool certain = false;
};
Order at_most(const ReplayInterval& a, const ReplayInterval& b) {
  if (a.upper <= b.lower) return {true, true};
  if (a.lower > b.upper) return {false, true};
  return {a.lower + a.upper <= b.lower + b.upper, false};
}

using Replays = std::vector<ReplayedPolicy>;

ReplayInterval sum(const Replays& replays, ReplayInterval ReplayedPolicy::*member) {
  ReplayInterval total;
  for (const ReplayedPolicy& replay : replays) {
    total.lower += (replay.*member).lower;
    total.upper += (replay.*member).upper;
  }
  return total;
}

ClaimVerdict verdict_of(bool holds) { return holds ? ClaimVerdict::holds : ClaimVerdict::fails; }

void append(std::string& text, const std::string& more) { text += (text.empty() ? "" : "; ") + more; }

/// `replays`: which of a row's.
LeagueClaim judge_lost_mass(const League& league, Replays LeagueRow::*replays, const std::string& interval) {
  LeagueClaim claim{
      .claim = fmt::format("{} loses no more of the gradients than {}'s rule, and skips no more steps ({})",
                           league_ours, league_peer, interval),
      .criterion =
          fmt::format("replayed on the FP32 runs: no more skips and no more lost L1, over all seeds, on at "
                      "least {} of {} workloads; overlapping bounds are judged by their middles",
                      workloads_needed, league.workloads.size())};
  int good = 0;
  double most = 0;
  bool any = true;
  for (const std::string& workload : league.workloads) {
    const Replays& a = league.row(workload, league_ours).*replays;
    const Replays& b = league.row(workload, league_peer).*replays;
    any = any && !a.empty() && !b.empty();
    if (!any) break;
    const ReplayInterval skips_a = sum(a, &ReplayedPolicy::skips), skips_b = sum(b, &ReplayedPolicy::skips);
    const ReplayInterval lost_a = sum(a, &ReplayedPolicy::lost_l1), lost_b = sum(b, &ReplayedPolicy::lost_l1);
    const Order skips = at_most(skips_a, skips_b), lost = at_most(lost_a, lost_b);
    good += skips.holds && lost.holds ? 1 : 0;
    for (const Replays* const side : {&a, &b})
      for (const ReplayedPolicy& replay : *side) most = std::max(most, replay.lost_l1.upper);
    const auto mean = [](ReplayInterval total, std::size_t n) {
      return percent_text({total.lower / static_cast<double>(n), total.upper / static_cast<double>(n)});
    };
    append(claim.measured, fmt::format("{}: skips {} against {}, lost L1 {} % against {} %: {}{}", workload,
                                       interval_text(skips_a), interval_text(skips_b), mean(lost_a, a.size()),
                                       mean(lost_b, b.size()), skips.holds && lost.holds ? "yes" : "no",
                                       skips.certain && lost.certain ? "" : " by the middles"));
  }
  if (any)
    append(
        claim.measured,
        fmt::format(
            "both lose at most {} % of L1 anywhere, where rounding to FP16 moves every value by up to {} %",
            percent_text({most, most}), percent_text({0x1p-11, 0x1p-11})));
  claim.verdict = any ? verdict_of(good >= workloads_needed) : ClaimVerdict::undecided;
  return claim;
}

double mean_over(const std::vector<double>& values, std::size_t begin, std::size_t end) {
  double total = 0;
  for (std::size_t i = begin; i < end; ++i) total += values[i];
  return total / static_cast<double>(end - begin);
}

LeagueClaim judge_rise(const League& league) {
  LeagueClaim claim{.claim = "the highest scale without overflow rises late in training, as tutorials say",
                    .criterion = fmt::format("its log2 averaged over the last quarter of the steps is above "
                                             "the second quarter's by more than {} in every "
                                             "seed, on at least {} of {} workloads (FP32 runs)",
                                             rise_in_binades, workloads_needed, league.workloads.size())};
  int rising = 0;
  bool any = !league.allowed.empty();
  for (const std::string& workload : league.workloads) {
    bool all = true;
    std::string rises;
    for (const AllowedScales& allowed : league.allowed) {
      if (allowed.workload != workload) continue;
      const std::vector<double>& highest = allowed.band.log2_highest;
      const std::size_t n = highest.size();
      if (n < 8) {
        any = false;
        continue;
      }
      const double rise = mean_over(highest, n - n / 4, n) - mean_over(highest, n / 4, n / 2);
      all = all && rise > rise_in_binades;
      rises += fmt::format("{}{:+.2f}", rises.empty() ? "" : ", ", rise);
    }
    rising += all ? 1 : 0;
    append(claim.measured, fmt::format("{}: {} binades", workload, rises));
  }
  claim.verdict = any ? verdict_of(rising >= workloads_needed) : ClaimVerdict::undecided;
  return claim;
}

LeagueClaim judge_convergence(const League& league) {
  LeagueClaim claim{.claim = "every policy that moves its scale trains as well as FP32",
                    .criterion =
                        "its final test loss is not above FP32's by more than 3 x the larger spread over "
                        "seeds, on no workload"};
  std::size_t behind = 0, judged = 0;
  for (const LeagueRow& row : league.rows) {
    if (row.policy == league_reference || engine::amp::scale_policy(row.policy).constant) continue;
    const LeagueRow& reference = league.row(row.workload, league_reference);
    if (row.trained.complete < 2 || reference.trained.complete < 2) continue;
    ++judged;
    const analysis::Comparison comparison =
        analysis::compare(reference.trained.final_losses, row.trained.final_losses, analysis::Better::lower);
    if (comparison.verdict != analysis::Verdict::behind && comparison.verdict != analysis::Verdict::diverged)
      continue;
    ++behind;
    append(claim.measured, fmt::format("{} on {} {} ({} skipped steps)", row.policy, row.workload,
                                       comparison.verdict == analysis::Verdict::diverged
                                           ? std::string("diverged")
                                           : fmt::format("{:+.2f} %", comparison.difference_percent),
                                       row.trained.skipped));
  }
  append(claim.measured, fmt::format("{} of {} pairs of policy and workload are behind", behind, judged));
  claim.verdict = judged == 0 ? ClaimVerdict::undecided : verdict_of(behind == 0);
  return claim;
}

LeagueClaim judge_prediction(const League& league) {
  LeagueClaim claim{
      .claim = "lost mass says better than the underflow rate what a scale costs",
      .criterion = fmt::format(
          "over fixed scales x workloads with fewer than {:.0f} % skipped steps, the rank correlation "
          "(Spearman) with "
          "the final test loss above FP32's is larger for lost L1 than for the share of lost values",
          100 * overflowing_share)};
  std::vector<double> counts, masses, squares, excess;
  std::size_t without = 0;
  for (const FixedScale& fixed : league.fixed) {
    const TrainedRuns& trained = fixed.trained;
    if (trained.complete == 0 || trained.differences.empty()) continue;
    const analysis::Quality difference = analysis::quality_of(trained.differences);
    if (static_cast<double>(trained.skipped) >= overflowing_share * static_cast<double>(trained.steps) ||
        difference.non_finite > 0) {
      ++without;
      continue;
    }
    const auto middle = [](const ReplayInterval& interval) {
      return 0.5 * (interval.lower + interval.upper);
    };
    counts.push_back(middle(fixed.lost_count));
    masses.push_back(middle(fixed.lost_l1));
    squares.push_back(middle(fixed.lost_l2));
    excess.push_back(difference.mean);
  }
  const std::optional<double> by_count = rank_correlation(counts, excess);
  const std::optional<double> by_mass = rank_correlation(masses, excess);
  const std::optional<double> by_square = rank_correlation(squares, excess);
  if (!by_count || !by_mass || !by_square) {
    claim.measured = fmt::format("{} points, too few to rank", excess.size());
    return claim;
  }
  claim.measured = fmt::format(
      "{} points ({} left out): {:+.3f} for the share of lost values, {:+.3f} for lost L1, {:+.3f} for lost "
      "L2",
      excess.size(), without, *by_count, *by_mass, *by_square);
  claim.verdict = verdict_of(*by_mass > *by_count);
  return claim;
}

}  // namespace

std::string_view name_of(ClaimVerdict verdict) {
  return verdict == ClaimVerdict::holds ? "PASS" : verdict == ClaimVerdict::fails ? "FAIL" : "UNDECIDED";
}

std::vector<LeagueClaim> judge(const League& league) {
  return {judge_lost_mass(league, &LeagueRow::own_replays, "each with its own growth interval"),
          judge_lost_mass(league, &LeagueRow::replays, fmt::format("growth interval {}", league_interval)),
          judge_rise(league), judge_convergence(league), judge_prediction(league)};
}

std::vector<LeagueClaim> judge_quick(const League& league) {
  std::vector<LeagueClaim> claims = judge(league);
  for (LeagueClaim& claim : claims) claim.verdict = ClaimVerdict::undecided;
  return claims;
}

}  // namespace fp16lab::experiments
