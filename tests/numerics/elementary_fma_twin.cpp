// numerics/elementary.hpp once more, compiled for a CPU with fused multiply-add (see CMakeLists.txt):
// contraction is off, so the bits must not change. The macro gives this copy its own names.
#define fp16lab fp16lab_fma
#include "numerics/elementary.hpp"
#undef fp16lab

#include "tests/numerics/elementary_fma_twin.hpp"

namespace fp16lab_twin {

float exp_f32(float x) { return fp16lab_fma::exp_f32(x); }
float log_f32(float x) { return fp16lab_fma::log_f32(x); }

void exp_f32(const float* from, float* to, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) to[i] = fp16lab_fma::exp_f32(from[i]);
}
void log_f32(const float* from, float* to, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) to[i] = fp16lab_fma::log_f32(from[i]);
}

}  // namespace fp16lab_twin
