#include "experiments/questions/policy_league.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <stdexcept>
#include <utility>

#include "engine/amp/policy.hpp"
#include "experiments/app/progress.hpp"
#include "experiments/app/replay/replay.hpp"
#include "experiments/app/sweep/summary_output.hpp"
#include "experiments/questions/questions.hpp"
#include "reports/figures/question_figures.hpp"

namespace fp16lab::experiments {
namespace {

using analysis::Interval;
using analysis::Word;
using Asked = Question<League>;
using Replays = std::vector<ReplayedPolicy>;

constexpr std::string_view league_reference = "fp32", league_ours = "lost-mass", league_peer = "torch";
/// Why the initial scale of layers: layerwise and groups need to know which layers there are.
constexpr std::string_view league_groups = "[\"*=2^8\"]";

std::string scale_variant(int log2_scale) { return fmt::format("fixed-2p{}", log2_scale); }
std::string policy_variant(const std::string& policy) { return "policy-" + policy; }

/// The policies that take part, in the order of the table.
std::vector<std::string> league_policies(bool quick) {
  if (quick) return {"none", "torch", "lost-mass"};
  std::vector<std::string> names;
  for (const engine::amp::PolicyDescription& policy : engine::amp::scale_policies())
    names.emplace_back(policy.name);
  return names;
}

SweepVariant variant_of(const engine::amp::PolicyDescription& policy) {
  SweepVariant variant{.name = policy_variant(std::string(policy.name)),
                       .set = {"amp.level=O1", fmt::format("scaler.policy={}", policy.name)}};
  const engine::amp::PolicyParameter* const interval = policy.find("growth_interval");
  if (interval != nullptr && interval->fallback > static_cast<double>(league_interval))
    variant.set.push_back(fmt::format("scaler.growth_interval={}", league_interval));
  if (policy.name == "layerwise" || policy.name == "groups")
    variant.set.push_back(fmt::format("scaler.groups={}", league_groups));
  return variant;
}

struct Correlations {
  std::optional<double> a, b;
  std::optional<double> difference() const { return a && b ? std::optional(*b - *a) : std::nullopt; }
};

Correlations correlations(std::span<const PredictedPoint> points, std::optional<std::size_t> without = {}) {
  std::vector<double> a, b, outcome;
  for (const PredictedPoint& point : points) {
    if (point.group == without) continue;
    a.push_back(point.a);
    b.push_back(point.b);
    outcome.push_back(point.outcome);
  }
  return {rank_correlation(a, outcome), rank_correlation(b, outcome)};
}

/// Differences of the final test loss, whatever the workload is judged by.
analysis::PairedSample loss_pairs(reports::SummaryRow variant, reports::SummaryRow reference) {
  variant.final_values = variant.final_losses;
  reference.final_values = reference.final_losses;
  return reports::pairs_of({.name = "test loss", .quantity = reports::Quantity::loss}, variant, reference);
}

std::size_t tests_of(const JudgedSweep& sweep) {
  std::set<std::uint64_t> bits;
  std::size_t tests = 0;
  for (const reports::WorkloadSummary& workload : sweep.workloads())
    for (const reports::SummaryRow& row : workload.rows)
      if (row.against_reference && row.against_reference->p_differs)
        tests += row.bits == 0 || bits.insert(row.bits).second ? 1 : 0;
  return tests;
}

/// "classifier, the same runs bit for bit: policy-torch, policy-paddle": a line for each such group.
std::string same_runs(const reports::WorkloadSummary& workload) {
  std::map<std::uint64_t, std::vector<std::string>> names;
  for (const reports::SummaryRow& row : workload.rows)
    if (row.bits != 0) names[row.bits].push_back(row.label);
  std::string text;
  for (const reports::SummaryRow& row : workload.rows)  // in the rows' order
    if (const auto& same = names[row.bits]; same.size() > 1 && same.front() == row.label)
      text += fmt::format("{}, the same runs bit for bit: {}\n", workload.name, fmt::join(same, ", "));
  return text;
}

void add(ReplayInterval& sum, const ReplayInterval& more, double weight) {
  sum.lower += weight * more.lower;
  sum.upper += weight * more.upper;
}

}  // namespace

std::vector<int> league_scales(bool quick) {
  return quick ? std::vector{-8, 8} : std::vector{-8, -4, 0, 4, 8, 12, 16};
}

SweepPlan league_plan(const CommonOptions& common, bool quick) {
  // The file's own plan: workloads, their configurations and seeds.
  CommonOptions base = common;
  base.set.clear();  // make_plan applies them last
  const SweepPlan read = load_sweep(base);
  std::vector<SweepWorkload> workloads;
  for (const PlannedRun& run : read.runs) {
    const auto known =
        std::find_if(workloads.begin(), workloads.end(),
                     [&run](const SweepWorkload& workload) { return workload.name == run.workload; });
    if (known != workloads.end()) {
      if (std::find(known->seeds.begin(), known->seeds.end(), run.config.train.seed) == known->seeds.end())
        known->seeds.push_back(run.config.train.seed);
      continue;
    }
    SweepWorkload workload{.name = run.workload, .config = run.config, .seeds = {run.config.train.seed}};
    if (quick) {
      workload.config.train.steps = 12;
      if (workload.config.optimizer.schedule.warmup_steps > 0)
        workload.config.optimizer.schedule.warmup_steps = 2;
    }
    workloads.push_back(std::move(workload));
  }
  if (quick)
    for (SweepWorkload& workload : workloads) workload.seeds.resize(1);

  std::vector<SweepVariant> variants{
      {.name = std::string(league_reference),
       .set = {"amp.level=O0", "scaler.policy=none", "observe.histograms_every=1"}}};
  for (const std::string& policy : league_policies(quick))
    variants.push_back(variant_of(engine::amp::scale_policy(policy)));
  for (const int scale : league_scales(quick))
    variants.push_back(
        {.name = scale_variant(scale),
         .set = {"amp.level=O1", "scaler.policy=fixed", fmt::format("scaler.initial_scale=2^{}", scale)}});
  for (SweepVariant& variant : variants)
    if (variant.name != league_reference)
      variant.set.push_back(fmt::format("observe.histograms_every={}", quick ? 4 : 40));
  SweepPlan plan = make_plan(workloads, variants, common);
  add_twins(plan);
  return plan;
}

const LeagueRow& League::row(std::string_view workload, std::string_view policy) const {
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const LeagueRow& row) {
    return row.workload == workload && row.policy == policy;
  });
  if (found == rows.end()) throw std::out_of_range("the league has no such row");
  return *found;
}

std::optional<double> FixedScale::excess() const {
  if (differences.empty() || diverged > 0) return std::nullopt;
  return analysis::percent_of(std::accumulate(differences.begin(), differences.end(), 0.0) /
                              static_cast<double>(differences.size()));
}

std::optional<analysis::Interval> FixedScale::interval() const {
  return analysis::percent_of(analysis::mean_interval(differences));
}

std::vector<double> ranks(std::span<const double> values) {
  if (std::any_of(values.begin(), values.end(), [](double value) { return std::isnan(value); }))
    throw std::invalid_argument("ranks: a value is NaN, which has no rank");
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [values](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  std::vector<double> result(values.size());
  for (std::size_t begin = 0; begin < order.size();) {
    std::size_t end = begin;
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    // Ranks begin + 1 ... end, whose mean is:
    const double mean = 0.5 * static_cast<double>(begin + 1 + end);
    for (; begin < end; ++begin) result[order[begin]] = mean;
  }
  return result;
}

std::optional<double> rank_correlation(std::span<const double> x, std::span<const double> y) {
  if (x.size() != y.size()) throw std::invalid_argument("rank_correlation: sides of different length");
  if (x.size() < 3) return std::nullopt;
  const std::vector<double> a = ranks(x), b = ranks(y);
  const double mean = 0.5 * static_cast<double>(x.size() + 1);
  double ab = 0, aa = 0, bb = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ab += (a[i] - mean) * (b[i] - mean);
    aa += (a[i] - mean) * (a[i] - mean);
    bb += (b[i] - mean) * (b[i] - mean);
  }
  if (aa == 0 || bb == 0) return std::nullopt;
  return ab / std::sqrt(aa * bb);
}

PredictorContest contest(std::span<const PredictedPoint> points) {
  std::set<std::size_t> groups;
  for (const PredictedPoint& point : points) groups.insert(point.group);
  const Correlations all = correlations(points);
  PredictorContest result{.groups = groups.size(), .by_a = all.a, .by_b = all.b};
  if (!all.difference() || groups.size() < analysis::fewest_pairs) return result;
  const auto n = static_cast<double>(groups.size());
  std::vector<double> pseudo_values;
  for (const std::size_t group : groups) {
    const std::optional<double> others = correlations(points, group).difference();
    if (!others) return result;
    pseudo_values.push_back(n * *all.difference() - (n - 1) * *others);
  }
  result.difference = analysis::mean_interval(pseudo_values);
  return result;
}

namespace {

/// From what is on disk.
League measure_league(const SweepPlan& plan, bool quick) {
  const JudgedSweep sweep(plan);
  League league{.tests = tests_of(sweep), .table = sweep.table(), .csv = summary_csv(sweep.workloads())};
  for (const reports::WorkloadSummary& summary : sweep.workloads()) {
    const std::string& workload = summary.name;
    league.workloads.push_back(workload);
    league.table += same_runs(summary);
    const std::size_t first = league.rows.size();
    for (const std::string& policy : league_policies(quick))
      league.rows.push_back(
          {.workload = workload, .policy = policy, .trained = sweep.row(workload, policy_variant(policy))});
    const std::size_t first_fixed = league.fixed.size();
    const reports::SummaryRow reference = sweep.row(workload, league_reference).row;
    for (const int scale : league_scales(quick)) {
      const reports::SummaryRow row = sweep.row(workload, scale_variant(scale)).row;
      analysis::PairedSample pairs = loss_pairs(row, reference);
      league.fixed.push_back({.workload = workload,
                              .log2_scale = scale,
                              .differences = std::move(pairs.differences),
                              .steps = row.steps,
                              .skipped = row.skipped,
                              .diverged = pairs.diverged});
    }
    std::vector<const PlannedRun*> replayed;
    for (const PlannedRun& run : plan.runs)
      if (run.workload == workload && run.variant == league_reference && is_done(run))
        replayed.push_back(&run);
    const double seeds = static_cast<double>(replayed.size());
    const auto keep = [&](const Replays& replays, Replays LeagueRow::*member) {
      for (const ReplayedPolicy& replay : replays)
        for (std::size_t i = first; i < league.rows.size(); ++i)
          if (league.rows[i].policy == replay.name) (league.rows[i].*member).push_back(replay);
    };
    for (const PlannedRun* const run : replayed) {
      const auto replay = [run](const ContestantOptions& contestants, bool oracle) {
        return replay_run(run->folder, {.contestants = contestants, .oracle = oracle});
      };
      const ReplayFile all = replay({.policies = league_policies(quick), .interval = league_interval}, true);
      league.replayed_steps += all.total_steps;
      keep(all.policies, &LeagueRow::replays);
      keep(replay({.policies = {std::string(league_ours), std::string(league_peer)}}, false).policies,
           &LeagueRow::own_replays);
      league.allowed.push_back({.workload = workload,
                                .seed = static_cast<std::int64_t>(run->config.train.seed),
                                .band = all.band});
      for (std::size_t i = first_fixed; i < league.fixed.size(); ++i) {
        FixedScale& fixed = league.fixed[i];
        const std::string setting = fmt::format("fixed.initial_scale=2^{}", fixed.log2_scale);
        const ReplayedPolicy row =
            replay({.policies = {"fixed"}, .settings = {setting}}, false).policies.at(0);
        add(fixed.lost_count, row.lost_count, 1 / seeds);
        add(fixed.lost_l1, row.lost_l1, 1 / seeds);
        add(fixed.lost_l2, row.lost_l2, 1 / seeds);
      }
    }
  }
  return league;
}

// What is shown.

ReplayInterval sum(const Replays& replays, ReplayInterval ReplayedPolicy::*member, double divisor = 1) {
  ReplayInterval total;
  for (const ReplayedPolicy& replay : replays) {
    total.lower += (replay.*member).lower / divisor;
    total.upper += (replay.*member).upper / divisor;
  }
  return total;
}

ReplayInterval mean_lost_l1(const Replays& replays) {
  return sum(replays, &ReplayedPolicy::lost_l1, static_cast<double>(replays.size()));
}

constexpr std::array<const char*, 5> headings = {"replayed", "growth interval", "skips", "lost L1 %",
                                                 "final scale"};
using Cells = std::array<std::string, headings.size()>;

bool was_replayed(const Replays& replays) { return !replays.empty() && replays.front().replayed; }

/// "20", "" for a policy that counts no clean steps.
std::string growth_interval(const Replays& replays) {
  for (const auto& [name, value] : replays.front().parameters)
    if (name == "growth_interval") return fmt::format("{:g}", value);
  return "";
}

Cells cells_of(const std::string& policy, const Replays& replays) {
  double lower = std::numeric_limits<double>::infinity(), upper = -lower;
  for (const ReplayedPolicy& replay : replays) {
    lower = std::min(lower, replay.log2_scale_lower.back());
    upper = std::max(upper, replay.log2_scale_upper.back());
  }
  return {policy, growth_interval(replays), interval_text(sum(replays, &ReplayedPolicy::skips)),
          percent_text(mean_lost_l1(replays)), log2_range_text(lower, upper)};
}

std::string bounds(const ReplayInterval& interval) {
  return fmt::format("{},{}", interval.lower, interval.upper);
}

std::string league_text(const League& league) {
  std::string text;
  for (const std::string& workload : league.workloads) {
    std::vector<Cells> rows{Cells{}};
    std::copy(headings.begin(), headings.end(), rows.front().begin());
    std::size_t seeds = 0;
    for (const LeagueRow& row : league.rows) {
      if (row.workload != workload) continue;
      for (const Replays* const replays : {&row.replays, &row.own_replays})
        if (was_replayed(*replays)) rows.push_back(cells_of(row.policy, *replays));
      seeds = std::max(seeds, row.replays.size());
    }
    std::array<std::size_t, headings.size()> widths{};
    for (const Cells& row : rows)
      for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    text += fmt::format("{}: replayed on {} FP32 runs; skips are their sums\n", workload, seeds);
    for (const Cells& row : rows) {
      text += fmt::format("  {:<{}}", row[0], widths[0]);
      for (std::size_t i = 1; i < row.size(); ++i) text += fmt::format("  {:>{}}", row[i], widths[i]);
      text += '\n';
    }
    text += '\n';
  }
  return text + "trained again\n\n" + league.table +
         fmt::format("{} pairs of all that were trained have bits of their own and a test: the family\n",
                     league.tests);
}

std::string replays_csv(const League& league) {
  std::string text =
      "workload,policy,growth_interval,seeds,exact,skips_lower,skips_upper,lost_l1_lower,lost_l1_upper\n";
  for (const LeagueRow& row : league.rows)
    for (const Replays* const replays : {&row.replays, &row.own_replays}) {
      if (!was_replayed(*replays)) continue;
      const bool exact = std::all_of(replays->begin(), replays->end(),
                                     [](const ReplayedPolicy& replay) { return replay.exact; });
      text += fmt::format("{},{},{},{},{},{},{}\n", row.workload, row.policy, growth_interval(*replays),
                          replays->size(), exact ? 1 : 0, bounds(sum(*replays, &ReplayedPolicy::skips)),
                          bounds(mean_lost_l1(*replays)));
    }
  return text;
}

std::string fixed_csv(const League& league) {
  std::string text =
      "workload,log2_scale,lost_count_lower,lost_count_upper,replay_lost_l1_lower,replay_lost_l1_upper,"
      "lost_l2_lower,lost_l2_upper,steps,skipped,diverged,loss_difference_percent,lower,upper\n";
  for (const FixedScale& fixed : league.fixed) {
    const auto interval = fixed.interval();
    text +=
        fmt::format("{},{},{},{},{},{},{},{},{},{}\n", fixed.workload, fixed.log2_scale,
                    bounds(fixed.lost_count), bounds(fixed.lost_l1), bounds(fixed.lost_l2), fixed.steps,
                    fixed.skipped, fixed.diverged, fixed.excess() ? fmt::format("{}", *fixed.excess()) : "",
                    interval ? fmt::format("{},{}", interval->lower, interval->upper) : ",");
  }
  return text;
}

std::string draw_league(const League& league, const std::filesystem::path& folder) {
  std::vector<reports::AllowedScaleRow> allowed;
  for (const AllowedScales& run : league.allowed) allowed.push_back({run.workload, run.band});
  std::string problem = reports::draw_highest_scales(league.workloads, allowed, folder);
  if (!problem.empty()) return problem;
  std::vector<reports::LossCostRow> costs;
  for (const FixedScale& fixed : league.fixed) {
    if (!fixed.excess() || fixed.overflows()) continue;
    const auto percent = [](const ReplayInterval& share) { return 50 * (share.lower + share.upper); };
    // Without an interval (fewer than two seeds) the bar has no length.
    costs.push_back(
        {.workload = fixed.workload,
         .lost_values = percent(fixed.lost_count),
         .lost_l1 = percent(fixed.lost_l1),
         .excess = *fixed.excess(),
         .interval = fixed.interval().value_or(analysis::Interval{*fixed.excess(), *fixed.excess()}),
         .log2_scale = fixed.log2_scale});
  }
  return reports::draw_prediction(league.workloads, costs, folder);
}

Described describe_league(const League& league, std::size_t runs, const std::filesystem::path& out) {
  return {.text = fmt::format("{} runs\n\n{}", runs, league_text(league)),
          .files = {{"exp_policy_league.csv", league.csv},
                    {"replays.csv", replays_csv(league)},
                    {"fixed_scales.csv", fixed_csv(league)}},
          .undrawn = draw_league(league, out / "figures")};
}

// What is claimed.

constexpr int workloads_needed = 3;
constexpr double rise_in_binades = 1;

/// a <= b? Inconclusive where bounds overlap.
Verdict at_most(const ReplayInterval& a, const ReplayInterval& b) {
  return a.upper <= b.lower ? Verdict::holds : a.lower > b.upper ? Verdict::fails : Verdict::cannot_tell;
}

/// Judges "on at least workloads_needed workloads": `yes` and `open` count those for which it holds and
/// is inconclusive.
Verdict on_enough(int yes, int open) {
  return yes >= workloads_needed         ? Verdict::holds
         : yes + open < workloads_needed ? Verdict::fails
                                         : Verdict::cannot_tell;
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
    append(answer.measured, fmt::format("{}: skips {} against {}, lost L1 {} % against {} %: {}", workload,
                                        interval_text(skips_a), interval_text(skips_b),
                                        percent_text(mean_lost_l1(a)), percent_text(mean_lost_l1(b)),
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
                      "least {} workloads; where the bounds of a replay overlap, it is undecided",
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
      "them also than FP32's one-ulp twin), {} undecided; m = {} tests in the sweep's family",
      named_pairs, pairs, equal, better, worse, worse_than_noise, open, league.tests);
  if (worst != nullptr) append(measured, "farthest to the worse, in margins: " + named(*worst));
  return {worse_than_noise > 0      ? Verdict::fails
          : equal + better == pairs ? Verdict::holds
                                    : Verdict::cannot_tell,
          std::move(measured)};
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

/// "torch 2000, lost-mass 1".
std::string own_intervals() {
  std::string text;
  for (const std::string_view policy : {league_peer, league_ours})
    if (const auto* const interval = engine::amp::scale_policy(policy).find("growth_interval"))
      text += fmt::format("{}{}'s is {:g}", text.empty() ? "" : ", ", policy, interval->fallback);
  return text;
}

}  // namespace

std::vector<Question<League>> league_questions() {
  return {
      lost_mass(&LeagueRow::own_replays,
                fmt::format("each with its own growth interval; {}", own_intervals())),
      lost_mass(&LeagueRow::replays,
                fmt::format("growth interval {}, where torch's own is longer: see claim 1", league_interval)),
      {.claim = "the highest scale without overflow rises late in training, as tutorials say",
       .criterion =
           fmt::format("its log2 averaged over the last quarter of these (few) steps is above the second "
                       "quarter's by more than {} "
                       "(the unadjusted 95 % interval over seeds), on at least {} workloads (FP32 runs)",
                       rise_in_binades, workloads_needed),
       .judge = judge_rise},
      {.claim = "every policy that moves its scale trains as well as FP32",
       .criterion =
           "every pair of policy and workload is equal within its margin or better (holds), none is worse "
           "than FP32 and than FP32's one-ulp twin (else it fails); paired over seeds, all pairs of the "
           "sweep one family",
       .judge = judge_convergence},
      {.claim = "lost mass says better than the underflow rate what a scale costs",
       .criterion =
           "over fixed scales x workloads with fewer than 10 % skipped steps, the rank correlation "
           "(Spearman) "
           "with the final test loss above FP32's is larger for lost L1 than for the share of lost values; "
           "the scales of a workload depend on each other, so the difference has the 95 % interval of the "
           "jackknife over workloads, which must lie above 0 (holds) or below (fails)",
       .judge = judge_prediction}};
}

Command::Run ask_policy_league(Options& options) {
  auto quick = std::make_shared<bool>(false);
  options.flag(
      "--quick", *quick,
      "Run twelve steps, one seed and a few policies: shows the form of the answer and decides nothing");
  return ask_with_sweep(options, [quick](const CommonOptions& common, SweepOptions sweep) {
    sweep.jobs = std::max(sweep.jobs, common.threads);  // one thread a run
    const SweepPlan plan = league_plan(common, *quick);
    return run_study<League>(
        common,
        {.questions = league_questions(),
         .measure =
             [&] {
               train_all(plan, common, sweep);
               Progress progress(common.quiet);
               progress.show(common.program + ": replaying the policies on the FP32 runs");
               return measure_league(plan, *quick);
             },
         .describe =
             [&](const League& league) { return describe_league(league, plan.runs.size(), common.out); },
         .decides = !*quick});
  });
}

}  // namespace fp16lab::experiments
