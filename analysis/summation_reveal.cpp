// Revealing a sum's order by calling it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>

#include "analysis/summation_tree.hpp"

namespace fp16lab::analysis {
namespace {

using Join = SummationTree::Join;

class Revealer {
 public:
  Revealer(std::size_t terms, const Summation& sum, const ProbeTerms& probes)
      : terms_(terms), sum_(sum), probes_(probes), values_(terms), most_units_(probes.most_units) {}

  RevealedSum operator()() {
    find_most_units();
    std::vector<std::size_t> all(terms_);
    for (std::size_t term = 0; term < terms_; ++term) all[term] = term;
    if (terms_ > 1) children(std::move(all), terms_ + 1, false);
    const SummationTree tree(terms_, joins_);
    if (terms_ > 1) compare(tree);
    return {tree, calls_};
  }

 private:
  double call() {
    ++calls_;
    return sum_(values_) / probes_.unit;
  }

  /// How many units the result counts exactly: where it holds an odd number it holds all that are
  /// smaller, and the next one.
  void find_most_units() {
    most_units_ = std::min(most_units_, terms_);
    for (;; most_units_ /= 2) {
      const std::size_t odd = most_units_ - (most_units_ + 1) % 2;
      std::ranges::fill(values_, 0.0);
      std::fill_n(values_.begin(), odd, probes_.unit);
      const double count = call();
      if (count == static_cast<double>(odd)) return;
      if (odd == 1)
        throw NoSummationTree(fmt::format(
            "the first term is {}, all others are 0, and the sum is {}: expected the sum of the terms, {}",
            probes_.unit, count * probes_.unit, probes_.unit));
    }
  }

  std::string pair_text(std::size_t plus, std::size_t minus) const {
    return fmt::format("with term {} = {:g}, term {} = {:g}", plus, probes_.big, minus, -probes_.big);
  }

  /// Terms below the node where the two meet.
  std::size_t meeting(std::size_t plus, std::size_t minus) {
    std::size_t lost = 0;
    for (std::size_t begin = 0; begin < terms_; begin += most_units_) {
      const std::size_t end = std::min(terms_, begin + most_units_);
      std::ranges::fill(values_, 0.0);
      std::fill(values_.begin() + static_cast<std::ptrdiff_t>(begin),
                values_.begin() + static_cast<std::ptrdiff_t>(end), probes_.unit);
      const auto is_inside = [&](std::size_t term) { return begin <= term && term < end; };
      const std::size_t units = end - begin - (is_inside(plus) ? 1 : 0) - (is_inside(minus) ? 1 : 0);
      values_[plus] = probes_.big;
      values_[minus] = -probes_.big;
      lost += units - count_of(call(), units, plus, minus);
    }
    return lost + 2;
  }

  std::size_t count_of(double count, std::size_t units, std::size_t plus, std::size_t minus) const {
    if (!(count >= 0 && count <= static_cast<double>(units) && count == std::floor(count)))
      throw NoSummationTree(
          fmt::format("{} and {} others of {} the sum is {}: expected a number of these, as of a sum of "
                      "which {} loses them",
                      pair_text(plus, minus), units, probes_.unit, count * probes_.unit, probes_.big));
    return static_cast<std::size_t>(count);
  }

  /// Joins what of `members` hangs together below a node of `bound` terms, and gives the nodes that are its
  /// children. `last`: which end of the members is first compared with all others: the two ends in turn, so
  /// that a chain takes no more than twice as many calls as it has terms, whichever way it runs.
  Join children(std::vector<std::size_t> members, std::size_t bound, bool last) {
    Join result;
    while (!members.empty()) {
      const std::size_t pivot = last ? members.back() : members.front();
      std::map<std::size_t, std::vector<std::size_t>> meets;  // by the terms below the meeting point
      for (const std::size_t member : members)
        if (member != pivot) meets[meeting(pivot, member)].push_back(member);
      std::size_t node = pivot, joined = 1;
      members.clear();
      for (auto& [terms, group] : meets) {
        if (terms == bound) {
          members = std::move(group);
          continue;
        }
        joined += group.size();
        if (joined != terms || terms > bound) refuse(pivot, group.front(), terms, joined);
        Join join = children(std::move(group), terms, !last);
        join.push_back(node);
        joins_.push_back(std::move(join));
        node = terms_ + joins_.size() - 1;
      }
      result.push_back(node);
    }
    return result;
  }

  [[noreturn]] void refuse(std::size_t a, std::size_t b, std::size_t terms, std::size_t found) const {
    const std::string why =
        terms == 2 ? fmt::format(
                         "nothing is lost between them, so the sum is exact or sorts its terms, or {:g} is "
                         "too small",
                         probes_.big)
                   : "the order is not a tree, or depends on the terms";
    throw NoSummationTree(
        fmt::format("terms {} and {} meet in a sum of {} terms, but {} terms meet term {} by "
                    "then: {}",
                    a, b, terms, found, a, why));
  }

  /// Random places of units, and the signs exchanged: a sum that looks at its terms, or is not always the
  /// same, differs from the tree here.
  void compare(const SummationTree& tree) {
    std::vector<std::size_t> parent(terms_ + tree.joins().size()), depth(parent.size());
    for (std::size_t i = tree.joins().size(); i-- > 0;)
      for (const std::size_t child : tree.joins()[i]) {
        parent[child] = terms_ + i;
        depth[child] = depth[terms_ + i] + 1;
      }
    const bool all = terms_ <= 64;
    const std::size_t pairs = all ? terms_ * terms_ : 2 * terms_;
    std::vector<bool> below(parent.size());
    for (std::size_t pair = 0; pair < pairs; ++pair) {
      const std::size_t plus = all ? pair / terms_ : random() % terms_;
      const std::size_t minus = all ? pair % terms_ : random() % terms_;
      if (plus == minus || (all && plus < minus)) continue;  // the other sign was asked before
      std::size_t a = plus, b = minus;
      while (a != b) (depth[a] < depth[b] ? b : a) = parent[depth[a] < depth[b] ? b : a];
      std::fill(below.begin(), below.end(), false);
      below[a] = true;
      for (std::size_t i = a - terms_ + 1; i-- > 0;)
        if (below[terms_ + i])
          for (const std::size_t child : tree.joins()[i]) below[child] = true;
      std::ranges::fill(values_, 0.0);
      std::size_t units = 0, expected = 0;
      for (std::size_t tries = random() % (2 * most_units_); tries > 0 && units < most_units_; --tries) {
        const std::size_t term = random() % terms_;
        if (term == plus || term == minus || values_[term] != 0) continue;
        values_[term] = probes_.unit;
        ++units;
        expected += below[term] ? 0 : 1;
      }
      values_[plus] = probes_.big;
      values_[minus] = -probes_.big;
      const double count = call();
      if (count == static_cast<double>(expected)) continue;
      const bool again = call() == count;
      throw NoSummationTree(fmt::format(
          "{} and {} others of {} the sum is {}, but the order of the other calls gives {}: the order {}",
          pair_text(plus, minus), units, probes_.unit, count * probes_.unit,
          static_cast<double>(expected) * probes_.unit,
          again ? "depends on the terms, or is not a tree" : "changes from call to call"));
    }
  }

  std::size_t random() {  // Knuth's MMIX generator
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    return static_cast<std::size_t>(state_ >> 33);
  }

  std::size_t terms_;
  const Summation& sum_;
  ProbeTerms probes_;
  std::vector<double> values_;
  std::size_t most_units_;
  std::vector<Join> joins_;
  std::size_t calls_ = 0;
  std::uint64_t state_ = 1;
};

}  // namespace

RevealedSum reveal(std::size_t terms, const Summation& sum, const ProbeTerms& probes) {
  if (terms == 0 || terms > SummationTree::most_terms)
    throw std::invalid_argument(
        fmt::format("a sum of {} terms: expected 1 to {}", terms, SummationTree::most_terms));
  if (!(probes.unit > 0 && probes.big > probes.unit && std::isfinite(probes.big)) || probes.most_units == 0)
    throw std::invalid_argument(
        fmt::format("big {}, unit {}, {} units a call: expected finite numbers, big above unit, unit above 0",
                    probes.big, probes.unit, probes.most_units));
  return Revealer(terms, sum, probes)();
}

}  // namespace fp16lab::analysis
