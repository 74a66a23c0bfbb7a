// LayerNorm, RmsNorm, GroupNorm and BatchNorm.
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

/// Over the last axis, of extent `features` (Zhang & Sennrich 2019), as torch.nn.RMSNorm: "<path>.weight" = 1
/// (features). torch's epsilon is by default that of the input's format; arithmetic is FP32 here, and so is
/// the default. No framework's level treats this weight as a norm's: it is cast as all others are.
class RmsNorm final : public Module {
 public:
  RmsNorm(Backend& backend, std::string path, std::int64_t features, float epsilon = 0x1p-23f);
  Variable forward(Tape& tape, const Variable& x) override;

 private:
  std::string path_;
  float epsilon_;
  Parameter* weight_;
};

struct GroupNormOptions {
  std::int64_t groups = 0;    ///< torch's num_groups, >= 1, a divisor of channels
  std::int64_t channels = 0;  ///< torch's num_channels, >= 1
  float epsilon = 1e-5f;
  Layout layout = Layout::nchw;
};

/// Wu & He 2018, as torch.nn.GroupNorm: x (N, C, ...), or (N, ..., C) in NHWC. "<path>.weight" = 1 and
/// "<path>.bias" = 0, both (channels); levels cast them as all others. std::invalid_argument for groups that
/// do not divide the channels.
class GroupNorm final : public Module {
 public:
  GroupNorm(Backend& backend, std::string path, const GroupNormOptions& options);
  Variable forward(Tape& tape, const Variable& x) override;

 private:
  std::string path_;
  GroupNormOptions options_;
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
/// running ones. Buffers that a level keeps in 16 bits (amp::decorate_statistic) are computed with in FP32
/// and rounded where they are stored, as by torch (aten/src/ATen/native/cuda/Normalization.cuh).
/// std::invalid_argument for a training batch with one value per channel (as torch).
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
