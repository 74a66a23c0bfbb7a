// A back end that computes nothing and counts: what a training step would multiply, and how much memory it
// would take, at any size, in the time that recording it takes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/backend/backend.hpp"

namespace fp16lab::engine {

/// A product as a matrix multiplication: out (m x n) = (m x k) (k x n), `batch` of them. Convolutions are the
/// implicit ones of Backend::conv2d, one a group.
struct CountedProduct {
  std::string_view verb;  ///< "gemm", "conv2d", "conv2d_input_gradient", "conv2d_weight_gradient"
  DType operands = DType::f32;
  std::int64_t batch = 1, m = 0, n = 0, k = 0;

  /// Multiply-adds, as doubles: a step of a large network has more than 2^53.
  double multiply_adds() const;
  bool operator==(const CountedProduct&) const = default;
};

/// A back end whose verbs check their arguments and do nothing.
class IdleBackend : public Backend {
 protected:
#define FP16LAB_VERB(verb, ...) \
  void do_##verb(__VA_ARGS__) override {}
  FP16LAB_BACKEND_VERBS(FP16LAB_VERB)
#undef FP16LAB_VERB
  std::uint64_t do_digest(std::span<const DigestItem>) override { return 0; }
};

/// Tensors have addresses that must not be read; numbers that the host asks for are zero, and a loss is 0.
/// Step states are kept and scalar programs run, so that schedules and policies work as usual.
class CountingBackend final : public IdleBackend {
 public:
  /// `tensor_core`: the row whose products a network may use.
  explicit CountingBackend(std::string_view tensor_core = "hopper");

  const std::vector<CountedProduct>& products() const { return products_; }
  double multiply_adds() const;
  /// The most memory that the emulated back end takes for one of them besides its tensors, as far as that
  /// grows with padding, dilation and stride: the planes that a convolution unrolls (emulated/patches.hpp).
  std::size_t most_scratch() const { return most_scratch_; }
  /// Restarts the count of products.
  void clear_products() { products_.clear(); }

  std::string_view name() const override { return "counting"; }
  std::string_view tensor_core() const override { return tensor_core_; }
  PoolStatistics memory_statistics() const override { return pool_.statistics(); }
  /// std::invalid_argument for what would make more than 2^60 bytes with all that was made before.
  Tensor empty(const Shape& shape, DType dtype) override;
  bool keeps_uploads() const override { return false; }

 protected:
  void do_upload(std::string_view verb, std::span<const std::byte> host, Tensor& out) override;
  void do_download(std::string_view verb, const Tensor& x, std::span<std::byte> host) override;
  void do_gemm(const GemmCall& call, const checks::GemmPlan& plan) override;
  void do_conv2d(const Conv2dCall& call, const functions::Conv2dPlan& plan) override;
  void do_run(const ScalarProgram& program, Tensor& step) override;

 private:
  std::string tensor_core_;
  StoragePool pool_;
  std::vector<CountedProduct> products_;
  std::size_t most_scratch_ = 0;
};

}  // namespace fp16lab::engine
