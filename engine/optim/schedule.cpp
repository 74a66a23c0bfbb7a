#include "engine/optim/schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "numerics/platform/floating_point_scope.hpp"
#include "numerics/text/named_enum.hpp"

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

/// ln(x) for x in (0, 1], without libm: x = m * 2^e with m in [3/4, 3/2), and ln(m) = 2 artanh(z) with
/// z = (m - 1) / (m + 1), |z| <= 1/5; the series to z^25 / 25 is off by less than 2 z^27 / 27 / (1 - z^2) <
/// 2e-20.
double natural_logarithm(double x) {
  int exponent = 0;
  for (; x < 0.75; x *= 2.0) --exponent;  // exact; from 2^-64, the smallest share of a schedule, 64 times
  const double z = (x - 1.0) / (x + 1.0), square = z * z;
  double sum = 0.0;
  for (int n = 25; n >= 3; n -= 2) sum = (sum + 1.0 / n) * square;
  constexpr double log_of_two = 0.69314718055994530942;
  return 2.0 * (z + z * sum) + static_cast<double>(exponent) * log_of_two;
}

/// e^-x for x >= 0, without libm: x = n ln(2) + r with |r| <= ln(2) / 2, and the Taylor series to r^17 is off
/// by less than 1e-23.
double exponential_of_minus(double x) {
  constexpr double log_of_two = 0.69314718055994530942;
  if (x > 1074.0 * log_of_two) return 0.0;
  const auto n = static_cast<int>(x / log_of_two + 0.5);
  const double r = static_cast<double>(n) * log_of_two - x;
  double sum = 1.0;
  for (int i = 17; i >= 1; --i) sum = 1.0 + sum * r / i;
  for (int i = 0; i < n; ++i) sum *= 0.5;
  return sum;
}

/// share^power for a share in [0, 1] and a power above 0, off by a few 2^-53 times the power and |ln(share)|;
/// exact in its meaning, one product after the other, where the power is a small integer.
double power_of(double share, double power) {
  if (share == 0.0) return 0.0;
  if (power == static_cast<double>(static_cast<int>(std::min(power, 17.0))) && power <= 16.0) {
    double product = share;
    for (int i = 1; i < static_cast<int>(power); ++i) product *= share;
    return product;
  }
  return exponential_of_minus(-power * natural_logarithm(share));
}

/// `value` as it was given: counts as integers, factors in their shortest decimals.
template <class Value>
void require(bool condition, const std::string& option, Value value, const std::string& range) {
  if (!condition)
    throw std::invalid_argument(fmt::format("schedule.{} = {}: must be {}", option, value, range));
}

/// `product`: what the schedules "step" and "exponential" have come down to.
double factor_at(const ScheduleOptions& options, std::uint64_t step, double product) {
  if (step < options.warmup_steps)
    return static_cast<double>(step + 1) / static_cast<double>(options.warmup_steps);
  if (!ends(options.name)) return product;
  const std::uint64_t length = options.total_steps - options.warmup_steps;
  const std::uint64_t done = std::min(step - options.warmup_steps, length);
  double share = 0.0;
  if (options.name == Schedule::cosine) {
    share = 0.5 * (1.0 + cos_pi(static_cast<double>(done) / static_cast<double>(length)));
  } else {
    const double left = static_cast<double>(length - done) / static_cast<double>(length);
    share = options.name == Schedule::linear ? left : power_of(left, options.power);
  }
  return options.minimum_factor + (1.0 - options.minimum_factor) * share;
}

}  // namespace

std::vector<float> learning_rate_table(const ScheduleOptions& options, double learning_rate,
                                       std::uint64_t steps) {
  const FloatingPointScope scope;
  require(std::isfinite(learning_rate) && learning_rate >= 0.0, "learning_rate", learning_rate,
          "finite and >= 0");
  if (ends(options.name)) {
    require(options.total_steps > options.warmup_steps, "total_steps", options.total_steps,
            fmt::format("above warmup_steps = {} for {}", options.warmup_steps, name_of(options.name)));
    require(options.minimum_factor >= 0.0 && options.minimum_factor <= 1.0, "minimum_factor",
            options.minimum_factor, "in [0, 1]");
  }
  if (options.name == Schedule::polynomial)
    require(std::isfinite(options.power) && options.power > 0.0, "power", options.power, "finite, above 0");
  if (options.name == Schedule::exponential)
    require(options.gamma > 0.0 && options.gamma <= 1.0, "gamma", options.gamma, "in (0, 1]");
  if (options.name == Schedule::step) {
    require(options.step_interval >= 1, "step_interval", options.step_interval, ">= 1 for step");
    require(options.step_factor > 0.0 && options.step_factor <= 1.0, "step_factor", options.step_factor,
            "in (0, 1]");
  }
  const bool flat = options.name == Schedule::constant && options.warmup_steps == 0;
  constexpr std::uint64_t most_steps = std::uint64_t{1} << 27;  // half a GiB of rates
  if (!flat && steps > most_steps)
    throw std::invalid_argument(fmt::format(
        "train.steps = {} with schedule.name = \"{}\" and schedule.warmup_steps = {}: a learning rate of its "
        "own for each of at most {} steps",
        steps, name_of(options.name), options.warmup_steps, most_steps));
  std::vector<float> table(flat || steps == 0 ? 1 : steps);
  double product = 1.0;
  for (std::size_t step = 0; step < table.size(); ++step) {
    if (options.name == Schedule::step && step > 0 && step % options.step_interval == 0)
      product *= options.step_factor;
    if (options.name == Schedule::exponential && step > options.warmup_steps) product *= options.gamma;
    table[step] = static_cast<float>(learning_rate * factor_at(options, step, product));
  }
  return table;
}

}  // namespace fp16lab::engine::optim
