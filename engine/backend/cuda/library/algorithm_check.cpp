#include "engine/backend/cuda/library/algorithm_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "numerics/convert/convert.hpp"
#include "numerics/formats/bits.hpp"
#include "numerics/gemm/gemm.hpp"

namespace fp16lab::engine {

namespace {

constexpr std::int64_t sampled_outputs = 4096;
constexpr std::int64_t mask_rounds_at_most = 8;

std::int64_t quotient_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// `count` of 0 .. extent - 1: the first, the last, one from each of equal parts between.
std::vector<std::int64_t> spread(std::int64_t count, std::int64_t extent, std::uint64_t stream) {
  const PhiloxStream random{.seed = 0x73616d, .stream = stream};
  std::vector<std::int64_t> chosen;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t begin = i * extent / count, end = (i + 1) * extent / count;
    const std::int64_t within = random.word(static_cast<std::uint64_t>(i)) % (end - begin);
    chosen.push_back(i == 0 ? 0 : i == count - 1 ? extent - 1 : begin + within);
  }
  return chosen;
}

/// Exponents of the `wide` set: everything that the type has where sums stay finite in the output's type. A
/// sum of k products below 2^(2 highest + 2) stays below 2^(2 highest + 2 + log2 k).
void set_exponents(const ProductProblem& problem, CheckMatrix& x) {
  int log2_k = 0;
  while (log2_k < 62 && (std::int64_t{1} << log2_k) < problem.k) ++log2_k;
  if (problem.operands == DType::f16) {
    // 2^15 < 65504, and FP32 holds every sum of FP16 products. (>> rounds down.)
    x.highest = problem.out == DType::f16 ? (13 - log2_k) >> 1 : Binary16::emax;
    x.lowest = Binary16::exponent_of_min_subnormal;
  } else {
    x.highest = (Binary32::emax - 2 - log2_k) / 2;
    x.lowest = -60;
  }
}

template <class Half>
std::vector<Half> lines_of(const CheckMatrix& matrix, std::span<const std::int64_t> lines,
                           std::int64_t first_line) {
  std::vector<Half> elements;
  elements.reserve(lines.size() * static_cast<std::size_t>(matrix.k));
  for (const std::int64_t line : lines)
    for (std::int64_t k = 0; k < matrix.k; ++k)
      elements.push_back(Half::from_bits(check_element(matrix, first_line + line, k)));
  return elements;
}

std::uint32_t stored_bits(float x, DType out) {
  switch (out) {
    case DType::f16:
      return narrow<Binary16>(x).bits();
    case DType::bf16:
      return narrow<BrainFloat16>(x).bits();
    default:
      return bits_of(x);
  }
}

/// The emulator's outputs of one item at rows x columns, as they are stored.
template <class Half>
std::vector<std::uint32_t> emulated(const ProductProblem& problem, const TensorCoreModel& row,
                                    const CheckLoad& load, const CheckSamples& samples, std::int64_t item) {
  const std::vector<Half> a = lines_of<Half>(load.a, samples.rows, item * problem.m);
  const std::vector<Half> b = lines_of<Half>(load.b, samples.columns, item * problem.n);
  const GemmShape shape{.m = static_cast<std::int64_t>(samples.rows.size()),
                        .n = static_cast<std::int64_t>(samples.columns.size()),
                        .k = problem.k};
  std::vector<float> wide(samples.rows.size() * samples.columns.size());
  emulated_gemm(row, shape, MatrixView<Half>{a.data(), problem.k, false},
                MatrixView<Half>{b.data(), problem.k, true}, nullptr, wide.data(), shape.n);
  std::vector<std::uint32_t> bits;
  bits.reserve(wide.size());
  for (const float x : wide) bits.push_back(stored_bits(x, problem.out));
  return bits;
}

/// Empty if our own kernel's outputs are the emulator's.
std::string own_differs(const ProductProblem& problem, const TensorCoreModel& row, const CheckLoad& load,
                        const CheckSamples& samples, CheckBench& bench) {
  std::vector<std::int64_t> places;
  for (const std::int64_t item : samples.items) {
    places.clear();
    for (const std::int64_t i : samples.rows)
      for (const std::int64_t j : samples.columns) places.push_back((item * problem.m + i) * problem.n + j);
    const std::vector<std::uint32_t> own = bench.own_outputs(places);
    const std::vector<std::uint32_t> expected = problem.operands == DType::f16
                                                    ? emulated<Float16>(problem, row, load, samples, item)
                                                    : emulated<BFloat16>(problem, row, load, samples, item);
    const auto [at, other] = std::mismatch(own.begin(), own.end(), expected.begin(), expected.end());
    if (at != own.end())
      return fmt::format("on {} our own kernel gives {:08x} at element {}, the emulator of {} {:08x}",
                         load.name, *at, places[static_cast<std::size_t>(at - own.begin())], row.name,
                         *other);
  }
  return {};
}

/// One comparison of candidates with our own kernel, which is checked on the way.
class Comparison {
 public:
  Comparison(const ProductProblem& problem, const TensorCoreModel& row, CheckBench& bench)
      : problem_(&problem),
        row_(&row),
        bench_(&bench),
        loads_(check_loads(problem)),
        samples_(check_samples(problem)) {}

  /// Empty if no bit differs.
  std::string refusal_of(const ProductAlgorithm& candidate) {
    for (std::size_t i = 0; i < loads_.size(); ++i) {
      const CheckLoad& load = loads_[i];
      bench_->load(load);
      bench_->run_own();
      if (i == own_checked_) {
        own_refusal_ = own_differs(*problem_, *row_, load, samples_, *bench_);
        if (!own_refusal_.empty()) return own_refusal_;
        ++own_checked_;
      }
      bench_->run_candidate(candidate);
      const CheckDifference difference = bench_->compare();
      if (difference.count > 0)
        return fmt::format(
            "on {} {} of {} outputs differ, the first at element {}: {:08x}, our own kernel {:08x}",
            load.name, difference.count, problem_->batch * problem_->m * problem_->n, difference.first,
            difference.candidate, difference.own);
    }
    return {};
  }
  /// Why nothing at all can be pinned; empty so far.
  const std::string& own_refusal() const { return own_refusal_; }

 private:
  const ProductProblem* problem_;
  const TensorCoreModel* row_;
  CheckBench* bench_;
  std::vector<CheckLoad> loads_;
  CheckSamples samples_;
  std::size_t own_checked_ = 0;  ///< loads on which our own kernel is the emulator
  std::string own_refusal_;
};

}  // namespace

std::vector<CheckLoad> check_loads(const ProductProblem& problem) {
  const auto load = [&problem](AlgorithmChoices set, std::string name, std::uint32_t round = 0,
                               std::int64_t first_visit = 0) {
    CheckMatrix a{.set = set,
                  .is_b = false,
                  .bf16 = problem.operands == DType::bf16,
                  .k = problem.k,
                  .round = round,
                  .first_visit = first_visit};
    set_exponents(problem, a);
    CheckMatrix b = a;
    b.is_b = true;
    return CheckLoad{.a = a, .b = b, .name = std::move(name)};
  };
  std::vector<CheckLoad> loads{load(AlgorithmChoices::wide, "wide exponents"),
                               load(AlgorithmChoices::cancelling, "cancelling sums"),
                               load(AlgorithmChoices::special, "special values")};
  // Every second line visits a block of k; the side with more lines goes round until all are visited.
  const std::int64_t blocks = quotient_up(problem.k, check_detail::block);
  const std::int64_t visits = quotient_up(problem.batch * std::max(problem.m, problem.n), 2);
  const std::int64_t rounds = std::clamp<std::int64_t>(quotient_up(blocks, visits), 1, mask_rounds_at_most);
  for (const bool in_b : {false, true}) {
    const AlgorithmChoices set = in_b ? AlgorithmChoices::order_b : AlgorithmChoices::order_a;
    const bool longer = in_b == (problem.n > problem.m);
    for (std::int64_t round = 0; round < (longer ? rounds : 1); ++round)
      loads.push_back(load(set, fmt::format("masks of the order in {} (round {})", in_b ? "b" : "a", round),
                           static_cast<std::uint32_t>(round), round * visits));
  }
  return loads;
}

CheckSamples check_samples(const ProductProblem& problem) {
  constexpr std::int64_t side = 64;
  static_assert(side * side == sampled_outputs);
  std::int64_t rows = std::min(problem.m, side);
  const std::int64_t columns = std::min(problem.n, std::max(side, quotient_up(sampled_outputs, rows)));
  rows = std::min(problem.m, std::max(rows, quotient_up(sampled_outputs, columns)));
  const std::int64_t items =
      std::min(problem.batch, std::max<std::int64_t>(2, quotient_up(sampled_outputs, rows * columns)));
  return {.items = spread(items, problem.batch, 0),
          .rows = spread(rows, problem.m, 1),
          .columns = spread(columns, problem.n, 2)};
}

AlgorithmOutcome pin(const ProductProblem& problem, const TensorCoreModel& row,
                     std::span<const ProductAlgorithm> candidates, CheckBench& bench) {
  AlgorithmOutcome outcome;
  if (candidates.empty()) {
    outcome.reason = "the library offers no algorithm that adds in one sequence";
    return outcome;
  }
  Comparison comparison(problem, row, bench);
  std::string first_refusal;
  for (const ProductAlgorithm& candidate : candidates) {
    std::string refusal;
    try {
      refusal = comparison.refusal_of(candidate);
    } catch (const std::runtime_error& error) {
      refusal = error.what();
      outcome.failed = true;
    }
    if (refusal.empty()) return {.pinned = true, .algorithm = candidate};
    if (!comparison.own_refusal().empty()) {
      outcome.reason = comparison.own_refusal();
      return outcome;
    }
    if (first_refusal.empty()) first_refusal = fmt::format("{}: {}", candidate.description, refusal);
  }
  outcome.reason = fmt::format("none of the {} algorithms tried has the bits of our own kernel ({})",
                               candidates.size(), first_refusal);
  return outcome;
}

}  // namespace fp16lab::engine
