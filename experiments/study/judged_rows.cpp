#include "experiments/study/judged_rows.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace fp16lab::experiments {

using analysis::Word;

Verdict is_worse(const JudgedRow& judged) {
  if (!judged.row.against_reference) return Verdict::not_run;
  switch (judged.row.against_reference->word) {
    case Word::equal:
    case Word::better:
      return Verdict::fails;
    case Word::worse:
      return judged.row.worse_than_noise().value_or(false) ? Verdict::holds : Verdict::cannot_tell;
    case Word::cannot_tell:
      break;
  }
  return Verdict::cannot_tell;
}

Verdict is_as_good(const JudgedRow& judged) {
  const Verdict worse = is_worse(judged);
  return worse == Verdict::holds ? Verdict::fails : worse == Verdict::fails ? Verdict::holds : worse;
}

Verdict all_of(std::span<const Verdict> verdicts) {
  const auto any = [verdicts](Verdict verdict) {
    return std::find(verdicts.begin(), verdicts.end(), verdict) != verdicts.end();
  };
  for (const Verdict decisive : {Verdict::fails, Verdict::not_run, Verdict::cannot_tell})
    if (any(decisive)) return decisive;
  return verdicts.empty() ? Verdict::not_run : Verdict::holds;
}

std::string words_of(const JudgedRow& judged) {
  const reports::SummaryRow& row = judged.row;
  if (!row.against_reference) return "no pair with FP32";
  return fmt::format("{}, {}; {}", reports::measured_text(judged.metric, *row.against_reference),
                     analysis::words_of(*row.against_reference, judged.metric.unit()),
                     row.against_twin
                         ? fmt::format("than the twin: {}", analysis::name_of(row.against_twin->word))
                         : "no twin to compare with");
}

}  // namespace fp16lab::experiments
