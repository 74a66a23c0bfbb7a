#include "engine/data/synthetic.hpp"

#include <fmt/format.h>

#include <array>
#include <limits>
#include <stdexcept>
#include <vector>

#include "numerics/random/philox.hpp"
#include "numerics/text/nearest_name.hpp"

namespace fp16lab::engine::data {
namespace {

void require(std::string_view option, std::int64_t value, std::int64_t maximum) {
  if (value < 1 || value > maximum)
    throw std::invalid_argument(
        fmt::format("synthetic data: {} is {}: expected 1 to {}", option, value, maximum));
}

}  // namespace

SyntheticBatches::SyntheticBatches(const SyntheticOptions& options) : options_(options) {
  constexpr std::int64_t any = std::numeric_limits<std::int64_t>::max();
  require("the batch size", options.batch_size, any);
  if (options.inputs.empty()) require("the number of inputs", 0, any);
  for (const std::int64_t extent : options.inputs) require("the number of inputs", extent, any);
  require("the number of outputs", options.outputs, any);
  if (options.classes != 0)
    require("the number of classes", options.classes, std::numeric_limits<std::int32_t>::max());
  require("the number of batches an epoch", options.batches, std::numeric_limits<std::uint32_t>::max());
  std::vector<std::int64_t> extents{options.batch_size};
  extents.insert(extents.end(), options.inputs.begin(), options.inputs.end());
  input_shape_ = Shape(extents);
}

Batch SyntheticBatches::batch(Backend& backend, std::uint64_t global_micro_batch_index) {
  constexpr std::string_view targets = "data.targets";
  const auto index = static_cast<std::uint32_t>(global_micro_batch_index % batches_per_epoch());
  Batch batch{.inputs = draw(backend, input_shape_, "data.inputs", index), .targets = {}};
  if (options_.classes == 0) {
    batch.targets = draw(backend, {options_.batch_size, options_.outputs}, targets, index);
    return batch;
  }
  batch.targets = backend.empty({options_.batch_size}, DType::i32);
  if (!backend.keeps_uploads()) return batch;
  const PhiloxStream stream = stream_of(targets, index);
  const auto classes = static_cast<std::uint64_t>(options_.classes);
  labels_.resize(static_cast<std::size_t>(options_.batch_size));
  for (std::size_t i = 0; i < labels_.size(); ++i)
    labels_[i] = static_cast<std::int32_t>(std::uint64_t{stream.word(i)} * classes >> 32);
  backend.upload(std::as_bytes(std::span(labels_)), batch.targets);
  return batch;
}

PhiloxStream SyntheticBatches::stream_of(std::string_view role, std::uint32_t index) const {
  return {.seed = options_.seed, .stream = stream_id(role), .iteration = index};
}

Tensor SyntheticBatches::draw(Backend& backend, const Shape& shape, std::string_view role,
                              std::uint32_t index) const {
  Tensor values = backend.empty(shape, DType::f32);
  const PhiloxStream stream = stream_of(role, index);
  if (options_.distribution == Distribution::uniform)
    backend.fill_uniform(values, stream, 0.0f, 1.0f);
  else
    backend.fill_normal(values, stream, 0.0f, 1.0f);
  return values;
}

}  // namespace fp16lab::engine::data
