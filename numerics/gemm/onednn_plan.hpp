// The plan "onednn": which order PyTorch's products and convolutions have on a processor with AVX512_BF16.
#pragma once

#include "numerics/gemm/planned_convolution.hpp"

namespace fp16lab {

/// Loops of ATen: one correctly rounded fma after the other. (Products of BF16 and of FP16 are exact in FP32,
/// so that a multiplication and an addition give the same.)
extern const TensorCoreModel aten_loops;

/// oneDNN 3.13 and ATen's loops as PyTorch 2.15 chooses between them, for eager products of BF16 (row
/// avx512_bf16) and of FP16 (row aten_loops). std::invalid_argument names a class of calls that is not
/// studied.
PlannedProduct onednn_product(const TensorCoreModel& row, const ProductCall& call);
/// The same of torch.conv2d in BF16 and of its gradients.
PlannedConvolution onednn_convolution(const TensorCoreModel& row, const ConvolutionCall& call);

}  // namespace fp16lab
