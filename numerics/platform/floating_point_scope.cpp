#include "numerics/platform/floating_point_scope.hpp"

namespace fp16lab {

#if defined(__SSE__)
void FloatingPointScope::enter() noexcept {
  found_ = _mm_getcsr();
  _mm_setcsr(by_default);
}
void FloatingPointScope::leave() noexcept { _mm_setcsr(found_); }

FlushingScope::FlushingScope() noexcept : found_(_mm_getcsr()) {
  constexpr unsigned masked = 0x1f80, daz = 0x0040, ftz = 0x8000;
  _mm_setcsr(masked | daz | ftz);
}
FlushingScope::~FlushingScope() { _mm_setcsr(found_); }
#else
void FloatingPointScope::enter() noexcept {
  std::fegetenv(&found_);
  std::fesetenv(FE_DFL_ENV);
}
void FloatingPointScope::leave() noexcept { std::fesetenv(&found_); }
#endif

}  // namespace fp16lab
