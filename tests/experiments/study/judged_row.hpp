// Verdicts of made measurements; a variant as if it had been trained: made from its differences to FP32 and to
// the twin.
#pragma once

#include <array>
#include <vector>

#include "experiments/study/judged_sweep.hpp"

namespace fp16lab::experiments {

template <class Measured>
std::vector<Verdict> verdicts_of(const std::vector<Question<Measured>>& questions, const Measured& measured) {
  std::vector<Verdict> all;
  for (const Claim& claim : judged(questions, measured)) all.push_back(claim.verdict);
  return all;
}

/// Differences in percent, positive is worse, with a margin of 1 %; the pairs are a family of their own.
inline JudgedRow judged_row(const std::vector<double>& to_fp32, const std::vector<double>& to_twin,
                            int diverged = 0) {
  const auto one = [diverged](const std::vector<double>& differences) {
    return analysis::judge(
               std::array{analysis::PairedSample{.differences = differences, .diverged = diverged}})
        .front();
  };
  JudgedRow judged{.metric = {.name = "test loss"}};
  judged.row.runs = static_cast<int>(to_fp32.size()) + diverged;
  judged.row.final_values.assign(static_cast<std::size_t>(judged.row.runs), 1.0);
  judged.row.against_reference = one(to_fp32);
  if (!to_twin.empty() || diverged > 0) judged.row.against_twin = one(to_twin);
  return judged;
}

inline const std::vector<double> clearly_worse{7.0, 7.5, 8.0, 6.5, 7.2},
    slightly_worse{2.0, 2.5, 3.0, 1.5, 2.2}, clearly_better{-3.0, -3.5, -2.5, -3.2, -2.8},
    clearly_equal{0.05, -0.05, 0.02, -0.01, 0.0}, scattered{-4.0, 5.0, 0.5, -2.0, 3.0}, too_few{7.0, 7.5};

inline JudgedRow worse_row() { return judged_row(clearly_worse, clearly_worse); }
inline JudgedRow equal_row() { return judged_row(clearly_equal, clearly_equal); }
inline JudgedRow better_row() { return judged_row(clearly_better, clearly_better); }
inline JudgedRow open_row() { return judged_row(scattered, scattered); }

}  // namespace fp16lab::experiments
