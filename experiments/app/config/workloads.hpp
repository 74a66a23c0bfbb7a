// The workloads: what model.name may be, and what stands behind each name.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "engine/backend/backend.hpp"
#include "engine/data/dataset.hpp"
#include "engine/data/loader.hpp"
#include "engine/nn/module.hpp"
#include "engine/train/trainer.hpp"
#include "experiments/app/config/config.hpp"
#include "reports/data/quantity.hpp"

namespace fp16lab::experiments {

std::string_view name_of(engine::LossKind loss);

/// What the data says about a model's inputs and outputs.
struct DataShape {
  std::int64_t height = 0;  ///< of images
  std::int64_t width = 0;
  std::int64_t classes = 0;     ///< of images
  std::int64_t vocabulary = 0;  ///< of text
  std::int64_t features() const { return height * width; }
};

/// What a configuration chooses by model.name; engine::Workload is made of it.
struct KnownWorkload {
  std::string_view name;  ///< model.name
  std::string_view description;
  engine::data::DataKind data;
  engine::LossKind loss;
  reports::Quantity metric;                                       ///< by what an evaluation is judged
  engine::data::Targets targets = engine::data::Targets::labels;  ///< of images

  /// What concerns several keys at once: CommandError(usage) that begins with `where`. May be null.
  void (*check)(const RunConfig& config, std::string_view where) = nullptr;
  /// How images become inputs: layout and padding. CommandError(usage) for images it cannot take.
  void (*shape_images)(const RunConfig& config, const DataShape& shape,
                       engine::data::LoaderOptions& options) = nullptr;
  /// CommandError(usage) or std::invalid_argument for a configuration that does not fit the data.
  std::unique_ptr<engine::nn::Module> (*make_model)(engine::Backend& backend, const RunConfig& config,
                                                    const DataShape& shape) = nullptr;
  /// How it trains; null: Supervised.
  std::unique_ptr<engine::TrainingMethod> (*make_method)(const RunConfig& config) = nullptr;
  /// Multiply-adds of the matrix products in a forward pass of one image or one window of text.
  double (*multiply_adds)(const RunConfig& config, const DataShape& shape) = nullptr;
};

/// The sizes of perceptrons as they run: model.widths and train.batch_size divided by model.scale_down.
std::vector<std::int64_t> widths_of(const RunConfig& config);
std::int64_t batch_size_of(const RunConfig& config);

std::span<const KnownWorkload> known_workloads();
/// CommandError(usage) for an unknown name.
const KnownWorkload& workload_of(const RunConfig& config);

}  // namespace fp16lab::experiments
