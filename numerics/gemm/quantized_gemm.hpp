// Products of quantized matrices, with the sums of tensor cores.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "numerics/convert/quantizer.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"

namespace fp16lab {

/// What quantize left of a matrix whose rows run along K: those of A, or those of B transposed, (n, k). Of blocks with
/// several rows, the last ones may have fewer, such as 10 of 128.
struct QuantizedMatrix {
  Quantizer quantizer;
  MatrixSize size;
  std::span<const std::uint8_t> codes;
  std::span<const float> scales;
  float tensor_scale = 1;
};

/// The row of this name that multiplies these. "", with block scales also a Blackwell chip or generation, is the usual
/// one: blackwell-mxf4nvf4 for E2M1 with block scales, blackwell-mxf8f6f4 for others, hopper-wgmma for FP32 scales.
/// std::invalid_argument: scales of two kinds, or a row without these operands.
const TensorCoreModel& row_of_quantized(const Quantizer& a, const Quantizer& b, std::string_view name = {});

/// D (a.size.rows x b.size.rows, row-major) = A B^T.
///
/// E8M0 and UE4M3 scales enter the row's sums, one chain over K; the result times the product of both tensor
/// scales, each product rounded to FP32. FP32 scales: each block of K is a chain from +0, and D = fma(scale of
/// a's block * scale of b's, chain, D) by ascending k, from +0, the scales' product rounded: DeepGEMM's
/// promotion, which nvcc contracts (fp8_gemm kernels of sm_90); a NaN is canonical. One scale for all of K is
/// one chain.
/// std::invalid_argument: sizes that do not fit, blocks of K of two lengths, or as row_of_quantized.
void quantized_gemm(const TensorCoreModel& row, const QuantizedMatrix& a, const QuantizedMatrix& b,
                    std::span<float> d, int threads = 1);

}  // namespace fp16lab
