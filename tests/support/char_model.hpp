// Language models over bytes of text, written by hand: what the rows of experiments/configs/charlm_*.toml
// have to be. Symbols i32 (B, T) in, logits of the next symbol (B * T, V) out.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/nn/attention.hpp"
#include "engine/nn/dropout.hpp"
#include "engine/nn/embedding.hpp"
#include "engine/nn/linear.hpp"
#include "engine/nn/lstm.hpp"
#include "engine/nn/module.hpp"
#include "engine/nn/normalization.hpp"

namespace fp16lab::engine::test {

struct CharLstmOptions {
  std::int64_t symbols = 0;
  std::int64_t embedding = 64;
  std::int64_t hidden = 128;
  std::int64_t layers = 1;
  float dropout = 0.0f;  ///< on all non-recurrent connections (Zaremba et al. 2014)
  std::uint64_t seed = 0;
};

/// embedding -> lstm -> head. Parameters "embedding.weight" (V, embedding), "lstm.*" (see Lstm),
/// "head.weight" (V, hidden), "head.bias" (V); initial weights as torch's modules. Dropout "dropout_in"
/// before the LSTM, "lstm.dropout_l<l>" between its layers, "dropout_out" after it.
class CharLstm final : public nn::Module {
 public:
  CharLstm(Backend& backend, const CharLstmOptions& options);
  Variable forward(Tape& tape, const Variable& x) override;

 private:
  nn::Embedding* embedding_;
  nn::Dropout *dropout_in_, *dropout_out_;
  nn::Lstm* lstm_;
  nn::Linear* head_;
};

struct CharTransformerOptions {
  std::int64_t symbols = 0;
  std::int64_t context = 64;    ///< longest T
  std::int64_t embedding = 64;  ///< E
  std::int64_t heads = 4;
  std::int64_t layers = 2;
  float dropout = 0.0f;
  std::uint64_t seed = 0;
};

/// A small GPT-2 (Radford et al. 2019): token and position embeddings, pre-norm blocks "h0", "h1", ... of
///   x = x + attn(ln1(x));  x = x + proj(gelu(fc(ln2(x))))
/// a final "ln_f" and "head" without bias, not tied to the embedding. fc goes from E to 4 E; GELU in GPT-2's
/// form, the one with tanh. Parameters "tokens.weight" (V, E), "positions.weight" (context, E), "h0.ln1.*",
/// "h0.attn.qkv.*", "h0.attn.out.*", "h0.ln2.*", "h0.mlp.fc.*", "h0.mlp.proj.*", "ln_f.*", "head.weight" (V,
/// E). Weights normal(0, 0.02), those of attn.out and mlp.proj normal(0, 0.02 / sqrt(2 layers)), biases 0.
/// Dropout as GPT-2: on the sum of embeddings ("dropout"), on attention weights ("h0.attn.dropout") and on
/// what each branch adds to the residual stream ("h0.attn.residual_dropout", "h0.mlp.dropout").
///
/// Observed gradients, beside those of the layers: "h0.residual.input", the residual stream where it enters
/// the block. It is FP32 under O1, as the embeddings are.
class CharTransformer final : public nn::Module {
 public:
  CharTransformer(Backend& backend, const CharTransformerOptions& options);
  Variable forward(Tape& tape, const Variable& x) override;

 private:
  class Block;
  CharTransformerOptions options_;
  nn::Embedding* tokens_;
  nn::PositionEmbedding* positions_;
  nn::Dropout* dropout_;
  std::vector<Block*> blocks_;
  nn::LayerNorm* final_norm_;
  nn::Linear* head_;
};

}  // namespace fp16lab::engine::test
