#include "numerics/gemm/order_steps.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "numerics/convert/convert.hpp"
#include "numerics/formats/bits.hpp"
#include "numerics/platform/floating_point_scope.hpp"

namespace fp16lab {
namespace {

void check(const TensorCoreModel& model, const ProductOrder& order) {
  const bool halved = order.join == Join::halves || order.join == Join::halves_to_four;
  if (order.restart < 0 || order.parts < 1 || (order.parts > 1 && order.tile < 1) ||
      (halved && (order.parts & (order.parts - 1)) != 0))
    throw std::invalid_argument(fmt::format(
        "restart {}, {} parts of tiles of {}; a restart of 0 or more, one part, or more of tiles of 1 and "
        "more are possible, and a power of two of them to halve",
        order.restart, order.parts, order.tile));
  if (order.rest_in_first && !(order.interleaved && order.tile == 1 && order.restart == 0))
    throw std::invalid_argument(
        "what is left goes on in part 0 only of interleaved single elements without restarts");
  if (order.partials != DType::f32 && order.partials != DType::f16 && order.partials != DType::bf16)
    throw std::invalid_argument(
        fmt::format("partial sums in {}; f32, f16 and bf16 are possible", name_of(order.partials)));
  const int step = model.products();
  if (order.restart % step != 0 || (order.parts > 1 && order.tile % step != 0))
    throw std::invalid_argument(
        fmt::format("restart {} and tiles of {} must be multiples of the {} products of an instruction of "
                    "'{}'",
                    order.restart, order.tile, step, model.name));
}

using Runs = std::vector<ChainRun>;

/// The chains of one part of [begin, end), in order; one without elements where the part has none.
std::vector<Runs> chains_of(const ProductOrder& order, std::int64_t begin, std::int64_t end, int part) {
  std::vector<Runs> chains(1);
  if (order.interleaved && order.tile == 1 && order.restart == 0) {
    const std::int64_t rounds = (end - begin) / order.parts, whole = begin + rounds * order.parts;
    if (rounds > 0) chains[0].push_back({begin + part, rounds, order.parts});
    const std::int64_t rest =
        order.rest_in_first ? (part == 0 ? end - whole : 0) : (whole + part < end ? 1 : 0);
    if (rest > 0) chains[0].push_back({order.rest_in_first ? whole : whole + part, rest, 1});
    return chains;
  }
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges;
  if (order.parts == 1) {
    ranges.emplace_back(begin, end);
  } else {
    const std::int64_t tiles = (end - begin + order.tile - 1) / order.tile;
    const std::int64_t each = (tiles + order.parts - 1) / order.parts;
    for (std::int64_t t = 0; t < tiles; ++t)
      if ((order.interleaved ? t % order.parts : t / each) == part)
        ranges.emplace_back(begin + t * order.tile, std::min(end, begin + (t + 1) * order.tile));
  }
  std::int64_t taken = 0;  // taken from the part's own K
  for (const auto& [first, last] : ranges)
    for (std::int64_t at = first; at < last;) {
      if (taken > 0 && order.restart > 0 && taken % order.restart == 0) chains.emplace_back();
      const std::int64_t left = order.restart > 0 ? order.restart - taken % order.restart : last - at;
      const std::int64_t count = std::min(last - at, left);
      Runs& runs = chains.back();
      if (!runs.empty() && runs.back().begin + runs.back().count == at)
        runs.back().count += count;
      else
        runs.push_back({at, count, 1});
      taken += count;
      at += count;
    }
  return chains;
}

class Steps {
 public:
  explicit Steps(std::vector<OrderStep>& steps) : steps_(steps) {}

  void range(const ProductOrder& order, int number, std::int64_t begin, std::int64_t end) {
    order_ = &order;
    number_ = number;
    begin_ = begin;
    end_ = end;
    const int count = order.parts, half = (count + 1) / 2;
    switch (order.join) {
      case Join::serial:
        part(0);
        for (int p = 1; p < count; ++p) add_part(p);
        return;
      case Join::pairwise:
        part(count - 1);
        for (int i = 0; i < half && i < count - 1; ++i) {
          part(i);
          if (i + half < count - 1) add_part(i + half);
          add();
        }
        return;
      case Join::halves:
        lanes(0, count, 1);
        return;
      case Join::halves_to_four:
        const int left = std::min(count, 4);
        lanes(0, count, left);
        for (int lane = 1; lane < left; ++lane) {  // neighbours: l0 + l1, then what l2 + l3 is
          lanes(lane, count, left);
          if (lane % 2 == 1) add();
        }
        if (left == 4) add();
        return;
    }
  }

  void add() { steps_.push_back({}); }
  void chain(const Runs& runs, int range, int part) {
    steps_.push_back({.kind = OrderStep::Kind::chain, .runs = runs, .range = range, .part = part});
  }

 private:
  void part(int p) {
    bool first = true;
    for (const Runs& runs : chains_of(*order_, begin_, end_, p)) {
      chain(runs, number_, p);
      if (!std::exchange(first, false)) add();
    }
    if (order_->parts > 1 && order_->partials != DType::f32)
      steps_.push_back({.kind = OrderStep::Kind::rounding, .format = order_->partials});
  }
  void add_part(int p) {
    part(p);
    add();
  }

  /// Lane `lane` of `count` that were halved until `left` remain.
  void lanes(int lane, int count, int left) {
    if (count == left) return part(lane);
    lanes(lane, count, 2 * left);
    lanes(lane + left, count, 2 * left);
    add();
  }

  std::vector<OrderStep>& steps_;
  const ProductOrder* order_ = nullptr;
  int number_ = 0;
  std::int64_t begin_ = 0, end_ = 0;
};

}  // namespace

std::vector<OrderStep> steps_of(const PlannedProduct& product, std::int64_t k) {
  if (product.row->accumulator() != DType::f32)
    throw std::invalid_argument(fmt::format("partial sums of a plan are FP32, but '{}' accumulates in {}",
                                            product.row->name, name_of(product.row->accumulator())));
  for (const ProductOrder& order : product.ranges) check(*product.row, order);
  std::vector<OrderStep> all;
  Steps steps(all);
  std::int64_t begin = 0;
  int number = 0;
  for (const ProductOrder& order : product.ranges) {
    const std::int64_t end = order.end > 0 ? std::min(order.end, k) : k;
    steps.range(order, number, begin, end);
    if (number++ > 0) steps.add();
    begin = end;
  }
  if (product.terms_follow)
    for (; begin < k; ++begin) {
      const bool only = all.empty();
      steps.chain({{begin, 1, 1}}, number, 0);
      if (!only) steps.add();
    }
  return all;
}

std::vector<std::size_t> elements_of(const OrderStep& chain) {
  std::vector<std::size_t> elements;
  for (const ChainRun& run : chain.runs)
    for (std::int64_t i = 0; i < run.count; ++i)
      elements.push_back(static_cast<std::size_t>(run.begin + i * run.step));
  return elements;
}

std::uint32_t planned_dot(const PlannedProduct& product, DType a_format, std::span<const std::uint32_t> a,
                          DType b_format, std::span<const std::uint32_t> b) {
  const FloatingPointScope scope;
  std::vector<float> stack;
  std::vector<std::uint32_t> left, right;
  for (const OrderStep& step : steps_of(product, static_cast<std::int64_t>(a.size()))) switch (step.kind) {
      case OrderStep::Kind::chain:
        left.clear();
        right.clear();
        for (const std::size_t k : elements_of(step)) {
          left.push_back(a[k]);
          right.push_back(b[k]);
        }
        stack.push_back(float_from_bits(fused_dot_add(*product.row, a_format, left, b_format, right, 0)));
        break;
      case OrderStep::Kind::rounding:
        stack.back() = step.format == DType::f16 ? widen(narrow<Binary16>(stack.back()))
                                                 : widen(narrow<BrainFloat16>(stack.back()));
        break;
      case OrderStep::Kind::addition: {
        const float top = stack.back();
        stack.pop_back();
        stack.back() = canonicalize(stack.back() + top);
      }
    }
  return stack.empty() ? 0 : bits_of(stack.back());
}

}  // namespace fp16lab
