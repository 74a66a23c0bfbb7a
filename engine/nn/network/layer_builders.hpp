// The parts of the table of layer types: a function for each type, and what they share. For engine/nn/network
// alone.
#pragma once

#include <array>
#include <string>

#include "engine/nn/network/layer_types.hpp"

namespace fp16lab::engine::nn::layers {

/// std::invalid_argument(what) unless `holds`.
void require(bool holds, const std::string& what);
void require_numbers(const Signal& input);

/// The axes of images in the network's layout.
struct Image {
  std::int64_t channels, height, width;

  /// std::invalid_argument for anything but an image.
  Image(const Signal& signal, Layout layout);
  Image(std::int64_t c, std::int64_t h, std::int64_t w) : channels(c), height(h), width(w) {}
  Signal signal(Layout layout) const;
};

/// How often a window fits. std::invalid_argument where it does not.
std::int64_t window_extent(std::int64_t extent, std::int64_t kernel, std::int64_t stride,
                           std::int64_t padding, std::int64_t dilation = 1);

// With parameters or state (parametric_layers.cpp).
BuiltLayer build_linear(const LayerPlace& place);
BuiltLayer build_mlp(const LayerPlace& place);
BuiltLayer build_conv2d(const LayerPlace& place);
BuiltLayer build_conv_transpose2d(const LayerPlace& place);
BuiltLayer build_batch_norm(const LayerPlace& place);
BuiltLayer build_layer_norm(const LayerPlace& place);
BuiltLayer build_rms_norm(const LayerPlace& place);
BuiltLayer build_group_norm(const LayerPlace& place);
BuiltLayer build_embedding(const LayerPlace& place);
BuiltLayer build_position_embedding(const LayerPlace& place);
BuiltLayer build_lstm(const LayerPlace& place);
BuiltLayer build_attention(const LayerPlace& place);
BuiltLayer build_dropout(const LayerPlace& place);
// Without (plain_layers.cpp).
BuiltLayer build_max_pool(const LayerPlace& place);
BuiltLayer build_average_pool(const LayerPlace& place);
BuiltLayer build_adaptive_pool(const LayerPlace& place);
BuiltLayer build_flatten(const LayerPlace& place);
BuiltLayer build_unflatten(const LayerPlace& place);
BuiltLayer build_softmax(const LayerPlace& place);
BuiltLayer build_identity(const LayerPlace& place);
BuiltLayer build_concat(const LayerPlace& place);
/// A function of one input, and of several: all shapes equal, or the later ones the trailing part of the
/// first.
BuiltLayer elementwise(const LayerPlace& place, Variable (*function)(const Variable&));
BuiltLayer joined(const LayerPlace& place, Variable (*function)(const Variable&, const Variable&));

}  // namespace fp16lab::engine::nn::layers
