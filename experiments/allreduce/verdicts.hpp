// The claims of exp_allreduce, judged.
#pragma once

#include <cstddef>
#include <vector>

#include "experiments/allreduce/measurement.hpp"

namespace fp16lab::experiments::allreduce {

struct Measured {
  std::vector<Row> rows;
  std::vector<Agreement> agreement;
  std::vector<int> ranks;
  std::size_t elements = 0;
  double scale = 1;
  bool scale_is_largest = false;  ///< the largest power of two at which no rank overflows
};
/// Prints each claim with its criterion, what was measured, and PASS, FAIL or UNDECIDED. Did none fail?
bool print_verdicts(const Measured& measured);

}  // namespace fp16lab::experiments::allreduce
