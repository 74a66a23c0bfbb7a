#include "experiments/app/replay/fixed_scale.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/suggested_scale.hpp"
#include "experiments/app/replay/step_outcome.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab::experiments {

namespace {

bool not_finite(const RecordedStep& step) {
  return step.found_inf ||
         std::any_of(step.groups.begin(), step.groups.end(), [](const RecordedGroup& group) {
           return group.weight.infinite + group.weight.nan + group.activation.infinite +
                      group.activation.nan >
                  0;
         });
}

}  // namespace

FixedScaleReplay replay_fixed_scale(const RecordedRun& run, int log2_scale) {
  FixedScaleReplay replay;
  replay.log2_scale = log2_scale;
  replay.rows_missing = run.folder().damaged(run_file::histograms) || run.folder().damaged(run_file::steps);
  StepJudge judge(run);
  int highest = log2_scale, highest_not_certain = log2_scale;
  run.for_each_step(true, [&](const RecordedStep& step) {
    judge.begin(step);
    const auto overflow_at = [&judge](int k) { return judge.at(std::ldexp(1.0, k)).overflow; };
    ++replay.steps;
    for (const RecordedGroup& group : step.groups)
      if (group.rounds() && group.overflows()) replay.formats.insert(group.format);
    const Overflow overflow = overflow_at(log2_scale);
    if (overflow != Overflow::no && replay.first == 0) replay.first = step.step;
    if (overflow == Overflow::certain && ++replay.overflows == 1) replay.first_certain = step.step;
    if (overflow == Overflow::possible && ++replay.unknown == 1) {
      replay.first_unknown = step.step;
      replay.first_unknown_not_finite = not_finite(step);
    }
    while (highest >= lowest_fixed_exponent && overflow_at(highest) != Overflow::no) --highest;
    while (highest_not_certain >= lowest_fixed_exponent &&
           overflow_at(highest_not_certain) == Overflow::certain)
      --highest_not_certain;
  });
  if (highest >= lowest_fixed_exponent) replay.highest = highest;
  if (highest_not_certain >= lowest_fixed_exponent) replay.highest_not_certain = highest_not_certain;
  return replay;
}

std::string over_steps(std::uint64_t steps, bool rows_missing) {
  if (rows_missing)
    return fmt::format("over the {} whose rows are there (some are missing or changed)",
                       counted(steps, "step"));
  return steps == 1 ? "over the one recorded step" : fmt::format("over all {} recorded steps", steps);
}

namespace {

/// Which step is the first, and why it is not known whether it overflows.
std::string first_steps(const FixedScaleReplay& replay) {
  const std::string why = replay.first_unknown_not_finite
                              ? "held Inf or NaN at its own scale, so it is not known"
                              : "is not certain";
  if (replay.unknown == 0) return fmt::format("the first is step {}", replay.first);
  if (replay.overflows == 0) return fmt::format("the first is step {}: it {}", replay.first, why);
  return fmt::format("the first certain one is step {}; step {} {}", replay.first_certain,
                     replay.first_unknown, why);
}

/// What to take for the run, as far as it is known.
std::string advice(const FixedScaleReplay& replay) {
  const std::optional<int>&sure = replay.highest, &likely = replay.highest_not_certain;
  if (!likely) return fmt::format("No scale down to 2^{} is without one.", lowest_fixed_exponent);
  std::string text = fmt::format("For the run take 2^{}", *replay.for_run());
  if (sure)
    text += ", the largest scale at which certainly none overflows (without headroom)";
  else if (*likely < replay.log2_scale)
    text += ", the largest scale at which no step certainly overflows (without headroom)";
  else
    text += ": no step certainly overflows there";
  if (!sure)
    text += fmt::format("; no scale down to 2^{} is certainly without one", lowest_fixed_exponent);
  else if (likely != sure)
    text += fmt::format("; 2^{} is the largest at which none certainly does", *likely);
  return text + '.';
}

}  // namespace

std::string sentence(const FixedScaleReplay& replay) {
  std::string begin = "Replayed";
  for (const DType format : replay.formats)
    begin += (format == *replay.formats.begin() ? " in " : " and ") + title_of(format);
  begin += ' ' + over_steps(replay.steps, replay.rows_missing) + ": ";
  if (replay.holds())
    return begin + fmt::format("at 2^{} no gradient overflows{}.", replay.log2_scale,
                               replay.steps == 1 ? "" : " in any of them");
  const std::string how_often =
      replay.unknown == 0     ? fmt::format("overflow in {}", replay.overflows)
      : replay.overflows == 0 ? fmt::format("may overflow in {}", replay.unknown)
                              : fmt::format("overflow in {} and may in {}", replay.overflows, replay.unknown);
  return begin + fmt::format("at 2^{} gradients {} ({}). {}", replay.log2_scale, how_often,
                             first_steps(replay), advice(replay));
}

}  // namespace fp16lab::experiments
