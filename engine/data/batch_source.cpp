#include "engine/data/batch_source.hpp"

#include <fmt/core.h>

#include <stdexcept>
#include <vector>

namespace fp16lab::engine::data {

std::int64_t BatchPart::size(std::int64_t examples) const {
  if (of < 1 || examples % of != 0)
    throw std::invalid_argument(fmt::format("a batch of {} examples has no {} equal parts", examples, of));
  return examples / of * count;
}

std::int64_t BatchPart::begin(std::int64_t examples) const {
  return count == 0 ? 0 : size(examples) / count * first;
}

Batch BatchSource::part_of_batch(Backend& backend, std::uint64_t global_micro_batch_index,
                                 const BatchPart& part) {
  const Batch whole = batch(backend, global_micro_batch_index);
  const auto rows_of = [&](const Tensor& all) {
    const std::int64_t rows = all.shape()[0];
    std::vector<std::int64_t> extents(all.shape().extents().begin(), all.shape().extents().end());
    extents.front() = part.size(rows);
    Tensor rows_of_part = backend.empty(Shape(extents), all.dtype());
    backend.slice(all, 0, part.begin(rows), rows_of_part);
    return rows_of_part;
  };
  const Tensor inputs = rows_of(whole.inputs);
  const bool shared = whole.inputs.data() == whole.targets.data();  // an autoencoder's
  return {.inputs = inputs, .targets = shared ? inputs : rows_of(whole.targets)};
}

}  // namespace fp16lab::engine::data
