#include "experiments/replay/step_outcome.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace fp16lab::experiments {
namespace {

void hull(MassInterval& a, const MassInterval& b) {
  a.lower = std::min(a.lower, b.lower);
  a.upper = std::max(a.upper, b.upper);
}
void hull(CountInterval& a, const CountInterval& b) {
  a.lower = std::min(a.lower, b.lower);
  a.upper = std::max(a.upper, b.upper);
}

void add(CountInterval& a, const CountInterval& b) {
  a.lower += b.lower;
  a.upper += b.upper;
}

std::uint64_t nonfinite(const ExponentHistogram& histogram) { return histogram.infinite + histogram.nan; }

/// What is left of a scale that became 0: at 2^-200 times its value, nothing that FP32 holds is left.
double usable_factor(double scale, double loss_scale) { return std::max(scale / loss_scale, 0x1p-200); }

Losses losses_of(const ExponentHistogram& all, const ExponentHistogram& weight, double loss_scale,
                 double scale) {
  const double factor = usable_factor(scale, loss_scale);
  const std::uint64_t count = all.finite_nonzero();
  const auto divided = [](const MassInterval& sum, double by) {
    return MassInterval{sum.lower / by, sum.upper / by};
  };
  Losses losses;
  losses.lost = count_ranges(all, fp16_range, factor).lost;
  losses.kept = {count - losses.lost.upper, count - losses.lost.lower};
  const RangeMass mass = range_mass(all, fp16_range, factor);
  losses.lost_l1 = divided(mass.lost_l1, loss_scale);
  losses.kept_l1 = divided(mass.kept_l1, loss_scale);
  losses.lost_l2_squared = divided(divided(mass.lost_l2_squared, loss_scale), loss_scale);
  losses.kept_l2_squared = divided(divided(mass.kept_l2_squared, loss_scale), loss_scale);
  losses.direction = direction_sums(weight, fp16_range, factor).divided_by(loss_scale);
  // These are the losses of a step that is taken: nothing overflowed in it.
  losses.direction.overflows = losses.direction.may_overflow = false;
  return losses;
}

/// The exponent of the highest bin that is not empty. False: all are empty.
bool top_bin(const ExponentHistogram& histogram, int& exponent) {
  for (int e = ExponentHistogram::max_exponent; e >= ExponentHistogram::min_exponent; --e)
    if (histogram.at(e) != 0) {
      exponent = e;
      return true;
    }
  return false;
}
bool bottom_bin(const ExponentHistogram& histogram, int& exponent) {
  for (int e = ExponentHistogram::min_exponent; e <= ExponentHistogram::max_exponent; ++e)
    if (histogram.at(e) != 0) {
      exponent = e;
      return true;
    }
  return false;
}

int floor_log2(double x) { return std::ilogb(x); }
int ceil_log2(double x) {
  const int floor = std::ilogb(x);
  return std::ldexp(1.0, floor) == x ? floor : floor + 1;
}

}  // namespace

Losses& Losses::operator+=(const Losses& other) {
  add(lost, other.lost);
  add(kept, other.kept);
  lost_l1 = lost_l1 + other.lost_l1;
  kept_l1 = kept_l1 + other.kept_l1;
  lost_l2_squared = lost_l2_squared + other.lost_l2_squared;
  kept_l2_squared = kept_l2_squared + other.kept_l2_squared;
  direction += other.direction;
  return *this;
}

void Losses::widen_to(const Losses& other) {
  hull(lost, other.lost);
  hull(kept, other.kept);
  hull(lost_l1, other.lost_l1);
  hull(kept_l1, other.kept_l1);
  hull(lost_l2_squared, other.lost_l2_squared);
  hull(kept_l2_squared, other.kept_l2_squared);
  hull(direction.lost, other.direction.lost);
  hull(direction.kept, other.direction.kept);
  direction.error_squared = std::max(direction.error_squared, other.direction.error_squared);
  direction.norm_squared = std::min(direction.norm_squared, other.direction.norm_squared);
}

void StepJudge::begin(const RecordedStep& step) {
  step_ = &step;
  outcomes_.clear();
  statistics_.clear();
  judged_.clear();
  std::uint64_t infinite = 0, nan = 0;
  double largest_scale = 0;
  for (const RecordedGroup& group : step.groups) {
    judged_.push_back(group.weight);
    judged_.back() += group.activation;
    for (const ExponentHistogram* const values :
         {&group.weight, &group.activation, &group.wide_weight, &group.wide_activation}) {
      infinite += values->infinite;
      nan += values->nan;
    }
    largest_scale = std::max(largest_scale, group.loss_scale);
  }
  models_own_nan_ = nan > 0 && infinite == 0 && largest_scale <= 1;
}

const StepOutcome& StepJudge::at(double scale) {
  // A NaN would not find itself again; a policy that decided one overflows as it would with infinity.
  if (std::isnan(scale)) scale = std::numeric_limits<double>::infinity();
  const auto found = outcomes_.find(scale);
  return found != outcomes_.end() ? found->second : outcomes_.emplace(scale, judge(scale)).first->second;
}

Overflow StepJudge::overflow_at(double scale) const {
  if (models_own_nan_ || !std::isfinite(scale)) return Overflow::certain;
  const bool evidence = run_->rounded() && run_->checked();
  if (step_->found_inf && run_->checked() && scale >= step_->loss_scale) return Overflow::certain;
  if (evidence && !step_->found_inf && scale <= step_->loss_scale) return Overflow::no;
  if (!(scale > 0)) return Overflow::no;
  bool possible = step_->found_inf;
  for (const RecordedGroup& group : step_->groups) {
    const double factor = scale / group.loss_scale;
    if (!std::isfinite(factor)) return Overflow::certain;
    if (factor > 0) {
      const CountInterval weight = count_ranges(group.weight, fp16_range, factor).overflow;
      if (weight.lower > 0) return Overflow::certain;
      possible = possible || weight.upper > 0 ||
                 count_ranges(group.activation, fp16_range, factor).overflow.upper > 0;
    }
    // At the recorded scale, a run in FP16 has answered above.
    const std::uint64_t weights = nonfinite(group.weight) + nonfinite(group.wide_weight);
    if (weights > 0 && scale >= group.loss_scale) return Overflow::certain;
    possible = possible || weights + nonfinite(group.activation) + nonfinite(group.wide_activation) > 0;
  }
  return possible ? Overflow::possible : Overflow::no;
}

StepOutcome StepJudge::judge(double scale) const {
  StepOutcome outcome;
  outcome.overflow = overflow_at(scale);
  if (outcome.overflow == Overflow::certain) return outcome;
  std::uint64_t weights = 0, wide = 0;
  CountInterval lost_weights;
  for (std::size_t i = 0; i < step_->groups.size(); ++i) {
    const RecordedGroup& group = step_->groups[i];
    outcome.losses += losses_of(judged_[i], group.weight, group.loss_scale, scale);
    wide += group.wide_weight.finite_nonzero();
    weights += group.weight.finite_nonzero();
    add(lost_weights, count_ranges(group.weight, fp16_range, usable_factor(scale, group.loss_scale)).lost);
  }
  outcome.may_be_empty = weights > 0 && wide == 0 && lost_weights.upper == weights;
  outcome.surely_empty = weights > 0 && wide == 0 && lost_weights.lower == weights;
  return outcome;
}

const engine::amp::GradientStatistics& StepJudge::statistics_at(double scale) {
  const double key = scale > 0 && std::isfinite(scale) ? scale : step_->loss_scale;
  const auto found = statistics_.find(key);
  if (found != statistics_.end()) return found->second;
  engine::amp::GradientStatistics statistics;
  for (const RecordedGroup& group : step_->groups) {
    const int shift = static_cast<int>(std::lround(std::log2(key / group.loss_scale)));
    // As engine/amp/observation.hpp has it: what is not rounded to 16 bits neither overflows nor vanishes.
    statistics.weight += times_power_of_two(group.weight, shift);
    statistics.activation += times_power_of_two(group.activation, shift);
  }
  return statistics_.emplace(key, statistics).first->second;
}

bool StepJudge::counts_are_exact_at(double scale) const {
  return std::all_of(step_->groups.begin(), step_->groups.end(), [scale](const RecordedGroup& group) {
    int exponent = 0;
    return std::frexp(scale / group.loss_scale, &exponent) == 0.5;
  });
}

bool StepJudge::highest(int& log2_scale) const {
  bool any = false;
  for (std::size_t i = 0; i < judged_.size(); ++i) {
    int top = 0;
    if (!top_bin(judged_[i], top)) continue;
    // The bin below the one that contains 65520 is (2^14, 2^15].
    const int limit = floor_log2(step_->groups[i].loss_scale) + (Binary16::emax - 1) - top;
    log2_scale = any ? std::min(log2_scale, limit) : limit;
    any = true;
  }
  if (!any) return false;
  if (run_->rounded() && run_->checked() && !step_->found_inf)
    log2_scale = std::max(log2_scale, floor_log2(step_->loss_scale));
  if (step_->found_inf && run_->checked())
    log2_scale = std::min(log2_scale, ceil_log2(step_->loss_scale) - 1);
  return true;
}

bool StepJudge::lossless(int& log2_scale) const {
  bool any = false;
  for (std::size_t i = 0; i < judged_.size(); ++i) {
    int bottom = 0;
    if (!bottom_bin(judged_[i], bottom)) continue;
    // All of a bin (2^e, 2^(e+1)] is kept from 2^e = 2^-25 on. Without extremes, the bin of -127 may have every FP32
    // number below it.
    const int smallest = bottom == -127 && judged_[i].greatest == 0 ? -150 : bottom;
    const int need =
        ceil_log2(step_->groups[i].loss_scale) + (Binary16::exponent_of_min_subnormal - 1) - smallest;
    log2_scale = any ? std::max(log2_scale, need) : need;
    any = true;
  }
  return any;
}

MassInterval StepJudge::lost_share_at(int log2_scale) const {
  MassInterval lost, kept;
  for (std::size_t i = 0; i < judged_.size(); ++i) {
    const double loss_scale = step_->groups[i].loss_scale;
    const RangeMass mass = range_mass(judged_[i], fp16_range, std::ldexp(1.0, log2_scale) / loss_scale);
    lost = lost + MassInterval{mass.lost_l1.lower / loss_scale, mass.lost_l1.upper / loss_scale};
    kept = kept + MassInterval{mass.kept_l1.lower / loss_scale, mass.kept_l1.upper / loss_scale};
  }
  return mass_detail::share(lost, kept);
}

int StepJudge::smallest_losing(double share) const {
  // What is lost shrinks as the scale grows, so this is a bisection: `low` loses more, `high` does not.
  int high = 0;
  if (!lossless(high)) return 0;
  int low = high - 320;
  while (high - low > 1) {
    const int middle = low + (high - low) / 2;
    (lost_share_at(middle).upper <= share ? high : low) = middle;
  }
  return high;
}

}  // namespace fp16lab::experiments
