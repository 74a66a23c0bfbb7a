// What cuBLASLt is told of a product, read back from its own descriptors and carried out by the definition of
// cublasLtMatmul: D = op(A) op(B), matrices in columns, ld elements from one column to the next. Needs the
// library, and no device.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "engine/backend/cuda/library/cublaslt_description.hpp"

namespace fp16lab::engine {
namespace {

template <class Value>
Value attribute(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t name) {
  Value value{};
  std::size_t written = 0;
  EXPECT_EQ(cublasLtMatrixLayoutGetAttribute(layout, name, &value, sizeof(value), &written),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(written, sizeof(value));
  return value;
}
template <class Value>
Value attribute(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t name) {
  Value value{};
  std::size_t written = 0;
  EXPECT_EQ(cublasLtMatmulDescGetAttribute(operation, name, &value, sizeof(value), &written),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(written, sizeof(value));
  return value;
}
template <class Value>
Value attribute(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t name) {
  Value value{};
  std::size_t written = 0;
  EXPECT_EQ(cublasLtMatmulPreferenceGetAttribute(preference, name, &value, sizeof(value), &written),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(written, sizeof(value));
  return value;
}

/// A layout as the library understood it.
struct Columns {
  explicit Columns(const cublaslt::MatrixLayout& layout)
      : type(attribute<std::uint32_t>(layout.get(), CUBLASLT_MATRIX_LAYOUT_TYPE)),
        order(attribute<std::int32_t>(layout.get(), CUBLASLT_MATRIX_LAYOUT_ORDER)),
        rows(static_cast<std::int64_t>(attribute<std::uint64_t>(layout.get(), CUBLASLT_MATRIX_LAYOUT_ROWS))),
        columns(
            static_cast<std::int64_t>(attribute<std::uint64_t>(layout.get(), CUBLASLT_MATRIX_LAYOUT_COLS))),
        ld(attribute<std::int64_t>(layout.get(), CUBLASLT_MATRIX_LAYOUT_LD)),
        batch(attribute<std::int32_t>(layout.get(), CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT)),
        stride(attribute<std::int64_t>(layout.get(), CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET)) {}

  std::size_t place(std::int64_t item, std::int64_t row, std::int64_t column) const {
    EXPECT_TRUE(row >= 0 && row < rows && column >= 0 && column < columns);
    return static_cast<std::size_t>(item * stride + column * ld + row);
  }

  std::uint32_t type;
  std::int32_t order;
  std::int64_t rows, columns, ld;
  std::int32_t batch;
  std::int64_t stride;
};

/// cublasLtMatmul with alpha = 1, beta = 0; the operands are b and a, as library/cublaslt.cpp hands them
/// over.
std::vector<double> carried_out(const ProductProblem& problem, const std::vector<double>& a,
                                const std::vector<double>& b) {
  const cublaslt::Description description(problem);
  const Columns first(description.first), second(description.second), result(description.result);
  const auto transposed = [&](cublasLtMatmulDescAttributes_t name) {
    return attribute<std::int32_t>(description.operation.get(), name) == CUBLAS_OP_T;
  };
  const bool transpose_first = transposed(CUBLASLT_MATMUL_DESC_TRANSA),
             transpose_second = transposed(CUBLASLT_MATMUL_DESC_TRANSB);
  for (const Columns& matrix : {first, second, result}) {
    EXPECT_EQ(matrix.order, CUBLASLT_ORDER_COL);
    EXPECT_EQ(matrix.batch, problem.batch);
    EXPECT_GE(matrix.ld, matrix.rows);
  }
  const std::int64_t k = transpose_first ? first.rows : first.columns;
  EXPECT_EQ(k, transpose_second ? second.columns : second.rows);
  EXPECT_EQ(result.rows, transpose_first ? first.columns : first.rows);
  EXPECT_EQ(result.columns, transpose_second ? second.rows : second.columns);
  std::vector<double> d(static_cast<std::size_t>(problem.batch * problem.m * problem.n), -1);
  for (std::int64_t item = 0; item < problem.batch; ++item)
    for (std::int64_t i = 0; i < result.rows; ++i)
      for (std::int64_t j = 0; j < result.columns; ++j) {
        double sum = 0;
        for (std::int64_t at = 0; at < k; ++at)
          sum += b[transpose_first ? first.place(item, at, i) : first.place(item, i, at)] *
                 a[transpose_second ? second.place(item, j, at) : second.place(item, at, j)];
        d[result.place(item, i, j)] = sum;
      }
  return d;
}

/// By the definition of ProductProblem.
std::vector<double> expected(const ProductProblem& p, const std::vector<double>& a,
                             const std::vector<double>& b) {
  std::vector<double> d;
  for (std::int64_t item = 0; item < p.batch; ++item)
    for (std::int64_t i = 0; i < p.m; ++i)
      for (std::int64_t j = 0; j < p.n; ++j) {
        double sum = 0;
        for (std::int64_t k = 0; k < p.k; ++k)
          sum +=
              a[static_cast<std::size_t>(item * p.m * p.k +
                                         (p.transpose_a ? k * p.lda + i : i * p.lda + k))] *
              b[static_cast<std::size_t>(item * p.k * p.n + (p.transpose_b ? j * p.ldb + k : k * p.ldb + j))];
        d.push_back(sum);
      }
  return d;
}

TEST(CublasLtDescription, SaysTheProductThatIsMeant) {
  for (const bool transpose_a : {false, true})
    for (const bool transpose_b : {false, true})
      for (const std::int64_t batch : {1, 3}) {
        const ProductProblem problem =
            contiguous_product(3, 5, 7, batch, DType::f16, DType::f32, transpose_a, transpose_b);
        std::vector<double> a, b;  // small integers: sums are exact
        for (std::int64_t i = 0; i < batch * 21; ++i) a.push_back(static_cast<double>(i * i % 17));
        for (std::int64_t i = 0; i < batch * 35; ++i) b.push_back(static_cast<double>(i * i % 13));
        EXPECT_EQ(carried_out(problem, a, b), expected(problem, a, b)) << describe(problem);
      }
}

TEST(CublasLtDescription, AccumulatesInFp32AndUsesTf32OnlyWhereItIsAsked) {
  for (const auto& [operands, out, type, result] :
       {std::tuple{DType::f16, DType::f16, CUDA_R_16F, CUDA_R_16F},
        {DType::f16, DType::f32, CUDA_R_16F, CUDA_R_32F},
        {DType::bf16, DType::bf16, CUDA_R_16BF, CUDA_R_16BF},
        {DType::f32, DType::f32, CUDA_R_32F, CUDA_R_32F}})
    for (const bool tf32 : {false, true}) {
      ProductProblem problem = contiguous_product(8, 8, 8, 1, operands, out);
      problem.tf32 = tf32;
      const cublaslt::Description description(problem);
      EXPECT_EQ(attribute<std::int32_t>(description.operation.get(), CUBLASLT_MATMUL_DESC_COMPUTE_TYPE),
                tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F);
      EXPECT_EQ(attribute<std::int32_t>(description.operation.get(), CUBLASLT_MATMUL_DESC_SCALE_TYPE),
                CUDA_R_32F);
      EXPECT_EQ(attribute<std::int32_t>(description.operation.get(), CUBLASLT_MATMUL_DESC_POINTER_MODE),
                CUBLASLT_POINTER_MODE_HOST);
      EXPECT_EQ(attribute<std::uint32_t>(description.operation.get(), CUBLASLT_MATMUL_DESC_EPILOGUE),
                std::uint32_t{CUBLASLT_EPILOGUE_DEFAULT});
      EXPECT_EQ(Columns(description.first).type, std::uint32_t{type});
      EXPECT_EQ(Columns(description.second).type, std::uint32_t{type});
      EXPECT_EQ(Columns(description.result).type, std::uint32_t{result});
    }
}

TEST(CublasLtDescription, OneSequenceAllowsNoReductionAndAlignmentsChangePlacesToo) {
  ProductProblem problem = contiguous_product(8, 8, 8, 1, DType::f16, DType::f16);
  problem.alignment_a = 2, problem.alignment_b = 4, problem.alignment_d = 8;
  cublaslt::Preference one(problem, ProductOrder::one_sequence, 12345), any(problem, ProductOrder::any, 0);
  const auto mask = CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK;
  EXPECT_EQ(attribute<std::uint32_t>(one.get(), mask), std::uint32_t{CUBLASLT_REDUCTION_SCHEME_NONE});
  EXPECT_EQ(attribute<std::uint32_t>(any.get(), mask), std::uint32_t{CUBLASLT_REDUCTION_SCHEME_MASK});
  EXPECT_EQ(attribute<std::uint64_t>(one.get(), CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES), 12345u);
  EXPECT_EQ(attribute<std::uint32_t>(one.get(), CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES), 4u);
  EXPECT_EQ(attribute<std::uint32_t>(one.get(), CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES), 2u);
  EXPECT_EQ(attribute<std::uint32_t>(one.get(), CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES), 8u);
  EXPECT_EQ(attribute<std::uint32_t>(one.get(), CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES), 8u);
}

}  // namespace
}  // namespace fp16lab::engine
