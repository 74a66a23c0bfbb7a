// emulated_gemm of matrices whose format and layout are known at run time only, as other languages hand them
// over.
#pragma once

#include <cstdint>

#include "numerics/gemm/gemm.hpp"

namespace fp16lab {

/// Element (i, j) is `data[i * row_stride + j * column_stride]`, strides in elements and of either sign. An
/// element is the code of `format` in 8, 16 or 32 bits; of TF32 an FP32 word.
struct StridedMatrix {
  DType format = DType::f16;
  const void* data = nullptr;
  std::int64_t row_stride = 0;
  std::int64_t column_stride = 0;
};

/// Block scales: one for `block` neighbouring elements of K, in the format of both matrices, e8m0 or ue4m3.
/// `a` is m x k / block, `b` k / block x n. block 0: none.
struct StridedScales {
  int block = 0;
  StridedMatrix a = {}, b = {};
};

/// emulated_gemm (gemm.hpp), with its contract and its errors. `a` is m x k, `b` k x n; where a matrix has
/// rows or columns without gaps it is read in place, otherwise from a copy. `c` (or null) and `d` hold the
/// model's accumulator format, row-major, `ldd` elements apart. `scales`: those of a row that has block
/// scales; k is then a multiple of their block.
void emulated_gemm(const TensorCoreModel& model, GemmShape shape, const StridedMatrix& a,
                   const StridedMatrix& b, const void* c, void* d, std::int64_t ldd, int threads = 1,
                   const StridedScales& scales = {});

}  // namespace fp16lab
