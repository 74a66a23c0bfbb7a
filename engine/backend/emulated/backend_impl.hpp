// Inside the emulated back end: the class whose verbs the .cpp files of this folder implement, one kind each.
#pragma once

#include <string_view>
#include <type_traits>
#include <vector>

#include "engine/backend/backend.hpp"
#include "engine/backend/checks.hpp"
#include "engine/backend/emulated/emulated_backend.hpp"
#include "engine/backend/emulated/workers.hpp"
#include "engine/backend/window_functions.hpp"
#include "engine/tensor/storage.hpp"
#include "numerics/gemm/library_plan.hpp"
#include "numerics/gemm/quantized_gemm.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"

namespace fp16lab::engine {

class EmulatedBackend : public Backend {
 public:
  EmulatedBackend(const TensorCoreModel& model, int threads, const LibraryOrder& library = {});

  std::string_view name() const override { return "emulated"; }
  std::string_view tensor_core() const override { return model_.name; }

  int host_threads() const override { return workers_.threads(); }

  PoolStatistics memory_statistics() const override { return pool_.statistics(); }

  Tensor empty(const Shape& shape, DType dtype) override;

 protected:
  const Workers& workers() const { return workers_; }
  StoragePool& pool() { return pool_; }

#define FP16LAB_VERB(verb, ...) void do_##verb(__VA_ARGS__) override;
  FP16LAB_BACKEND_VERBS(FP16LAB_VERB)
#undef FP16LAB_VERB
  std::uint64_t do_digest(std::span<const DigestItem> items) override;
  Tensor do_pack_b(const GemmCall& call, const checks::GemmPlan& plan) override;
  void do_count_update(const Tensor& before, const Tensor& weight, const Tensor& gradient,
                       UpdateProbes& probes) override;

 private:
  /// x itself if it is f32, else its elements widened into a new tensor.
  Tensor widened(const Tensor& x);
  /// Rounds f32 `wide` into `out` (f; f32: a copy unless it is the same memory), counting both sides into
  /// `probe`.
  void store(const Tensor& wide, Tensor& out, CastProbe* probe);
  /// Adds the elements of x (f) to `histogram`.
  void count(const Tensor& x, ExponentHistogram& histogram);
  /// The tensor-core row for products of T; FP32 without TF32 does not use it.
  template <class T>
  const TensorCoreModel& row_for(std::string_view verb, bool tf32) const {
    if (std::is_same_v<T, float> && !tf32) return model_;
    return checks::product_row(verb, model_, operand_format_of<T>);
  }
  /// x, or, if its product is one of TF32, its elements rounded to that, in a new tensor. elementwise.cpp
  Tensor operand(const Tensor& x, bool tf32);
  // gemm.cpp
  bool in_one_chain() const { return &library_ == &library_plans().front(); }
  /// The library's plan for a product of operands of A and B.
  template <class A, class B>
  PlannedProduct planned(const GemmCall& call, const checks::GemmPlan& plan) const;
  /// std::invalid_argument where products follow a library, which has no rule for `what`.
  void require_one_chain(std::string_view verb, std::string_view what) const;
  /// The elements of x, f16 or bf16, rounded to FP8 codes (u8).
  template <class F>
  Tensor rounded_to_fp8(const Tensor& x);
  /// do_count of x as it rounds to the format.
  void count_rounded_to_fp8(const Tensor& x, DType format, CastProbe& probe);
  /// x as a product of T takes it: x itself, or rounded to FP8 codes or TF32.
  template <class T>
  Tensor rounded_operand(const Tensor& x, bool tf32);
  template <class A, class B>
  void multiply(const GemmCall& call, const checks::GemmPlan& plan);
  /// An operand in codes with scales for blocks, rows along k, which is padded to whole blocks.
  struct QuantizedOperand {
    const Quantizer& quantizer;
    MatrixSize size;
    std::vector<std::uint8_t> codes = {};
    std::vector<float> scales = {};
    float tensor_scale = 1;

    QuantizedMatrix matrix() const { return {quantizer, size, codes, scales, tensor_scale}; }
  };
  /// x is stored (rows x k), or transposed. quantized_operand.cpp
  QuantizedOperand quantized(const Tensor& x, bool transposed, const OperandRounding& rounding,
                             const QuantizerCall& call);
  void multiply_quantized(const GemmCall& call, const checks::GemmPlan& plan);
  /// product(index, sums, threads) makes the accumulators of one product; then what comes after them.
  template <class Product>
  void finished(const GemmCall& call, const checks::GemmPlan& plan, const Product& product);
  /// The bytes of pack_b's result; 0: there is none.
  template <class A, class B>
  std::int64_t packed_b_count(const GemmCall& call, const checks::GemmPlan& plan) const;
  template <class A, class B>
  Tensor packed(const GemmCall& call, const checks::GemmPlan& plan);
  // convolution.cpp; T is the element type of the operands.
  template <class T>
  struct PatchProduct;
  template <class T>
  void run(const PatchProduct<T>& product);
  template <class T>
  void forward(const functions::Conv2dPlan& plan, const Tensor& x, const Tensor& weight, const Tensor* bias,
               const Conv2dGeometry& geometry, Tensor& out, CastProbe* probe);
  template <class T>
  void input_gradient(const functions::Conv2dPlan& plan, const Tensor& gradient, const Tensor& weight,
                      const Tensor* bias, const Conv2dGeometry& geometry, Tensor& out, CastProbe* probe);
  template <class T>
  void weight_gradient(const functions::Conv2dPlan& plan, const Tensor& x, const Tensor& gradient,
                       const Conv2dGeometry& geometry, Tensor& out, CastProbe* probe);
  /// TREE sum of squares of x (f) in FP64.
  double sum_of_squares(const Tensor& x);

  TensorCoreModel model_;
  const LibraryPlan& library_;
  int library_threads_;
  Workers workers_;
  StoragePool pool_;
  std::vector<double> chunk_sums_;  // sums of sum_of_squares; kept, so that it allocates once
};

}  // namespace fp16lab::engine
