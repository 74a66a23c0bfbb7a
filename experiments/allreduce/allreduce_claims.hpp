// The claims of exp_allreduce.
#pragma once

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

}  // namespace fp16lab::experiments::allreduce
