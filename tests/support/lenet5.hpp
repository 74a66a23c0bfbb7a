// LeNet-5 (LeCun et al., Proceedings of the IEEE 86(11), 1998) in today's form, ReLU and max pooling, written
// by hand: what the rows of experiments/configs/lenet5.toml have to be.
#pragma once

#include <cstdint>

#include "engine/nn/conv2d.hpp"
#include "engine/nn/linear.hpp"
#include "engine/nn/module.hpp"
#include "engine/nn/normalization.hpp"

namespace fp16lab::engine::test {

struct LeNet5Options {
  std::int64_t channels = 1;
  std::int64_t classes = 10;
  Layout layout = Layout::nchw;
  nn::Initialization initialization = nn::Initialization::torch_linear;
  bool batch_norm = false;  ///< bn1 and bn2 between the convolutions and their ReLUs
  std::uint64_t seed = 0;
};

/// 32x32 images -> conv1 6@5x5 -> pool -> conv2 16@5x5 -> pool -> fc1 120 -> fc2 84 -> fc3 classes.
/// fc1 takes (c, h, w) order in NCHW and (h, w, c) in NHWC.
class LeNet5 final : public nn::Module {
 public:
  LeNet5(Backend& backend, const LeNet5Options& options);
  /// x (N, channels, 32, 32) or (N, 32, 32, channels) -> logits (N, classes)
  Variable forward(Tape& tape, const Variable& x) override;

 private:
  LeNet5Options options_;
  nn::Conv2d *conv1_, *conv2_;
  nn::BatchNorm *bn1_ = nullptr, *bn2_ = nullptr;  ///< null: no BatchNorm
  nn::Linear *fc1_, *fc2_, *fc3_;
};

}  // namespace fp16lab::engine::test
