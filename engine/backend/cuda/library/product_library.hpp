// ProductLibrary: the seam to a vendor's library of matrix products, as narrow as pinning needs it.
//
// Matrices are row-major here; that cuBLAS counts columns first is the business of the implementation.
// Nothing in this file belongs to one machine: tests put a library of their own behind it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "numerics/formats/dtype.hpp"

namespace fp16lab::engine {

/// d (m x n) = op(a) (m x k) * op(b) (k x n), accumulated in FP32; `batch` of them, one behind the other in
/// memory.
struct ProductProblem {
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
  DType operands = DType::f16;             ///< of a and b: f16, bf16 or f32
  DType out = DType::f16;                  ///< of d: that of the operands, or f32
  bool transpose_a = false;                ///< a is stored (k x m)
  bool transpose_b = false;                ///< b is stored (n x k)
  std::int64_t lda = 0, ldb = 0, ldd = 0;  ///< elements from one row in memory to the next
  /// Bytes that the addresses are multiples of: powers of two, at most 16, what the widest loads and stores
  /// need.
  std::uint32_t alignment_a = 16, alignment_b = 16, alignment_d = 16;
  /// f32 operands are rounded to TF32 and multiplied on tensor cores. For benchmarks only: no verb asks for
  /// it.
  bool tf32 = false;

  bool operator==(const ProductProblem&) const = default;
};

/// Contiguous, aligned operands.
ProductProblem contiguous_product(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t batch,
                                  DType operands, DType out, bool transpose_a = false,
                                  bool transpose_b = false);
/// "64 x 10 x 128 (m x n x k), f16 -> f32, NT", with ", 3 of them" and leading dimensions where they are not
/// the usual.
std::string describe(const ProductProblem& problem);

/// One configured algorithm: the library's own opaque words, which the same version of the library
/// understands again.
struct ProductAlgorithm {
  std::array<std::uint64_t, 8> words{};
  std::size_t workspace_bytes = 0;
  std::string description;  ///< for people

  bool operator==(const ProductAlgorithm&) const = default;
};

enum class ProductOrder {
  one_sequence,  ///< every output one sequence over k: no split of k, no reduction scheme
  any,
};

class ProductLibrary {
 public:
  virtual ~ProductLibrary() = default;

  /// "cublasLt 130002": another version may compute other bits and does not understand an algorithm's words.
  virtual std::string version() const = 0;
  /// Those that the library says can do it within `workspace_bytes`, the one it thinks fastest first; at most
  /// `limit`. Empty where it has none.
  virtual std::vector<ProductAlgorithm> algorithms(const ProductProblem& problem, ProductOrder order,
                                                   std::size_t workspace_bytes, int limit) = 0;
  /// The first that the last call of algorithms() left out because it may not add in one sequence, described
  /// by the raw values that the library gave; empty where none was.
  virtual std::string left_out() const { return {}; }
  /// Can an algorithm from elsewhere (a file) do it, in `order`? Runs nothing.
  virtual bool accepts(const ProductProblem& problem, const ProductAlgorithm& algorithm, ProductOrder order,
                       std::size_t workspace_bytes) = 0;
  /// Does it, on `stream` (cudaStream_t), with addresses as the problem says. `workspace` holds at least
  /// algorithm.workspace_bytes and is 256-byte aligned. DeviceFailure in the library's words.
  virtual void run(const ProductProblem& problem, const ProductAlgorithm& algorithm, const std::byte* a,
                   const std::byte* b, std::byte* d, std::byte* workspace, void* stream) = 0;
};

using ProductLibraryFactory = std::function<std::unique_ptr<ProductLibrary>()>;

}  // namespace fp16lab::engine
