// A benchmark case and its yardstick, timed in turn.
//
// Absolute times on a shared machine are not evidence, and neither is a yardstick from another minute: every
// iteration times the yardstick and the case one after the other, and the figure is the median of the ratios.
#pragma once

#include <benchmark/benchmark.h>

#include <functional>
#include <string>
#include <vector>

namespace fp16lab::bench {

struct RatioCase {
  std::string name;           ///< "emulated_gemm/hopper/512x512x512"
  std::string yardstick;      ///< "sgemm"
  std::string unit;           ///< "GMAC/s"
  double work = 0;            ///< units (in 10^9) of one call: rate = work / seconds
  double yardstick_work = 0;  ///< of one call of the yardstick, where it is not `work`
  int threads = 1;
  bool as_cost = false;  ///< the figure is time over the yardstick's time, not rate over the yardstick's rate
  std::function<void()> run;
  std::function<void()> run_yardstick;
};

/// Registers with Google Benchmark. Counters: rate, yardstick (its rate), ratio (median of rate / yardstick's
/// rate, or its reciprocal as_cost). `make` is called once when the case first runs, so that unselected cases
/// cost nothing.
void register_ratio(const std::string& name, std::function<RatioCase()> make);

/// One line a case: what ran so far.
std::string summary();

}  // namespace fp16lab::bench
