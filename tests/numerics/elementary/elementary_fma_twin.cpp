// The elementary functions once more, compiled for a CPU with fused multiply-add (see CMakeLists.txt):
// contraction is off, so the bits must not change. The macro gives this copy its own names.
#define fp16lab fp16lab_fma
#include "tests/numerics/elementary/elementary_apply.hpp"
#undef fp16lab

#include "tests/numerics/elementary/elementary_fma_twin.hpp"

namespace fp16lab_twin {

void apply(int function, const float* from, float* to, std::size_t n) {
  fp16lab_fma::test::apply(static_cast<fp16lab_fma::test::Elementary>(function), from, to, n);
}

}  // namespace fp16lab_twin
