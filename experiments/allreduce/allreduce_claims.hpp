// The claims of exp_allreduce.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "experiments/allreduce/measurement.hpp"
#include "experiments/study/study.hpp"

namespace fp16lab::experiments::allreduce {

struct Measured {
  std::vector<Row> rows;
  std::vector<Agreement> agreement;
  std::vector<int> ranks;
  std::size_t elements = 0;
  double scale = 1;
  bool scale_is_largest = false;  ///< the largest power of two at which no rank overflows
  float outlier = 1;              ///< what the inputs of rank 1 were multiplied by, for `agreement`
};
std::vector<Question<Measured>> questions();

/// Is the error of every row in which nothing overflowed within its bound?
template <class Rows>
Answer judge_bounds(const Rows& rows) {
  std::size_t checked = 0, within = 0;
  double tightest = 0;
  for (const auto& row : rows) {
    if (row.born > 0) continue;
    ++checked;
    within += row.error_squares <= row.bound_squares ? 1 : 0;
    tightest = std::max(tightest, std::sqrt(row.error_squares / row.bound_squares));
  }
  return {verdict_of(checked > 0 && within == checked),
          fmt::format("{} of {} within; the largest is {:.3g} of its bound", within, checked, tightest)};
}

}  // namespace fp16lab::experiments::allreduce
