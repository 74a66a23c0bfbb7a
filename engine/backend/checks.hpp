// The preconditions of the verbs, one function per verb, shared by all back ends so that they reject the same
// calls with the same words. Everything throws std::invalid_argument naming verb, argument and shapes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/backend/backend.hpp"
#include "engine/backend/strides.hpp"
#include "engine/backend/window_functions.hpp"
#include "numerics/gemm/gemm.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"

namespace fp16lab::engine::checks {

/// x of shape (outer, extent, inner), of which the middle axis is reduced.
struct ReducePlan {
  std::int64_t outer = 1;
  std::int64_t extent = 1;
  std::int64_t inner = 1;
};

/// slice and insert: `rows` runs of `run` elements, `pitch` apart in the whole tensor, the first at `offset`;
/// the part is contiguous.
struct SlicePlan {
  std::int64_t rows = 0;
  std::int64_t run = 0;
  std::int64_t pitch = 0;
  std::int64_t offset = 0;
};

/// A plan of an LSTM's step: its rows [first_row, first_row + batch) of the tensors of all steps, H = hidden.
struct LstmPlan {
  std::int64_t first_row = 0, batch = 0, hidden = 0;
};

/// A matrix verb's (rows, columns).
struct MatrixExtents {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};

/// `batch` independent products.
struct GemmPlan {
  std::int64_t batch = 1;
  GemmShape shape;
};

/// Planes of `places` elements, and `windows` of them picked, in each of images x channels.
struct PoolIndexPlan {
  std::int64_t images = 0, channels = 0, places = 0, windows = 0;
};

void transfer(std::string_view verb, std::size_t host_bytes, const Tensor& x);  ///< upload, download
void copy(const Tensor& x, const Tensor& out);
/// `value` rounded once to nearest even to out's dtype, as bits in its low bytes; a NaN is canonical. Integer
/// dtypes take integers in their range only.
std::uint64_t fill(const Tensor& out, double value);
void fill_uniform(const Tensor& out, float low, float high);
void fill_normal(const Tensor& out, float mean, float deviation);
void fill_bernoulli(const Tensor& out, float keep, const Tensor& step);
Permutation permute(const Tensor& x, std::span<const int> axes, const Tensor& out);
SlicePlan slice(const Tensor& x, int axis, std::int64_t begin, const Tensor& out);
SlicePlan insert(const Tensor& x, int axis, std::int64_t begin, const Tensor& out);
void cast(const Tensor& x, const Tensor& out);
void cast_stochastic(const Tensor& x, const Tensor& out, const Tensor& step);
/// A row of one operand, or of one and a number.
void unary(std::string_view row, const Tensor& x, const Tensor& out);
BroadcastPlan binary(std::string_view row, const Tensor& a, const Tensor& b, const Tensor& out);
ReducePlan reduce(ReduceOp op, const Tensor& x, int axis, const Tensor& out);
MatrixExtents pick(const Tensor& x, const Tensor& index, const Tensor& out);
MatrixExtents place(const Tensor& x, const Tensor& index, const Tensor& out);
/// The extents of table, or of out.
MatrixExtents gather_rows(const Tensor& table, const Tensor& index, const Tensor& out);
MatrixExtents scatter_rows(const Tensor& x, const Tensor& index, const Tensor& out);
/// Rows of `index` (host memory) must be in [0, columns): std::out_of_range naming the first row that is not.
void index_range(std::string_view verb, std::span<const std::int32_t> index, std::int64_t columns);
/// Throws what index_range throws of such a row.
[[noreturn]] void index_out_of_range(std::string_view verb, std::uint64_t row, std::int32_t value,
                                     std::int64_t columns);
GemmPlan gemm(const GemmCall& call);
LstmPlan lstm_cell(const LstmCellCall& call);
LstmPlan lstm_cell_gradient(const LstmCellGradientCall& call);
/// The row of `row`'s generation for these operands and FP32 accumulators, `row` itself if it has them;
/// throws where the generation has none.
const TensorCoreModel& product_row(std::string_view verb, const TensorCoreModel& row, DType operands);
functions::Conv2dPlan conv2d(const Tensor& x, const Tensor& weight, const Conv2dGeometry& geometry,
                             const Tensor* bias, const Tensor& out);
functions::Conv2dPlan conv2d_input_gradient(const Tensor& gradient, const Tensor& weight,
                                            const Conv2dGeometry& geometry, const Tensor* bias,
                                            const Tensor& out);
functions::Conv2dPlan conv2d_weight_gradient(const Tensor& x, const Tensor& gradient,
                                             const Conv2dGeometry& geometry, const Tensor& out);
functions::Pool2dPlan max_pool2d(const Tensor& x, const Pool2dGeometry& geometry, const Tensor& out,
                                 const Tensor& index);
PoolIndexPlan pool_pick(const Tensor& x, const Tensor& index, Layout layout, const Tensor& out);
PoolIndexPlan pool_place(const Tensor& x, const Tensor& index, Layout layout, const Tensor& out);
/// average_pool2d (x is `large`, out `small`) and, `transposed`, average_pool2d_transposed (the other way).
functions::Pool2dPlan average_pool2d(std::string_view verb, const Tensor& large,
                                     const Pool2dGeometry& geometry, const Tensor& small, bool transposed);
void step_state(std::string_view verb, const Tensor& step);
void scalar_program(const ScalarProgram& program);
void fill_scale(const Tensor& out);
void gradients(std::string_view verb, std::span<const Tensor> gradients);
void max_norm(double max_norm);
void max_value(float max_value);
void optimizer_index(std::string_view verb, int optimizer);
void update(const UpdateCall& call);
void histogram(const Tensor& x);
void count_update(const Tensor& before, const Tensor& weight, const Tensor& gradient);
void digest(const Tensor& x);

}  // namespace fp16lab::engine::checks
