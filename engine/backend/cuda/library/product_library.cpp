#include "engine/backend/cuda/library/product_library.hpp"

#include <fmt/format.h>

namespace fp16lab::engine {

ProductProblem contiguous_product(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t batch,
                                  DType operands, DType out, bool transpose_a, bool transpose_b) {
  return {.m = m,
          .n = n,
          .k = k,
          .batch = batch,
          .operands = operands,
          .out = out,
          .transpose_a = transpose_a,
          .transpose_b = transpose_b,
          .lda = transpose_a ? m : k,
          .ldb = transpose_b ? k : n,
          .ldd = n};
}

std::string describe(const ProductProblem& problem) {
  std::string text = fmt::format("{} x {} x {} (m x n x k), {} -> {}, {}{}", problem.m, problem.n, problem.k,
                                 problem.tf32 ? "tf32" : name_of(problem.operands), name_of(problem.out),
                                 problem.transpose_a ? "T" : "N", problem.transpose_b ? "T" : "N");
  if (problem.batch != 1) text += fmt::format(", {} of them", problem.batch);
  const ProductProblem usual =
      contiguous_product(problem.m, problem.n, problem.k, problem.batch, problem.operands, problem.out,
                         problem.transpose_a, problem.transpose_b);
  if (problem.lda != usual.lda || problem.ldb != usual.ldb || problem.ldd != usual.ldd)
    text += fmt::format(", leading dimensions {}, {}, {}", problem.lda, problem.ldb, problem.ldd);
  if (problem.alignment_a != 16 || problem.alignment_b != 16 || problem.alignment_d != 16)
    text += fmt::format(", aligned to {}, {}, {} bytes", problem.alignment_a, problem.alignment_b,
                        problem.alignment_d);
  return text;
}

}  // namespace fp16lab::engine
