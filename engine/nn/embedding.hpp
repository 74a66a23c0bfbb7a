// Embedding: a table of learned vectors, for symbols or for positions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/nn/initialization.hpp"
#include "engine/nn/module.hpp"

namespace fp16lab::engine::nn {

struct EmbeddingOptions {
  std::int64_t symbols = 0;   ///< V >= 1
  std::int64_t features = 0;  ///< E >= 1
  /// that of the normal distribution of initial weights: 1 as torch.nn.Embedding, 0.02 as GPT-2
  float deviation = 1.0f;
  std::uint64_t seed = 0;
};

/// Parameter "<path>.weight" (V, E).
class Embedding final : public Module {
 public:
  Embedding(Backend& backend, std::string path, const EmbeddingOptions& options);
  /// x: a constant of dtype i32, any shape s, values in [0, V) -> (s..., E)
  Variable forward(Tape& tape, const Variable& x) override;

 private:
  std::string path_;
  Parameter* weight_;
};

/// A vector for each position: parameter "<path>.weight" (V, E), of which row t belongs to position t < V.
class PositionEmbedding final : public Module {
 public:
  PositionEmbedding(Backend& backend, std::string path, const EmbeddingOptions& options);
  /// x (B, T, ...) with T <= V, of which only T matters -> (T, E), to be added to (B, T, E)
  Variable forward(Tape& tape, const Variable& x) override;

 private:
  /// i32 (T): 0, 1, ..., T - 1. Made once for each T.
  const Tensor& positions(Backend& backend, std::int64_t count);

  Embedding* table_;
  std::int64_t longest_;
  std::vector<Tensor> positions_;
};

}  // namespace fp16lab::engine::nn
