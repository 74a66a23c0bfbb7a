// What a trainer draws its batches from.
#pragma once

#include <cstdint>
#include <string_view>

#include "engine/backend/backend.hpp"
#include "engine/tensor/tensor.hpp"

namespace fp16lab::engine::data {

/// inputs: f32 images (B, features), (B, C, H, W) or (B, H, W, C), or i32 symbols (B, T).
/// targets: i32 labels (B), i32 next symbols (B * T), f32 (B, classes) soft labels, or f32 (B, outputs) for
/// regression.
struct Batch {
  Tensor inputs;
  Tensor targets;
};

/// Selects examples of a batch that is cut into `of` equal parts: those of the parts [first, first + count).
struct BatchPart {
  std::int64_t first = 0, count = 1, of = 1;

  /// Where they begin among `examples`, and how many they are. std::invalid_argument unless `of` divides
  /// `examples`.
  std::int64_t begin(std::int64_t examples) const;
  std::int64_t size(std::int64_t examples) const;
};

/// Endless batches, epoch after epoch. Which examples a batch holds is a pure function of (options, index),
/// so resuming a run needs no state beyond the index.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  /// Batches of an epoch; >= 1.
  virtual std::uint64_t batches_per_epoch() const = 0;
  /// Rows of logits a batch gives: images, or symbols.
  virtual std::int64_t rows_per_batch() const = 0;
  /// What an evaluation over these batches is called in records: "test", or "train" where there are no
  /// others.
  virtual std::string_view split() const { return "test"; }
  virtual Batch batch(Backend& backend, std::uint64_t global_micro_batch_index) = 0;
  /// A part of that batch, with the same numbers. Here a slice of the whole; loaders read only what they give.
  virtual Batch part_of_batch(Backend& backend, std::uint64_t global_micro_batch_index,
                              const BatchPart& part);
};

}  // namespace fp16lab::engine::data
