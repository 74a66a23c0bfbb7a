// Rescue of an overflowed step (scaler.rescue): its backward pass once more, at a lower scale.
//
// A step is skipped because its backward pass overflowed at S. Its forward pass does not depend on S, so all
// that a lower scale would have changed is the backward pass: with the graphs kept, that alone is done again
// at the scale that the policy decides for the overflow. Same bits as if the step had begun at that scale:
// weights, optimizer state, statistics of BatchNorm, random masks. Each attempt is one observation of the
// policy, as a step is: an overflow, and in the end a good step or another overflow. Counters of skipped
// steps count those that stay skipped.
//
// What it costs. Values of the forward passes stay until the last attempt, those of all micro-batches of the
// step at once (train.accumulate = n: up to n times the activations), and the host waits for found_inf in
// every step. An overflow costs a backward pass instead of a step.
//
// The same means answer which scale would have been low enough, where overflows are explained: the backward
// passes are done again at S/2, S/8, S/128 ... until all gradients are finite, then in between, and none of
// their results is kept (Iteration::find_finite_scale). A gradient that overflows at one scale overflows at
// twice that.
//
// When it is not tried: the policy would not go below S (it forgives this overflow, or is at its floor), for
// the same pass would overflow in the same way; the loss is not finite, for then every gradient is, at any
// scale.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/amp/policy.hpp"
#include "engine/train/method.hpp"

namespace fp16lab::engine {

/// What was rescued in one iteration, or tried to be.
struct Rescue {
  std::uint64_t attempts = 0;   ///< backward passes that were done again
  double overflowed_scale = 1;  ///< S of the first
  double scale = 1;             ///< the last one's
  bool loss_overflow = false;   ///< the first one's (StepState::loss_overflow)
  std::vector<std::string>
      parameters{};  ///< whose gradients of the first were not finite, where names are wanted
};

/// The lowest scale that is tried for an explanation: no gradient of use is above 65504 2^24.
inline constexpr int least_tried_exponent = -24;

/// std::invalid_argument "scaler.rescue = N: ..." where it is impossible: a policy whose scale does not
/// answer to overflows, several losses' scales, a method that does not support it.
void check_rescue(const amp::ScalerOptions& scaler, const TrainingMethod& method);

}  // namespace fp16lab::engine
