// Lstm: a stack of long short-term memory layers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/nn/dropout.hpp"
#include "engine/nn/module.hpp"

namespace fp16lab::engine::nn {

struct LstmOptions {
  std::int64_t inputs = 0;  ///< >= 1
  std::int64_t hidden = 0;  ///< >= 1
  std::int64_t layers = 1;  ///< >= 1
  float dropout = 0.0f;     ///< for every layer's output but the last one's
  std::uint64_t seed = 0;
};

/// Hochreiter & Schmidhuber 1997 with forget gates (Gers et al. 2000), as torch.nn.LSTM(batch_first=True):
///   gates (i, f, g, o) = (x W_ih^T + b_ih) + (h W_hh^T + b_hh)
///   c = sigmoid(f) c + sigmoid(i) tanh(g);  h = sigmoid(o) tanh(c)
/// Parameters of layer l: "<path>.weight_ih_l<l>" (4 hidden, inputs), "<path>.weight_hh_l<l>" (4 hidden,
/// hidden), "<path>.bias_ih_l<l>" and "<path>.bias_hh_l<l>" (4 hidden), all U(-1/sqrt(hidden),
/// 1/sqrt(hidden)). The input products of all time steps are one gemm, the rest of a layer is ops::lstm: h
/// and c start at zero, and the gradient of W_hh is one product over all steps. Under O1 the state products,
/// gates, c and h are stored in f16; the arithmetic of a cell is FP32, as in cuDNN and torch.
///
/// Observed gradients of layer l, all time steps together: "<path>.ih_l<l>.input|weight|bias" and
/// "<path>.hh_l<l>.input|weight|bias" (the two products; hh's input is h), "<path>.gates_l<l>.input" (the sum
/// of the products, before sigmoid and tanh) and "<path>.cell_l<l>.input" (c: what a step hands to the step
/// before). The h and c that the first step begins with have none.
class Lstm final : public Module {
 public:
  /// Dropout's masks come from "<path>.dropout_l<l>", elements in (T, B, hidden) order.
  Lstm(Backend& backend, std::string path, const LstmOptions& options);
  /// x (B, T, inputs), T >= 1 -> (B, T, hidden)
  Variable forward(Tape& tape, const Variable& x) override;

 private:
  struct Layer {
    Parameter *weight_input, *weight_hidden, *bias_input, *bias_hidden;
    std::string input_scope, hidden_scope, gates_scope, cell_scope;
    Dropout* dropout;  ///< for its output; null after the last layer
  };
  /// sequence (T B, inputs), time-major -> (T B, hidden)
  Variable run_layer(Tape& tape, const Layer& layer, const Variable& sequence, std::int64_t steps);

  std::string path_;
  LstmOptions options_;
  std::vector<Layer> layers_;
};

}  // namespace fp16lab::engine::nn
