#include "engine/data/normalisation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

namespace fp16lab::engine::data {
namespace {

float normalised(double x, double mean, double deviation) {
  return static_cast<float>((x - mean) / deviation);
}

/// Exact sums of bytes.
Normalisation of_bytes(const Dataset& training, const ChannelOrder& order) {
  std::vector<std::uint64_t> sums(order.channels), squares(order.channels);
  const std::size_t size = training.inputs.example_bytes();
  training.inputs.visit(training.rows, [&](std::span<const std::byte> examples) {
    for (; !examples.empty(); examples = examples.subspan(size))
      for (std::size_t c = 0; c < order.channels; ++c)
        for (std::size_t p = 0; p < order.elements; ++p) {
          const auto value =
              std::to_integer<std::uint64_t>(examples[c * order.channel_stride + p * order.element_stride]);
          sums[c] += value;
          squares[c] += value * value;
        }
  });
  // Variance * n^2 = n * squares - sum^2: exact in 128 bits where 64 would wrap (n is 4.7e7 for
  // Fashion-MNIST).
  __extension__ using Wide = unsigned __int128;
  const std::uint64_t n = static_cast<std::uint64_t>(training.count()) * order.elements;
  const auto count = static_cast<double>(n);
  Normalisation normalisation{.mean = {}, .deviation = {}};
  for (std::size_t c = 0; c < order.channels; ++c) {
    const Wide scaled_variance = Wide{n} * squares[c] - Wide{sums[c]} * sums[c];
    normalisation.mean.push_back(static_cast<double>(sums[c]) / count / 255.0);
    normalisation.deviation.push_back(std::sqrt(static_cast<double>(scaled_variance)) / count / 255.0);
  }
  return normalisation;
}

Normalisation of_numbers(const Dataset& training, const ChannelOrder& order) {
  std::vector<double> mean(order.channels), squares(order.channels);
  std::vector<float> values(static_cast<std::size_t>(training.inputs.elements()));
  const std::size_t size = training.inputs.example_bytes();
  const auto here = static_cast<double>(order.elements);
  double seen = 0;  // elements in each channel
  training.inputs.visit(training.rows, [&](std::span<const std::byte> examples) {
    for (; !examples.empty(); examples = examples.subspan(size)) {
      to_floats(training.inputs.type(), examples.first(size), values);
      const double share = here / (seen + here);
      for (std::size_t c = 0; c < order.channels; ++c) {
        const float* const first = values.data() + c * order.channel_stride;
        double sum = 0, distance = 0;
        for (std::size_t p = 0; p < order.elements; ++p)
          sum += static_cast<double>(first[p * order.element_stride]);
        const double own_mean = sum / here;
        for (std::size_t p = 0; p < order.elements; ++p) {
          const double d = static_cast<double>(first[p * order.element_stride]) - own_mean;
          distance += d * d;
        }
        const double delta = own_mean - mean[c];
        mean[c] += delta * share;
        squares[c] += distance + delta * delta * seen * share;
      }
      seen += here;
    }
  });
  Normalisation normalisation{.mean = mean, .deviation = {}};
  for (std::size_t c = 0; c < order.channels; ++c) {
    if (!std::isfinite(mean[c]) || !std::isfinite(squares[c]))
      throw std::invalid_argument(
          fmt::format("standard normalisation: channel {} of the training inputs holds NaN or infinity", c));
    normalisation.deviation.push_back(std::sqrt(squares[c] / seen));
  }
  return normalisation;
}

}  // namespace

ChannelOrder::ChannelOrder(const Dataset& dataset) {
  const auto all = static_cast<std::size_t>(dataset.inputs.elements());
  const bool planes = dataset.images && *dataset.images == Layout::nchw;
  const std::span<const std::int64_t> shape = dataset.inputs.shape();
  if (!shape.empty()) channels = static_cast<std::size_t>(planes ? shape.front() : shape.back());
  elements = all / channels;
  channel_stride = planes ? elements : 1;
  element_stride = planes ? 1 : channels;
}

Normalisation standard_normalisation(const Dataset& training) {
  if (training.vocabulary > 0)
    throw std::invalid_argument("standard normalisation: the inputs are symbols, not numbers");
  const ChannelOrder order(training);
  Normalisation normalisation =
      training.inputs.type() == DType::u8 ? of_bytes(training, order) : of_numbers(training, order);
  if (std::all_of(normalisation.deviation.begin(), normalisation.deviation.end(),
                  [](double deviation) { return deviation == 0; }))
    throw std::invalid_argument("standard normalisation: all pixels are equal, the standard deviation is 0");
  std::replace(normalisation.deviation.begin(), normalisation.deviation.end(), 0.0, 1.0);
  return normalisation;
}

Normaliser::Normaliser(const Dataset& dataset, const Normalisation& normalisation)
    : type_(dataset.inputs.type()), order_(dataset), normalisation_(normalisation) {
  const std::size_t given = normalisation.mean.size();
  if (given != normalisation.deviation.size() || (given != 1 && given != order_.channels))
    throw std::invalid_argument(
        fmt::format("a normalisation of {} channels for examples of {}", given, order_.channels));
  if (given == 1) {
    order_.channels = order_.channel_stride = order_.element_stride = 1;
    order_.elements = static_cast<std::size_t>(dataset.inputs.elements());
  }
  identity_ = given == 1 && normalisation.mean[0] == 0 && normalisation.deviation[0] == 1;
  for (std::size_t c = 0; c < given; ++c) {
    const double mean = normalisation.mean[c], deviation = normalisation.deviation[c];
    zeros_.push_back(normalised(0, mean, deviation));
    if (type_ != DType::u8) continue;
    std::array<float, 256>& values = bytes_.emplace_back();
    for (std::size_t p = 0; p < values.size(); ++p)
      values[p] = normalised(static_cast<double>(p) / 255.0, mean, deviation);
  }
}

void Normaliser::apply(std::span<const std::byte> example, std::span<float> out) const {
  if (type_ != DType::u8) {
    to_floats(type_, example, out);
    if (identity_) return;
  }
  for (std::size_t c = 0; c < order_.channels; ++c) {
    const std::size_t first = c * order_.channel_stride, step = order_.element_stride;
    const std::size_t end = first + order_.elements * step;
    if (type_ == DType::u8) {
      const std::array<float, 256>& values = bytes_[c];
      for (std::size_t at = first; at < end; at += step)
        out[at] = values[std::to_integer<std::size_t>(example[at])];
    } else {
      const double mean = normalisation_.mean[c], deviation = normalisation_.deviation[c];
      for (std::size_t at = first; at < end; at += step)
        out[at] = normalised(static_cast<double>(out[at]), mean, deviation);
    }
  }
}

}  // namespace fp16lab::engine::data
