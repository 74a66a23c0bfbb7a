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

constexpr std::array distributions = {Distribution::uniform, Distribution::normal};

void require(std::string_view option, std::int64_t value, std::int64_t maximum) {
  if (value < 1 || value > maximum)
    throw std::invalid_argument(
        fmt::format("synthetic data: {} is {}: expected 1 to {}", option, value, maximum));
}

}  // namespace

std::span<const Distribution> all_distributions() { return distributions; }

std::string_view name_of(Distribution distribution) {
  return distribution == Distribution::uniform ? "uniform" : "normal";
}

Distribution distribution_from_name(std::string_view name) {
  std::vector<std::string_view> known;
  for (const Distribution candidate : distributions) {
    if (name_of(candidate) == name) return candidate;
    known.push_back(name_of(candidate));
  }
  throw std::invalid_argument(fmt::format("synthetic data set \"{}\": {}", name, known_are(name, known)));
}

SyntheticRegression::SyntheticRegression(const SyntheticOptions& options) : options_(options) {
  constexpr std::int64_t any = std::numeric_limits<std::int64_t>::max();
  require("the batch size", options.batch_size, any);
  require("the number of inputs", options.inputs, any);
  require("the number of outputs", options.outputs, any);
  require("the number of batches an epoch", options.batches, std::numeric_limits<std::uint32_t>::max());
}

Batch SyntheticRegression::batch(Backend& backend, std::uint64_t global_micro_batch_index) {
  const auto index = static_cast<std::uint32_t>(global_micro_batch_index % batches_per_epoch());
  return {.inputs = draw(backend, "data.inputs", options_.inputs, index),
          .targets = draw(backend, "data.targets", options_.outputs, index)};
}

Tensor SyntheticRegression::draw(Backend& backend, std::string_view role, std::int64_t width,
                                 std::uint32_t index) const {
  Tensor values = backend.empty(Shape{options_.batch_size, width}, DType::f32);
  const PhiloxStream stream{.seed = options_.seed, .stream = stream_id(role), .iteration = index};
  if (options_.distribution == Distribution::uniform)
    backend.fill_uniform(values, stream, 0.0f, 1.0f);
  else
    backend.fill_normal(values, stream, 0.0f, 1.0f);
  return values;
}

}  // namespace fp16lab::engine::data
