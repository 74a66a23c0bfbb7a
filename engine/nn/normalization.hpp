// LayerNorm and BatchNorm.
#pragma once

#include <cstdint>
#include <string>

#include "engine/nn/module.hpp"

namespace fp16lab::engine::nn {

/// Over the last axis, of extent `features` (Ba, Kiros & Hinton 2016). "<path>.weight" = 1 and "<path>.bias"
/// = 0, both (features).
class LayerNorm final : public Module {
 public:
  LayerNorm(Backend& backend, std::string path, std::int64_t features, float epsilon = 1e-5f);
  Variable forward(Tape& tape, const Variable& x) override;

 private:
  std::string path_;
  float epsilon_;
  Parameter* weight_;
  Parameter* bias_;
};

struct BatchNormOptions {
  std::int64_t features = 0;
  float epsilon = 1e-5f;
  /// running = (1 - momentum) * running + momentum * batch, the variance times n / (n - 1) (unbiased), as
  /// torch
  float momentum = 0.1f;
  Layout layout = Layout::nchw;
};

/// Ioffe & Szegedy 2015. BatchNorm1d for x (N, C), BatchNorm2d for 4-d x. While the tape's context is
/// training it takes the batch's statistics and updates "<path>.running_mean" and "<path>.running_var" (f32
/// buffers, 0 and 1) in place, also in a step that is skipped afterwards (as torch); otherwise it uses the
/// running ones. std::invalid_argument for a training batch with one value per channel (as torch).
class BatchNorm final : public Module {
 public:
  BatchNorm(Backend& backend, std::string path, const BatchNormOptions& options);
  Variable forward(Tape& tape, const Variable& x) override;

 private:
  std::string path_;
  BatchNormOptions options_;
  Parameter* weight_;
  Parameter* bias_;
  Buffer* running_mean_;
  Buffer* running_variance_;
};

}  // namespace fp16lab::engine::nn
