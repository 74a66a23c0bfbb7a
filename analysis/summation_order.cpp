// A tree in words: known orders are built and compared.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "analysis/summation_tree.hpp"

namespace fp16lab::analysis {
namespace {

using Join = SummationTree::Join;

/// An order with words for it, for any number of terms.
struct Order {
  enum class Kind {
    ascending,
    descending,
    pairs,        ///< 1 0 3 2 ...: in each pair the higher term first
    blocks,       ///< of `size` terms, each block in one sum with the accumulator
    neighbours,   ///< pairwise: 0 + 1, 2 + 3, ...; then the sums of these alike
    halves,       ///< pairwise: term i and term i + n / 2, n a power of two; then the first n / 2 alike
    parts,        ///< `size` terms each by the first of `inner`, their sums by the second
    interleaved,  ///< `size` parts, to which groups of `group` terms go in turn; inner as above
    with_rest,    ///< the same of single terms, but those after the last full turn go on in the first part
    folded,       ///< term i and term i + n / 2 while there are more than `size`, then these by `inner`
    headed,       ///< the first `size` by `inner`, then term by term
  };
  Kind kind;
  std::size_t size = 0;
  std::vector<Order> inner = {};
  std::size_t group = 1;
};

/// Joins nodes as orders say.
class Builder {
 public:
  explicit Builder(std::size_t terms) : terms_(terms) {}

  std::size_t build(const Order& order, std::vector<std::size_t> nodes) {
    if (nodes.size() == 1) return nodes.front();
    switch (order.kind) {
      case Order::Kind::descending:
        std::ranges::reverse(nodes);
        return chain(nodes, 1);
      case Order::Kind::pairs:
        for (std::size_t i = 0; i + 1 < nodes.size(); i += 2) std::swap(nodes[i], nodes[i + 1]);
        return chain(nodes, 1);
      case Order::Kind::ascending:
        return chain(nodes, 1);
      case Order::Kind::blocks:
        return chain(nodes, order.size);
      case Order::Kind::neighbours:
        while (nodes.size() > 1) {
          std::vector<std::size_t> sums;
          for (std::size_t i = 0; i < nodes.size(); i += 2)
            sums.push_back(i + 1 < nodes.size() ? join({nodes[i], nodes[i + 1]}) : nodes[i]);
          nodes = std::move(sums);
        }
        return nodes.front();
      case Order::Kind::halves:
        fold(nodes, 1);
        return nodes.front();
      case Order::Kind::folded:
        fold(nodes, order.size);
        return build(order.inner[0], std::move(nodes));
      case Order::Kind::parts:
      case Order::Kind::interleaved:
      case Order::Kind::with_rest:
        break;
      case Order::Kind::headed: {
        const auto head = nodes.begin() + static_cast<std::ptrdiff_t>(std::min(order.size, nodes.size()));
        std::vector<std::size_t> rest{build(order.inner[0], {nodes.begin(), head})};
        rest.insert(rest.end(), head, nodes.end());
        return chain(rest, 1);
      }
    }
    std::vector<std::vector<std::size_t>> part;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      std::size_t to = order.kind == Order::Kind::parts ? i / order.size : i / order.group % order.size;
      if (order.kind == Order::Kind::with_rest && i >= nodes.size() / order.size * order.size) to = 0;
      if (to >= part.size()) part.resize(to + 1);
      part[to].push_back(nodes[i]);
    }
    std::vector<std::size_t> sums;
    for (std::vector<std::size_t>& terms : part) sums.push_back(build(order.inner[0], std::move(terms)));
    return build(order.inner[1], std::move(sums));
  }

  SummationTree tree() const { return {terms_, joins_}; }

 private:
  std::size_t join(Join children) {
    joins_.push_back(std::move(children));
    return terms_ + joins_.size() - 1;
  }

  /// Adds the second half to the first while there are more than `count`.
  void fold(std::vector<std::size_t>& nodes, std::size_t count) {
    while (nodes.size() > count) {
      const std::size_t half = (nodes.size() + 1) / 2;
      for (std::size_t i = 0; i + half < nodes.size(); ++i) nodes[i] = join({nodes[i], nodes[i + half]});
      nodes.resize(half);
    }
  }

  std::size_t chain(const std::vector<std::size_t>& nodes, std::size_t step) {
    Join open;
    for (std::size_t i = 0; i < nodes.size(); i += step) {
      for (std::size_t k = i; k < std::min(i + step, nodes.size()); ++k) open.push_back(nodes[k]);
      if (open.size() > 1) open = {join(std::move(open))};
    }
    return open.front();
  }

  std::size_t terms_;
  std::vector<Join> joins_;
};

bool gives(const Order& order, const SummationTree& tree) {
  Builder builder(tree.terms());
  std::vector<std::size_t> terms(tree.terms());
  std::iota(terms.begin(), terms.end(), std::size_t{0});
  builder.build(order, std::move(terms));
  return builder.tree() == tree;
}

/// Looks for an order that gives a tree: one of a single kind, or one of parts whose trees, and whose sums'
/// tree, are such orders again.
class Search {
 public:
  explicit Search(const SummationTree& tree) : tree_(tree), terms_(tree.terms()) {
    const std::size_t nodes = terms_ + tree.joins().size();
    parent_.assign(nodes, nodes);
    below_.resize(nodes);
    for (std::size_t term = 0; term < terms_; ++term) below_[term] = {1, term, term, 0};
    for (std::size_t i = 0; i < tree.joins().size(); ++i) {
      const Join& join = tree.joins()[i];
      Below all = below_[join.front()];
      all.terms = 0;
      for (const std::size_t child : join) {
        parent_[child] = terms_ + i;
        const Below& one = below_[child];
        all.terms += one.terms;
        all.divisor = std::gcd(std::gcd(all.divisor, one.divisor),
                               std::max(one.first, all.first) - std::min(one.first, all.first));
        all.first = std::min(all.first, one.first);
        all.last = std::max(all.last, one.last);
      }
      below_[terms_ + i] = all;
    }
  }

  std::optional<Order> order() const {
    using Kind = Order::Kind;
    for (const Kind kind : {Kind::ascending, Kind::descending, Kind::pairs, Kind::neighbours, Kind::halves})
      if ((kind != Kind::halves || (terms_ & (terms_ - 1)) == 0) && gives({kind}, tree_)) return Order{kind};
    if (terms_ < 3) return std::nullopt;
    if (const std::size_t first = below_[parent_[0]].terms; first > 2)
      if (const Order blocks{Kind::blocks, first}; gives(blocks, tree_)) return blocks;
    for (const Order& order :
         {with_rest(), lanes_of_pairs({Kind::neighbours}), lanes_of_pairs({Kind::halves}),
          lanes_of_pairs(folded_to_four()), folded_to_four()})
      if (order.size > 1 && gives(order, tree_)) return order;
    if (std::optional<Order> order = headed()) return order;
    for (std::size_t node = parent_[0]; node + 1 < parent_.size(); node = parent_[node]) {
      const auto& [count, first, last, divisor] = below_[node];
      if (first != 0) continue;
      const bool is_part = last + 1 == count;
      if (!is_part && (divisor < 2 || count != (terms_ + divisor - 1) / divisor)) continue;
      if (std::optional<Order> order =
              parted(is_part ? Kind::parts : Kind::interleaved, is_part ? count : divisor, node))
        return order;
    }
    return std::nullopt;
  }

 private:
  struct Below {
    std::size_t terms = 0, first = 0, last = 0;
    std::size_t divisor = 0;  ///< the largest of all distances between the terms
  };

  static Order folded_to_four() { return {Order::Kind::folded, 4, {{Order::Kind::neighbours}}}; }

  /// With as many parts as the distance between the two terms that are added first; size 0: with none.
  Order with_rest() const {
    const Join& first = tree_.joins()[parent_[0] - terms_];
    if (first.size() != 2 || first[1] >= terms_ || terms_ % first[1] == 0) return {Order::Kind::with_rest};
    return {Order::Kind::with_rest, first[1], {{Order::Kind::ascending}, {Order::Kind::ascending}}};
  }

  /// If terms 0 and 1 are added first and term n + 1 next: n / 2 parts of pairs.
  Order lanes_of_pairs(const Order& sums) const {
    const std::size_t first = parent_[0], next = parent_[first];
    if (parent_[1] != first || next >= parent_.size()) return {Order::Kind::interleaved};
    const Join& join = tree_.joins()[next - terms_];
    const std::size_t other = join.front() == first ? join.back() : join.front();
    if (join.size() != 2 || other >= terms_) return {Order::Kind::interleaved};
    return {Order::Kind::interleaved, (other - 1) / 2, {{Order::Kind::pairs}, sums}, 2};
  }

  std::vector<std::size_t> terms_below(std::size_t node) const {
    std::vector<std::size_t> open{node}, terms;
    while (!open.empty()) {
      const std::size_t top = open.back();
      open.pop_back();
      if (top < terms_)
        terms.push_back(top);
      else
        open.insert(open.end(), tree_.joins()[top - terms_].begin(), tree_.joins()[top - terms_].end());
    }
    std::ranges::sort(terms);
    return terms;
  }

  /// The node above `leaves`, which are its terms now, up to `top`.
  SummationTree between(const std::vector<std::size_t>& leaves, std::size_t top) const {
    const std::size_t none = parent_.size();
    std::vector<std::size_t> named(parent_.size(), none);
    for (std::size_t i = 0; i < leaves.size(); ++i) named[leaves[i]] = i;
    std::vector<Join> joins;
    for (std::size_t i = 0; i < tree_.joins().size() && terms_ + i <= top; ++i) {
      Join join = tree_.joins()[i];
      if (named[terms_ + i] != none || named[join.front()] == none) continue;
      for (std::size_t& child : join) child = named[child];
      if (std::ranges::find(join, none) != join.end()) continue;
      named[terms_ + i] = leaves.size() + joins.size();
      joins.push_back(std::move(join));
    }
    return {leaves.size(), joins};
  }

  std::optional<Order> parted(Order::Kind kind, std::size_t size, std::size_t first_part) const {
    const bool interleaved = kind == Order::Kind::interleaved;
    const std::size_t parts = interleaved ? size : (terms_ + size - 1) / size;
    std::vector<std::size_t> roots;
    for (std::size_t part = 0; part < parts; ++part) {
      const std::size_t begin = interleaved ? part : part * size;
      const std::size_t count =
          interleaved ? (terms_ - part + size - 1) / size : std::min(size, terms_ - begin);
      std::size_t node = begin;
      while (node < parent_.size() && below_[node].terms < count) node = parent_[node];
      if (node == parent_.size()) return std::nullopt;
      const Below& below = below_[node];
      const bool fits = below.terms == count && below.first == begin &&
                        (interleaved ? count == 1 || below.divisor == size : below.last == begin + count - 1);
      if (!fits) return std::nullopt;
      roots.push_back(node);
    }
    const std::optional<Order> sums = Search(between(roots, parent_.size() - 1)).order();
    if (!sums) return std::nullopt;
    const std::optional<Order> inner = Search(between(terms_below(first_part), first_part)).order();
    if (!inner) return std::nullopt;
    Order order{kind, size, {*inner, *sums}};
    return gives(order, tree_) ? std::optional(std::move(order)) : std::nullopt;
  }

  std::optional<Order> headed() const {
    std::size_t node = parent_.size() - 1, count = terms_;
    while (node >= terms_) {
      const Join& join = tree_.joins()[node - terms_];
      if (join.size() != 2 || join[1] != count - 1) break;
      node = join[0];
      --count;
    }
    if (count == terms_ || node < terms_) return std::nullopt;
    const std::optional<Order> head = Search(between(terms_below(node), node)).order();
    if (!head) return std::nullopt;
    Order order{Order::Kind::headed, count, {*head}};
    return gives(order, tree_) ? std::optional(std::move(order)) : std::nullopt;
  }

  const SummationTree tree_;
  std::size_t terms_;
  std::vector<std::size_t> parent_;  ///< the root's is the number of nodes
  std::vector<Below> below_;
};

/// "ascending chain"; with what is summed where that matters: terms, or "sums" of parts.
std::string words(const Order& order, std::size_t terms) {
  const auto inner = [&](std::size_t i, std::size_t count) { return words(order.inner[i], count); };
  const std::string of = terms == 0 ? "" : fmt::format(" of {}", terms);  // 0: not all alike
  switch (order.kind) {
    case Order::Kind::ascending:
      return terms < 3 ? "one sum of 2" : fmt::format("ascending chain of {}", terms);
    case Order::Kind::descending:
      return fmt::format("descending chain of {}", terms);
    case Order::Kind::pairs:
      return fmt::format("ascending chain{}, the higher one of each pair first", of);
    case Order::Kind::neighbours:
      return fmt::format("pairwise tree of {}, neighbours first", terms);
    case Order::Kind::halves:
      return fmt::format("pairwise tree of {}, halves added to each other", terms);
    case Order::Kind::blocks: {
      if (terms <= order.size) return fmt::format("one sum of {}", terms);
      const std::string blocks = fmt::format("chain of {} blocks of {}", terms / order.size, order.size);
      return terms % order.size == 0 ? blocks : fmt::format("{} and one of {}", blocks, terms % order.size);
    }
    case Order::Kind::parts: {
      const std::size_t parts = (terms + order.size - 1) / order.size,
                        last = terms - (parts - 1) * order.size;
      return fmt::format("restarts every {}: {} parts{}, each ({}), their sums ({})", order.size, parts,
                         last == order.size ? "" : fmt::format(", the last of {}", last),
                         inner(0, order.size), inner(1, parts));
    }
    case Order::Kind::folded:
      return fmt::format("pairwise tree of {}, halves added to each other down to {}, then ({})", terms,
                         order.size, inner(0, order.size));
    case Order::Kind::with_rest:
      return fmt::format(
          "{} interleaved parts, k mod {}, but the last {} in the first, each ({}), their sums ({})",
          order.size, order.size, terms % order.size, inner(0, terms / order.size), inner(1, order.size));
    case Order::Kind::interleaved:
      if (order.group > 1)
        return fmt::format("{} parts, to which groups of {} go in turn, each ({}), their sums ({})",
                           order.size, order.group, words(order.inner[0], 0), inner(1, order.size));
      return fmt::format("{} interleaved parts, k mod {}, each ({}), their sums ({})", order.size, order.size,
                         inner(0, (terms + order.size - 1) / order.size), inner(1, order.size));
    case Order::Kind::headed:
      return fmt::format("the first {} ({}), then {} one by one", order.size, inner(0, order.size),
                         terms - order.size);
  }
  return {};
}

}  // namespace

std::optional<std::string> SummationTree::in_words() const {
  if (terms_ == 1) return "a single term";
  const std::optional<Order> order = Search(*this).order();
  if (!order) return std::nullopt;
  return words(*order, terms_);
}

}  // namespace fp16lab::analysis
