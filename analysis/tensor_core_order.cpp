#include "analysis/tensor_core_order.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <stdexcept>

#include "numerics/arithmetic/round_pack.hpp"
#include "numerics/convert/convert.hpp"
#include "numerics/gemm/order_steps.hpp"

namespace fp16lab::analysis {
namespace {

/// A term 2^e as a product of two numbers of a format.
struct Factors {
  std::uint32_t a, b;
};

template <class F>
std::uint32_t power_of_two(bool negative, int exponent) {
  const Exact value{.kind = Exact::Kind::finite, .sign = negative, .significand = 1, .exponent = exponent};
  return static_cast<std::uint32_t>(round_pack<F>(value, {}).bits());
}

Factors factors(DType format, double term) {
  return visit_dtype<is_operand>(format, [&](auto row) -> Factors {
    using F = typename decltype(row)::Format;
    if (term == 0) return {0, power_of_two<F>(false, 0) << ignored_bits<F>};
    const int exponent = std::ilogb(term), half = exponent / 2;
    return {power_of_two<F>(term < 0, exponent - half) << ignored_bits<F>, power_of_two<F>(false, half)
                                                                               << ignored_bits<F>};
  });
}

/// Bits between M and the sum of a call's units: 25 that a row keeps below the largest term, and two more.
constexpr int distance = 27;
/// Binary exponent of the most units of a call: more than any command needs.
constexpr int most_units = 12;

/// `fp16_sums`: some on the way are numbers of FP16.
ProbeTerms probes_of(DType format, bool fp16_sums) {
  return visit_dtype<is_operand>(format, [&](auto type) -> ProbeTerms {
    using F = typename decltype(type)::Format;
    int big = std::min(2 * F::emax, 60), lowest = 2 * F::exponent_of_min_subnormal;
    if (fp16_sums) {
      big = std::min(big, Binary16::emax);
      lowest = std::max(lowest, Binary16::exponent_of_min_subnormal);
    }
    if (big - distance < lowest)
      throw std::invalid_argument(
          fmt::format("products of {} reach from 2^{} to 2^{}, and an order shows from a range of 2^{} on: "
                      "expected operands of f16, bf16, tf32, e4m3 or e5m2",
                      name_of(format), lowest, big, distance));
    const int unit = std::max(std::min(0, big - distance - most_units), lowest);
    return {.big = std::ldexp(1.0, big),
            .unit = std::ldexp(1.0, unit),
            .most_units = std::size_t{1} << std::min(big - distance - unit, most_units)};
  });
}

using Words = std::vector<std::uint32_t>;

/// `dot` gives the sum of products of these words.
template <class Dot>
RevealedSum order_by(DType operands, std::size_t terms, bool fp16_sums, const Dot& dot) {
  const ProbeTerms probes = probes_of(operands, fp16_sums);
  std::vector<std::uint32_t> a(terms), b(terms);
  const Summation sum = [&](std::span<const double> values) {
    for (std::size_t k = 0; k < values.size(); ++k) {
      const Factors pair = factors(operands, values[k]);
      a[k] = pair.a;
      b[k] = pair.b;
    }
    return static_cast<double>(dot(a, b));
  };
  return reveal(terms, sum, probes);
}

float sum_of(std::uint32_t word, const TensorCoreModel& row) {
  if (row.accumulator() == DType::f32) return std::bit_cast<float>(word);
  return widen(Float16::from_bits(static_cast<std::uint16_t>(word)));
}

}  // namespace

RevealedSum order_of(const TensorCoreModel& row, DType operands, std::size_t terms) {
  return order_by(operands, terms, row.accumulator() == DType::f16, [&](const Words& a, const Words& b) {
    return sum_of(fused_dot_add(row, operands, a, operands, b, 0), row);
  });
}

RevealedSum order_of(const PlannedProduct& product, DType operands, std::size_t terms) {
  const bool fp16_parts = std::ranges::any_of(
      product.ranges, [](const ProductOrder& order) { return order.partials == DType::f16; });
  return order_by(operands, terms, fp16_parts, [&](const Words& a, const Words& b) {
    return sum_of(planned_dot(product, operands, a, operands, b), *product.row);
  });
}

RevealedSum order_of(const DotProduct& dot, DType operands, std::size_t terms) {
  return order_by(operands, terms, false, dot);
}

}  // namespace fp16lab::analysis
