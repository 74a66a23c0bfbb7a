#include "engine/nn/normalization.hpp"

#include <stdexcept>
#include <utility>

#include "engine/autograd/by_shard.hpp"

namespace fp16lab::engine::nn {

namespace {

Tensor filled(Backend& backend, std::int64_t features, double value) {
  Tensor out = backend.empty({features}, DType::f32);
  backend.fill(out, value);
  return out;
}

void check_features(const char* module, const std::string& path, std::int64_t features) {
  if (features >= 1) return;
  throw std::invalid_argument(std::string(module) + " " + path + ": " + std::to_string(features) +
                              " features; must be >= 1");
}

/// running = (1 - momentum) * running + (momentum * correction) * batch: two products and a sum, each
/// rounded; one with 16 bits is rounded once more, where it is stored.
void update_running(Backend& backend, float momentum, float correction, const Tensor& batch,
                    Tensor& running) {
  Tensor share = backend.empty(batch.shape(), DType::f32);
  backend.scale(batch, momentum * correction, share);
  Tensor wide = widened(backend, running);
  backend.scale(wide, 1.0f - momentum, wide);
  backend.binary(BinaryOp::add, wide, share, wide);
  if (running.dtype() != DType::f32) backend.cast(wide, running);
}

}  // namespace

LayerNorm::LayerNorm(Backend& backend, std::string path, std::int64_t features, float epsilon)
    : path_(add_scope(std::move(path))), epsilon_(epsilon) {
  check_features("LayerNorm", path_, features);
  weight_ = &add_parameter(path_ + ".weight", filled(backend, features, 1.0));
  bias_ = &add_parameter(path_ + ".bias", filled(backend, features, 0.0));
  weight_->role = bias_->role = ParameterRole::layer_norm;
}

Variable LayerNorm::forward(Tape& tape, const Variable& x) {
  const ScopeGuard scope(tape, path_);
  return ops::layer_norm(x, tape.parameter(*weight_), tape.parameter(*bias_), epsilon_);
}

RmsNorm::RmsNorm(Backend& backend, std::string path, std::int64_t features, float epsilon)
    : path_(add_scope(std::move(path))), epsilon_(epsilon) {
  check_features("RmsNorm", path_, features);
  weight_ = &add_parameter(path_ + ".weight", filled(backend, features, 1.0));
}

Variable RmsNorm::forward(Tape& tape, const Variable& x) {
  const ScopeGuard scope(tape, path_);
  return ops::rms_norm(x, tape.parameter(*weight_), epsilon_);
}

GroupNorm::GroupNorm(Backend& backend, std::string path, const GroupNormOptions& options)
    : path_(add_scope(std::move(path))), options_(options) {
  check_features("GroupNorm", path_, options.channels);
  if (options.groups < 1 || options.channels % options.groups != 0) {
    throw std::invalid_argument("GroupNorm " + path_ + ": " + std::to_string(options.groups) + " groups of " +
                                std::to_string(options.channels) + " channels; they must divide them");
  }
  weight_ = &add_parameter(path_ + ".weight", filled(backend, options.channels, 1.0));
  bias_ = &add_parameter(path_ + ".bias", filled(backend, options.channels, 0.0));
}

Variable GroupNorm::forward(Tape& tape, const Variable& x) {
  const ScopeGuard scope(tape, path_);
  return ops::group_norm(x, options_.groups, tape.parameter(*weight_), tape.parameter(*bias_),
                         options_.epsilon, options_.layout);
}

BatchNorm::BatchNorm(Backend& backend, std::string path, const BatchNormOptions& options)
    : path_(add_scope(std::move(path))), options_(options) {
  check_features("BatchNorm", path_, options.features);
  weight_ = &add_parameter(path_ + ".weight", filled(backend, options.features, 1.0));
  bias_ = &add_parameter(path_ + ".bias", filled(backend, options.features, 0.0));
  weight_->role = bias_->role = ParameterRole::batch_norm;
  running_mean_ = &add_buffer(path_ + ".running_mean", filled(backend, options.features, 0.0));
  running_variance_ = &add_buffer(path_ + ".running_var", filled(backend, options.features, 1.0));
}

Variable BatchNorm::forward(Tape& tape, const Variable& x) {
  const ScopeGuard scope(tape, path_);
  const Variable weight = tape.parameter(*weight_), bias = tape.parameter(*bias_);
  if (!tape.context().training) {
    Backend& backend = tape.backend();
    return ops::batch_norm_inference(x, widened(backend, running_mean_->value),
                                     widened(backend, running_variance_->value), weight, bias,
                                     options_.epsilon, options_.layout);
  }
  const std::int64_t count = x.shape().element_count() / options_.features / stack_height(tape);
  if (count < 2) {
    throw std::invalid_argument("BatchNorm " + path_ + ": x " + x.shape().to_string() +
                                (stack_height(tape) > 1 ? " by shard" : "") +
                                " has one value per channel; the variance of a batch needs two or more");
  }
  const ops::BatchNormResult result = ops::batch_norm(x, weight, bias, options_.epsilon, options_.layout);
  const double unbiased = static_cast<double>(result.values) / static_cast<double>(result.values - 1);
  Backend& backend = tape.backend();
  const auto of_batch = [&](const Tensor& statistic) {
    return tape.context().synchronises() ? statistic : mean_over_shards(tape, statistic);
  };
  update_running(backend, options_.momentum, 1.0f, of_batch(result.mean), running_mean_->value);
  update_running(backend, options_.momentum, static_cast<float>(unbiased), of_batch(result.variance),
                 running_variance_->value);
  return result.y;
}

}  // namespace fp16lab::engine::nn
