// Multi-head self-attention.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/nn/dropout.hpp"
#include "engine/nn/linear.hpp"
#include "engine/nn/module.hpp"

namespace fp16lab::engine::nn {

struct AttentionOptions {
  std::int64_t features = 0;  ///< E, a multiple of heads
  std::int64_t heads = 1;
  bool causal = true;    ///< position t sees positions <= t, as in GPT; false: all
  float dropout = 0.0f;  ///< for the attention weights
  /// > 0: weights of qkv normal(0, deviation), biases 0 (GPT-2); 0: torch_linear
  float deviation = 0.0f;
  float output_deviation = 0.0f;  ///< likewise of out
  std::uint64_t seed = 0;
};

/// Vaswani et al. 2017, with the mask of GPT if causal. Children "<path>.qkv" (3 E, E), its rows q, k, v and
/// within each of them head by head, and "<path>.out" (E, E). softmax(Q K^T / sqrt(E / heads) + mask) V per
/// head, the mask 0 or -infinity where there is one. Under O1 scores are f16, the softmax FP32, its result
/// f16 again as an operand of the second product.
///
/// Observed gradients: those of qkv and out, "<path>.scores.input" (of the scaled and masked scores, where
/// the gradient leaves the FP32 softmax) and "<path>.weights.input" (of the attention weights as the second
/// product takes them, after dropout). Masked places, whose weights are zero, count like others.
class SelfAttention final : public Module {
 public:
  /// Dropout's masks come from "<path>.dropout".
  SelfAttention(Backend& backend, std::string path, const AttentionOptions& options);
  /// x (B, T, E) -> (B, T, E)
  Variable forward(Tape& tape, const Variable& x) override;

 private:
  /// (T, T): +0 where column <= row, else -infinity. Made once for each T and dtype.
  const Tensor& mask(Backend& backend, std::int64_t steps, DType dtype);

  std::string path_, scores_scope_, weights_scope_;
  AttentionOptions options_;
  Linear* qkv_;
  Linear* out_;
  Dropout* dropout_;
  std::vector<Tensor> masks_;
};

}  // namespace fp16lab::engine::nn
