// apply() of elementary_apply.hpp compiled with -mavx2 -mfma.
#pragma once

#include <cstddef>

namespace fp16lab_twin {

/// `function` is the number of an fp16lab::test::Elementary.
void apply(int function, const float* from, float* to, std::size_t n);

}  // namespace fp16lab_twin
