#include "engine/nn/embedding.hpp"

#include <memory>
#include <numeric>
#include <span>
#include <stdexcept>
#include <utility>

#include "engine/autograd/by_shard.hpp"

namespace fp16lab::engine::nn {

Embedding::Embedding(Backend& backend, std::string path, const EmbeddingOptions& options)
    : path_(add_scope(std::move(path))) {
  if (options.symbols < 1 || options.features < 1) {
    throw std::invalid_argument("Embedding " + path_ + ": " + std::to_string(options.symbols) +
                                " symbols of " + std::to_string(options.features) +
                                " features; both must be >= 1");
  }
  const std::string name = path_ + ".weight";
  weight_ = &add_parameter(name, normal_parameter(backend, {options.symbols, options.features}, options.seed,
                                                  name, options.deviation));
}

Variable Embedding::forward(Tape& tape, const Variable& x) {
  const ScopeGuard scope(tape, path_);
  return ops::embedding(tape.parameter(*weight_), x.tensor());
}

PositionEmbedding::PositionEmbedding(Backend& backend, std::string path, const EmbeddingOptions& options)
    : table_(&add_child(std::make_unique<Embedding>(backend, std::move(path), options))),
      longest_(options.symbols) {}

Variable PositionEmbedding::forward(Tape& tape, const Variable& x) {
  const Shape shape = x.shape();
  if (shape.rank() < 2 || shape[1] < 1 || shape[1] > longest_) {
    throw std::invalid_argument("PositionEmbedding: x is " + shape.to_string() +
                                "; (B, T, ...) with T from 1 to " + std::to_string(longest_) + " is needed");
  }
  const SharedValueGuard shared(tape);
  return table_->forward(tape, tape.constant(positions(tape.backend(), shape[1])));
}

const Tensor& PositionEmbedding::positions(Backend& backend, std::int64_t count) {
  for (const Tensor& known : positions_) {
    if (known.shape()[0] == count) return known;
  }
  Tensor index = backend.empty({count}, DType::i32);
  if (backend.keeps_uploads()) {
    std::vector<std::int32_t> values(static_cast<std::size_t>(count));
    std::iota(values.begin(), values.end(), 0);
    backend.upload(std::as_bytes(std::span(values)), index);
  }
  return positions_.emplace_back(std::move(index));
}

}  // namespace fp16lab::engine::nn
