#include "experiments/replay/fixed_scale.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "experiments/replay/step_outcome.hpp"

namespace fp16lab::experiments {

FixedScaleReplay replay_fixed_scale(const RecordedRun& run, int log2_scale) {
  FixedScaleReplay replay;
  replay.log2_scale = log2_scale;
  StepJudge judge(run);
  int highest = log2_scale;
  run.for_each_step(true, [&](const RecordedStep& step) {
    judge.begin(step);
    const auto overflow_at = [&judge](int k) { return judge.at(std::ldexp(1.0, k)).overflow; };
    ++replay.steps;
    const Overflow overflow = overflow_at(log2_scale);
    if (overflow == Overflow::certain) ++replay.overflows;
    if (overflow == Overflow::possible) ++replay.unknown;
    if (overflow != Overflow::no && replay.first == 0) replay.first = step.step;
    while (highest >= lowest_fixed_exponent && overflow_at(highest) != Overflow::no) --highest;
  });
  if (highest >= lowest_fixed_exponent) replay.highest = highest;
  return replay;
}

std::string sentence(const FixedScaleReplay& replay) {
  const std::string begin = replay.steps == 1
                                ? "Replayed over the one recorded step: "
                                : fmt::format("Replayed over all {} recorded steps: ", replay.steps);
  if (replay.holds())
    return begin + fmt::format("at 2^{} no gradient overflows{}.", replay.log2_scale,
                               replay.steps == 1 ? "" : " in any of them");
  const std::string how_often =
      replay.unknown == 0     ? fmt::format("overflow in {}", replay.overflows)
      : replay.overflows == 0 ? fmt::format("may overflow in {}", replay.unknown)
                              : fmt::format("overflow in {} and may in {}", replay.overflows, replay.unknown);
  return begin +
         fmt::format("at 2^{} gradients {} (the first is step {}). ", replay.log2_scale, how_often,
                     replay.first) +
         (replay.highest
              ? fmt::format("2^{} is the largest scale at which they surely overflow in none.",
                            *replay.highest)
              : fmt::format("No scale down to 2^{} is surely without one.", lowest_fixed_exponent));
}

}  // namespace fp16lab::experiments
