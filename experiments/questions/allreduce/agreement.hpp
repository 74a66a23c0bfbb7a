// Do all ranks take the same decision after an overflow on one of them?
//
// Every rank has its own StepState: S, found_inf and the policy's counters. Ranks stay replicas of each other
// only if all of them skip, or none does.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/amp/policy.hpp"
#include "engine/backend/backend.hpp"
#include "experiments/questions/allreduce/gradient_mean.hpp"
#include "numerics/text/named_enum.hpp"

namespace fp16lab::experiments::allreduce {

/// Five ways to check, on the same gradients:
///   local            each rank checks and unscales its own gradient, then the ranks exchange
///   local+max       the same, and found_inf is reduced over the ranks (maximum) before anybody steps
///   mean             each rank checks the mean that the exchange left: Inf + x is Inf or NaN, so all see it
///   shards           each rank checks, and updates, only the chunk of the mean that it owns (a sharded
///                    optimizer)
///   shards+max      the same, with found_inf reduced over the ranks
enum class Check { local, local_max, mean, shards, shards_max };
constexpr Check all_checks[] = {Check::local, Check::local_max, Check::mean, Check::shards,
                                Check::shards_max};
using fp16lab::name_of;
constexpr std::array<std::string_view, 5> names_of(Check) {
  return {"local", "local+max", "mean", "shards", "shards+max"};
}
/// Is found_inf the same on all ranks by construction?
bool agrees_by_construction(Check check);

/// A rank after one iteration.
struct RankOutcome {
  bool skipped = false;
  double scale = 0;  ///< S for the next iteration
  std::uint64_t nonfinite_weights = 0;
  std::uint64_t state_hash = 0;  ///< digest of weights and StepState
};

struct Iteration {
  const std::vector<float>* weights = nullptr;  ///< of all ranks, before
  Gradients gradients;                          ///< scaled by scaler.initial_scale
  float learning_rate = 0;                      ///< of plain SGD
  engine::amp::ScalerOptions scaler;            ///< a policy with a scale
};
/// One iteration of all ranks: check, FP32 ring all-reduce with predivide, step or skip, policy.
std::vector<RankOutcome> run_ranks(engine::Backend& backend, const Iteration& iteration, Check check);

std::size_t distinct_states(const std::vector<RankOutcome>& outcomes);

}  // namespace fp16lab::experiments::allreduce
