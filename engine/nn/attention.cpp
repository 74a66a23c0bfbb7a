#include "engine/nn/attention.hpp"

#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <span>
#include <stdexcept>
#include <utility>

namespace fp16lab::engine::nn {

SelfAttention::SelfAttention(Backend& backend, std::string path, const AttentionOptions& options)
    : path_(std::move(path)),
      scores_scope_(add_scope(path_ + ".scores")),
      weights_scope_(add_scope(path_ + ".weights")),
      options_(options) {
  const std::int64_t features = options.features;
  if (options.heads < 1 || features < 1 || features % options.heads != 0) {
    throw std::invalid_argument("SelfAttention " + path_ + ": " + std::to_string(features) + " features, " +
                                std::to_string(options.heads) +
                                " heads; heads must be >= 1 and divide the features");
  }
  qkv_ = &add_child(std::make_unique<Linear>(backend, path_ + ".qkv",
                                             LinearOptions{.inputs = features,
                                                           .outputs = (Extent(3) * features).value(),
                                                           .deviation = options.deviation,
                                                           .seed = options.seed}));
  out_ = &add_child(std::make_unique<Linear>(backend, path_ + ".out",
                                             LinearOptions{.inputs = features,
                                                           .outputs = features,
                                                           .deviation = options.output_deviation,
                                                           .seed = options.seed}));
  dropout_ = &add_child(std::make_unique<Dropout>(path_ + ".dropout", options.dropout));
}

Variable SelfAttention::forward(Tape& tape, const Variable& x) {
  const Shape shape = x.shape();
  if (shape.rank() != 3 || shape[2] != options_.features) {
    throw std::invalid_argument("SelfAttention " + path_ + ": x is " + shape.to_string() + "; (B, T, " +
                                std::to_string(options_.features) + ") is needed");
  }
  const std::int64_t batch = shape[0], steps = shape[1], heads = options_.heads;
  const std::int64_t width = options_.features / heads;

  // (B, T, 3 E) = (B, T, 3, heads, width) -> (3, B, heads, T, width) -> q, k, v (B heads, T, width)
  const std::array<int, 5> heads_outside{2, 0, 3, 1, 4};
  const Variable qkv =
      ops::permute(ops::reshape(qkv_->forward(tape, x), {batch, steps, 3, heads, width}), heads_outside);
  const auto [q, k, v] = ops::split<3>(ops::reshape(qkv, {3 * batch * heads, steps, width}), 0);

  Variable scores, weights;  // (B heads, T, T)
  {
    const ScopeGuard scope(tape, scores_scope_);
    const auto factor = static_cast<float>(1.0 / std::sqrt(static_cast<double>(width)));
    scores = ops::scale(ops::matmul(q, k, {.b = true}), factor);
    if (options_.causal)
      scores = ops::add(scores, tape.constant(mask(tape.backend(), steps, scores.dtype())));
    scores = ops::watch(scores, SlotLabel::input);
  }
  {
    const ScopeGuard scope(tape, weights_scope_);
    // The cast that autocast would make: what is watched is the operand itself.
    weights = ops::cast(dropout_->forward(tape, ops::softmax(scores, 2)), v.dtype());
    weights = ops::watch(weights, SlotLabel::input);
  }
  const Variable mixed = ops::matmul(weights, v);  // (B heads, T, width)

  const std::array<int, 4> heads_inside{0, 2, 1, 3};
  const Variable joined = ops::permute(ops::reshape(mixed, {batch, heads, steps, width}), heads_inside);
  return out_->forward(tape, ops::reshape(joined, shape));
}

const Tensor& SelfAttention::mask(Backend& backend, std::int64_t steps, DType dtype) {
  for (const Tensor& known : masks_) {
    if (known.shape()[0] == steps && known.dtype() == dtype) return known;
  }
  Tensor wide = backend.empty({steps, steps}, DType::f32);
  if (backend.keeps_uploads()) {
    const auto side = static_cast<std::size_t>(steps);
    std::vector<float> values(side * side, 0.0f);
    for (std::size_t row = 0; row < side; ++row) {
      for (std::size_t column = row + 1; column < side; ++column)
        values[row * side + column] = -std::numeric_limits<float>::infinity();
    }
    backend.upload(std::as_bytes(std::span(values)), wide);
  }
  Tensor narrow = backend.empty({steps, steps}, dtype);
  backend.cast(wide, narrow);
  return masks_.emplace_back(std::move(narrow));
}

}  // namespace fp16lab::engine::nn
