// The claims, with their criteria as they were before any run.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "experiments/generations/generations.hpp"

namespace fp16lab::experiments {
namespace {

using analysis::Word;

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
  std::vector<std::pair<std::string_view, std::string_view>> pairs;
  const auto add = [&](std::span<const std::string_view> rows) {
    for (std::size_t i = 0; i < rows.size(); ++i)
      for (std::size_t k = 0; k < i; ++k) pairs.emplace_back(rows[k], rows[i]);
  };
  add(f32_rows);
  add(f16_rows);
  add(fp8_rows);
  for (std::size_t i = 0; i < f32_rows.size(); ++i) pairs.emplace_back(f32_rows[i], f16_rows[i]);
  std::size_t compared = 0;
  std::uint64_t latest = 0;
  std::string latest_pair;
  std::vector<std::string> equal;
  for (const auto& [workload, metric] : measured.workloads)
    for (const auto& [a, b] : pairs)
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

/// A pair of variants in every workload that has both.
struct Compared {
  std::string_view variant, reference;
};
std::vector<Compared> each_other(std::span<const std::string_view> rows) {
  std::vector<Compared> pairs;
  for (std::size_t newer = 1; newer < rows.size(); ++newer)
    for (std::size_t older = 0; older < newer; ++older) pairs.push_back({rows[newer], rows[older]});
  return pairs;
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

/// How the losses of `rows` scatter in a seed, against those of `control`.
Answer spread_against(const Generations& measured, std::span<const std::string_view> rows,
                      std::span<const std::string_view> control) {
  std::vector<Spread> spreads;
  Answer answer;
  bool more = false;
  for (const auto& [workload, metric] : measured.workloads) {
    const auto losses = losses_of(measured, workload, rows),
               reference = losses_of(measured, workload, control);
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

std::vector<Question<Generations>> generation_questions() {
  std::vector<Question<Generations>> questions;
  questions.push_back(
      {"Tensor cores whose rows hold the same numbers train to the same bits: Turing = Ampere = Ada, Hopper "
       "= Blackwell",
       "of rows that the table gives the same block, bits, rounding, floor and order, one is trained with "
       "every seed and the others with the first: HOLDS if state_hash is equal after every step in every "
       "workload; FAILS if one differs",
       same_bits});
  questions.push_back({"Rows with other numbers part in training",
                       "volta, ampere, hopper among each other, with FP32 and with FP16 sums, each with "
                       "itself in the other sums, and FP8's four rows: HOLDS if a state_hash differs within "
                       "the run, in every workload and every seed; FAILS if one pair never parts",
                       part});
  questions.push_back(
      {"Once apart, generations part as fast as weights that are one ulp apart on one tensor core",
       fmt::format("slope of ln(relative distance of all weights) over the steps from {} to {}; volta, "
                   "ampere and hopper among each other as a multiple of hopper and itself from weights moved "
                   "by one ulp, geometric mean over pairs and workloads: HOLDS if its 95 % interval over "
                   "seeds lies between 1/{} and {}; FAILS if it lies outside; else CANNOT TELL",
                   growth_low, growth_high, largest_growth_ratio, largest_growth_ratio),
       [](const Generations& measured) { return judge_growth(measured.curves); }});
  std::vector<Compared> against_fp32;
  for (const std::string_view row : f32_rows) against_fp32.push_back({row, fp32_variant});
  questions.push_back(
      {"With FP16 products and FP32 sums, every generation trains as FP32 does",
       "final test metric, by the four words: HOLDS if volta, ampere and hopper are equal to FP32 in every "
       "workload; FAILS if one is worse than FP32's own noise (worse than FP32 and than its twin)",
       [against_fp32](const Generations& measured) {
         return by_words(measured, against_fp32, worse_than_noise);
       }});
  questions.push_back(
      {"With FP32 sums, generations train as each other",
       "final test metric, by the four words: HOLDS if ampere - volta, hopper - volta and hopper - ampere "
       "are equal in every workload; FAILS if one is better or worse",
       [](const Generations& measured) { return by_words(measured, each_other(f32_rows), differs); }});
  std::vector<Compared> sums;
  for (std::size_t i = 0; i < f16_rows.size(); ++i) sums.push_back({f16_rows[i], f32_rows[i]});
  questions.push_back(
      {"FP16 sums train as FP32 sums of the same tensor core",
       "final test metric, by the four words: HOLDS if volta, ampere and hopper with FP16 sums are equal to "
       "themselves with FP32 sums in every workload; FAILS if one is worse",
       [sums](const Generations& measured) { return by_words(measured, sums, worse); }});
  questions.push_back(
      {"With FP8 products, sums of 14 bits train as sums of 25",
       "final test metric, by the four words: HOLDS if ada and hopper-wgmma (14 bits) are equal to hopper "
       "(25) in every workload; FAILS if one is worse",
       [](const Generations& measured) {
         return by_words(measured, {{fp8_rows[2], fp8_rows[0]}, {fp8_rows[3], fp8_rows[0]}}, worse);
       }});
  const auto ask_spread = [&](std::string claim, const std::string& control_name,
                              std::span<const std::string_view> control) {
    questions.push_back(
        {std::move(claim),
         fmt::format("scatter of ln(final test loss) over volta, ampere and hopper in a seed, as a multiple "
                     "of that over {}; HOLDS if the 95 % interval of the workloads' geometric mean "
                     "(jackknife over seeds) ends below {}; FAILS if it, or that of one workload "
                     "(Bonferroni), begins above {}; else CANNOT TELL",
                     control_name, largest_spread_ratio, largest_spread_ratio),
         [control](const Generations& measured) { return spread_against(measured, f32_rows, control); }});
  };
  ask_spread(
      "The generation of the tensor core changes training no more than the last bit of the weights does",
      "hopper and itself from weights moved by one ulp", hopper_and_ulp);
  ask_spread("... and no more than that bit does where nothing is rounded to FP16", "FP32 and its twin",
             fp32_and_twin);
  return questions;
}

}  // namespace fp16lab::experiments
