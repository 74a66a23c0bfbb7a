// Two things that configuration keys cannot say: a hand-written training step, and one micro-batch that
// overflows.
#pragma once

#include <memory>
#include <utility>

#include "engine/data/batch_source.hpp"
#include "engine/train/method.hpp"

namespace fp16lab::experiments {

/// MindSpore's custom train-one-step cell: scale the loss, differentiate, multiply the gradients by 1/S in
/// the step itself, hand them to the optimizer. For scaler.drop_overflow_update = false and
/// optimizer.loss_scale = 1. Gradients must be FP32.
class CustomStep final : public engine::TrainingMethod {
 public:
  explicit CustomStep(double scale) : scale_(scale) {}
  void run(engine::Iteration& iteration) override;
  Evaluation evaluate(engine::Iteration& iteration, const engine::data::Batch& batch) override;

 private:
  double scale_;
  engine::Tensor inverse_;  ///< f32, one element: 1/S
};

/// The batches of another source, but one of them has targets so far away that the scaled gradient of its
/// loss has no FP16 value, while the loss itself is a finite FP32 number.
class OverflowingSource final : public engine::data::BatchSource {
 public:
  /// `target`: every target of micro-batch `index`, counted over the whole run.
  OverflowingSource(std::unique_ptr<engine::data::BatchSource> source, std::uint64_t index, float target)
      : source_(std::move(source)), index_(index), target_(target) {}

  std::uint64_t batches_per_epoch() const override { return source_->batches_per_epoch(); }
  std::int64_t rows_per_batch() const override { return source_->rows_per_batch(); }
  std::string_view split() const override { return source_->split(); }
  engine::data::Batch batch(engine::Backend& backend, std::uint64_t index) override {
    engine::data::Batch batch = source_->batch(backend, index);
    if (index == index_) backend.fill(batch.targets, static_cast<double>(target_));
    return batch;
  }

 private:
  std::unique_ptr<engine::data::BatchSource> source_;
  std::uint64_t index_;
  float target_;
};

}  // namespace fp16lab::experiments
