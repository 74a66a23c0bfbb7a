#include "experiments/questions/generations/generations.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <utility>

#include "experiments/app/progress.hpp"
#include "experiments/app/run/run_backend.hpp"
#include "experiments/questions/questions.hpp"
#include "experiments/study/judged_sweep.hpp"
#include "numerics/files/disk/atomic_file.hpp"
#include "reports/figures/question_figures.hpp"

namespace fp16lab::experiments {
namespace {

using analysis::Word;

// Which runs there are.

/// The same run, whatever its row.
bool same_but_for_rows(RunConfig a, const RunConfig& b) {
  a.backend.tensor_core = b.backend.tensor_core;
  return a == b;
}

/// The rows that products of a run follow: FP16's, and FP8's where it has those. None for FP32.
std::vector<const TensorCoreModel*> rows_of(const RunConfig& config) {
  std::vector<const TensorCoreModel*> rows;
  const std::optional<std::string_view> name = configured_tensor_core(config.backend);
  if (config.amp.level == engine::Level::O0 || !name) return rows;
  rows.push_back(&tensor_core_model(*name, DType::f16, config.backend.accumulator));
  for (const std::optional<DType> rounding : {config.amp.fp8_operands, config.amp.fp8_gradients})
    if (rounding) rows.push_back(&tensor_core_model(*name, *rounding));
  return rows;
}

bool same_functions(const RunConfig& a, const RunConfig& b) {
  const auto equal = [](const TensorCoreModel* x, const TensorCoreModel* y) { return same_function(*x, *y); };
  return std::ranges::equal(rows_of(a), rows_of(b), equal);
}

/// The runs of one workload and one seed.
std::vector<const PlannedRun*> block_of(const SweepPlan& plan, const PlannedRun& first) {
  std::vector<const PlannedRun*> block;
  for (const PlannedRun& run : plan.runs)
    if (run.workload == first.workload && run.config.train.seed == first.config.train.seed)
      block.push_back(&run);
  return block;
}

}  // namespace

std::vector<SameRows> same_rows(const SweepPlan& plan) {
  std::vector<SameRows> found;
  if (plan.runs.empty()) return found;
  const std::vector<const PlannedRun*> block = block_of(plan, plan.runs.front());
  std::set<std::string> taken;
  for (std::size_t i = 0; i < block.size(); ++i) {
    const RunConfig& config = block[i]->config;
    if (rows_of(config).empty() || taken.contains(block[i]->variant)) continue;
    SameRows same{.variant = block[i]->variant, .others = {}, .function = {}};
    for (std::size_t k = i + 1; k < block.size(); ++k)
      if (same_but_for_rows(config, block[k]->config) && same_functions(config, block[k]->config))
        same.others.push_back(block[k]->variant);
    taken.insert(same.others.begin(), same.others.end());
    std::vector<std::string> functions;
    for (const TensorCoreModel* row : rows_of(config)) functions.push_back(stages_text(*row));
    functions.erase(std::unique(functions.begin(), functions.end()), functions.end());
    same.function = fmt::format("{}", fmt::join(functions, "; "));
    if (!same.others.empty()) found.push_back(std::move(same));
  }
  return found;
}

SweepPlan generations_plan(const CommonOptions& common, bool quick) {
  CommonOptions asked = common;
  if (quick)
    for (const char* set : {"train.steps=12", "schedule.warmup_steps=2", "data.test_subset=512"})
      asked.set.insert(asked.set.begin(), set);
  SweepPlan plan = load_sweep(asked);
  add_twins(plan);
  std::set<std::string> copies;
  for (const SameRows& same : same_rows(plan)) copies.insert(same.others.begin(), same.others.end());
  std::map<std::pair<std::string, std::string>, std::size_t> seeds;  // seen so far, of a workload's variant
  std::erase_if(plan.runs, [&](const PlannedRun& run) {
    const std::size_t before = seeds[{run.workload, run.variant}]++;
    const bool fp8 = std::ranges::find(fp8_rows, run.variant) != fp8_rows.end();
    const std::size_t most = copies.contains(run.variant) ? 1 : fp8 ? fp8_seeds : plan.runs.size();
    return before >= (quick ? std::min<std::size_t>(most, 2) : most);
  });
  return plan;
}

const TrainedRun* Generations::find(std::string_view workload, std::string_view variant,
                                    std::int64_t seed) const {
  const auto found = std::ranges::find_if(runs, [&](const TrainedRun& run) {
    return run.workload == workload && run.variant == variant && run.seed == seed;
  });
  return found == runs.end() ? nullptr : &*found;
}

std::vector<std::int64_t> Generations::seeds_of(std::string_view workload, std::string_view variant) const {
  std::vector<std::int64_t> seeds;
  for (const TrainedRun& run : runs)
    if (run.workload == workload && run.variant == variant) seeds.push_back(run.seed);
  return seeds;
}

namespace {

// What came out of them.

Generations read_generations(const SweepPlan& plan) {
  const JudgedSweep sweep(plan);
  Generations measured;
  measured.same = same_rows(plan);
  measured.final_values = sweep.table();
  for (const PlannedRun& planned : plan.runs) {
    if (measured.workloads.empty() || measured.workloads.back().name != planned.workload)
      measured.workloads.push_back(
          {.name = planned.workload, .metric = sweep.row(planned.workload, planned.variant).metric});
    constexpr double nothing = std::numeric_limits<double>::quiet_NaN();
    TrainedRun run{.workload = planned.workload,
                   .variant = planned.variant,
                   .seed = static_cast<std::int64_t>(planned.config.train.seed),
                   .hashes = {},
                   .loss = nothing,
                   .metric = nothing};
    const auto seed = static_cast<std::uint64_t>(run.seed);
    const reports::SummaryRow row = sweep.row(run.workload, run.variant).row;
    const auto judged = std::ranges::find(row.seeds, seed) - row.seeds.begin();
    if (static_cast<std::size_t>(judged) < row.seeds.size()) {
      run.loss = row.final_losses.at(static_cast<std::size_t>(judged));
      run.metric = row.final_values.at(static_cast<std::size_t>(judged));
    }
    for (const reports::Run* on_disk : sweep.runs_of(run.workload, run.variant))
      if (on_disk->seed == seed)
        for (const StepRow& step : on_disk->folder.steps) run.hashes.push_back(step.state_hash);
    measured.runs.push_back(std::move(run));
  }
  return measured;
}

/// The first step (from 1) whose state_hash differs; nothing where none does. Runs of other lengths differ
/// after the end of the shorter one.
std::optional<std::uint64_t> first_differing_step(const TrainedRun& a, const TrainedRun& b) {
  const auto [at, other] = std::ranges::mismatch(a.hashes, b.hashes);
  if (at == a.hashes.end() && other == b.hashes.end()) return std::nullopt;
  return static_cast<std::uint64_t>(at - a.hashes.begin()) + 1;
}

/// Two variants of every workload that has both.
struct Compared {
  std::string_view variant, reference;
};

std::vector<Compared> each_other(std::span<const std::string_view> rows) {
  std::vector<Compared> pairs;
  for (std::size_t newer = 1; newer < rows.size(); ++newer)
    for (std::size_t older = 0; older < newer; ++older) pairs.push_back({rows[newer], rows[older]});
  return pairs;
}

/// FP16 sums against FP32 sums of the same tensor core.
std::vector<Compared> other_sums() {
  std::vector<Compared> pairs;
  for (std::size_t i = 0; i < f16_rows.size(); ++i) pairs.push_back({f16_rows[i], f32_rows[i]});
  return pairs;
}

std::vector<Compared> joined(std::initializer_list<std::vector<Compared>> lists) {
  std::vector<Compared> all;
  for (const std::vector<Compared>& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

std::vector<Compared> pairs_of(const std::vector<std::string_view>& variants) {
  std::vector<Compared> pairs;
  for (const std::string_view variant : variants) {
    if (variant == fp32_variant) continue;
    pairs.push_back({variant, fp32_variant});
    if (variant != twin_variant) pairs.push_back({variant, twin_variant});
  }
  pairs.push_back({one_ulp_variant, f32_rows.back()});
  return joined({pairs, each_other(f32_rows), other_sums(), each_other(f16_rows), each_other(fp8_rows)});
}

/// A variant against a reference, by the final metric of one workload.
struct JudgedPair {
  std::string workload, variant, reference;
  std::string_view unit;  ///< of differences
  analysis::Judgement judgement;
};

analysis::PairedSample sample_of(const Generations& measured, const TrainedWorkload& workload,
                                 const Compared& names) {
  analysis::PairedSample sample;
  sample.margin = workload.metric.margin;
  sample.higher_is_better = workload.metric.higher_is_better();
  sample.is_of_losses = !sample.higher_is_better;
  for (const std::int64_t seed : measured.seeds_of(workload.name, names.variant)) {
    const TrainedRun* const run = measured.find(workload.name, names.variant, seed);
    const TrainedRun* const reference = measured.find(workload.name, names.reference, seed);
    if (reference == nullptr) continue;
    if (!std::isfinite(reference->metric))
      ++sample.dropped;
    else if (!std::isfinite(run->metric))
      ++sample.diverged;
    else
      sample.differences.push_back(workload.metric.difference(run->metric, reference->metric));
  }
  return sample;
}

/// Every variant against FP32 and against the twin, and generations against each other: one family.
std::vector<JudgedPair> judged_pairs(const Generations& measured) {
  std::vector<JudgedPair> pairs;
  std::vector<analysis::PairedSample> family;
  const auto is_copy = [&](const std::string& variant) {
    return std::ranges::any_of(measured.same, [&](const SameRows& same) {
      return std::ranges::find(same.others, variant) != same.others.end();
    });
  };
  for (const TrainedWorkload& workload : measured.workloads) {
    std::vector<std::string_view> variants;
    for (const TrainedRun& run : measured.runs)
      if (run.workload == workload.name && !is_copy(run.variant) &&
          std::ranges::find(variants, run.variant) == variants.end())
        variants.push_back(run.variant);
    for (const Compared& names : pairs_of(variants)) {
      analysis::PairedSample sample = sample_of(measured, workload, names);
      if (sample.differences.empty() && sample.diverged == 0 && sample.dropped == 0) continue;
      pairs.push_back({.workload = workload.name,
                       .variant = std::string(names.variant),
                       .reference = std::string(names.reference),
                       .unit = workload.metric.unit(),
                       .judgement = {}});
      family.push_back(std::move(sample));
    }
  }
  const std::vector<analysis::Judgement> judgements = analysis::judge(family);
  for (std::size_t i = 0; i < pairs.size(); ++i) pairs[i].judgement = judgements[i];
  return pairs;
}

const JudgedPair* find(const std::vector<JudgedPair>& pairs, std::string_view workload,
                       std::string_view variant, std::string_view reference) {
  const auto found = std::ranges::find_if(pairs, [&](const JudgedPair& pair) {
    return pair.workload == workload && pair.variant == variant && pair.reference == reference;
  });
  return found == pairs.end() ? nullptr : &*found;
}

std::string pairs_text(const std::vector<JudgedPair>& pairs) {
  std::string text =
      "Final test metric against the reference of the same seed, mean and unadjusted 95 % interval "
      "(variant - reference: accuracy in points, bits per character in percent):\n";
  text += fmt::format("{:<11} {:<22} {:<22} {:>5} {:>8} {:<18} {}\n", "workload", "variant", "against",
                      "pairs", "mean", "interval", "in words");
  for (const JudgedPair& pair : pairs)
    text +=
        fmt::format("{:<11} {:<22} {:<22} {:>5} {:>+8.2f} {:<18} {}\n", pair.workload, pair.variant,
                    pair.reference, pair.judgement.pairs, std::round(100 * pair.judgement.mean) / 100 + 0.0,
                    analysis::interval_text(pair.judgement.interval), words_of(pair.judgement, pair.unit));
  return text;
}

std::string pairs_csv(const std::vector<JudgedPair>& pairs) {
  std::string text =
      "workload,variant,reference,unit,pairs,diverged,mean,deviation,lower,upper,margin,word\n";
  for (const JudgedPair& pair : pairs) {
    const analysis::Judgement& judged = pair.judgement;
    text += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{}\n", pair.workload, pair.variant, pair.reference,
                        pair.unit, judged.pairs, judged.diverged, judged.mean, judged.deviation,
                        judged.interval ? fmt::format("{}", judged.interval->lower) : "",
                        judged.interval ? fmt::format("{}", judged.interval->upper) : "", judged.margin,
                        name_of(judged.word));
  }
  return text;
}

constexpr std::array<VariantPair, 8> measured_pairs{{{fp32_variant, twin_variant},
                                                     {"hopper", one_ulp_variant},
                                                     {"hopper", "volta"},
                                                     {"hopper", "ampere"},
                                                     {"ampere", "volta"},
                                                     {fp32_variant, "hopper"},
                                                     {"hopper", "hopper-f16"},
                                                     {"hopper-fp8", "hopper-wgmma-fp8"}}};
constexpr std::array<std::string_view, measured_pairs.size()> pair_words{
    "last bit flipped, FP32",   "last bit flipped, Hopper", "Volta / Hopper",
    "Ampere / Hopper",          "Volta / Ampere",           "FP32 / Hopper",
    "FP16 / FP32 sums, Hopper", "FP8: 14 / 25 bits, Hopper"};

std::string draw_distances(const std::vector<DistanceCurve>& curves, const std::filesystem::path& folder) {
  std::vector<reports::DistanceRow> rows;
  for (const DistanceCurve& curve : curves) {
    const auto* const pair = std::ranges::find(measured_pairs, VariantPair{curve.reference, curve.variant});
    if (pair == measured_pairs.end()) continue;
    rows.push_back({.workload = curve.workload,
                    .pair = static_cast<std::size_t>(pair - measured_pairs.begin()),
                    .seed = curve.seed,
                    .distances = curve.distances});
  }
  return reports::draw_distances(
      {.title = "Does the GPU's generation change training more than the last bit of every weight?",
       .pairs = pair_words},
      rows, folder);
}

}  // namespace

std::span<const VariantPair> drawn_pairs() { return measured_pairs; }

// How much training runs scatter.

namespace {

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// The deviation of the logarithms.
double variance_of(const std::vector<double>& losses) {
  std::vector<double> logs;
  for (const double loss : losses) logs.push_back(std::log(loss));
  const double mean = mean_of(logs);
  double sum = 0;
  for (const double x : logs) sum += (x - mean) * (x - mean);
  return sum / static_cast<double>(logs.size() - 1);
}

/// 1/2 ln of the ratio of the sums, without entry `left_out` (none for one that is not there).
double log_ratio(const std::vector<double>& variances, const std::vector<double>& reference,
                 std::size_t left_out) {
  double sum = 0, reference_sum = 0;
  for (std::size_t i = 0; i < variances.size(); ++i) {
    if (i == left_out) continue;
    sum += variances[i];
    reference_sum += reference[i];
  }
  return 0.5 * std::log(sum / reference_sum);
}

SpreadRatio ratio_of(const std::vector<double>& values, double confidence = 0.95) {
  SpreadRatio ratio{.ratio = std::nan("")};
  if (values.empty()) return ratio;
  ratio.ratio = std::exp(mean_of(values));
  if (const auto interval = analysis::mean_interval(values, confidence))
    ratio.interval = analysis::Interval{std::exp(interval->lower), std::exp(interval->upper)};
  return ratio;
}

}  // namespace

Spread::Spread(const std::vector<std::vector<double>>& losses,
               const std::vector<std::vector<double>>& reference) {
  const std::size_t n = losses.size();
  if (n < 3 || reference.size() != n) return;
  std::vector<double> variances, reference_variances;
  for (std::size_t i = 0; i < n; ++i) {
    variances.push_back(variance_of(losses[i]));
    reference_variances.push_back(variance_of(reference[i]));
  }
  const double all = log_ratio(variances, reference_variances, n);
  for (std::size_t i = 0; i < n; ++i)
    values_.push_back(static_cast<double>(n) * all -
                      static_cast<double>(n - 1) * log_ratio(variances, reference_variances, i));
  if (!std::ranges::all_of(values_, [](double value) { return std::isfinite(value); })) values_.clear();
}

SpreadRatio Spread::ratio(double confidence) const { return ratio_of(values_, confidence); }

SpreadRatio mean_ratio(const std::vector<Spread>& spreads) {
  std::vector<double> means;
  for (const Spread& spread : spreads) {
    const std::vector<double>& values = spread.jackknife_values();
    if (values.empty()) return ratio_of({});
    means.resize(means.empty() ? values.size() : means.size());
    if (means.size() != values.size()) return ratio_of({});
    for (std::size_t i = 0; i < values.size(); ++i)
      means[i] += values[i] / static_cast<double>(spreads.size());
  }
  return ratio_of(means);
}

// The claims, with their criteria as they were before any run.

namespace {

/// Fixed before any of the runs was made.
constexpr double largest_spread_ratio = 1.5;
/// Fixed before any of the distances was measured, but for one seed that is none of theirs: where growth is
/// measured, above what rounding to FP16 makes at once and below where distances saturate; and the ratio of
/// rates that counts as none.
constexpr double growth_low = 1e-3, growth_high = 1e-2, largest_growth_ratio = 1.25;

constexpr std::array<VariantPair, 3> generation_pairs{
    {{"hopper", "volta"}, {"hopper", "ampere"}, {"ampere", "volta"}}};
constexpr VariantPair control{"hopper", one_ulp_variant}, fp32_control{fp32_variant, twin_variant};

std::optional<double> rate_of(const std::vector<DistanceCurve>& curves, const std::string& workload,
                              std::int64_t seed, const VariantPair& pair) {
  const auto found = std::ranges::find_if(curves, [&](const DistanceCurve& curve) {
    return curve.workload == workload && curve.seed == seed &&
           VariantPair{curve.reference, curve.variant} == pair;
  });
  return found == curves.end() ? std::nullopt : growth_rate(found->distances, growth_low, growth_high);
}

/// An interval of logarithms, as a ratio.
std::string ratio_text(const std::vector<double>& logs, const std::optional<analysis::Interval>& interval) {
  if (logs.empty()) return "no rate";
  if (!interval) return fmt::format("{:.2f} times, no interval", std::exp(mean_of(logs)));
  return fmt::format("{:.2f} times [{:.2f}, {:.2f}]", std::exp(mean_of(logs)), std::exp(interval->lower),
                     std::exp(interval->upper));
}

std::string rates_text(const std::vector<double>& rates) {
  return rates.empty() ? std::string("never in that range") : fmt::format("{:.3f} a step", mean_of(rates));
}

constexpr std::array<std::string_view, 2> hopper_and_ulp{f32_rows.back(), one_ulp_variant};
constexpr std::array<std::string_view, 2> fp32_and_twin{fp32_variant, twin_variant};

Answer same_bits(const Generations& measured) {
  Answer answer;
  std::size_t compared = 0, steps = 0;
  std::vector<std::string> parted;
  for (const SameRows& same : measured.same) {
    answer.notes.push_back(fmt::format("by the table: {} = {} ({})", same.variant,
                                       fmt::join(same.others, " = "), same.function));
    for (const TrainedRun& run : measured.runs) {
      if (std::ranges::find(same.others, run.variant) == same.others.end()) continue;
      const TrainedRun* const first = measured.find(run.workload, same.variant, run.seed);
      if (first == nullptr || run.hashes.empty()) continue;
      ++compared;
      steps += run.hashes.size();
      if (const auto step = first_differing_step(*first, run))
        parted.push_back(
            fmt::format("{} {} parts from {} in step {}", run.workload, run.variant, same.variant, *step));
    }
  }
  if (compared == 0) return answer;
  answer.verdict = verdict_of(parted.empty());
  answer.measured = parted.empty()
                        ? fmt::format("{} pairs of runs, {} steps: every state_hash equal", compared, steps)
                        : fmt::format("{}", fmt::join(parted, "; "));
  return answer;
}

Answer part(const Generations& measured) {
  const std::vector<Compared> pairs =
      joined({each_other(f32_rows), each_other(f16_rows), each_other(fp8_rows), other_sums()});
  std::size_t compared = 0;
  std::uint64_t latest = 0;
  std::string latest_pair;
  std::vector<std::string> equal;
  for (const auto& [workload, metric] : measured.workloads)
    for (const auto& [b, a] : pairs)
      for (const std::int64_t seed : measured.seeds_of(workload, a)) {
        const TrainedRun *const one = measured.find(workload, a, seed), *const two =
                                                                            measured.find(workload, b, seed);
        if (two == nullptr) continue;
        ++compared;
        const auto step = first_differing_step(*one, *two);
        if (!step)
          equal.push_back(fmt::format("{} {} and {}, seed {}", workload, a, b, seed));
        else if (*step > latest)
          latest = *step, latest_pair = fmt::format("{} {} and {}, seed {}", workload, a, b, seed);
      }
  if (compared == 0) return {};
  if (!equal.empty())
    return {.verdict = Verdict::fails,
            .measured =
                fmt::format("{} of {} pairs never part: {}", equal.size(), compared, fmt::join(equal, "; "))};
  return {
      .verdict = Verdict::holds,
      .measured = fmt::format("{} pairs part, the latest in step {} ({})", compared, latest, latest_pair)};
}

/// Holds where all are equal; fails where `fails` says so of one; else cannot tell. Notes are those that are
/// not equal.
Answer by_words(const Generations& measured, const std::vector<Compared>& compared,
                const std::function<bool(const std::vector<JudgedPair>&, const JudgedPair&)>& fails) {
  const std::vector<JudgedPair> pairs = judged_pairs(measured);
  Answer answer;
  std::size_t count = 0, equal = 0, failed = 0;
  for (const auto& [workload, metric] : measured.workloads)
    for (const Compared& names : compared) {
      const JudgedPair* const pair = find(pairs, workload, names.variant, names.reference);
      if (pair == nullptr) continue;
      ++count;
      if (pair->judgement.word == Word::equal) {
        ++equal;
        continue;
      }
      const bool fatal = fails(pairs, *pair);
      failed += fatal ? 1 : 0;
      answer.notes.push_back(
          fmt::format("{} {} against {}: {:+.2f} {} {}{}", workload, names.variant, names.reference,
                      pair->judgement.mean, analysis::interval_text(pair->judgement.interval),
                      words_of(pair->judgement, pair->unit), fatal ? ": this makes it fail" : ""));
    }
  if (count == 0) return answer;
  answer.verdict = failed > 0 ? Verdict::fails : equal == count ? Verdict::holds : Verdict::cannot_tell;
  answer.measured = fmt::format("{} of {} equal, {} against it", equal, count, failed);
  return answer;
}

bool differs(const std::vector<JudgedPair>&, const JudgedPair& pair) {
  return pair.judgement.word == Word::worse || pair.judgement.word == Word::better;
}
bool worse(const std::vector<JudgedPair>&, const JudgedPair& pair) {
  return pair.judgement.word == Word::worse;
}
/// Worse against FP32 and against its twin.
bool worse_than_noise(const std::vector<JudgedPair>& pairs, const JudgedPair& pair) {
  const JudgedPair* const against_twin = find(pairs, pair.workload, pair.variant, twin_variant);
  return pair.judgement.word == Word::worse && against_twin != nullptr &&
         against_twin->judgement.word == Word::worse;
}

std::vector<std::vector<double>> losses_of(const Generations& measured, std::string_view workload,
                                           std::span<const std::string_view> variants) {
  std::vector<std::vector<double>> losses;
  for (const std::int64_t seed : measured.seeds_of(workload, fp32_variant)) {
    std::vector<double> of_seed;
    for (const std::string_view variant : variants) {
      const TrainedRun* const run = measured.find(workload, variant, seed);
      if (run == nullptr) return {};
      of_seed.push_back(run->loss);
    }
    losses.push_back(std::move(of_seed));
  }
  return losses;
}

std::string text_of(const SpreadRatio& ratio) {
  if (!ratio.interval) return "no interval";
  return fmt::format("{:.2f} times [{:.2f}, {:.2f}]", ratio.ratio, ratio.interval->lower,
                     ratio.interval->upper);
}

/// How the losses of `rows` scatter in a seed, against those of `reference_rows`.
Answer spread_against(const Generations& measured, std::span<const std::string_view> rows,
                      std::span<const std::string_view> reference_rows) {
  std::vector<Spread> spreads;
  Answer answer;
  bool more = false;
  for (const auto& [workload, metric] : measured.workloads) {
    const auto losses = losses_of(measured, workload, rows),
               reference = losses_of(measured, workload, reference_rows);
    if (losses.empty() || reference.empty()) return {};
    const Spread& spread = spreads.emplace_back(losses, reference);
    const SpreadRatio one = spread.ratio(1 - 0.05 / static_cast<double>(measured.workloads.size()));
    const bool above = one.interval && one.interval->lower > largest_spread_ratio;
    more = more || above;
    answer.notes.push_back(
        fmt::format("{}: {}{}", workload, text_of(one), above ? ": this makes it fail" : ""));
  }
  const SpreadRatio all = mean_ratio(spreads);
  more = more || (all.interval && all.interval->lower > largest_spread_ratio);
  answer.measured = text_of(all);
  answer.verdict = more                                                         ? Verdict::fails
                   : all.interval && all.interval->upper < largest_spread_ratio ? Verdict::holds
                                                                                : Verdict::cannot_tell;
  return answer;
}

}  // namespace

Answer judge_growth(const std::vector<DistanceCurve>& curves) {
  std::vector<std::string> workloads;
  std::set<std::int64_t> seeds;
  for (const DistanceCurve& curve : curves) {
    if (std::ranges::find(workloads, curve.workload) == workloads.end()) workloads.push_back(curve.workload);
    seeds.insert(curve.seed);
  }
  if (curves.empty()) return {};
  Answer answer;
  std::map<std::int64_t, std::vector<double>> by_seed;  // of every workload that has a rate
  for (const std::string& workload : workloads) {
    std::vector<double> logs, generations, ulps, twins;
    for (const std::int64_t seed : seeds) {
      if (const auto twin = rate_of(curves, workload, seed, fp32_control)) twins.push_back(*twin);
      const auto ulp = rate_of(curves, workload, seed, control);
      if (!ulp || *ulp <= 0) continue;
      std::vector<double> of_seed;
      for (const VariantPair& pair : generation_pairs)
        if (const auto rate = rate_of(curves, workload, seed, pair); rate && *rate > 0) {
          generations.push_back(*rate);
          of_seed.push_back(std::log(*rate / *ulp));
        }
      if (of_seed.size() < generation_pairs.size()) continue;
      ulps.push_back(*ulp);
      logs.push_back(mean_of(of_seed));
      by_seed[seed].push_back(logs.back());
    }
    answer.notes.push_back(
        fmt::format("{}: {} ({} of {} seeds); generations {}, one ulp on hopper {}, FP32's twin {}", workload,
                    ratio_text(logs, analysis::mean_interval(logs)), logs.size(), seeds.size(),
                    rates_text(generations), rates_text(ulps), rates_text(twins)));
  }
  std::vector<double> means;
  for (const auto& [seed, logs] : by_seed)
    if (logs.size() == workloads.size()) means.push_back(mean_of(logs));
  const std::optional<analysis::Interval> interval = analysis::mean_interval(means);
  const double most = std::log(largest_growth_ratio);
  answer.measured = fmt::format("{} over {} seeds", ratio_text(means, interval), means.size());
  answer.verdict = !interval                                           ? Verdict::cannot_tell
                   : interval->lower > -most && interval->upper < most ? Verdict::holds
                   : interval->lower > most || interval->upper < -most ? Verdict::fails
                                                                       : Verdict::cannot_tell;
  return answer;
}

std::vector<Question<Generations>> generation_questions() {
  std::vector<Compared> against_fp32;
  for (const std::string_view row : f32_rows) against_fp32.push_back({row, fp32_variant});
  const auto spread = [](std::string claim, const std::string& control_name,
                         std::span<const std::string_view> others) -> Question<Generations> {
    return {
        std::move(claim),
        fmt::format("scatter of ln(final test loss) over volta, ampere and hopper in a seed, as a multiple "
                    "of that over {}; HOLDS if the 95 % interval of the workloads' geometric mean "
                    "(jackknife over seeds) ends below {}; FAILS if it, or that of one workload "
                    "(Bonferroni), begins above {}; else CANNOT TELL",
                    control_name, largest_spread_ratio, largest_spread_ratio),
        [others](const Generations& measured) { return spread_against(measured, f32_rows, others); }};
  };
  return {
      {"Tensor cores whose rows hold the same numbers train to the same bits: Turing = Ampere = Ada, Hopper "
       "= Blackwell",
       "of rows that the table gives the same block, bits, rounding, floor and order, one is trained with "
       "every seed and the others with the first: HOLDS if state_hash is equal after every step in every "
       "workload; FAILS if one differs",
       same_bits},
      {"Rows with other numbers part in training",
       "volta, ampere, hopper among each other, with FP32 and with FP16 sums, each with "
       "itself in the other sums, and FP8's four rows: HOLDS if a state_hash differs within "
       "the run, in every workload and every seed; FAILS if one pair never parts",
       part},
      {"Once apart, generations part as fast as weights that are one ulp apart on one tensor core",
       fmt::format("slope of ln(relative distance of all weights) over the steps from {} to {}; volta, "
                   "ampere and hopper among each other as a multiple of hopper and itself from weights moved "
                   "by one ulp, geometric mean over pairs and workloads: HOLDS if its 95 % interval over "
                   "seeds lies between 1/{} and {}; FAILS if it lies outside; else CANNOT TELL",
                   growth_low, growth_high, largest_growth_ratio, largest_growth_ratio),
       [](const Generations& measured) { return judge_growth(measured.curves); }},
      {"With FP16 products and FP32 sums, every generation trains as FP32 does",
       "final test metric, by the four words: HOLDS if volta, ampere and hopper are equal to FP32 in every "
       "workload; FAILS if one is worse than FP32's own noise (worse than FP32 and than its twin)",
       [against_fp32](const Generations& measured) {
         return by_words(measured, against_fp32, worse_than_noise);
       }},
      {"With FP32 sums, generations train as each other",
       "final test metric, by the four words: HOLDS if ampere - volta, hopper - volta and hopper - ampere "
       "are equal in every workload; FAILS if one is better or worse",
       [](const Generations& measured) { return by_words(measured, each_other(f32_rows), differs); }},
      {"FP16 sums train as FP32 sums of the same tensor core",
       "final test metric, by the four words: HOLDS if volta, ampere and hopper with FP16 sums are equal to "
       "themselves with FP32 sums in every workload; FAILS if one is worse",
       [](const Generations& measured) { return by_words(measured, other_sums(), worse); }},
      {"With FP8 products, sums of 14 bits train as sums of 25",
       "final test metric, by the four words: HOLDS if ada and hopper-wgmma (14 bits) are equal to hopper "
       "(25) in every workload; FAILS if one is worse",
       [](const Generations& measured) {
         return by_words(measured, {{fp8_rows[2], fp8_rows[0]}, {fp8_rows[3], fp8_rows[0]}}, worse);
       }},
      spread(
          "The generation of the tensor core changes training no more than the last bit of the weights does",
          "hopper and itself from weights moved by one ulp", hopper_and_ulp),
      spread("... and no more than that bit does where nothing is rounded to FP16", "FP32 and its twin",
             fp32_and_twin)};
}

Command::Run ask_generations(Options& options) {
  struct Given {
    bool quick = false;
    std::optional<int> distance_seeds;
  };
  auto given = std::make_shared<Given>();
  options
      .add("--distance-seeds", given->distance_seeds,
           "For this many seeds, measure how training runs diverge step by step, by training them again in "
           "this process (default: 5; 0: none)")
      .type("N")
      .at_least(0, 999);
  options.flag("--quick", given->quick,
               "Run twelve steps and two seeds: shows the form of the answer and decides nothing");
  return ask_with_sweep(options, [given](const CommonOptions& common, const SweepOptions& sweep) {
    const SweepPlan plan = generations_plan(common, given->quick);
    const auto measure = [&] {
      train_all(plan, common, sweep);
      Generations measured = read_generations(plan);
      Progress progress(common.quiet);
      const std::filesystem::path file = common.out / "distances.csv";
      measured.curves = measure_distances(
          plan, drawn_pairs(),
          {.seeds = static_cast<std::size_t>(given->distance_seeds.value_or(given->quick ? 1 : 5)),
           .threads = common.threads,
           .known = read_distances(file),
           .keep = [&](const auto& curves) { write_file_atomically(file, distances_csv(curves)); },
           .progress =
               [&](const std::string& line) {
                 if (progress.due()) progress.show(fmt::format("{}: {}", common.program, line));
               }});
      return measured;
    };
    const auto describe = [&](const Generations& measured) -> Described {
      const std::vector<JudgedPair> pairs = judged_pairs(measured);
      return {.text = measured.final_values + "\n" + pairs_text(pairs),
              .files = {{"exp_generations.csv", pairs_csv(pairs)}},
              .undrawn = draw_distances(measured.curves, common.out / "figures")};
    };
    return run_study<Generations>(common, {.questions = generation_questions(),
                                           .measure = measure,
                                           .describe = describe,
                                           .decides = !given->quick});
  });
}

}  // namespace fp16lab::experiments
