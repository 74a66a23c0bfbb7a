// Batches of a data set as tensors.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "engine/backend/backend.hpp"
#include "engine/data/dataset.hpp"
#include "engine/tensor/tensor.hpp"

namespace fp16lab::engine::data {

/// inputs: f32 (B, features). targets: i32 (B) labels for classification, f32 (B, outputs) for regression.
struct Batch {
  Tensor inputs;
  Tensor targets;
};

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
};

/// The permutation of 0 .. count-1 that epoch `epoch` uses: a Fisher-Yates shuffle by Philox stream
/// (seed, "data.shuffle", epoch), with unbiased bounded integers (Lemire, ACM TOMACS 29, 2019). count < 2^32.
std::vector<std::uint32_t> shuffled_order(std::uint64_t seed, std::uint64_t epoch, std::int64_t count);

/// Endless batches, epoch after epoch; an incomplete last batch of an epoch is dropped. Which images a batch
/// holds is a pure function of (options, index), so resuming needs no state. The data set must outlive the
/// loader.
class Loader {
 public:
  /// std::invalid_argument unless 1 <= batch_size <= dataset.count.
  Loader(const Dataset& dataset, const Normalisation& normalisation, const LoaderOptions& options);

  std::uint64_t batches_per_epoch() const;
  std::int64_t batch_size() const { return options_.batch_size; }
  std::int64_t example_count() const { return dataset_->count; }
  Batch batch(Backend& backend, std::uint64_t global_micro_batch_index);
  /// The images of that batch, by their position in the data set.
  std::vector<std::uint32_t> indices(std::uint64_t global_micro_batch_index);

 private:
  const Dataset* dataset_;
  Normalisation normalisation_;
  LoaderOptions options_;
  /// The order of one epoch, kept because consecutive batches ask for the same one.
  std::vector<std::uint32_t> order_;
  std::uint64_t order_epoch_ = 0;
  std::vector<float> staging_;
};

}  // namespace fp16lab::engine::data
