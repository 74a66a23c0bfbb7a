// LibraryRoute: products by a vendor's library, for the problems whose algorithm has been pinned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <unordered_set>

#include "engine/backend/cuda/cuda_backend.hpp"
#include "engine/backend/cuda/library/algorithm_cache.hpp"
#include "engine/backend/cuda/library/product_library.hpp"
#include "engine/backend/cuda/runtime/runtime.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"

namespace fp16lab::engine::gpu {

class LibraryRoute {
 public:
  /// What cuBLAS gives itself on Hopper. Algorithms that add in one sequence need little of it.
  static constexpr std::size_t workspace_bytes = std::size_t{32} << 20;

  /// `row`: the tensor cores of the device. std::runtime_error for a pins file that is none.
  LibraryRoute(Runtime& runtime, const CudaOptions& options, const TensorCoreModel& row,
               std::unique_ptr<ProductLibrary> library);

  /// Is this a problem that the route takes at all?
  bool asks(const ProductProblem& problem) const;
  /// What is known about it, in this process or from the file: nullptr as long as nothing is. A refusal is
  /// reported once.
  const AlgorithmOutcome* find(const ProductProblem& problem);
  /// Finds out and remembers. `make_bench` is called where algorithms must be compared (never with
  /// GemmRoute::cublas_any_order, which takes the first one); waits for the device.
  const AlgorithmOutcome& decide(const ProductProblem& problem,
                                 const std::function<std::unique_ptr<CheckBench>()>& make_bench);
  /// Must the device be waited for to decide?
  bool compares() const { return order_ == ProductOrder::one_sequence; }
  /// Are FP32 operands rounded to TF32?
  bool tf32() const { return tf32_; }

  /// In order with the verbs on the runtime's stream; recorded while recording.
  void run(const ProductProblem& problem, const ProductAlgorithm& algorithm, const std::byte* a,
           const std::byte* b, std::byte* d, std::byte* workspace);

  /// The largest power of two up to 16 that divides an address.
  static std::uint32_t alignment_of(const void* address);

 private:
  AlgorithmOutcome outcome_of(const ProductProblem& problem,
                              const std::function<std::unique_ptr<CheckBench>()>& make_bench);
  const AlgorithmOutcome& told(const ProductProblem& problem, const AlgorithmOutcome& outcome);

  Runtime* runtime_;
  ProductOrder order_;
  bool tf32_;
  std::int64_t least_products_;
  TensorCoreModel row_;
  std::unique_ptr<ProductLibrary> library_;
  std::function<void(std::string_view)> report_;
  AlgorithmCache store_;
  std::unordered_set<const AlgorithmOutcome*> told_;  ///< refusals that have been reported
};

}  // namespace fp16lab::engine::gpu
