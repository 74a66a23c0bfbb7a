// Products in the order of a plan: emulated_gemm for each chain, FP32 additions between them.
#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "numerics/convert/convert.hpp"
#include "numerics/formats/bits.hpp"
#include "numerics/gemm/library_plan.hpp"
#include "numerics/gemm/order_steps.hpp"
#include "numerics/platform/floating_point_scope.hpp"
#include "numerics/platform/worker_pool.hpp"

namespace fp16lab {
namespace {

using Matrix = std::vector<float>;  // m x n, without gaps

/// f(first, end) of pieces of n elements.
template <class Body>
void share_elements(std::size_t n, int threads, const Body& body) {
  constexpr std::size_t at_once = 1 << 14;
  share_tasks((n + at_once - 1) / at_once, threads,
              [&](std::size_t task) { body(task * at_once, std::min(n, (task + 1) * at_once)); });
}

template <class Half>
void round_through(std::span<float> x) {
  std::vector<Half> rounded(x.size());
  narrow(std::span<const float>(x), std::span(rounded));
  widen(std::span<const Half>(rounded), x);
}

/// One product in its order.
class Planned {
 public:
  Planned(const TensorCoreModel& row, GemmShape shape, const StridedMatrix& a, const StridedMatrix& b,
          int threads)
      : row_(row), shape_(shape), a_(a), b_(b), threads_(threads) {}

  Matrix sum(const std::vector<OrderStep>& steps) {
    for (const OrderStep& step : steps) {
      switch (step.kind) {
        case OrderStep::Kind::chain:
          push(step.runs);
          break;
        case OrderStep::Kind::rounding:
          share_elements(stack_.back().size(), threads_, [&](std::size_t first, std::size_t end) {
            const std::span part = std::span(stack_.back()).subspan(first, end - first);
            step.format == DType::f16 ? round_through<Float16>(part) : round_through<BFloat16>(part);
          });
          break;
        case OrderStep::Kind::addition:
          add();
      }
    }
    return std::move(stack_.back());
  }

 private:
  void push(const std::vector<ChainRun>& runs) {
    Matrix sum;
    if (!unused_.empty()) {
      sum = std::move(unused_.back());
      unused_.pop_back();
    }
    sum.resize(static_cast<std::size_t>(shape_.m * shape_.n));
    if (runs.empty()) std::ranges::fill(sum, 0.0F);
    for (const ChainRun& run : runs) chain(run, &run == runs.data(), sum);
    stack_.push_back(std::move(sum));
  }

  void chain(const ChainRun& run, bool first, Matrix& to) const {
    const auto at = [](const StridedMatrix& x, std::int64_t elements) {
      return static_cast<const std::byte*>(x.data) + elements * static_cast<std::int64_t>(size_of(x.format));
    };
    const StridedMatrix left{a_.format, at(a_, run.begin * a_.column_stride), a_.row_stride,
                             a_.column_stride * run.step};
    const StridedMatrix right{b_.format, at(b_, run.begin * b_.row_stride), b_.row_stride * run.step,
                              b_.column_stride};
    emulated_gemm(row_, {shape_.m, shape_.n, run.count}, left, right, first ? nullptr : to.data(), to.data(),
                  shape_.n, threads_);
  }

  void add() {
    Matrix from = std::move(stack_.back());
    stack_.pop_back();
    Matrix& to = stack_.back();
    share_elements(to.size(), threads_, [&](std::size_t first, std::size_t end) {
      for (std::size_t i = first; i < end; ++i) to[i] = canonicalize(to[i] + from[i]);
    });
    unused_.push_back(std::move(from));
  }

  const TensorCoreModel& row_;
  GemmShape shape_;
  const StridedMatrix &a_, &b_;
  int threads_;
  std::vector<Matrix> stack_, unused_;
};

}  // namespace

void planned_gemm(const PlannedProduct& product, GemmShape shape, const StridedMatrix& a,
                  const StridedMatrix& b, float* d, std::int64_t ldd, int threads) {
  const std::vector<OrderStep> steps = steps_of(product, shape.k);
  const bool one_chain =
      steps.size() == 1 && steps.front().runs.size() == 1 && steps.front().runs.front().step == 1;
  if (one_chain || shape.k == 0 || shape.m == 0 || shape.n == 0)
    return emulated_gemm(*product.row, shape, a, b, nullptr, d, ldd, threads);
  const FloatingPointScope scope;
  const Matrix total = Planned(*product.row, shape, a, b, threads).sum(steps);
  for (std::int64_t i = 0; i < shape.m; ++i) std::copy_n(total.data() + i * shape.n, shape.n, d + i * ldd);
}

}  // namespace fp16lab
