// Opaque holders of floating-point bit patterns: no arithmetic, no implicit conversion.
#pragma once

#include "numerics/formats/format.hpp"
#include "numerics/platform/portability.hpp"

namespace fp16lab {

/// A number of format `F` as its bits. Built only by `from_bits` and by the conversions of
/// numerics/convert/convert.hpp. Trivially copyable, same size as `F::Bits`, so arrays of it are arrays of
/// the format's codes.
template <class F>
class SmallFloat {
 public:
  using Format = F;
  using Bits = typename F::Bits;

  constexpr SmallFloat() = default;  // left uninitialised like a built-in type unless value-initialised
  FP16LAB_HD static constexpr SmallFloat from_bits(Bits bits) {
    SmallFloat x;
    x.bits_ = bits;
    return x;
  }

  FP16LAB_HD constexpr Bits bits() const { return bits_; }
  FP16LAB_HD constexpr bool sign() const { return (bits_ & F::sign_mask) != 0; }
  FP16LAB_HD constexpr Bits magnitude() const { return static_cast<Bits>(bits_ & F::magnitude_mask); }
  FP16LAB_HD constexpr bool is_nan() const {
    if (F::encoding == Encoding::fnuz) return bits_ == F::canonical_nan;
    return magnitude() > F::max_finite && !is_infinite();
  }
  /// A NaN whose quiet bit is clear (IEEE 754-2019, 6.2.1). The NaN of a format without infinities is quiet.
  FP16LAB_HD constexpr bool is_signaling_nan() const {
    return F::has_infinity && is_nan() && (bits_ & F::quiet_bit) == 0;
  }
  FP16LAB_HD constexpr bool is_infinite() const { return F::has_infinity && magnitude() == F::infinity; }
  FP16LAB_HD constexpr bool is_finite() const {
    return magnitude() <= F::max_finite && (F::encoding != Encoding::fnuz || bits_ != F::canonical_nan);
  }
  FP16LAB_HD constexpr bool is_zero() const { return F::has_zero && magnitude() == 0 && !is_nan(); }
  FP16LAB_HD constexpr bool is_subnormal() const { return magnitude() != 0 && magnitude() < F::min_normal; }

 private:
  Bits bits_;
};

using Float16 = SmallFloat<Binary16>;
using BFloat16 = SmallFloat<BrainFloat16>;
using Float8E4M3 = SmallFloat<Fp8E4M3>;
using Float8E5M2 = SmallFloat<Fp8E5M2>;
using Float4E2M1 = SmallFloat<Fp4E2M1>;

static_assert(sizeof(Float16) == 2 && sizeof(BFloat16) == 2 && sizeof(Float8E4M3) == 1 &&
              sizeof(Float8E5M2) == 1);

}  // namespace fp16lab
