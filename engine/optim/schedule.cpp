#include "engine/optim/schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "numerics/platform/floating_point_scope.hpp"

namespace fp16lab::engine::optim {

namespace {

/// cos(pi x) for x in [0, 1], without libm. cos(pi x) = -cos(pi (1 - x)) brings x to [0, 1/2], where the
/// Taylor series to (pi x)^22 is off by less than (pi/2)^24 / 24! < 1e-19.
double cos_pi(double x) {
  if (x > 0.5) return -cos_pi(1.0 - x);
  constexpr double pi = 3.14159265358979323846;
  const double square = (pi * x) * (pi * x);
  double sum = 0.0;
  for (int n = 22; n >= 2; n -= 2) sum = (1.0 + sum) * (-square / (static_cast<double>(n) * (n - 1)));
  return 1.0 + sum;
}

/// `value` as it was given: counts as integers, factors in their shortest decimals.
template <class Value>
void require(bool condition, const std::string& option, Value value, const std::string& range) {
  if (!condition)
    throw std::invalid_argument(fmt::format("schedule.{} = {}: must be {}", option, value, range));
}

/// `drops`: what schedule "step" has come down to.
double factor_at(const ScheduleOptions& options, std::uint64_t step, double drops) {
  if (step < options.warmup_steps)
    return static_cast<double>(step + 1) / static_cast<double>(options.warmup_steps);
  if (options.name == "cosine") {
    const std::uint64_t length = options.total_steps - options.warmup_steps;
    const std::uint64_t done = std::min(step - options.warmup_steps, length);
    const double half_wave = 0.5 * (1.0 + cos_pi(static_cast<double>(done) / static_cast<double>(length)));
    return options.minimum_factor + (1.0 - options.minimum_factor) * half_wave;
  }
  return drops;
}

}  // namespace

std::vector<float> learning_rate_table(const ScheduleOptions& options, double learning_rate,
                                       std::uint64_t steps) {
  const FloatingPointScope scope;
  require(std::isfinite(learning_rate) && learning_rate >= 0.0, "learning_rate", learning_rate,
          "finite and >= 0");
  if (options.name == "cosine") {
    require(options.total_steps > options.warmup_steps, "total_steps", options.total_steps,
            fmt::format("above warmup_steps = {} for cosine", options.warmup_steps));
    require(options.minimum_factor >= 0.0 && options.minimum_factor <= 1.0, "minimum_factor",
            options.minimum_factor, "in [0, 1]");
  } else if (options.name == "step") {
    require(options.step_interval >= 1, "step_interval", options.step_interval, ">= 1 for step");
    require(options.step_factor > 0.0 && options.step_factor <= 1.0, "step_factor", options.step_factor,
            "in (0, 1]");
  } else if (options.name != "constant") {
    throw std::invalid_argument("schedule.name = \"" + options.name + "\": known are constant, cosine, step");
  }
  const bool flat = options.name == "constant" && options.warmup_steps == 0;
  std::vector<float> table(flat || steps == 0 ? 1 : steps);
  double drops = 1.0;
  for (std::size_t step = 0; step < table.size(); ++step) {
    if (options.name == "step" && step > 0 && step % options.step_interval == 0) drops *= options.step_factor;
    table[step] = static_cast<float>(learning_rate * factor_at(options, step, drops));
  }
  return table;
}

}  // namespace fp16lab::engine::optim
