// Inside the emulated back end: the class whose verbs the .cpp files of this folder implement, one room each.
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
#include "numerics/tensor_core/tensor_core_model.hpp"

namespace fp16lab::engine {

class EmulatedBackend : public Backend {
 public:
  EmulatedBackend(const TensorCoreModel& model, int threads, const LibraryOrder& library = {});

  std::string_view name() const override { return "emulated"; }
  std::string_view tensor_core() const override { return model_.name; }

  int host_threads() const override { return workers_.threads(); }

  PoolStatistics memory_statistics() const override { return pool_.statistics(); }

  // memory.cpp
  Tensor empty(const Shape& shape, DType dtype) override;
  void upload(std::span<const std::byte> host, Tensor& out) override;
  void download(const Tensor& x, std::span<std::byte> host) override;
  void copy(const Tensor& x, Tensor& out) override;
  void fill(Tensor& out, double value) override;

  // random.cpp
  void fill_uniform(Tensor& out, const PhiloxStream& stream, float low, float high) override;
  void fill_normal(Tensor& out, const PhiloxStream& stream, float mean, float deviation) override;
  void fill_bernoulli(Tensor& out, const PhiloxStream& stream, float keep, const Tensor& step) override;

  // permute.cpp
  void permute(const Tensor& x, std::span<const int> axes, Tensor& out) override;
  void slice(const Tensor& x, int axis, std::int64_t begin, Tensor& out) override;
  void insert(const Tensor& x, int axis, std::int64_t begin, Tensor& out) override;

  // elementwise.cpp
  void cast(const Tensor& x, Tensor& out, CastProbe* probe) override;
  void cast_stochastic(const Tensor& x, Tensor& out, const PhiloxStream& stream, const Tensor& step,
                       CastProbe* probe) override;
  void unary(UnaryOp op, const Tensor& x, Tensor& out) override;
  void binary(BinaryOp op, const Tensor& a, const Tensor& b, Tensor& out) override;
  void scale(const Tensor& x, float factor, Tensor& out) override;
  void divide(const Tensor& x, float divisor, Tensor& out) override;

  // reduce.cpp
  void reduce(ReduceOp op, const Tensor& x, int axis, Tensor& out, CastProbe* probe) override;

  // indexing.cpp
  void pick(const Tensor& x, const Tensor& index, Tensor& out) override;
  void place(const Tensor& x, const Tensor& index, Tensor& out) override;
  void gather_rows(const Tensor& table, const Tensor& index, Tensor& out) override;
  void scatter_rows(const Tensor& x, const Tensor& index, Tensor& out, CastProbe* probe) override;

  // gemm.cpp
  void gemm(const GemmCall& call) override;
  Tensor pack_b(const GemmCall& call) override;

  // lstm.cpp
  void lstm_cell(const LstmCellCall& call) override;
  void lstm_cell_gradient(const LstmCellGradientCall& call) override;

  // convolution.cpp
  void conv2d(const Tensor& x, const Tensor& weight, const Conv2dGeometry& geometry, const Tensor* bias,
              Tensor& out, CastProbe* probe) override;
  void conv2d_input_gradient(const Tensor& gradient, const Tensor& weight, const Conv2dGeometry& geometry,
                             const Tensor* bias, Tensor& out, CastProbe* probe) override;
  void conv2d_weight_gradient(const Tensor& x, const Tensor& gradient, const Conv2dGeometry& geometry,
                              Tensor& out, CastProbe* probe) override;

  // pooling.cpp
  void max_pool2d(const Tensor& x, const Pool2dGeometry& geometry, Tensor& out, Tensor& index) override;
  void pool_pick(const Tensor& x, const Tensor& index, Layout layout, Tensor& out) override;
  void pool_place(const Tensor& x, const Tensor& index, Layout layout, Tensor& out) override;
  void average_pool2d(const Tensor& x, const Pool2dGeometry& geometry, Tensor& out) override;
  void average_pool2d_transposed(const Tensor& x, const Pool2dGeometry& geometry, Tensor& out) override;

  // step.cpp
  Tensor make_step_state(const StepState& initial) override;
  StepState read_step_state(const Tensor& step) override;
  void write_step_state(const StepState& state, Tensor& step) override;
  void run(const ScalarProgram& program, Tensor& step) override;
  void fill_scale(const Tensor& step, Tensor& out) override;
  void unscale(std::span<Tensor> gradients, int optimizer, Tensor& step) override;
  void global_norm(std::span<const Tensor> gradients, Tensor& step) override;
  void clip_by_norm(std::span<Tensor> gradients, double max_norm, Tensor& step) override;
  void clip_by_value(std::span<Tensor> gradients, float max_value) override;

  // update.cpp
  void update(const UpdateCall& call) override;

  // histogram.cpp
  void histogram(const Tensor& x, ExponentHistogram& out) override;
  void histogram(const Tensor& x, CastProbe& probe) override;
  void count_update(const Tensor& before, const Tensor& weight, const Tensor& gradient,
                    UpdateProbes& probes) override;
  void histogram(const Tensor& x, DType format, CastProbe& probe) override;  // gemm.cpp
  void settle(std::span<CastProbe* const> /*probes*/) override {}            // counts are complete at once
  std::uint64_t digest(const Tensor& x, std::uint64_t key) override;
  std::uint64_t digest(std::span<const DigestItem> items) override;

 protected:
  const Workers& workers() const { return workers_; }

 private:
  /// x itself if it is f32, else its elements widened into a new tensor.
  Tensor widened(const Tensor& x);
  /// Rounds f32 `wide` into `out` (f; f32: a copy unless it is the same memory), counting both sides into
  /// `probe`.
  void store(const Tensor& wide, Tensor& out, CastProbe* probe);
  /// Adds the elements of x (f) to `histogram`.
  void count(const Tensor& x, ExponentHistogram& histogram);
  /// The tensor-core row of products of T; of FP32 without TF32 it is not looked at.
  template <class T>
  const TensorCoreModel& row_for(std::string_view verb, bool tf32) const {
    if (std::is_same_v<T, float> && !tf32) return model_;
    return checks::product_row(verb, model_, operand_format_of<T>);
  }
  /// x, or, if its product is one of TF32, its elements rounded to that, in a new tensor. elementwise.cpp
  Tensor operand(const Tensor& x, bool tf32);
  // gemm.cpp
  bool in_one_chain() const { return &library_ == &library_plans().front(); }
  /// What the library makes of a product of operands of A and B.
  template <class A, class B>
  PlannedProduct planned(const GemmCall& call, const checks::GemmPlan& plan) const;
  /// std::invalid_argument where products follow a library, which has no rule for `what`.
  void require_one_chain(std::string_view verb, std::string_view what) const;
  /// The elements of x, f16 or bf16, rounded to FP8 codes (u8).
  template <class F>
  Tensor rounded_to_fp8(const Tensor& x);
  /// x as a product of T takes it: x itself, or rounded to FP8 codes or TF32.
  template <class T>
  Tensor rounded_operand(const Tensor& x, bool tf32);
  template <class A, class B>
  void multiply(const GemmCall& call, const checks::GemmPlan& plan);
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
  std::vector<double> chunk_sums_;  // of sum_of_squares; kept, so that it allocates once
};

}  // namespace fp16lab::engine
