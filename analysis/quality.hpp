// Final values of a group of runs: one configuration, several seeds. What they say against another group's is
// analysis/paired_verdict.hpp's.
#pragma once

#include <span>

namespace fp16lab::analysis {

struct Quality {
  int seeds = 0;
  int non_finite = 0;  ///< seeds whose value is NaN or infinite; left out of the rest
  double mean = 0;     ///< NaN where no finite value is left
  double minimum = 0;
  double maximum = 0;
};
Quality quality_of(std::span<const double> final_values);

}  // namespace fp16lab::analysis
