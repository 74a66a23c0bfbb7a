#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <set>

#include "engine/amp/policy.hpp"
#include "experiments/app/replay/replay.hpp"
#include "experiments/policy_league/league.hpp"

namespace fp16lab::experiments {
namespace {

using analysis::Interval;
using analysis::Word;
using Asked = Question<League>;
using Replays = std::vector<ReplayedPolicy>;

constexpr int workloads_needed = 3;
constexpr double rise_in_binades = 1;

/// a <= b? Not told where bounds overlap.
Verdict at_most(const ReplayInterval& a, const ReplayInterval& b) {
  return a.upper <= b.lower ? Verdict::holds : a.lower > b.upper ? Verdict::fails : Verdict::cannot_tell;
}

/// Judges "on at least workloads_needed workloads": `yes` and `open` count those of which it holds and cannot
/// be told.
Verdict on_enough(int yes, int open) {
  return yes >= workloads_needed         ? Verdict::holds
         : yes + open < workloads_needed ? Verdict::fails
                                         : Verdict::cannot_tell;
}

ReplayInterval sum(const Replays& replays, ReplayInterval ReplayedPolicy::*member) {
  ReplayInterval total;
  for (const ReplayedPolicy& replay : replays) {
    total.lower += (replay.*member).lower;
    total.upper += (replay.*member).upper;
  }
  return total;
}

void append(std::string& text, const std::string& more) { text += (text.empty() ? "" : "; ") + more; }

/// `replays`: which of a row's.
Answer judge_lost_mass(const League& league, Replays LeagueRow::*replays) {
  Answer answer;
  int yes = 0, open = 0;
  double most = 0;
  ReplayInterval all_ours, all_theirs;
  for (const std::string& workload : league.workloads) {
    const Replays& a = league.row(workload, league_ours).*replays;
    const Replays& b = league.row(workload, league_peer).*replays;
    if (a.empty() || b.empty()) return {};
    const ReplayInterval skips_a = sum(a, &ReplayedPolicy::skips), skips_b = sum(b, &ReplayedPolicy::skips);
    const ReplayInterval lost_a = sum(a, &ReplayedPolicy::lost_l1), lost_b = sum(b, &ReplayedPolicy::lost_l1);
    const Verdict verdict = all_of(std::array{at_most(skips_a, skips_b), at_most(lost_a, lost_b)});
    yes += verdict == Verdict::holds ? 1 : 0;
    open += verdict == Verdict::cannot_tell ? 1 : 0;
    for (const Replays* const side : {&a, &b})
      for (const ReplayedPolicy& replay : *side) most = std::max(most, replay.lost_l1.upper);
    for (auto [total, skips] : {std::pair(&all_ours, &skips_a), std::pair(&all_theirs, &skips_b)}) {
      total->lower += skips->lower;
      total->upper += skips->upper;
    }
    const auto mean = [](ReplayInterval total, std::size_t n) {
      return percent_text({total.lower / static_cast<double>(n), total.upper / static_cast<double>(n)});
    };
    append(answer.measured, fmt::format("{}: skips {} against {}, lost L1 {} % against {} %: {}", workload,
                                        interval_text(skips_a), interval_text(skips_b),
                                        mean(lost_a, a.size()), mean(lost_b, b.size()),
                                        verdict == Verdict::holds   ? "yes"
                                        : verdict == Verdict::fails ? "no"
                                                                    : "the bounds overlap"));
  }
  append(answer.measured,
         fmt::format("in all, of {} steps, {} skips {} and {} {}", league.replayed_steps, league_ours,
                     interval_text(all_ours), league_peer, interval_text(all_theirs)));
  append(answer.measured,
         fmt::format(
             "both lose at most {} % of L1 anywhere, where rounding to FP16 moves every value by up to {} %",
             percent_text({most, most}), percent_text({0x1p-11, 0x1p-11})));
  answer.verdict = on_enough(yes, open);
  return answer;
}

Asked lost_mass(Replays LeagueRow::*replays, const std::string& interval) {
  return {
      .claim = fmt::format("{} loses no more of the gradients than {}'s rule, and skips no more steps ({})",
                           league_ours, league_peer, interval),
      .criterion =
          fmt::format("replayed on the FP32 runs: no more skips and no more lost L1, over all seeds, on at "
                      "least {} workloads; where the bounds of a replay overlap it cannot be told",
                      workloads_needed),
      .judge = [replays](const League& league) { return judge_lost_mass(league, replays); }};
}

double mean_over(const std::vector<double>& values, std::size_t begin, std::size_t end) {
  double total = 0;
  for (std::size_t i = begin; i < end; ++i) total += values[i];
  return total / static_cast<double>(end - begin);
}

Answer judge_rise(const League& league) {
  Answer answer;
  int rising = 0, open = 0;
  std::size_t steps = 0;
  for (const std::string& workload : league.workloads) {
    std::vector<double> rises;  // a seed each
    for (const AllowedScales& allowed : league.allowed) {
      const std::vector<double>& highest = allowed.band.log2_highest;
      const std::size_t n = highest.size();
      if (allowed.workload != workload || n < 8) continue;
      steps = std::max(steps, n);
      rises.push_back(mean_over(highest, n - n / 4, n) - mean_over(highest, n / 4, n / 2));
    }
    if (rises.empty()) return {};
    const std::optional<Interval> interval =
        rises.size() < analysis::fewest_pairs ? std::nullopt : analysis::mean_interval(rises);
    rising += interval && interval->lower > rise_in_binades ? 1 : 0;
    open += !interval || interval->contains(rise_in_binades) ? 1 : 0;
    append(answer.measured,
           fmt::format("{}: {:+.2f} binades {}({} seeds)", workload, mean_over(rises, 0, rises.size()),
                       interval ? analysis::interval_text(interval) + " " : "", rises.size()));
  }
  append(answer.measured, fmt::format("{} steps", steps));
  answer.verdict = league.workloads.empty() ? Verdict::not_run : on_enough(rising, open);
  return answer;
}

Asked rise() {
  return {.claim = "the highest scale without overflow rises late in training, as tutorials say",
          .criterion =
              fmt::format("its log2 averaged over the last quarter of these (few) steps is above the second "
                          "quarter's by more than {} "
                          "(the unadjusted 95 % interval over seeds), on at least {} workloads (FP32 runs)",
                          rise_in_binades, workloads_needed),
          .judge = judge_rise};
}

/// "megatron on autoencoder (30 skipped steps): +5.43 % ..."
std::string named(const LeagueRow& row) {
  return fmt::format("{} on {} ({} of {} steps skipped): {}", row.policy, row.workload,
                     row.trained.row.skipped, row.trained.row.steps, words_of(row.trained));
}

Answer judge_convergence(const League& league) {
  int named_pairs = 0, pairs = 0, equal = 0, better = 0, worse = 0, worse_than_noise = 0, open = 0;
  std::set<std::uint64_t> bits;
  const LeagueRow* worst = nullptr;
  const auto size = [](const LeagueRow& row) {
    const analysis::Judgement& judgement = *row.trained.row.against_reference;
    return judgement.diverged > 0 ? std::numeric_limits<double>::infinity()
                                  : row.trained.metric.badness(judgement.mean) / judgement.margin;
  };
  for (const LeagueRow& row : league.rows) {
    if (engine::amp::scale_policy(row.policy).constant || !row.trained.row.against_reference) continue;
    ++named_pairs;
    if (row.trained.row.bits != 0 && !bits.insert(row.trained.row.bits).second) continue;
    ++pairs;
    const Word word = row.trained.row.against_reference->word;
    equal += word == Word::equal ? 1 : 0;
    better += word == Word::better ? 1 : 0;
    worse += word == Word::worse ? 1 : 0;
    open += word == Word::cannot_tell ? 1 : 0;
    worse_than_noise += is_worse(row.trained) == Verdict::holds ? 1 : 0;
    if (row.trained.row.against_reference->pairs + row.trained.row.against_reference->diverged == 0) continue;
    if (worst == nullptr || size(row) > size(*worst)) worst = &row;
  }
  if (pairs == 0) return {};
  std::string measured = fmt::format(
      "{} pairs of policy and workload are {} with bits of their own: {} equal, {} better, {} worse ({} of "
      "them also than FP32's one-ulp twin), {} that cannot be told; m = {} tests in the sweep's family",
      named_pairs, pairs, equal, better, worse, worse_than_noise, open, league.tests);
  if (worst != nullptr) append(measured, "farthest to the worse, in margins: " + named(*worst));
  return {worse_than_noise > 0      ? Verdict::fails
          : equal + better == pairs ? Verdict::holds
                                    : Verdict::cannot_tell,
          std::move(measured)};
}

Asked convergence() {
  return {.claim = "every policy that moves its scale trains as well as FP32",
          .criterion =
              "every pair of policy and workload is equal within its margin or better (holds), none is worse "
              "than FP32 and than FP32's one-ulp twin (else it fails); paired over seeds, all pairs of the "
              "sweep one family",
          .judge = judge_convergence};
}

Answer judge_prediction(const League& league) {
  std::vector<PredictedPoint> points;
  std::size_t without = 0;
  for (const FixedScale& fixed : league.fixed) {
    if (fixed.differences.empty() && fixed.diverged == 0) continue;
    if (fixed.overflows() || !fixed.excess()) {
      ++without;
      continue;
    }
    const auto middle = [](const ReplayInterval& interval) {
      return 0.5 * (interval.lower + interval.upper);
    };
    const auto group = std::find(league.workloads.begin(), league.workloads.end(), fixed.workload);
    points.push_back({.group = static_cast<std::size_t>(group - league.workloads.begin()),
                      .a = middle(fixed.lost_count),
                      .b = middle(fixed.lost_l1),
                      .outcome = *fixed.excess()});
  }
  const PredictorContest contest = experiments::contest(points);
  if (!contest.by_a || !contest.by_b)
    return {points.empty() ? Verdict::not_run : Verdict::cannot_tell,
            fmt::format("{} points, too few to rank", points.size())};
  const std::optional<Interval>& interval = contest.difference;
  return {
      !interval             ? Verdict::cannot_tell
      : interval->lower > 0 ? Verdict::holds
      : interval->upper < 0 ? Verdict::fails
                            : Verdict::cannot_tell,
      fmt::format(
          "{} points of {} workloads, not independent ({} left out): rank correlation {:+.2f} for the share "
          "of lost values, {:+.2f} for lost L1, difference {:+.2f} {}",
          points.size(), contest.groups, without, *contest.by_a, *contest.by_b, *contest.by_b - *contest.by_a,
          interval ? analysis::interval_text(interval) : "without an interval (fewer than three workloads)")};
}

Asked prediction() {
  return {
      .claim = "lost mass says better than the underflow rate what a scale costs",
      .criterion =
          "over fixed scales x workloads with fewer than 10 % skipped steps, the rank correlation (Spearman) "
          "with the final test loss above FP32's is larger for lost L1 than for the share of lost values; "
          "the scales of a workload depend on each other, so the difference has the 95 % interval of the "
          "jackknife over workloads, which must lie above 0 (holds) or below (fails)",
      .judge = judge_prediction};
}

/// "torch 2000, lost-mass 1".
std::string own_intervals() {
  std::string text;
  for (const std::string_view policy : {league_peer, league_ours})
    if (const auto* const interval = engine::amp::scale_policy(policy).find("growth_interval"))
      text += fmt::format("{}{}'s is {:g}", text.empty() ? "" : ", ", policy, interval->fallback);
  return text;
}

}  // namespace

std::vector<Asked> league_questions() {
  return {
      lost_mass(&LeagueRow::own_replays,
                fmt::format("each with its own growth interval; {}", own_intervals())),
      lost_mass(&LeagueRow::replays,
                fmt::format("growth interval {}, where torch's own is longer: see claim 1", league_interval)),
      rise(), convergence(), prediction()};
}

}  // namespace fp16lab::experiments
