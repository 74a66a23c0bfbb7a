// The preconditions of the verbs, one function per verb, shared by all back ends so that they reject the same
// calls with the same words. Everything throws std::invalid_argument naming verb, argument and shapes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/backend/backend.hpp"
#include "engine/backend/broadcast.hpp"
#include "numerics/gemm.hpp"

namespace fp16lab::engine::checks {

/// x of shape (outer, extent, inner), of which the middle axis is reduced.
struct ReducePlan {
  std::int64_t outer = 1;
  std::int64_t extent = 1;
  std::int64_t inner = 1;
};

/// A matrix verb's (rows, columns).
struct MatrixExtents {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};

void transfer(std::string_view verb, std::size_t host_bytes, const Tensor& x);  ///< upload, download
void copy(const Tensor& x, const Tensor& out);
void fill(const Tensor& out);
void fill_uniform(const Tensor& out, float low, float high);
void cast(const Tensor& x, const Tensor& out);
void unary(UnaryOp op, const Tensor& x, const Tensor& out);
BroadcastPlan binary(const Tensor& a, const Tensor& b, const Tensor& out);
void scale_or_divide(std::string_view verb, const Tensor& x, const Tensor& out);
ReducePlan reduce(ReduceOp op, const Tensor& x, int axis, const Tensor& out);
MatrixExtents pick(const Tensor& x, const Tensor& index, const Tensor& out);
MatrixExtents place(const Tensor& x, const Tensor& index, const Tensor& out);
/// Rows of `index` (host memory) must be in [0, columns): std::out_of_range naming the first row that is not.
void index_range(std::string_view verb, std::span<const std::int32_t> index, std::int64_t columns);
GemmShape gemm(const GemmCall& call);
void step_state(std::string_view verb, const Tensor& step);
void scalar_program(const ScalarProgram& program);
void fill_scale(const Tensor& out);
void gradients(std::string_view verb, std::span<const Tensor> gradients);
void max_norm(double max_norm);
void optimizer_index(std::string_view verb, int optimizer);
void sgd_step(const SgdOptions& options, const Tensor& weight, const Tensor& gradient,
              const Tensor& velocity);
void adam_step(const Tensor& weight, const Tensor& gradient, const Tensor& first_moment,
               const Tensor& second_moment);
void histogram(const Tensor& x);
void digest(const Tensor& x);

}  // namespace fp16lab::engine::checks
