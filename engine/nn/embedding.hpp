// Embedding: a table of learned vectors.
#pragma once

#include <cstdint>
#include <string>

#include "engine/nn/initialization.hpp"
#include "engine/nn/module.hpp"

namespace fp16lab::engine::nn {

struct EmbeddingOptions {
  std::int64_t symbols = 0;   ///< V >= 1
  std::int64_t features = 0;  ///< E >= 1
  /// of the normal distribution of initial weights: 1 as torch.nn.Embedding, 0.02 as GPT-2
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

}  // namespace fp16lab::engine::nn
