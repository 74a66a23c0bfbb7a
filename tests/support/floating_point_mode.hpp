// Floating-point modes that a caller of ours may have set.
#pragma once

#if defined(__x86_64__)
#include <xmmintrin.h>

#include <array>

namespace fp16lab::testing_support {

/// FTZ; DAZ; both; rounding down, up, toward zero; all at once; and division by zero traps.
inline constexpr std::array<unsigned, 8> floating_point_modes = {0x8000u, 0x0040u, 0x8040u, 0x2000u,
                                                                 0x4000u, 0x6000u, 0xe040u, 0x0200u};

/// Sets a mode of this thread for a scope. The last one clears a mask, the others set bits.
class FloatingPointMode {
 public:
  explicit FloatingPointMode(unsigned mode) : old_(_mm_getcsr()), set_((old_ & ~0x3fu) ^ mode) {
    _mm_setcsr(set_);
  }
  ~FloatingPointMode() { _mm_setcsr(old_); }
  FloatingPointMode(const FloatingPointMode&) = delete;
  FloatingPointMode& operator=(const FloatingPointMode&) = delete;
  /// Is the register as it was set, flags included?
  bool untouched() const { return _mm_getcsr() == set_; }

 private:
  unsigned old_, set_;
};

}  // namespace fp16lab::testing_support
#endif
