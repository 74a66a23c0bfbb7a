// From the numbers of a data set to a network's inputs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/data/dataset.hpp"

namespace fp16lab::engine::data {

/// An input x (p / 255 of a byte p) becomes float((x - mean) / deviation), with the inner arithmetic in FP64.
struct Normalisation {
  /// One for each channel: an image's channels, or the last axis of anything else. A single one serves all.
  std::vector<double> mean{0}, deviation{1};
};
/// x itself.
inline Normalisation unit_normalisation() { return {}; }
/// Mean and population standard deviation of every channel over all examples of `training`; a channel whose
/// numbers are all equal has the deviation 1. Bytes: from exact integer sums. Other numbers, as FP32: those
/// of each example in the order of its elements, first the mean, then the squares of the distances from it,
/// and examples in the order of their rows by the formula of Chan, Golub and LeVeque (1979), all in FP64. The
/// examples are read once, in blocks. std::invalid_argument if all channels are constant, for NaN or
/// infinity, and for symbols.
Normalisation standard_normalisation(const Dataset& training);

/// Where the channels of an example are: element p of channel c is number c * channel_stride + p *
/// element_stride.
struct ChannelOrder {
  std::size_t channels = 1, elements = 0;  ///< elements of one channel
  std::size_t channel_stride = 0, element_stride = 1;

  explicit ChannelOrder(const Dataset& dataset);
};

/// A normalisation, applied to examples of one data set.
class Normaliser {
 public:
  /// std::invalid_argument unless there is one mean for all or one for each channel.
  Normaliser(const Dataset& dataset, const Normalisation& normalisation);
  /// The elements of one example in their order.
  void apply(std::span<const std::byte> example, std::span<float> out) const;
  /// What 0 becomes in a channel of an image: the padding.
  float zero(std::size_t channel) const { return zeros_[channel % zeros_.size()]; }

 private:
  DType type_;
  ChannelOrder order_;
  Normalisation normalisation_;
  bool identity_ = false;
  std::vector<float> zeros_;
  std::vector<std::array<float, 256>> bytes_;  ///< for each mean: by byte
};

}  // namespace fp16lab::engine::data
