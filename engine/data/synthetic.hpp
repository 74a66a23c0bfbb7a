// Synthetic examples: random inputs, and random numbers or classes as targets, as tutorials make them to time
// a network.
//
// There is nothing to learn but the training batches themselves, so every epoch has the same ones and an
// evaluation goes over them again.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "engine/backend/backend.hpp"
#include "engine/data/batch_source.hpp"
#include "numerics/random/philox.hpp"
#include "numerics/text/named_enum.hpp"

namespace fp16lab::engine::data {

/// The distribution of every single number, inputs and targets alike.
enum class Distribution {
  uniform,  ///< on [0, 1)
  normal,   ///< mean 0, deviation 1
};
/// The data sets' names.
constexpr std::array<std::string_view, 2> names_of(Distribution) { return {"uniform", "normal"}; }

struct SyntheticOptions {
  Distribution distribution = Distribution::uniform;
  std::int64_t batch_size = 1;             ///< >= 1
  std::vector<std::int64_t> inputs = {1};  ///< shape of an example, extents >= 1
  std::int64_t outputs = 1;                ///< numbers of a target, >= 1
  std::int64_t classes = 0;                ///< not 0: a target is one of so many, up to 2^31 - 1
  std::int64_t batches = 10;               ///< an epoch, 1 .. 2^32 - 1
  std::uint64_t seed = 0;
};

/// Batches of f32 inputs (batch_size, inputs...) and targets: f32 (batch_size, outputs), or i32 (batch_size)
/// classes, word * classes >> 32 of each word. Batch i of an epoch is a pure function of (seed, i): Philox
/// streams "data.inputs" and "data.targets", with i as their iteration. The back end draws the numbers
/// itself, in memory from its pool: once warm, no batch allocates.
class SyntheticBatches final : public BatchSource {
 public:
  /// std::invalid_argument naming the option that is out of range.
  explicit SyntheticBatches(const SyntheticOptions& options);

  std::uint64_t batches_per_epoch() const override { return static_cast<std::uint64_t>(options_.batches); }
  std::int64_t rows_per_batch() const override { return options_.batch_size; }
  /// The training batches again.
  std::string_view split() const override { return "train"; }
  Batch batch(Backend& backend, std::uint64_t global_micro_batch_index) override;

 private:
  PhiloxStream stream_of(std::string_view role, std::uint32_t index) const;
  Tensor draw(Backend& backend, const Shape& shape, std::string_view role, std::uint32_t index) const;

  SyntheticOptions options_;
  Shape input_shape_;
  std::vector<std::int32_t> labels_;  ///< host memory of one batch
};

}  // namespace fp16lab::engine::data
