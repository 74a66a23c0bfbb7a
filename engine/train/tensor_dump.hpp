// Tensors of a training run as safetensors files, so that anyone can compare one step with another framework.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/backend/backend.hpp"
#include "engine/data/batch_source.hpp"
#include "engine/nn/module.hpp"
#include "numerics/files/safetensors.hpp"

namespace fp16lab::engine {

/// A source for write_safetensors. Shares the tensor's memory and downloads it when the file is written; both
/// must live until then.
SafetensorsSource tensor_source(Backend& backend, std::string name, const Tensor& tensor);

/// Parameters (FP32) and buffers under their own names: a state_dict of torch's names and shapes.
void dump_weights(const std::filesystem::path& path, Backend& backend, const nn::Module& model);

/// What one iteration computed, for `train --dump-gradients`:
///   NAME                             the parameter's gradient: unscaled, FP32, summed over the micro-batches,
///                                    before clipping. Left out where the backward did not reach it
///   parameter.NAME                   its FP32 value in this iteration, before the update
///   batch.I.inputs, batch.I.targets  of micro-batch I, counted from 0
///   __metadata__                     step, loss (mean over the micro-batches), loss_scale, found_inf (0 or 1)
class GradientDump {
 public:
  /// `step`: the iteration to dump, 1-based.
  GradientDump(std::uint64_t step, std::filesystem::path path) : step_(step), path_(std::move(path)) {}

  bool due(std::uint64_t step) const { return step == step_; }
  /// Keeps a copy of a micro-batch of that iteration.
  void add_batch(Backend& backend, const data::Batch& batch);
  /// After unscale, before anything changes gradients or weights.
  void write(Backend& backend, const nn::Module& model, double loss, double loss_scale, bool found_inf);

 private:
  std::uint64_t step_;
  std::filesystem::path path_;
  std::vector<SafetensorsSource> batches_;
  std::size_t batch_count_ = 0;
};

}  // namespace fp16lab::engine
