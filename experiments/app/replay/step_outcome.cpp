#include "experiments/app/replay/step_outcome.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace fp16lab::experiments {

void hull(CountInterval& a, const CountInterval& b) {
  a.lower = std::min(a.lower, b.lower);
  a.upper = std::max(a.upper, b.upper);
}

namespace {

void hull(MassInterval& a, const MassInterval& b) {
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

Losses losses_of(const RecordedGroup& group, const ExponentHistogram& all, double scale) {
  const double loss_scale = group.loss_scale, factor = usable_factor(scale, loss_scale);
  const FormatRange range = range_of(group.format);
  const std::uint64_t count = all.finite_nonzero();
  const auto divided = [](const MassInterval& sum, double by) {
    return MassInterval{sum.lower / by, sum.upper / by};
  };
  Losses losses;
  losses.lost = count_ranges(all, range, factor).lost;
  losses.kept = {count - losses.lost.upper, count - losses.lost.lower};
  const RangeMass mass = range_mass(all, range, factor);
  losses.lost_l1 = divided(mass.lost_l1, loss_scale);
  losses.kept_l1 = divided(mass.kept_l1, loss_scale);
  losses.lost_l2_squared = divided(divided(mass.lost_l2_squared, loss_scale), loss_scale);
  losses.kept_l2_squared = divided(divided(mass.kept_l2_squared, loss_scale), loss_scale);
  if (!group.intermediate)  // the parameter's own gradient is a row of its own
    losses.direction = direction_sums(group.weight, range, factor).divided_by(loss_scale);
  // These are the losses of a step that is taken: nothing overflowed in it.
  losses.direction.overflows = losses.direction.may_overflow = false;
  return losses;
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
    judged_.emplace_back();
    if (group.rounds()) (judged_.back() += group.weight) += group.activation;
    for (const ExponentHistogram* const values : {&group.weight, &group.activation}) {
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
    if (factor > 0 && group.overflows()) {
      const FormatRange range = range_of(group.format);
      const CountInterval weight = count_ranges(group.weight, range, factor).overflow;
      if (weight.lower > 0) return Overflow::certain;
      possible =
          possible || weight.upper > 0 || count_ranges(group.activation, range, factor).overflow.upper > 0;
    }
    // At the recorded scale, a run that rounded has answered above.
    const std::uint64_t weights = nonfinite(group.weight);
    if (weights > 0 && scale >= group.loss_scale) return Overflow::certain;
    possible = possible || weights + nonfinite(group.activation) > 0;
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
    if (!group.rounds()) {
      wide += group.weight.finite_nonzero();
      continue;
    }
    outcome.losses += losses_of(group, judged_[i], scale);
    if (group.intermediate) continue;
    weights += group.weight.finite_nonzero();
    add(lost_weights,
        count_ranges(group.weight, range_of(group.format), usable_factor(scale, group.loss_scale)).lost);
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
    // As engine/amp/observation.hpp has it: what is not rounded to 16 bits neither overflows nor vanishes.
    if (!group.rounds() || !group.overflows() || group.intermediate) continue;
    statistics.range = range_of(group.format);
    const int shift = static_cast<int>(std::lround(std::log2(key / group.loss_scale)));
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

bool StepJudge::may_overflow_at(int log2_scale) const {
  return std::any_of(step_->groups.begin(), step_->groups.end(), [log2_scale](const RecordedGroup& group) {
    const double factor = std::ldexp(1.0, log2_scale) / group.loss_scale;
    const FormatRange range = range_of(group.format);
    return group.overflows() && (count_ranges(group.weight, range, factor).overflow.upper > 0 ||
                                 count_ranges(group.activation, range, factor).overflow.upper > 0);
  });
}

bool StepJudge::may_lose_at(int log2_scale) const {
  for (std::size_t i = 0; i < judged_.size(); ++i) {
    const RecordedGroup& group = step_->groups[i];
    if (count_ranges(judged_[i], range_of(group.format), std::ldexp(1.0, log2_scale) / group.loss_scale)
            .lost.upper > 0)
      return true;
  }
  return false;
}

namespace {

/// FP32 numbers times a power of two outside of these are all zero, or all infinite, in every format.
constexpr int lowest_log2 = -600, highest_log2 = 600;

/// The last `x` from lowest_log2 to highest_log2 that is not `beyond`, which holds from some x on.
template <class Beyond>
int last_before(Beyond beyond) {
  int within = lowest_log2, outside = highest_log2;
  while (outside - within > 1) {
    const int middle = within + (outside - within) / 2;
    (beyond(middle) ? outside : within) = middle;
  }
  return within;
}

}  // namespace

bool StepJudge::highest(int& log2_scale) const {
  const bool any = std::any_of(step_->groups.begin(), step_->groups.end(), [](const RecordedGroup& group) {
    return group.overflows() && group.weight.finite_nonzero() + group.activation.finite_nonzero() > 0;
  });
  if (!any) return false;
  log2_scale = last_before([&](int k) { return may_overflow_at(k); });
  if (run_->rounded() && run_->checked() && !step_->found_inf)
    log2_scale = std::max(log2_scale, floor_log2(step_->loss_scale));
  if (step_->found_inf && run_->checked())
    log2_scale = std::min(log2_scale, ceil_log2(step_->loss_scale) - 1);
  return true;
}

bool StepJudge::lossless(int& log2_scale) const {
  const bool any =
      std::any_of(judged_.begin(), judged_.end(), [](const auto& all) { return all.finite_nonzero() > 0; });
  if (any) log2_scale = last_before([&](int k) { return !may_lose_at(k); }) + 1;
  return any;
}

MassInterval StepJudge::lost_share_at(int log2_scale) const {
  MassInterval lost, kept;
  for (std::size_t i = 0; i < judged_.size(); ++i) {
    const double loss_scale = step_->groups[i].loss_scale;
    const RangeMass mass =
        range_mass(judged_[i], range_of(step_->groups[i].format), std::ldexp(1.0, log2_scale) / loss_scale);
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
