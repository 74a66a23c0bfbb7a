#include "engine/autograd/by_shard.hpp"

#include <array>
#include <span>
#include <stdexcept>
#include <string>

#include "engine/autograd/backward_pass.hpp"
#include "engine/autograd/dispatch.hpp"
#include "engine/autograd/ops.hpp"

namespace fp16lab::engine {

namespace {

Shape with_first(std::int64_t extent, const Shape& shape, int from = 0) {
  ShapeBuilder extents;
  extents.push(extent);
  for (int axis = from; axis < shape.rank(); ++axis) extents.push(shape[axis]);
  return extents.shape();
}

/// Rows of a shard (of a step).
std::int64_t shard_rows(const Variable& x, std::int64_t parts) {
  if (x.shape().rank() > 0 && x.shape()[0] % parts == 0) return x.shape()[0] / parts;
  throw std::logic_error("by_shard: " + describe(x) + " has no rows for " + std::to_string(parts) + " parts");
}

}  // namespace

Shape stacked(const Tape& tape, const Shape& shape) {
  const std::int64_t height = stack_height(tape);
  return height == 1 ? shape : with_first(height, shape);
}

namespace {

/// x as `groups` groups of `members` times as many rows, group and member the other way round; in `shape`.
/// The same numbers under a new id: observers see what was rounded to make x.
Variable regrouped(const Variable& x, std::int64_t groups, std::int64_t members, const Shape& shape) {
  Tensor value = x.tensor();
  if (groups > 1 && members > 1) {
    const std::int64_t rest = value.element_count() / groups / members;
    Tensor swapped = x.tape().backend().empty({members, groups, rest}, value.dtype());
    x.tape().backend().permute(value.reshaped({groups, members, rest}), std::array{1, 0, 2}, swapped);
    value = swapped;
  }
  return x.tape().record(Op::identity, value.reshaped(shape),
                         {{x, [groups, members, own = x.shape()](const Variable& g, const Variable&) {
                             return regrouped(g, members, groups, own);
                           }}});
}

}  // namespace

Variable by_shard(const Variable& x, std::int64_t steps) {
  const std::int64_t height = stack_height(x.tape());
  if (height == 1) return x;
  const std::int64_t rows = shard_rows(x, height * steps);
  return regrouped(x, steps, height, with_first(height, with_first(steps * rows, x.shape(), 1)));
}

Variable sum_of_rows(const Variable& x, std::int64_t steps) {
  return ops::sum(by_shard(x, steps), stack_height(x.tape()) == 1 ? 0 : 1);
}

void DrawnPart::take(Backend& backend, const Tensor& drawn, Tensor& out) const {
  Tensor own = backend.empty({count}, out.dtype());
  backend.slice(drawn, 0, before, own);
  Tensor all = out.reshaped({out.element_count()});
  backend.insert(own, 0, begin, all);
}

void fill_rows(const Tape& tape, Tensor& out, const PhiloxStream& stream, int words,
               const std::function<void(Tensor&, const PhiloxStream&)>& fill) {
  for_each_drawn_part(tape.context().shards, tape.row_steps(), out.element_count(), 4 / words, stream,
                      [&](const DrawnPart& part) {
                        if (part.whole()) return fill(out, part.stream);
                        Tensor drawn = tape.backend().empty({part.before + part.count}, out.dtype());
                        fill(drawn, part.stream);
                        part.take(tape.backend(), drawn, out);
                      });
}

Variable sum_of_elements(const Variable& x) {
  const std::int64_t height = stack_height(x.tape());
  const Shape shape = x.shape();
  if (height == 1 || shape.rank() == 0 || shape[0] != height) return ops::sum(x);
  return ops::sum(ops::reshape(x, {height, shape.element_count() / height}), 1);
}

Tensor sum_over_shards(const Tape& tape, const Tensor& x) {
  const StepContext& context = tape.context();
  if (context.shards.total == 1) return x;
  if (context.shard_tree == nullptr) throw std::logic_error("sum_over_shards: the context has no tree");
  const auto count = static_cast<std::size_t>(x.element_count());
  std::vector<float> stack(count), sum(count / static_cast<std::size_t>(context.shards.local));
  tape.backend().download(x, std::as_writable_bytes(std::span(stack)));
  context.shard_tree->sum(stack, sum);
  Tensor out = tape.backend().empty(
      context.shards.local == 1 ? x.shape() : reduced_shape(x.shape(), 0, false), DType::f32);
  tape.backend().upload(std::as_bytes(std::span(sum)), out);
  return out;
}

Tensor mean_over_shards(const Tape& tape, const Tensor& x) {
  if (tape.context().shards.total == 1) return x;
  Tensor mean = sum_over_shards(tape, x);
  tape.backend().divide(mean, static_cast<float>(tape.context().shards.total), mean);
  return mean;
}

bool is_stack(const Tape& tape, const Variable& cotangent, const Shape& shape) {
  return stack_height(tape) > 1 && cotangent.shape() == stacked(tape, shape);
}

namespace by_shard_detail {

void refuse_recording(const Tape& tape) {
  if (tape.grad_mode() && tape.context().shards.total > 1)
    throw std::invalid_argument(
        "gradients that are made shard by shard (of weights of convolutions and embeddings) have no second "
        "derivative; expected parallel.shards = 1");
}

Variable rows_of(const Variable& x, std::int64_t shard) {
  const std::int64_t rows = shard_rows(x, stack_height(x.tape()));
  return ops::slice(x, 0, shard * rows, rows);
}

Variable stack(std::span<const Variable> parts) {
  std::vector<Variable> rows(parts.begin(), parts.end());
  for (Variable& row : rows) row = ops::reshape(row, with_first(1, row.shape()));
  return ops::concat(rows, 0);
}

}  // namespace by_shard_detail

Variable BackwardPass::applied(std::uint32_t id, const Vjp& vjp, const Variable& cotangent,
                               const Variable& output) {
  const Tape::Node& node = tape_.nodes_[id];
  // A copy that only changes the dtype takes stacks as it takes anything.
  const bool elementwise = node.op == Op::cast || node.op == Op::identity;
  if (elementwise || !is_stack(tape_, cotangent, node.shape)) return vjp(cotangent, output);
  return stack_of(
      [&](const Variable& of_shard) { return vjp(ops::reshape(of_shard, tape_.nodes_[id].shape), output); },
      cotangent);
}

}  // namespace fp16lab::engine
