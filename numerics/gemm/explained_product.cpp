#include "numerics/gemm/explained_product.hpp"

#include <utility>
#include <vector>

#include "numerics/gemm/order_steps.hpp"

namespace fp16lab {
namespace {

/// The steps so far, and the terms for the partial sums on the stack of OrderStep.
class Explained {
 public:
  Explained(const PlannedProduct& product, DType a_format, std::span<const std::uint32_t> a, DType b_format,
            std::span<const std::uint32_t> b)
      : row_(*product.row), a_format_(a_format), b_format_(b_format), a_(a), b_(b) {}

  void take(const OrderStep& step) {
    if (step.kind == OrderStep::Kind::chain) return chain(step);
    std::vector<ExplainedTerm> terms;
    const std::size_t count = step.kind == OrderStep::Kind::addition ? 2 : 1;
    for (std::size_t i = stack_.size() - count; i < stack_.size(); ++i) terms.push_back(stack_[i]);
    stack_.resize(stack_.size() - count);
    steps.push_back(explained_addition(std::move(terms), step.format));
    push(steps.back().result);
  }

  const ExplainedNumber& total() const { return stack_.back().number; }

  std::vector<ExplainedStep> steps;

 private:
  void chain(const OrderStep& step) {
    const std::vector<std::size_t> elements = elements_of(step);
    std::vector<std::uint32_t> a, b;
    for (const std::size_t k : elements) {
      a.push_back(a_[k]);
      b.push_back(b_[k]);
    }
    ExplainedDot dot = explained_dot(row_, a_format_, a, b_format_, b, 0);
    ++chains_;
    const std::size_t before = steps.size();
    for (ExplainedStep& of_chain : dot.steps) {
      of_chain.chain = chains_;
      for (ExplainedTerm& term : of_chain.terms) {
        using Source = ExplainedTerm::Source;
        if (term.source == Source::product) term.k = elements[term.k];
        if (term.source != Source::accumulator && term.source != Source::blocks) continue;
        if (term.k == 0) term.k = ExplainedTerm::zero;  // a chain begins from +0
        if (term.k != ExplainedTerm::zero) term.k += before;
      }
      steps.push_back(std::move(of_chain));
    }
    push(dot.result);
    if (elements.empty()) stack_.back().k = ExplainedTerm::zero;
  }

  void push(const ExplainedNumber& number) {
    ExplainedTerm term;
    term.source = ExplainedTerm::Source::partial;
    term.k = steps.size();
    term.number = number;
    stack_.push_back(term);
  }

  const TensorCoreModel& row_;
  DType a_format_, b_format_;
  std::span<const std::uint32_t> a_, b_;
  std::vector<ExplainedTerm> stack_;
  std::size_t chains_ = 0;
};

}  // namespace

ExplainedDot explained_product(const PlannedProduct& product, DType a_format,
                               std::span<const std::uint32_t> a, DType b_format,
                               std::span<const std::uint32_t> b) {
  ExplainedDot dot = explained_dot(*product.row, a_format, a, b_format, b, 0);  // what no order changes
  if (a.empty()) return dot;
  Explained explained(product, a_format, a, b_format, b);
  for (const OrderStep& step : steps_of(product, static_cast<std::int64_t>(a.size()))) explained.take(step);
  dot.result = explained.total();
  dot.steps = std::move(explained.steps);
  dot.word = dot.steps.back().word;
  dot.error.reset();
  if (dot.exact.is_finite() && dot.result.is_finite()) dot.error = dot.result.value - dot.exact.value;
  return dot;
}

}  // namespace fp16lab
