// What a recorded step would have been at another loss scale: did it overflow, and what did it lose?
//
// Gradients scale with S, so the values counted at S answer for S': multiplied by S'/S. Whether the greatest
// of them is then beyond its format is certain at every S', since it was recorded; what is lost is exact
// where S'/S is a power of two (whole bins move). This is local to every tensor: a value that an upstream
// cast had flushed to zero at S stays zero at S' > S, and one that it would flush at S' < S is still there.
#pragma once

#include <cstdint>
#include <map>

#include "engine/amp/observation.hpp"
#include "experiments/app/replay/recorded_run.hpp"
#include "numerics/histogram/range_mass.hpp"
#include "numerics/histogram/zones.hpp"

namespace fp16lab::experiments {

/// Widens `a` to hold `b`.
void hull(CountInterval& a, const CountInterval& b);

/// Would the step's check have found an infinity or NaN among the gradients of parameters?
///   certain   a gradient of a parameter is beyond its format (from 65520 in FP16), or was infinite or NaN at
///             a scale that was no larger; or it is the model's: a NaN with nothing infinite at a scale of at
///             most 1, which no scale cures
///   possible  it was not finite at a larger scale, which may have come from upstream; or only gradients of
///             activations are beyond, and a ReLU or a pooling after them may let them go; or an older
///             folder does not say what the greatest one was, and its bin holds the edge
///   no        otherwise
/// At the recorded scale of a run that rounded, its own found_inf is the answer, and it goes on: an overflow
/// at S is one at all larger scales, no overflow at S is none at smaller ones.
enum class Overflow { no, possible, certain };

/// Amounts of a step, or sums over steps, in the gradients' own units (S divided out).
struct Losses {
  CountInterval lost, kept;  ///< finite non-zero values that become zero, and that do not
  MassInterval lost_l1, kept_l1, lost_l2_squared, kept_l2_squared;
  DirectionSums direction;  ///< of the gradients of parameters

  Losses& operator+=(const Losses& other);
  /// The smallest amounts that contain both.
  void widen_to(const Losses& other);
};

struct StepOutcome {
  Overflow overflow = Overflow::no;
  Losses losses;              ///< if the step is taken
  bool may_be_empty = false;  ///< if it is taken, no gradient of a parameter may be left that is not zero,
  bool surely_empty = false;  ///< ... or surely is
};

/// One step, asked for many scales.
class StepJudge {
 public:
  explicit StepJudge(const RecordedRun& run) : run_(&run) {}
  /// `step` must stay while it is asked about.
  void begin(const RecordedStep& step);

  /// `scale` is what a policy decided: also infinite, NaN or 0 without its finite guard.
  const StepOutcome& at(double scale);
  /// What the policy would have been given. Only for powers of two are these the counts; otherwise those of
  /// the power of two that is nearest to scale / loss_scale.
  const engine::amp::GradientStatistics& statistics_at(double scale);

  /// Every gradient of this step was counted at `scale` times a power of two.
  bool counts_are_exact_at(double scale) const;

  /// log2 of the largest power of two at which nothing of what was recorded finite may overflow. False: no
  /// finite value.
  bool highest(int& log2_scale) const;
  /// ... of the smallest that loses nothing, or at most `share` of the L1 norm.
  bool lossless(int& log2_scale) const;
  int smallest_losing(double share) const;

 private:
  StepOutcome judge(double scale) const;
  Overflow overflow_at(double scale) const;
  bool may_overflow_at(int log2_scale) const;
  bool may_lose_at(int log2_scale) const;
  MassInterval lost_share_at(int log2_scale) const;

  const RecordedRun* run_;
  const RecordedStep* step_ = nullptr;
  bool models_own_nan_ = false;
  std::vector<ExponentHistogram>
      judged_{};  ///< weight + activation of each group; empty where a group does not round
  std::map<double, StepOutcome> outcomes_;
  std::map<double, engine::amp::GradientStatistics> statistics_;
};

}  // namespace fp16lab::experiments
