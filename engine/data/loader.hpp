// Batches of an image data set as tensors.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "engine/backend/backend.hpp"
#include "engine/data/batch_source.hpp"
#include "engine/data/dataset.hpp"
#include "engine/data/epoch_order.hpp"

namespace fp16lab::engine::data {

/// How a byte p becomes an FP32 input: float(p) / 255, or standardised to mean 0 and deviation 1,
/// float((p / 255 - mean) / deviation) with the inner arithmetic in FP64.
struct Normalisation {
  std::array<float, 256> value_of{};  ///< by pixel byte
  double mean = 0;                    ///< of p / 255 over the training set; 0 and 1 for "unit"
  double deviation = 1;
};
Normalisation unit_normalisation();
/// Mean and population standard deviation over every pixel of `training`, from exact integer sums.
/// std::invalid_argument if all pixels are equal.
Normalisation standard_normalisation(const Dataset& training);

enum class Targets {
  labels,  ///< classification
  inputs,  ///< an autoencoder's: the targets are the normalised inputs themselves
};

struct LoaderOptions {
  std::int64_t batch_size = 1;
  Targets targets = Targets::labels;
  bool shuffle = true;
  std::uint64_t seed = 0;
  /// Batches (B, 1, H, W) or (B, H, W, 1); without it they are flat, (B, H * W). One channel: the same bytes.
  std::optional<Layout> layout = {};
  /// Rows and columns added on each of the four sides of an image, of the value that pixel 0 has.
  std::int64_t padding = 0;
  std::string_view split = "test";  ///< BatchSource::split; a literal
};

/// Endless batches, epoch after epoch; an incomplete last batch of an epoch is dropped. Which images a batch
/// holds is a pure function of (options, index), so resuming needs no state. The data set must outlive the
/// loader. Once warm, no batch allocates memory.
class Loader final : public BatchSource {
 public:
  /// std::invalid_argument unless 1 <= batch_size <= dataset.count, and for a layout or a padding of a data
  /// set without height and width.
  Loader(const Dataset& dataset, const Normalisation& normalisation, const LoaderOptions& options);

  std::uint64_t batches_per_epoch() const override;
  std::int64_t rows_per_batch() const override { return options_.batch_size; }
  std::string_view split() const override { return options_.split; }
  std::int64_t example_count() const { return dataset_->count; }
  Batch batch(Backend& backend, std::uint64_t global_micro_batch_index) override;
  /// The images of that batch, by their position in the data set. Valid until the next call.
  std::span<const std::uint32_t> indices(std::uint64_t global_micro_batch_index);

 private:
  void stage(std::span<const std::uint8_t> image, std::span<float> out) const;

  const Dataset* dataset_;
  Normalisation normalisation_;
  LoaderOptions options_;
  EpochOrder order_;
  Shape input_shape_;
  std::vector<float> inputs_;  ///< host memory of one batch
  std::vector<std::int32_t> labels_;
};

}  // namespace fp16lab::engine::data
