// From the keys of a configuration to the network, the loss and the method that it trains.
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
#include "engine/nn/network/network.hpp"
#include "engine/train/trainer.hpp"
#include "experiments/app/config/config.hpp"
#include "reports/data/quantity.hpp"

namespace fp16lab::experiments {

/// What the data says about a model: what it is given, and what its output is compared with (rows and
/// elements have to fit, not their arrangement).
struct DataShape {
  engine::nn::Signal input, output;
};

/// What a configuration learns from which data: of its rows, loss and data keys.
struct LearningTask {
  engine::data::DataKind data = engine::data::DataKind::images;
  engine::nn::LossOptions loss;
  reports::Quantity metric = reports::Quantity::accuracy;         ///< by what an evaluation is judged
  engine::data::Targets targets = engine::data::Targets::labels;  ///< of images, arrays
};
/// CommandError(usage) for a data.name that does not exist.
LearningTask task_of(const RunConfig& config);

/// What concerns several keys at once: CommandError(usage) that begins with `where`.
void check_task(const RunConfig& config, std::string_view where);

/// The network of model.layer and model.block: engine::nn::Network, or two of them for the methods that train
/// two. CommandError(usage) or std::invalid_argument for rows that fit neither each other nor the data.
std::unique_ptr<engine::nn::Module> make_model(engine::Backend& backend, const RunConfig& config,
                                               const DataShape& shape);
/// The networks that make_model is made of: one, or the two of a method that trains two, in their order.
std::vector<std::unique_ptr<engine::nn::Network>> make_networks(engine::Backend& backend,
                                                                const RunConfig& config,
                                                                const DataShape& shape);
/// The names of the two networks that a method trains, which blocks and sections of optimizers have. Else
/// nothing.
std::span<const std::string_view> models_of(Method method);
/// train.method; null: Supervised.
std::unique_ptr<engine::TrainingMethod> make_method(const RunConfig& config);

/// The shape of a synthetic example, and the numbers of its target, divided by model.scale_down, as
/// train.batch_size is.
std::vector<std::int64_t> synthetic_inputs(const RunConfig& config);
std::int64_t synthetic_outputs(const RunConfig& config);
std::int64_t batch_size_of(const RunConfig& config);

}  // namespace fp16lab::experiments
