#include "analysis/summation_tree.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "numerics/files/disk/atomic_file.hpp"

namespace fp16lab::analysis {
namespace {

using Join = SummationTree::Join;

/// What hangs below every node.
struct Extents {
  std::vector<std::size_t> smallest, terms;
};

Extents extents_of(std::size_t terms, const std::vector<Join>& joins) {
  Extents extents;
  extents.smallest.resize(terms + joins.size());
  extents.terms.assign(terms + joins.size(), 1);
  for (std::size_t term = 0; term < terms; ++term) extents.smallest[term] = term;
  for (std::size_t i = 0; i < joins.size(); ++i) {
    std::size_t smallest = terms, count = 0;
    for (const std::size_t child : joins[i]) {
      smallest = std::min(smallest, extents.smallest[child]);
      count += extents.terms[child];
    }
    extents.smallest[terms + i] = smallest;
    extents.terms[terms + i] = count;
  }
  return extents;
}

void require_tree(std::size_t terms, const std::vector<Join>& joins) {
  if (terms == 0 || terms > SummationTree::most_terms)
    throw std::invalid_argument(
        fmt::format("a sum of {} terms: expected 1 to {}", terms, SummationTree::most_terms));
  std::vector<bool> used(terms + joins.size());
  std::size_t uses = 0;
  for (std::size_t i = 0; i < joins.size(); ++i) {
    if (joins[i].size() < 2) throw std::invalid_argument(fmt::format("join {}: expected two children", i));
    for (const std::size_t child : joins[i]) {
      if (child >= terms + i || used[child])
        throw std::invalid_argument(
            fmt::format("join {}: child {}: expected a term or an earlier join that no other has", i, child));
      used[child] = true;
      ++uses;
    }
  }
  if (uses + 1 != terms + joins.size())
    throw std::invalid_argument(
        fmt::format("{} terms and {} joins: expected all of them below the last join", terms, joins.size()));
}

/// What joins the accumulator of a chain at once.
struct Step {
  std::vector<std::size_t> nodes;
};

/// Writes a tree with what repeats left out.
class ShortText {
 public:
  explicit ShortText(const SummationTree& tree)
      : terms_(tree.terms()), joins_(tree.joins()), extents_(extents_of(terms_, joins_)) {}

  std::string operator()() const { return text(terms_ + joins_.size() - 1, 0); }

 private:
  bool is_term(std::size_t node) const { return node < terms_; }
  const Join& children(std::size_t node) const { return joins_[node - terms_]; }

  /// The node as a chain, first step first: down the children with the most terms, as long as what joins them
  /// is of one kind, terms or sums, and does not become shorter.
  std::vector<Step> steps(std::size_t node) const {
    std::vector<Step> steps;
    bool of_sums = false;
    std::size_t size = 0;  // terms of the step above
    for (;;) {
      if (is_term(node)) break;
      std::size_t accumulator = node;
      for (const std::size_t child : children(node))
        if (!is_term(child) && (accumulator == node || extents_.terms[child] > extents_.terms[accumulator]))
          accumulator = child;
      if (accumulator == node) break;
      Step step;
      bool has_sums = false;
      for (const std::size_t child : children(node)) {
        if (child == accumulator) continue;
        step.nodes.push_back(child);
        has_sums = has_sums || !is_term(child);
      }
      const std::size_t joining = extents_.terms[node] - extents_.terms[accumulator];
      if (!steps.empty() && (has_sums != of_sums || joining < size)) break;
      of_sums = has_sums;
      size = joining;
      steps.push_back(std::move(step));
      node = accumulator;
    }
    const bool only_terms = !is_term(node) && std::ranges::all_of(children(node), [this](std::size_t child) {
      return is_term(child);
    });
    if (!steps.empty() && (of_sums || !only_terms))
      steps.push_back({{node}});
    else if (!is_term(node) && children(node).size() == 2)
      steps.insert(steps.end(), {Step{{children(node)[1]}}, Step{{children(node)[0]}}});
    else if (!is_term(node))
      steps.push_back({children(node)});
    std::ranges::reverse(steps);
    return steps;
  }

  std::string text(std::size_t node, std::size_t from) const {
    if (is_term(node)) return fmt::format("{}", node - from);
    std::vector<Step> chain = steps(node);
    if (chain.size() == 1) return text(chain.front(), from);
    std::string best = text(chain, from);
    const auto is_one_term = [this](const Step& step) {
      return step.nodes.size() == 1 && is_term(step.nodes.front());
    };
    if (is_one_term(chain[0]) && is_one_term(chain[1])) {  // no test can tell which of the first two is first
      std::swap(chain[0], chain[1]);
      const std::string other = text(chain, from);
      if (other.size() < best.size()) best = other;
    }
    return "[" + best + "]";
  }

  std::string text(const Step& step, std::size_t from) const {
    if (step.nodes.size() == 1) return text(step.nodes.front(), from);
    std::vector<Step> single;
    for (const std::size_t node : step.nodes) single.push_back({{node}});
    const std::size_t first = step.nodes.front(), last = step.nodes.back();
    const bool consecutive = step.nodes.size() > 2 && is_term(last) && last - first + 1 == step.nodes.size();
    return "{" + (consecutive ? fmt::format("{}..{}", first - from, last - from) : text(single, from)) + "}";
  }

  std::size_t smallest(const Step& step) const {
    std::size_t smallest = terms_;
    for (const std::size_t node : step.nodes) smallest = std::min(smallest, extents_.smallest[node]);
    return smallest;
  }

  /// Steps with spaces between them; a repetition shows its first two and its last.
  std::string text(const std::vector<Step>& steps, std::size_t from) const {
    std::vector<std::size_t> place;
    std::vector<std::string> shape;
    for (const Step& step : steps) {
      place.push_back(smallest(step));
      shape.push_back(text(step, place.back()));
    }
    std::vector<std::string> words;
    const auto write = [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i) words.push_back(text(steps[i], from));
    };
    for (std::size_t i = 0; i < steps.size();) {
      std::size_t period = 1, count = 1;  // the longest repetition that begins here, in steps
      for (const std::size_t p : {1, 2, 4, 8}) {
        if (i + p >= steps.size()) break;
        const std::size_t distance = place[i + p] - place[i];  // may wrap around, as all differences do
        std::size_t n = p;
        while (i + n < steps.size() && shape[i + n] == shape[i + n - p] &&
               place[i + n] - place[i + n - p] == distance)
          ++n;
        n -= n % p;
        if (n > count && n >= 5 * p) {
          count = n;
          period = p;
        }
      }
      if (count == 1) {
        write(i, i + 1);
      } else {
        write(i, i + 2 * period);
        words.emplace_back("..");
        write(i + count - period, i + count);
      }
      i += count;
    }
    return fmt::format("{}", fmt::join(words, " "));
  }

  std::size_t terms_;
  const std::vector<Join>& joins_;
  Extents extents_;
};

}  // namespace

SummationTree::SummationTree(std::size_t terms, const std::vector<Join>& joins) : terms_(terms) {
  require_tree(terms, joins);
  if (joins.empty()) return;
  const Extents extents = extents_of(terms, joins);
  std::vector<std::size_t> named(terms + joins.size());  // the new name of a node
  for (std::size_t term = 0; term < terms; ++term) named[term] = term;
  struct Visit {
    std::size_t node;
    Join children;  // sorted
    std::size_t next = 0;
  };
  const auto visit = [&](std::size_t node) {
    Join children = joins[node - terms];
    std::ranges::sort(children, {}, [&](std::size_t child) { return extents.smallest[child]; });
    return Visit{node, std::move(children)};
  };
  std::vector<Visit> open{visit(terms + joins.size() - 1)};
  joins_.reserve(joins.size());
  while (!open.empty()) {
    Visit& top = open.back();
    if (top.next < top.children.size()) {
      const std::size_t child = top.children[top.next++];
      if (child >= terms) open.push_back(visit(child));
      continue;
    }
    for (std::size_t& child : top.children) child = named[child];
    named[top.node] = terms + joins_.size();
    joins_.push_back(std::move(top.children));
    open.pop_back();
  }
}

std::size_t SummationTree::depth() const {
  std::vector<std::size_t> depth(terms_ + joins_.size());
  for (std::size_t i = 0; i < joins_.size(); ++i)
    for (const std::size_t child : joins_[i])
      depth[terms_ + i] = std::max(depth[terms_ + i], depth[child] + 1);
  return depth.back();
}

std::size_t SummationTree::widest_join() const {
  std::size_t widest = 0;
  for (const Join& join : joins_) widest = std::max(widest, join.size());
  return widest;
}

std::string SummationTree::text() const {
  std::vector<std::string> texts(joins_.size());
  for (std::size_t i = 0; i < joins_.size(); ++i) {
    for (const std::size_t child : joins_[i]) {
      texts[i] += texts[i].empty() ? "(" : " ";
      // Each text is used once, in the one join above.
      texts[i] += child < terms_ ? std::to_string(child) : std::exchange(texts[child - terms_], {});
    }
    texts[i] += ")";
  }
  return joins_.empty() ? "0" : texts.back();
}

std::string SummationTree::short_text() const { return ShortText(*this)(); }

std::string json_of(const SummationTree& tree, int indent) {
  const std::optional<std::string> words = tree.in_words();
  return nlohmann::ordered_json{
      {"terms", tree.terms()},
      {"depth", tree.depth()},
      {"widest_join", tree.widest_join()},
      {"in_words", words ? nlohmann::ordered_json(*words) : nlohmann::ordered_json()},
      {"short", tree.short_text()},
      {"joins", tree.joins()}}
      .dump(indent);
}

void save(const SummationTree& tree, const std::filesystem::path& path) {
  write_file_atomically(path, json_of(tree, -1) + '\n', NamedBy::user);
}

}  // namespace fp16lab::analysis
