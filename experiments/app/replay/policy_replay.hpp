// One loss-scale policy, taken through the steps of a recorded run.
//
// Where a step's overflow is only possible, both answers are followed: the policy's reachable states are kept
// as a set, each with the bounds of what the ways into it cost. So the truth is between the bounds,
// whichever answers were the right ones. Policies whose states rarely meet again (floating-point averages)
// may have too many; from there on only two machines are followed, one that takes the certain overflows and
// one that takes every possible one, and the row says that its bounds are no longer guaranteed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/amp/policy.hpp"
#include "experiments/app/replay/step_outcome.hpp"
#include "numerics/files/run/replay_file.hpp"

namespace fp16lab::experiments {

inline constexpr std::size_t default_state_limit = 4096;

class PolicyReplay {
 public:
  /// `row` has the policy's name, label and source.
  PolicyReplay(engine::amp::ScalePolicy policy, ReplayedPolicy row,
               std::size_t state_limit = default_state_limit);

  void take(const RecordedStep& step, StepJudge& judge);
  /// The row, complete. The replay is over.
  ReplayedPolicy finish();

 private:
  /// What the ways into a state cost so far.
  struct Costs {
    CountInterval skips, wasted, applied;
    Losses losses;
    void widen_to(const Costs& other);
  };
  /// All of a StepState that a policy reads, and no more: there may be thousands of them, every step.
  struct Node {
    double scale = 1;
    decltype(engine::StepState::policy) policy{};
    bool stopped = false;
    Costs costs;
  };

  /// What an overflow that is only possible becomes.
  enum class Answer { both, none, overflow };

  /// The state of a back end that `node` represents.
  engine::StepState state_of(const Node& node) const;
  /// Adds one or two to `next`.
  void add_successors(const Node& node, StepJudge& judge, Answer possible, std::vector<Node>& next);
  Node successor(const Node& node, StepJudge& judge, Answer possible);
  void step_set(StepJudge& judge, std::uint64_t step);
  /// Visits the states that are followed.
  void for_each_state(const std::function<void(const Node&)>& visit) const;
  void note_trace(std::uint64_t step, StepJudge& judge);  ///< scales, and whether it is skipped
  void note_losses(const Costs& costs);

  engine::amp::ScalePolicy policy_;
  ReplayedPolicy row_;
  std::size_t state_limit_;
  std::vector<Node> states_, next_;  ///< next_: empty between two steps
  Node only_certain_, every_possible_;
  bool bounded_ = true;  ///< states_ holds every reachable state
  std::uint64_t unbounded_at_ = 0;
  std::uint64_t steps_ = 0, last_step_ = 0;
  bool rounded_statistics_ = false;  ///< a policy was given counts of a scale that it did not have
  std::string stop_;
  double seconds_ = 0;
};

}  // namespace fp16lab::experiments
