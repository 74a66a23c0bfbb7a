// A back end that computes nothing and counts: what a training step would multiply, and how much memory it
// would take, at any size, in the time that recording it takes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/backend/backend.hpp"

namespace fp16lab::engine {

namespace functions {
struct Conv2dPlan;
}

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

/// Tensors have addresses that must not be read; numbers that the host asks for are zero, and a loss is 0.
/// Step states are kept and scalar programs run, so that schedules and policies do what they do. Shapes are
/// not checked, but those of convolutions.
class CountingBackend final : public Backend {
 public:
  /// `tensor_core`: the row whose products a network may ask for.
  explicit CountingBackend(std::string_view tensor_core = "hopper");

  const std::vector<CountedProduct>& products() const { return products_; }
  double multiply_adds() const;
  /// The most memory that the emulated back end takes for one of them besides its tensors, as far as that
  /// grows with padding, dilation and stride: the planes that a convolution unrolls (emulated/patches.hpp).
  std::size_t most_scratch() const { return most_scratch_; }
  /// Begins to count products anew.
  void clear_products() { products_.clear(); }

  std::string_view name() const override { return "counting"; }
  std::string_view tensor_core() const override { return tensor_core_; }
  PoolStatistics memory_statistics() const override { return pool_.statistics(); }
  /// std::invalid_argument for what would make more than 2^60 bytes with all that was made before.
  Tensor empty(const Shape& shape, DType dtype) override;
  bool keeps_uploads() const override { return false; }
  void upload(std::span<const std::byte>, Tensor&) override {}
  void download(const Tensor& x, std::span<std::byte> host) override;
  void copy(const Tensor&, Tensor&) override {}
  void fill(Tensor&, double) override {}
  void fill_uniform(Tensor&, const PhiloxStream&, float, float) override {}
  void fill_normal(Tensor&, const PhiloxStream&, float, float) override {}
  void fill_bernoulli(Tensor&, const PhiloxStream&, float, const Tensor&) override {}
  void permute(const Tensor&, std::span<const int>, Tensor&) override {}
  void slice(const Tensor&, int, std::int64_t, Tensor&) override {}
  void insert(const Tensor&, int, std::int64_t, Tensor&) override {}
  void cast(const Tensor&, Tensor&, CastProbe*) override {}
  void cast_stochastic(const Tensor&, Tensor&, const PhiloxStream&, const Tensor&, CastProbe*) override {}
  void unary(UnaryOp, const Tensor&, Tensor&) override {}
  void binary(BinaryOp, const Tensor&, const Tensor&, Tensor&) override {}
  void scale(const Tensor&, float, Tensor&) override {}
  void divide(const Tensor&, float, Tensor&) override {}
  void reduce(ReduceOp, const Tensor&, int, Tensor&, CastProbe*) override {}
  void pick(const Tensor&, const Tensor&, Tensor&) override {}
  void place(const Tensor&, const Tensor&, Tensor&) override {}
  void gather_rows(const Tensor&, const Tensor&, Tensor&) override {}
  void scatter_rows(const Tensor&, const Tensor&, Tensor&, CastProbe*) override {}
  void gemm(const GemmCall& call) override;
  void lstm_cell(const LstmCellCall&) override {}
  void lstm_cell_gradient(const LstmCellGradientCall&) override {}
  void conv2d(const Tensor& x, const Tensor& weight, const Conv2dGeometry& geometry, const Tensor* bias,
              Tensor& out, CastProbe* probe) override;
  void conv2d_input_gradient(const Tensor& gradient, const Tensor& weight, const Conv2dGeometry& geometry,
                             const Tensor* bias, Tensor& out, CastProbe* probe) override;
  void conv2d_weight_gradient(const Tensor& x, const Tensor& gradient, const Conv2dGeometry& geometry,
                              Tensor& out, CastProbe* probe) override;
  void max_pool2d(const Tensor&, const Pool2dGeometry&, Tensor&, Tensor&) override {}
  void pool_pick(const Tensor&, const Tensor&, Layout, Tensor&) override {}
  void pool_place(const Tensor&, const Tensor&, Layout, Tensor&) override {}
  void average_pool2d(const Tensor&, const Pool2dGeometry&, Tensor&) override {}
  void average_pool2d_transposed(const Tensor&, const Pool2dGeometry&, Tensor&) override {}
  Tensor make_step_state(const StepState& initial) override;
  StepState read_step_state(const Tensor& step) override { return states_.at(step.data()); }
  void write_step_state(const StepState& state, Tensor& step) override { states_[step.data()] = state; }
  void run(const ScalarProgram& program, Tensor& step) override;
  void fill_scale(const Tensor&, Tensor&) override {}
  void unscale(std::span<Tensor>, int, Tensor&) override {}
  void global_norm(std::span<const Tensor>, Tensor&) override {}
  void clip_by_norm(std::span<Tensor>, double, Tensor&) override {}
  void clip_by_value(std::span<Tensor>, float) override {}
  void update(const UpdateCall&) override {}
  void histogram(const Tensor&, ExponentHistogram&) override {}
  void histogram(const Tensor&, CastProbe&) override {}
  void histogram(const Tensor&, DType, CastProbe&) override {}
  void settle(std::span<CastProbe* const>) override {}
  std::uint64_t digest(const Tensor&, std::uint64_t) override { return 0; }
  std::uint64_t digest(std::span<const DigestItem>) override { return 0; }

 private:
  void count_convolution(std::string_view verb, const Tensor& x, const Tensor& weight, const Tensor& y,
                         const Conv2dGeometry& geometry);
  void count_planes(const functions::Conv2dPlan& plan, bool of_gradient, DType dtype, Layout layout);

  std::string tensor_core_;
  StoragePool pool_;
  std::map<const std::byte*, StepState> states_;
  std::vector<CountedProduct> products_;
  std::size_t most_scratch_ = 0;
};

}  // namespace fp16lab::engine
