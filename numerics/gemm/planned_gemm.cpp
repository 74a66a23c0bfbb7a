// Products in the order of a plan: emulated_gemm for each chain, FP32 additions between them.
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "numerics/formats/bits.hpp"
#include "numerics/gemm/library_plan.hpp"
#include "numerics/platform/floating_point_scope.hpp"
#include "numerics/platform/worker_pool.hpp"

namespace fp16lab {
namespace {

/// A range of K that one call computes: every `step`-th element from `begin` on.
struct Run {
  std::int64_t begin, count, step;
  bool restarts;  ///< a chain begins with it
};

/// The runs of one part of [begin, end), in order.
std::vector<Run> runs_of(const ProductOrder& order, std::int64_t begin, std::int64_t end, int part) {
  if (order.interleaved && order.tile == 1 && order.restart == 0) {
    const std::int64_t rounds = (end - begin) / order.parts, whole = begin + rounds * order.parts;
    std::vector<Run> runs;
    if (rounds > 0) runs.push_back({begin + part, rounds, order.parts, true});
    const std::int64_t rest =
        order.rest_in_first ? (part == 0 ? end - whole : 0) : (whole + part < end ? 1 : 0);
    if (rest > 0) runs.push_back({order.rest_in_first ? whole : whole + part, rest, 1, runs.empty()});
    return runs;
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
  std::vector<Run> runs;
  std::int64_t taken = 0;  // of the part's own K
  for (const auto& [first, last] : ranges)
    for (std::int64_t at = first; at < last;) {
      const std::int64_t left = order.restart > 0 ? order.restart - taken % order.restart : last - at;
      const std::int64_t count = std::min(last - at, left);
      runs.push_back({at, count, 1, taken == 0 || (order.restart > 0 && taken % order.restart == 0)});
      taken += count;
      at += count;
    }
  return runs;
}

using Matrix = std::vector<float>;  // m x n, without gaps

/// to += from.
void add(const Matrix& from, Matrix& to, int threads) {
  constexpr std::size_t at_once = 1 << 14;
  share_tasks((to.size() + at_once - 1) / at_once, threads, [&](std::size_t task) {
    const std::size_t end = std::min(to.size(), (task + 1) * at_once);
    for (std::size_t i = task * at_once; i < end; ++i) to[i] = canonicalize(to[i] + from[i]);
  });
}

void check(const TensorCoreModel& model, const ProductOrder& order) {
  const bool halved = order.join == Join::halves || order.join == Join::halves_to_four;
  if (order.restart < 0 || order.parts < 1 || (order.parts > 1 && order.tile < 1) ||
      (halved && (order.parts & (order.parts - 1)) != 0))
    throw std::invalid_argument(fmt::format(
        "planned_gemm: restart {}, {} parts of tiles of {}; a restart of 0 or more, one part, or more of "
        "tiles of 1 and more are possible, and a power of two of them to halve",
        order.restart, order.parts, order.tile));
  if (order.rest_in_first && !(order.interleaved && order.tile == 1 && order.restart == 0))
    throw std::invalid_argument(
        "planned_gemm: what is left goes on in part 0 only of interleaved single elements without restarts");
  const int step = model.products();
  if (order.restart % step != 0 || (order.parts > 1 && order.tile % step != 0))
    throw std::invalid_argument(
        fmt::format("planned_gemm: restart {} and tiles of {} must be multiples of the {} products of an "
                    "instruction of '{}'",
                    order.restart, order.tile, step, model.name));
}

/// One product in its order.
class Planned {
 public:
  Planned(const PlannedProduct& product, GemmShape shape, const StridedMatrix& a, const StridedMatrix& b,
          int threads)
      : product_(product), shape_(shape), a_(a), b_(b), threads_(threads) {}

  Matrix sum() const {
    Matrix total;
    std::int64_t begin = 0;
    for (const ProductOrder& order : product_.ranges) {
      const std::int64_t end = order.end > 0 ? std::min(order.end, shape_.k) : shape_.k;
      append(range(order, begin, end), total);
      begin = end;
    }
    if (product_.terms_follow)
      for (std::int64_t k = begin; k < shape_.k; ++k) {
        Matrix term(size());
        chain({k, 1, 1, true}, term);
        append(std::move(term), total);
      }
    return total;
  }

 private:
  std::size_t size() const { return static_cast<std::size_t>(shape_.m * shape_.n); }

  void append(Matrix next, Matrix& total) const {
    if (total.empty())
      total = std::move(next);
    else
      add(next, total, threads_);
  }

  void chain(const Run& run, Matrix& to) const {
    const auto at = [](const StridedMatrix& x, std::int64_t elements) {
      return static_cast<const std::byte*>(x.data) + elements * static_cast<std::int64_t>(size_of(x.format));
    };
    const StridedMatrix left{a_.format, at(a_, run.begin * a_.column_stride), a_.row_stride,
                             a_.column_stride * run.step};
    const StridedMatrix right{b_.format, at(b_, run.begin * b_.row_stride), b_.row_stride * run.step,
                              b_.column_stride};
    emulated_gemm(*product_.row, {shape_.m, shape_.n, run.count}, left, right,
                  run.restarts ? nullptr : to.data(), to.data(), shape_.n, threads_);
  }

  /// The chains of a part, added in order.
  Matrix part_of(const ProductOrder& order, std::int64_t begin, std::int64_t end, int part) const {
    Matrix sum, next(size());
    bool first = true;
    for (const Run& run : runs_of(order, begin, end, part)) {
      if (run.restarts && !first) {
        append(std::move(next), sum);
        next.assign(size(), 0.0F);
      }
      chain(run, next);
      first = false;
    }
    append(std::move(next), sum);
    return sum;
  }

  Matrix range(const ProductOrder& order, std::int64_t begin, std::int64_t end) const {
    std::vector<Matrix> parts;
    for (int part = 0; part < order.parts; ++part) parts.push_back(part_of(order, begin, end, part));
    const auto add_to = [&](std::size_t from, std::size_t to) { add(parts[from], parts[to], threads_); };
    const std::size_t count = parts.size();
    switch (order.join) {
      case Join::serial:
        for (std::size_t p = 1; p < count; ++p) add_to(p, 0);
        return std::move(parts[0]);
      case Join::pairwise: {
        const std::size_t last = count - 1, half = (count + 1) / 2;
        for (std::size_t i = 0; i < half && i < last; ++i) {
          if (i + half < last) add_to(i + half, i);
          add_to(i, last);
        }
        return std::move(parts[last]);
      }
      case Join::halves:
      case Join::halves_to_four:
        break;
    }
    std::size_t left = count;
    for (; left > (order.join == Join::halves ? 1U : 4U); left /= 2)
      for (std::size_t lane = 0; lane < left / 2; ++lane) add_to(lane + left / 2, lane);
    for (std::size_t apart = 1; apart < left; apart *= 2)  // neighbours
      for (std::size_t lane = 0; lane + apart < left; lane += 2 * apart) add_to(lane + apart, lane);
    return std::move(parts[0]);
  }

  const PlannedProduct& product_;
  GemmShape shape_;
  const StridedMatrix &a_, &b_;
  int threads_;
};

}  // namespace

void planned_gemm(const PlannedProduct& product, GemmShape shape, const StridedMatrix& a,
                  const StridedMatrix& b, float* d, std::int64_t ldd, int threads) {
  const TensorCoreModel& model = *product.row;
  if (model.accumulator() != DType::f32)
    throw std::invalid_argument(fmt::format("planned_gemm: partial sums are FP32, but '{}' accumulates in {}",
                                            model.name, name_of(model.accumulator())));
  for (const ProductOrder& order : product.ranges) check(model, order);
  const bool one_chain = product.ranges.size() == 1 && product.ranges.front() == ProductOrder{};
  if (one_chain || shape.k == 0 || shape.m == 0 || shape.n == 0)
    return emulated_gemm(model, shape, a, b, nullptr, d, ldd, threads);
  const FloatingPointScope scope;
  const Matrix total = Planned(product, shape, a, b, threads).sum();
  for (std::int64_t i = 0; i < shape.m; ++i) std::copy_n(total.data() + i * shape.n, shape.n, d + i * ldd);
}

}  // namespace fp16lab
