// What exp_allreduce measures, as tables for people and as CSV.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "experiments/allreduce/agreement.hpp"
#include "experiments/allreduce/gradient_mean.hpp"

namespace fp16lab::experiments::allreduce {

/// One variant at one number of ranks, over all steps.
struct Row {
  int ranks = 0;
  Variant variant;
  std::uint64_t sent_largest = 0, sent_total = 0;  ///< bytes of one all-reduce
  double error_squares = 0, norm_squares = 0, bound_squares = 0;
  std::uint64_t lost = 0, born = 0;

  double relative(double squares) const { return std::sqrt(squares / norm_squares); }
  double error() const { return relative(error_squares); }
};

/// What all ranks did after an overflow on one of them.
struct Agreement {
  Check check;
  std::vector<RankOutcome> outcomes;
};

std::string table_of(const std::vector<Row>& rows);
/// `factor`: by which the inputs of rank 1 were multiplied.
std::string table_of(const std::vector<Agreement>& all, float factor);
std::string csv_of(const std::vector<Row>& rows);
std::string csv_of(const std::vector<Agreement>& all);

}  // namespace fp16lab::experiments::allreduce
