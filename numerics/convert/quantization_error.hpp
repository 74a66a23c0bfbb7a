// How far a matrix of codes and scales is from the numbers that it was made of.
#pragma once

#include "numerics/convert/quantizer.hpp"

namespace fp16lab {

/// Sums of squares in FP64: of what quantizing changed, and of the values. Values whose difference is not finite are
/// in neither.
struct QuantizationError {
  double difference = 0, whole = 0;
  std::uint64_t not_finite = 0;
};
/// Of `part`, the first rows and columns of a matrix of `size`, which quantize left as these codes and scales.
QuantizationError quantization_error(const Quantizer& quantizer, MatrixSize size, MatrixSize part,
                                     std::span<const float> values, std::span<const std::uint8_t> codes,
                                     std::span<const float> scales, float tensor_scale, int threads = 1);

}  // namespace fp16lab
