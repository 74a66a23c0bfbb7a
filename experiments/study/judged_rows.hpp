// From the four words of a sweep's pairs to the verdict of a claim.
#pragma once

#include <span>
#include <string>

#include "experiments/study/study.hpp"
#include "reports/data/summary.hpp"

namespace fp16lab::experiments {

/// One variant of one workload, with what its values are differences of.
struct JudgedRow {
  reports::Metric metric{};
  reports::SummaryRow row{};
};

/// What is_worse and is_as_good ask, for criteria.
inline constexpr const char* worse_criterion =
    "worse than FP32 and than its one-ulp twin (final test value, paired over "
    "seeds, all pairs of the sweep one family)";
inline constexpr const char* as_good_criterion =
    "equal to FP32 within the margin, or better (final test value, paired "
    "over seeds, all pairs of the sweep one family)";

/// Holds where it is worse than FP32 and than FP32's twin; fails where it is equal to FP32 or better; else,
/// also where it is worse than FP32 only, it cannot be told. Not run without a pair.
Verdict is_worse(const JudgedRow& judged);
/// Its opposite: fails where it is worse than both, holds where it is equal to FP32 or better.
Verdict is_as_good(const JudgedRow& judged);
/// Judges a claim with several conditions: fails where one does, not run where one was not, holds where all
/// hold.
Verdict all_of(std::span<const Verdict> verdicts);

/// "+20.50 % [+19.02, +22.00], worse; than the twin: worse".
std::string words_of(const JudgedRow& judged);

}  // namespace fp16lab::experiments
