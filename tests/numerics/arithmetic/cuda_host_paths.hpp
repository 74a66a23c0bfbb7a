// The host code of cuda_fp16.h, cuda_bf16.h and cuda_fp8.h, seen through bit patterns.
#pragma once

#include <cstdint>
#include <string>

namespace fp16lab::cuda_host {

std::string version();  ///< "13.0"

std::uint16_t half_rn(float x);
std::uint16_t half_rz(float x);
std::uint16_t half_ru(float x);
std::uint16_t half_rd(float x);
std::uint16_t half_from_double(double x);
float float_from_half(std::uint16_t x);
std::uint16_t add(std::uint16_t a, std::uint16_t b);
std::uint16_t sub(std::uint16_t a, std::uint16_t b);
std::uint16_t mul(std::uint16_t a, std::uint16_t b);
std::uint16_t div(std::uint16_t a, std::uint16_t b);

std::uint16_t bfloat16_rn(float x);
std::uint16_t bfloat16_rz(float x);

std::uint8_t e4m3(float x);             ///< __NV_NOSAT
std::uint8_t e4m3_saturating(float x);  ///< __NV_SATFINITE
std::uint8_t e5m2(float x);
std::uint8_t e5m2_saturating(float x);

}  // namespace fp16lab::cuda_host
