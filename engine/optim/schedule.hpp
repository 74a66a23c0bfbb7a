// Learning-rate schedules: host-computed tables, indexed on the back end by the number of *taken* steps. A
// skipped step therefore does not move the schedule (as users of other scalers request: pytorch#67590).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace fp16lab::engine::optim {

enum class Schedule : std::uint8_t { constant, cosine, step, linear, polynomial, exponential };
constexpr std::array<std::string_view, 6> names_of(Schedule) {
  return {"constant", "cosine", "step", "linear", "polynomial", "exponential"};
}

/// With w = warmup_steps, T = total_steps - w, t = min(step - w, T) and m = minimum_factor, the learning rate
/// from step w on is optimizer.lr times
///   constant     1
///   cosine       m + (1 - m) * (1 + cos(pi t / T)) / 2
///   linear       m + (1 - m) * (1 - t / T)
///   polynomial   m + (1 - m) * (1 - t / T)^power, PyTorch's PolynomialLR, and BERT's decay with power 1
///   step         step_factor for every step_interval steps done, the warm-up's among them
///   exponential  gamma^(step - w), PyTorch's ExponentialLR
struct ScheduleOptions {
  Schedule name = Schedule::constant;
  std::uint64_t warmup_steps =
      0;  ///< linear from learning_rate / warmup_steps up to learning_rate, before any of them
  /// cosine, linear, polynomial: where they reach minimum_factor; counts the warm-up
  std::uint64_t total_steps = 0;
  double minimum_factor = 0.0;      ///< for the same: final learning rate as a share of the first, in [0, 1]
  std::uint64_t step_interval = 0;  ///< step: multiply by step_factor every so many steps
  double step_factor = 0.1;         ///< in (0, 1]
  double power = 1.0;               ///< polynomial: finite, above 0
  double gamma = 0.999;             ///< exponential: multiply by it at every step, in (0, 1]
};

/// Does it come to an end at total_steps?
constexpr bool ends(Schedule schedule) {
  return schedule == Schedule::cosine || schedule == Schedule::linear || schedule == Schedule::polynomial;
}

/// Learning rates of the taken steps 0, 1, ...; the last entry holds for all later steps. Computed in FP64
/// without libm, rounded once to FP32. std::invalid_argument naming the option and its range.
std::vector<float> learning_rate_table(const ScheduleOptions& options, double learning_rate,
                                       std::uint64_t steps);

}  // namespace fp16lab::engine::optim
