#include "tests/support/lenet5.hpp"

#include <memory>
#include <stdexcept>

namespace fp16lab::engine::test {

namespace {

constexpr std::int64_t image_side = 32;
constexpr std::int64_t conv1_channels = 6, conv2_channels = 16;
constexpr std::int64_t pooled_side = ((image_side - 4) / 2 - 4) / 2;  // two 5x5 convolutions, each halved
constexpr std::int64_t fc1_outputs = 120, fc2_outputs = 84;

}  // namespace

LeNet5::LeNet5(Backend& backend, const LeNet5Options& options) : options_(options) {
  const auto convolution = [&](const char* path, std::int64_t inputs, std::int64_t outputs) {
    return &add_child(std::make_unique<nn::Conv2d>(backend, path,
                                                   nn::Conv2dOptions{.inputs = inputs,
                                                                     .outputs = outputs,
                                                                     .kernel = {5, 5},
                                                                     .geometry = {.layout = options.layout},
                                                                     .initialization = options.initialization,
                                                                     .seed = options.seed}));
  };
  const auto linear = [&](const char* path, std::int64_t inputs, std::int64_t outputs) {
    return &add_child(std::make_unique<nn::Linear>(backend, path,
                                                   nn::LinearOptions{.inputs = inputs,
                                                                     .outputs = outputs,
                                                                     .initialization = options.initialization,
                                                                     .seed = options.seed}));
  };
  const auto normalization = [&](const char* path, std::int64_t features) {
    return options.batch_norm
               ? &add_child(std::make_unique<nn::BatchNorm>(
                     backend, path, nn::BatchNormOptions{.features = features, .layout = options.layout}))
               : nullptr;
  };
  conv1_ = convolution("conv1", options.channels, conv1_channels);
  bn1_ = normalization("bn1", conv1_channels);
  conv2_ = convolution("conv2", conv1_channels, conv2_channels);
  bn2_ = normalization("bn2", conv2_channels);
  fc1_ = linear("fc1", conv2_channels * pooled_side * pooled_side, fc1_outputs);
  fc2_ = linear("fc2", fc1_outputs, fc2_outputs);
  fc3_ = linear("fc3", fc2_outputs, options.classes);
}

Variable LeNet5::forward(Tape& tape, const Variable& x) {
  const Shape shape = x.shape();
  const std::int64_t batch = shape.rank() > 0 ? shape[0] : 0;
  const Shape expected = options_.layout == Layout::nchw
                             ? Shape{batch, options_.channels, image_side, image_side}
                             : Shape{batch, image_side, image_side, options_.channels};
  if (!(shape == expected)) {
    throw std::invalid_argument("LeNet5: x is " + shape.to_string() + "; images must be " +
                                expected.to_string());
  }
  const Pool2dGeometry pool{.layout = options_.layout};
  const auto stage = [&](nn::Conv2d& convolution, nn::BatchNorm* normalization, const Variable& input) {
    Variable y = convolution.forward(tape, input);
    if (normalization != nullptr) y = normalization->forward(tape, y);
    return ops::max_pool2d(ops::relu(y), pool);
  };
  Variable y = stage(*conv2_, bn2_, stage(*conv1_, bn1_, x));
  y = ops::reshape(y, {batch, conv2_channels * pooled_side * pooled_side});
  y = ops::relu(fc1_->forward(tape, y));
  y = ops::relu(fc2_->forward(tape, y));
  return fc3_->forward(tape, y);
}

}  // namespace fp16lab::engine::test
