#include "tests/numerics/arithmetic/cuda_host_paths.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime_api.h>

namespace fp16lab::cuda_host {
namespace {

std::uint16_t bits(__half x) { return static_cast<__half_raw>(x).x; }
std::uint16_t bits(__nv_bfloat16 x) { return static_cast<__nv_bfloat16_raw>(x).x; }
__half half(std::uint16_t bits_of_half) {
  __half_raw raw;
  raw.x = bits_of_half;
  return raw;
}

}  // namespace

std::string version() {
  return std::to_string(CUDART_VERSION / 1000) + "." + std::to_string(CUDART_VERSION % 1000 / 10);
}

std::uint16_t half_rn(float x) { return bits(__float2half_rn(x)); }
std::uint16_t half_rz(float x) { return bits(__float2half_rz(x)); }
std::uint16_t half_ru(float x) { return bits(__float2half_ru(x)); }
std::uint16_t half_rd(float x) { return bits(__float2half_rd(x)); }
std::uint16_t half_from_double(double x) { return bits(__double2half(x)); }
float float_from_half(std::uint16_t x) { return __half2float(half(x)); }
std::uint16_t add(std::uint16_t a, std::uint16_t b) { return bits(__hadd(half(a), half(b))); }
std::uint16_t sub(std::uint16_t a, std::uint16_t b) { return bits(__hsub(half(a), half(b))); }
std::uint16_t mul(std::uint16_t a, std::uint16_t b) { return bits(__hmul(half(a), half(b))); }
std::uint16_t div(std::uint16_t a, std::uint16_t b) { return bits(__hdiv(half(a), half(b))); }

std::uint16_t bfloat16_rn(float x) { return bits(__float2bfloat16_rn(x)); }
std::uint16_t bfloat16_rz(float x) { return bits(__float2bfloat16_rz(x)); }

std::uint8_t e4m3(float x) { return __nv_cvt_float_to_fp8(x, __NV_NOSAT, __NV_E4M3); }
std::uint8_t e4m3_saturating(float x) { return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3); }
std::uint8_t e5m2(float x) { return __nv_cvt_float_to_fp8(x, __NV_NOSAT, __NV_E5M2); }
std::uint8_t e5m2_saturating(float x) { return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E5M2); }

}  // namespace fp16lab::cuda_host
