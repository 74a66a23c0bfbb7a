// In which order a sum adds its terms: a tree, and how calls alone reveal it.
//
// One term is +M, one is -M, all others are ones, and M is so large that M and any number of ones make M:
// then ones that join +M or -M before these two meet are lost, and the sum counts those that join later. So
// K minus the sum is the number of terms under the node where the two meet, and all pairs together are the
// tree. The method is FPRev's: Xie et al., "FPRev: Revealing the Order of Floating-Point Summation", USENIX
// ATC 2025 (arXiv 2411.00442). Nodes may have more than two children, because a tensor core adds the terms of
// a block in one sum that is rounded once.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace fp16lab::analysis {

/// The order of a sum of K terms. A node is a term, 0 to K - 1, or a join, K and above: join i is node K + i,
/// and adds its children in one sum, which is rounded once. Additions commute, so children have no order: two
/// trees are equal where the same terms meet in the same joins.
class SummationTree {
 public:
  using Join = std::vector<std::size_t>;  ///< nodes, at least two

  /// A join's children are terms and joins before it; the last join is the sum. std::invalid_argument where a
  /// node is missing or used twice, a join has fewer than two children, or there are no terms or more than
  /// most_terms.
  SummationTree(std::size_t terms, const std::vector<Join>& joins);

  static constexpr std::size_t most_terms = 16384;

  std::size_t terms() const { return terms_; }
  /// In one order for equal trees: children by their smallest term, joins after the joins below them.
  const std::vector<Join>& joins() const { return joins_; }
  std::size_t depth() const;        ///< the most joins on a term's path
  std::size_t widest_join() const;  ///< the most children of a join; 0 of a single term

  /// All of it, "((0 1 2 3) 4 5 6 7)": parentheses around the children of a join.
  std::string text() const;
  /// What a reader grasps of 1,024 terms: [a b c] adds from left to right, {a b c} enters a sum at once, and
  /// what repeats at equal distances is written twice and once at its end: "[{0..7} {8..15} .. {56..63}]".
  std::string short_text() const;
  /// The order in words, such as "chain of 64 blocks of 8": only where these words, built again, give this
  /// tree. Known are chains (ascending, descending, pairs with the higher term first, blocks), pairwise
  /// trees, parts of equal length or interleaved ones, each in such an order, and a tail that is added term
  /// by term: the orders of tensor cores, and of PyTorch's products of matrices on a processor.
  std::optional<std::string> in_words() const;

  bool operator==(const SummationTree&) const = default;

 private:
  std::size_t terms_;
  std::vector<Join> joins_;
};

/// As JSON: terms, depth, widest_join, in_words (or null), short, joins.
std::string json_of(const SummationTree& tree, int indent);
/// The same in a file, on one line. std::runtime_error where it cannot be written.
void save(const SummationTree& tree, const std::filesystem::path& path);

/// The sum of these terms, as the code in question computes it.
using Summation = std::function<double(std::span<const double> terms)>;

/// What the terms are: 0, the unit, and plus and minus `big`. Defaults fit operands of BF16, FP32 and FP64.
struct ProbeTerms {
  /// M. Takes up most_units units without a change, in the type of every sum on the way, also where terms are
  /// aligned to the largest and cut.
  double big = 0x1p100;
  double unit = 1;
  /// No more units in a call; fewer where the sum cannot hold their count, which reveal() finds out.
  std::size_t most_units = SummationTree::most_terms;
};

struct RevealedSum {
  SummationTree tree;
  std::size_t calls;  ///< calls of the sum
};

/// A sum whose order is no tree, or not the same in all calls; what() says in one line what was found.
class NoSummationTree : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The tree of `sum` for this many terms. About K calls where it is a chain, K L / 2 where blocks of L are
/// added at once, K^2 / 2 at most, several times as many where a call takes only some of the units, and those
/// that compare the tree with the sum: pairs with their signs exchanged and units at random places, all pairs
/// of up to 64 terms and 2 K of more. An accumulator that begins with zero does not show. What `sum` throws
/// passes through. std::invalid_argument for no terms, too many, or probes that are not finite, positive, and
/// big above unit; NoSummationTree otherwise.
RevealedSum reveal(std::size_t terms, const Summation& sum, const ProbeTerms& probes = {});

}  // namespace fp16lab::analysis
