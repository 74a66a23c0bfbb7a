#include <fmt/format.h>

#include <algorithm>

#include "experiments/underflow/underflow.hpp"

namespace fp16lab::experiments {
namespace {

/// What "hurts" means here, beside being worse at all: a size that matters.
constexpr double harm_percent = 5.0;

Answer judge_harm(const Underflow& underflow) {
  const JudgedRow& unscaled = underflow.variant("none").judged;
  Answer answer{is_worse(unscaled), words_of(unscaled)};
  if (answer.verdict != Verdict::holds) return answer;
  // A run that diverged has no interval, and needs none.
  const std::optional<analysis::Interval>& interval = unscaled.row.against_reference->interval;
  if (!interval) return answer;
  const auto [least, most] =
      std::minmax({unscaled.metric.badness(interval->lower), unscaled.metric.badness(interval->upper)});
  if (most < harm_percent) answer.verdict = Verdict::fails;
  if (least <= harm_percent && harm_percent <= most) answer.verdict = Verdict::cannot_tell;
  return answer;
}

Answer judge_recovery(const Underflow& underflow) {
  Answer answer{Verdict::fails, {}};
  bool open = false, any = false;
  for (const UnderflowVariant& variant : underflow.variants) {
    if (!variant.name.starts_with("fixed-")) continue;
    const Verdict verdict = is_as_good(variant.judged);
    any |= verdict != Verdict::not_run;
    open |= verdict == Verdict::cannot_tell;
    if (verdict == Verdict::holds) answer.verdict = Verdict::holds;
    answer.measured +=
        fmt::format("{}{} {}", answer.measured.empty() ? "" : " | ", variant.name, words_of(variant.judged));
  }
  if (!any) return {};
  if (answer.verdict == Verdict::fails && open) answer.verdict = Verdict::cannot_tell;
  return answer;
}

}  // namespace

std::vector<Question<Underflow>> underflow_questions() {
  return {{.claim = "without loss scaling, FP16 training ends worse than FP32",
           .criterion = fmt::format("none is {}, and its 95 % interval lies above {:+g} %", worse_criterion,
                                    harm_percent),
           .judge = judge_harm},
          {.claim = "loss scaling brings it back",
           .criterion = fmt::format("a fixed scale is {}", as_good_criterion),
           .judge = judge_recovery}};
}

}  // namespace fp16lab::experiments
