// exp_f32 and log_f32 compiled with -mavx2 -mfma, alone and in a loop that the compiler vectorises.
#pragma once

#include <cstddef>

namespace fp16lab_twin {

float exp_f32(float x);
float log_f32(float x);
void exp_f32(const float* from, float* to, std::size_t n);
void log_f32(const float* from, float* to, std::size_t n);

}  // namespace fp16lab_twin
