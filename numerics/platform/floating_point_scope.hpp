// FloatingPointScope: IEEE's default environment for a while, whatever the caller has set.
//
// Libraries built with -ffast-math let a process flush subnormals (FTZ, DAZ); others round in a direction.
// Neither may change a bit of ours, and what we set may not change a bit of theirs. Every function that
// computes with arrays of floats begins with a scope, and so does every worker of a parallel region, because
// a thread of a pool keeps the environment that it was created with. Scalar functions in headers compute in
// their caller's environment.
#pragma once

#include <cfenv>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace fp16lab {

/// While it lives, this thread rounds to nearest even, keeps subnormals, and traps on nothing. Then the
/// environment that was found is back, exception flags included; one that was the default already keeps the
/// flags that were raised. Costs one read of the control register there.
class FloatingPointScope {
 public:
  FloatingPointScope() noexcept : changed_(!is_default()) {
    if (changed_) enter();
  }
  ~FloatingPointScope() {
    if (changed_) leave();
  }
  FloatingPointScope(const FloatingPointScope&) = delete;
  FloatingPointScope& operator=(const FloatingPointScope&) = delete;

 private:
#if defined(__SSE__)
  // Intel SDM, volume 1, 10.2.3: MXCSR bits 0-5 flags, 6 DAZ, 7-12 exceptions masked, 13-14 rounding, 15 FTZ.
  static constexpr unsigned flags = 0x003f, by_default = 0x1f80;
  static bool is_default() noexcept { return (_mm_getcsr() & ~flags) == by_default; }
  unsigned found_ = 0;
#else
  static bool is_default() noexcept { return false; }
  std::fenv_t found_;
#endif
  // Calls of their own: no computation between them moves past one.
  void enter() noexcept;
  void leave() noexcept;
  bool changed_;
};

#if defined(__SSE__)
/// While it lives, this thread rounds to nearest even and takes subnormal inputs and results for zeros of their
/// sign: DAZ and FTZ. Results are tiny after rounding (Intel SDM, volume 1, 4.9.1.5).
class FlushingScope {
 public:
  FlushingScope() noexcept;
  ~FlushingScope();
  FlushingScope(const FlushingScope&) = delete;
  FlushingScope& operator=(const FlushingScope&) = delete;

 private:
  unsigned found_;
};
#endif

}  // namespace fp16lab
