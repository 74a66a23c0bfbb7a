// Where the numbers of a format end: what rounding makes zero, subnormal or infinite. The counts and sums of
// zones.hpp, range_mass.hpp and value_histogram.hpp take one.
#pragma once

#include <cstdint>

#include "numerics/formats/bits.hpp"
#include "numerics/formats/dtype.hpp"
#include "numerics/formats/format.hpp"
#include "numerics/platform/portability.hpp"

namespace fp16lab {

/// The edges of a format under rounding to nearest even (IEEE 754-2019, 4.3.1). Magnitudes.
struct FormatRange {
  int tie_to_zero = 0;      ///< x <= 2^tie_to_zero becomes zero: the tie goes to even
  int smallest_normal = 0;  ///< x < 2^smallest_normal keeps fewer than `precision` significant bits
  int precision = 0;
  /// The midpoint between the largest finite number and the next one that an unbounded exponent would allow,
  /// as significand * 2^exponent: what is above it overflows.
  std::uint32_t overflow_significand = 0;
  int overflow_exponent = 0;
  /// The midpoint itself does too. Not in E4M3, whose last significand is even: 464 becomes 448.
  bool threshold_overflows = true;

  template <class F>
  FP16LAB_HD static constexpr FormatRange of() {
    static_assert(F::precision < 32, "the significand of the threshold has one bit more");
    const auto last =
        static_cast<std::uint32_t>((F::max_finite & F::fraction_mask) | (F::fraction_mask + 1u));
    return {.tie_to_zero = F::exponent_of_min_subnormal - 1,
            .smallest_normal = F::emin,
            .precision = F::precision,
            .overflow_significand = 2 * last + 1,
            .overflow_exponent = F::emax - F::precision,
            .threshold_overflows = last % 2 == 1};
  }

  /// Exact in FP64, as is `largest`.
  FP16LAB_HD constexpr double overflow_threshold() const { return overflow_significand * unit(); }
  /// Does a magnitude (or NaN) have no finite number to be rounded to?
  FP16LAB_HD constexpr bool overflows(double magnitude) const {
    return !(threshold_overflows ? magnitude < overflow_threshold() : magnitude <= overflow_threshold());
  }
  /// The largest finite number, and the exponent of its binade.
  FP16LAB_HD constexpr double largest() const { return (overflow_significand - 1) * unit(); }
  FP16LAB_HD constexpr int largest_exponent() const { return overflow_exponent + precision; }

  bool operator==(const FormatRange&) const = default;

 private:
  FP16LAB_HD constexpr double unit() const {
    return double_from_bits(static_cast<std::uint64_t>(overflow_exponent + Binary64::bias)
                            << Binary64::fraction_bits);
  }
};

inline constexpr FormatRange fp16_range = FormatRange::of<Binary16>();

static_assert(fp16_range.tie_to_zero == -25 && fp16_range.overflow_threshold() == 65520 &&
              fp16_range.largest() == 65504 && fp16_range.largest_exponent() == 15 &&
              fp16_range.threshold_overflows);
static_assert(fp16_range.overflows(65520) && !fp16_range.overflows(65519.996));
static_assert(FormatRange::of<BrainFloat16>().tie_to_zero == -134);
static_assert(FormatRange::of<Fp8E5M2>().overflow_threshold() == 61440 &&
              FormatRange::of<Fp8E5M2>().threshold_overflows);
static_assert(FormatRange::of<Fp8E4M3>().overflow_threshold() == 464 &&
              FormatRange::of<Fp8E4M3>().largest() == 448 &&
              !FormatRange::of<Fp8E4M3>().threshold_overflows && !FormatRange::of<Fp8E4M3>().overflows(464));

/// Whose ranges FormatRange holds: of formats with signs, but f64.
constexpr bool has_range(DType dtype) {
  return is_floating(dtype) && dtype != DType::f64 && dtype != DType::e8m0 && dtype != DType::ue4m3;
}
/// The range of a floating-point dtype but f64 (std::invalid_argument for that and for integers).
constexpr FormatRange range_of(DType dtype) {
  return visit_dtype<has_range>(dtype,
                                [](auto row) { return FormatRange::of<typename decltype(row)::Format>(); });
}

}  // namespace fp16lab
