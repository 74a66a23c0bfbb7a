// Learning-rate schedules: host-computed tables, indexed on the back end by the number of *taken* steps.
// A skipped step therefore does not move the schedule (what users of other scalers ask for: pytorch#67590).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fp16lab::engine::optim {

struct ScheduleOptions {
  std::string name = "constant";  ///< constant, cosine, step
  std::uint64_t warmup_steps =
      0;  ///< linear from learning_rate / warmup_steps up to learning_rate, before any of them
  std::uint64_t total_steps = 0;    ///< cosine: where it reaches minimum_factor; counts the warm-up
  double minimum_factor = 0.0;      ///< cosine: final learning rate as a share of the first, in [0, 1]
  std::uint64_t step_interval = 0;  ///< step: multiply by step_factor every so many steps
  double step_factor = 0.1;         ///< in (0, 1]
};

/// Learning rates of the taken steps 0, 1, ...; the last entry holds for all later steps. Computed in FP64
/// without libm, rounded once to FP32. std::invalid_argument naming the option and its range.
std::vector<float> learning_rate_table(const ScheduleOptions& options, double learning_rate,
                                       std::uint64_t steps);

}  // namespace fp16lab::engine::optim
