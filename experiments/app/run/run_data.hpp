// The data of a run: found, loaded, and cut into batches as its workload needs them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/data/batch_source.hpp"
#include "engine/data/dataset.hpp"
#include "engine/data/normalisation.hpp"
#include "engine/data/text.hpp"
#include "experiments/app/config/learning_task.hpp"

namespace fp16lab::experiments {

/// What its kind needs is filled; synthetic data needs nothing. Not movable once batches were made from it:
/// they point into it.
struct RunData {
  engine::data::DataKind kind = engine::data::DataKind::images;
  std::string found;  ///< for stderr: which data was taken and why, and less than was asked for
  engine::data::Dataset training, test;       ///< images, arrays
  engine::data::Normalisation normalisation;  ///< of both, from the training set
  engine::data::Text text;
  std::span<const std::int32_t> training_text, test_text;  ///< with data.subset and data.test_subset
  std::vector<engine::data::SourceFile> files;
  DataShape model_shape;

  /// With data.padding, in model.layout.
  const DataShape& shape() const { return model_shape; }
  /// Images or arrays' examples, windows of model.context symbols of text, or synthetic examples, to train
  /// with.
  std::int64_t training_examples(const RunConfig& config) const;
};

/// Loads what `config.data` asks for; of a test text that is shorter than data.test_subset all of it, unless
/// that was set on the command line. CommandError(usage) for a subset that the data does not have,
/// (run_failed) for data that is missing or cannot be read.
std::unique_ptr<const RunData> load_data(const RunConfig& config);

struct RunBatches {
  std::unique_ptr<engine::data::BatchSource> training;    ///< shuffled, endless
  std::unique_ptr<engine::data::BatchSource> evaluation;  ///< the test set in order; of synthetic data the
      ///< training batches, for there is nothing else to know
};

/// All batches of an evaluation are equally long, because evaluations average over batches. Images and
/// arrays: the largest size that divides their number and is at most evaluation_limit; of arrays, where that
/// is less than an eighth of it, the size from half of it on that leaves the fewest examples out. Text: the
/// size from 65 to 128 windows (at most all) that leaves the fewest windows out. CommandError(usage) or
/// std::invalid_argument for sizes that do not fit.
RunBatches make_batches(const RunConfig& config, const RunData& data);

/// Examples of images or arrays that an evaluation takes at once: 1000, fewer where they would have more than
/// 2^20 numbers or where they are symbols, but as many as a batch of the training has, up to 1000.
std::int64_t evaluation_limit(const RunConfig& config, const engine::data::Dataset& test);

/// Symbols of a character, over those that `evaluation`, made from this text, predicts.
double evaluated_symbols_per_character(const RunData& data, const engine::data::BatchSource& evaluation);

/// How long a run will be, as the trainer counts steps. CommandError(usage) if train.epochs gives less than
/// one.
std::uint64_t steps_of(const RunConfig& config, const RunData& data);

}  // namespace fp16lab::experiments
