// Three small networks that have every layer type between them, and their data.
#pragma once

#include <string>

namespace fp16lab::experiments::every_layer {

inline const std::string images = R"(
[model]
loss = "cross_entropy"
layer = [
  { name = "stem", type = "conv2d", out_channels = 8, kernel_size = 3, stride = 2, padding = 1, bias = false },
  { type = "batch_norm2d" },
  { type = "relu" },
  { type = "max_pool2d", kernel_size = 2 },
  { name = "block{}", repeat = 2, layer = [
    { name = "depthwise", type = "conv2d", out_channels = 8, kernel_size = 3, padding = 2, dilation = 2, groups = 8 },
    { type = "group_norm", num_groups = 2 },
    { name = "wide", type = "conv2d", out_channels = 8, kernel_size = 1 },
    { type = "gelu" },
    { type = "add", input = ["gelu1", "input"] },
  ] },
  { type = "avg_pool2d", kernel_size = 2 },
  { name = "up", type = "conv_transpose2d", out_channels = 4, kernel_size = 2, stride = 2 },
  { type = "tanh" },
  { type = "adaptive_avg_pool2d", output_size = 2 },
  { type = "flatten" },
  { type = "unflatten", unflattened_size = [2, 8] },
  { type = "layer_norm" },
  { type = "flatten" },
  { type = "dropout", p = 0.25 },
  { name = "out", type = "linear" },
]
[data]
name = "random-images"
)";

inline const std::string words = R"(
[model]
loss = "cross_entropy"
context = 8
layer = [
  { name = "tokens", type = "embedding", embedding_dim = 8 },
  { name = "places", type = "position_embedding", embedding_dim = 8, input = "input" },
  { name = "sum", type = "add", input = ["tokens", "places"] },
  { name = "attn", type = "multihead_attention", num_heads = 2, causal = true },
  { type = "rms_norm" },
  { name = "lstm", type = "lstm", hidden_size = 8, num_layers = 2 },
  { type = "flatten", start_dim = 0, end_dim = 1 },
  { name = "head", type = "linear" },
]
[data]
name = "text"
tokens = "words"
)";

inline const std::string numbers = R"(
[model]
loss = "mse"
layer = [
  { name = "left", type = "linear", out_features = 8 },
  { type = "batch_norm1d" },
  { type = "sigmoid" },
  { name = "right", type = "linear", out_features = 8, input = "input" },
  { type = "softmax" },
  { name = "gated", type = "multiply", input = ["sigmoid1", "softmax1"] },
  { name = "joined", type = "concat", input = ["gated", "right"] },
  { type = "identity" },
  { name = "out", type = "mlp", widths = [8, 4] },
]
[data]
name = "uniform"
inputs = 6
outputs = 4
)";

/// For `data.path`: text that `words` learns.
inline std::string text() {
  std::string all;
  for (int i = 0; i < 200; ++i) all += "the quick brown fox jumps over the lazy dog, and then it sleeps. ";
  return all;
}

}  // namespace fp16lab::experiments::every_layer
