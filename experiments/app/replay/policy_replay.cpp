#include "experiments/app/replay/policy_replay.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

namespace fp16lab::experiments {
namespace {

void count(CountInterval& sum, bool surely, bool possibly) {
  sum.lower += surely ? 1 : 0;
  sum.upper += possibly ? 1 : 0;
}

ReplayInterval interval(const CountInterval& counts) {
  return {static_cast<double>(counts.lower), static_cast<double>(counts.upper)};
}

ReplayInterval share(const CountInterval& part, const CountInterval& rest) {
  const auto quotient = [](std::uint64_t p, std::uint64_t r) {
    return p == 0 ? 0.0 : static_cast<double>(p) / (static_cast<double>(p) + static_cast<double>(r));
  };
  return {quotient(part.lower, rest.upper), quotient(part.upper, rest.lower)};
}

/// Sums of n terms in FP64 are within n * 2^-53 of their values, which the terms' own margin of 2^-40 covers
/// only up to some thousand steps.
ReplayInterval share(const MassInterval& part, const MassInterval& rest, std::uint64_t steps) {
  const MassInterval narrow = mass_detail::share(part, rest);
  const double margin = static_cast<double>(steps) * 0x1p-51;
  return {narrow.lower * (1 - margin), std::min(1.0, narrow.upper * (1 + margin))};
}

double log2_of(double scale) {
  return scale > 0 ? std::log2(scale) : -std::numeric_limits<double>::infinity();
}

}  // namespace

void PolicyReplay::Costs::widen_to(const Costs& other) {
  hull(skips, other.skips);
  hull(wasted, other.wasted);
  hull(applied, other.applied);
  losses.widen_to(other.losses);
}

PolicyReplay::PolicyReplay(engine::amp::ScalePolicy policy, ReplayedPolicy row, std::size_t state_limit)
    : policy_(std::move(policy)), row_(std::move(row)), state_limit_(state_limit) {
  Node first;
  first.scale = policy_.initial.scale;
  first.policy = policy_.initial.policy;
  states_.push_back(first);
  only_certain_ = every_possible_ = first;
}

engine::StepState PolicyReplay::state_of(const Node& node) const {
  engine::StepState state = policy_.initial;
  state.scale = node.scale;
  state.policy = node.policy;
  return state;
}

void PolicyReplay::add_successors(const Node& node, StepJudge& judge, Answer possible,
                                  std::vector<Node>& next) {
  if (node.stopped) {
    count(next.emplace_back(node).costs.wasted, true, true);
    return;
  }
  const StepOutcome& outcome = judge.at(node.scale);
  const engine::amp::GradientStatistics* statistics = nullptr;
  if (policy_.wants_statistics) {
    statistics = &judge.statistics_at(node.scale);
    rounded_statistics_ = rounded_statistics_ || !judge.counts_are_exact_at(node.scale);
  }
  const auto follow = [&](bool found_inf) {
    Node& after = next.emplace_back(node);
    if (found_inf) {
      count(after.costs.skips, true, true);
      count(after.costs.wasted, true, true);
    } else {
      count(after.costs.applied, true, true);
      count(after.costs.wasted, outcome.surely_empty, outcome.may_be_empty);
      after.costs.losses += outcome.losses;
    }
    engine::StepState state = state_of(node);
    engine::amp::advance(policy_, state, {.found_inf = found_inf, .statistics = statistics});
    after.scale = state.scale;
    after.policy = state.policy;
    after.stopped = policy_.stop != nullptr && policy_.stop(state, policy_.values).has_value();
  };
  const bool open = outcome.overflow == Overflow::possible;
  if (outcome.overflow == Overflow::no || (open && possible != Answer::overflow)) follow(false);
  if (outcome.overflow == Overflow::certain || (open && possible != Answer::none)) follow(true);
}

PolicyReplay::Node PolicyReplay::successor(const Node& node, StepJudge& judge, Answer possible) {
  std::vector<Node> next;
  add_successors(node, judge, possible, next);
  return next.front();
}

void PolicyReplay::step_set(StepJudge& judge, std::uint64_t step) {
  for (const Node& node : states_) add_successors(node, judge, Answer::both, next_);
  // By what a policy remembers.
  std::map<std::pair<decltype(Node::policy), bool>, Node> met;
  for (const Node& node : next_) {
    const auto [known, first] = met.try_emplace({node.policy, node.stopped}, node);
    if (!first) known->second.costs.widen_to(node.costs);
  }
  states_.clear();
  for (const auto& [remembered, node] : met) states_.push_back(node);
  next_.clear();
  if (states_.size() <= state_limit_) return;
  bounded_ = false;
  unbounded_at_ = step;
  states_.clear();
}

void PolicyReplay::for_each_state(const std::function<void(const Node&)>& visit) const {
  if (bounded_) return static_cast<void>(std::for_each(states_.begin(), states_.end(), visit));
  visit(only_certain_);
  visit(every_possible_);
}

void PolicyReplay::note_trace(std::uint64_t step, StepJudge& judge) {
  double lower = std::numeric_limits<double>::infinity(), upper = -lower;
  bool all = true, some = false;
  for_each_state([&](const Node& node) {
    const double log2_scale = log2_of(node.scale);
    lower = std::min(lower, log2_scale);
    upper = std::max(upper, log2_scale);
    const Overflow overflow = node.stopped ? Overflow::no : judge.at(node.scale).overflow;
    all = all && overflow == Overflow::certain;
    some = some || overflow != Overflow::no;
  });
  if (all) row_.skipped_lower.push_back(step);
  if (some) row_.skipped_upper.push_back(step);
  if (!row_.steps.empty() && row_.log2_scale_lower.back() == lower && row_.log2_scale_upper.back() == upper)
    return;
  row_.steps.push_back(step);
  row_.log2_scale_lower.push_back(lower);
  row_.log2_scale_upper.push_back(upper);
}

void PolicyReplay::take(const RecordedStep& step, StepJudge& judge) {
  const auto start = std::chrono::steady_clock::now();
  ++steps_;
  last_step_ = step.step;
  note_trace(step.step, judge);
  if (bounded_) step_set(judge, step.step);
  only_certain_ = successor(only_certain_, judge, Answer::none);
  every_possible_ = successor(every_possible_, judge, Answer::overflow);
  if (policy_.stop != nullptr && stop_.empty()) {
    bool found = false;
    for_each_state([&](const Node& node) {
      if (!node.stopped || std::exchange(found, true)) return;
      stop_ = fmt::format("{} after step {}: {}", states_.size() == 1 ? "stops" : "may stop", step.step,
                          *policy_.stop(state_of(node), policy_.values));
    });
  }
  seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void PolicyReplay::note_losses(const Costs& costs) {
  row_.any_applied = costs.applied.upper > 0;
  if (!row_.any_applied) {
    row_.lost_count = row_.lost_l1 = row_.lost_l2 = row_.cosine = {0, 1};
    return;
  }
  const Losses& losses = costs.losses;
  row_.lost_count = share(losses.lost, losses.kept);
  row_.lost_l1 = share(losses.lost_l1, losses.kept_l1, steps_);
  const ReplayInterval squared = share(losses.lost_l2_squared, losses.kept_l2_squared, steps_);
  row_.lost_l2 = {std::sqrt(squared.lower) * (1 - 0x1p-52),
                  std::min(1.0, std::sqrt(squared.upper) * (1 + 0x1p-52))};
  const MassInterval cosine = losses.direction.cosine();
  row_.cosine = {cosine.lower, cosine.upper};
}

ReplayedPolicy PolicyReplay::finish() {
  if (!bounded_) states_ = {only_certain_, every_possible_};
  Costs costs = states_.front().costs;
  for (const Node& node : states_) costs.widen_to(node.costs);
  // No step uses the scale after the last step; the trace ends with the last step itself.
  if (!row_.steps.empty() && row_.steps.back() != last_step_) {
    row_.steps.push_back(last_step_);
    row_.log2_scale_lower.push_back(row_.log2_scale_lower.back());
    row_.log2_scale_upper.push_back(row_.log2_scale_upper.back());
  }
  row_.skips = interval(costs.skips);
  row_.wasted_steps = interval(costs.wasted);
  note_losses(costs);
  row_.exact = bounded_ && !rounded_statistics_ && row_.skips.exact() &&
               row_.skipped_lower == row_.skipped_upper && row_.log2_scale_lower == row_.log2_scale_upper;
  if (!bounded_)
    row_.note += fmt::format(
        "{}more than {} states from step {} on: between a machine that takes the certain overflows and one "
        "that takes every possible one, which may leave out the truth",
        row_.note.empty() ? "" : "; ", state_limit_, unbounded_at_);
  if (rounded_statistics_)
    row_.note +=
        fmt::format("{}where its scale is not a power of two, its statistics are those of the nearest one",
                    row_.note.empty() ? "" : "; ");
  if (!stop_.empty()) row_.note += (row_.note.empty() ? "" : "; ") + stop_;
  row_.seconds = seconds_;
  return std::move(row_);
}

}  // namespace fp16lab::experiments
