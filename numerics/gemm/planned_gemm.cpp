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

/// A range of K that one call computes.
struct Run {
  std::int64_t begin, end;
  bool restarts;  ///< a chain begins with it
};

/// The runs of one part of K, in order.
std::vector<Run> runs_of(const ProductOrder& order, std::int64_t k, int part) {
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges;
  if (order.parts == 1) {
    ranges.emplace_back(0, k);
  } else {
    const std::int64_t tiles = (k + order.tile - 1) / order.tile;
    const std::int64_t each = (tiles + order.parts - 1) / order.parts;
    for (std::int64_t t = 0; t < tiles; ++t)
      if ((order.interleaved ? t % order.parts : t / each) == part)
        ranges.emplace_back(t * order.tile, std::min(k, (t + 1) * order.tile));
  }
  std::vector<Run> runs;
  std::int64_t taken = 0;  // of the part's own K
  for (const auto& [begin, end] : ranges)
    for (std::int64_t at = begin; at < end;) {
      const std::int64_t left = order.restart > 0 ? order.restart - taken % order.restart : end - at;
      const std::int64_t until = std::min(end, at + left);
      runs.push_back({at, until, taken == 0 || (order.restart > 0 && taken % order.restart == 0)});
      taken += until - at;
      at = until;
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
  if (model.accumulator() != DType::f32)
    throw std::invalid_argument(fmt::format("planned_gemm: partial sums are FP32, but '{}' accumulates in {}",
                                            model.name, name_of(model.accumulator())));
  if (order.restart < 0 || order.parts < 1 || (order.parts > 1 && order.tile < 1))
    throw std::invalid_argument(fmt::format(
        "planned_gemm: restart {}, {} parts of tiles of {}; a restart of 0 or more, one part, or more of "
        "tiles of 1 and more are possible",
        order.restart, order.parts, order.tile));
  const int step = model.products();
  if (order.restart % step != 0 || (order.parts > 1 && order.tile % step != 0))
    throw std::invalid_argument(
        fmt::format("planned_gemm: restart {} and tiles of {} must be multiples of the {} products of an "
                    "instruction of '{}'",
                    order.restart, order.tile, step, model.name));
}

}  // namespace

void planned_gemm(const TensorCoreModel& model, const ProductOrder& order, GemmShape shape,
                  const StridedMatrix& a, const StridedMatrix& b, float* d, std::int64_t ldd, int threads) {
  check(model, order);
  if (order == ProductOrder{} || shape.k == 0)
    return emulated_gemm(model, shape, a, b, nullptr, d, ldd, threads);
  const FloatingPointScope scope;
  const auto size = static_cast<std::size_t>(shape.m * shape.n);
  const auto bytes = [](const StridedMatrix& x, std::int64_t elements) {
    return static_cast<const std::byte*>(x.data) + elements * static_cast<std::int64_t>(size_of(x.format));
  };
  const auto chain = [&](const Run& run, Matrix& to) {
    StridedMatrix left = a, right = b;
    left.data = bytes(a, run.begin * a.column_stride);
    right.data = bytes(b, run.begin * b.row_stride);
    emulated_gemm(model, {shape.m, shape.n, run.end - run.begin}, left, right,
                  run.restarts ? nullptr : to.data(), to.data(), shape.n, threads);
  };
  const auto part_of = [&](int part) {
    Matrix sum, next(size);
    bool first = true;
    for (const Run& run : runs_of(order, shape.k, part)) {
      if (run.restarts && !first) {
        if (sum.empty())
          std::swap(sum, next), next.resize(size);
        else
          add(next, sum, threads);
      }
      chain(run, next);
      first = false;
    }
    if (sum.empty()) return next;
    add(next, sum, threads);
    return sum;
  };

  Matrix total;
  if (order.join == Join::serial || order.parts == 1) {
    total = part_of(0);
    for (int part = 1; part < order.parts; ++part) add(part_of(part), total, threads);
  } else {
    const int last = order.parts - 1, half = (order.parts + 1) / 2;
    total = part_of(last);
    for (int i = 0; i < half && i < last; ++i) {
      Matrix slot = part_of(i);
      if (i + half < last) add(part_of(i + half), slot, threads);
      add(slot, total, threads);
    }
  }
  for (std::int64_t i = 0; i < shape.m; ++i) std::copy_n(total.data() + i * shape.n, shape.n, d + i * ldd);
}

}  // namespace fp16lab
