// Tensors of a training run as safetensors files, so that anyone can compare one step with another framework.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/backend/backend.hpp"
#include "engine/data/batch_source.hpp"
#include "engine/nn/module.hpp"
#include "numerics/files/arrays/safetensors.hpp"

namespace fp16lab::engine {

/// A source for write_safetensors. Shares the tensor's memory and downloads it when the file is written; both
/// must live until then.
SafetensorsSource tensor_source(Backend& backend, std::string name, const Tensor& tensor);

/// Parameters and buffers under their own names: a state_dict of torch's names and shapes. A user named
/// `path`: a pipe is written into (NamedBy::user).
void dump_weights(const std::filesystem::path& path, Backend& backend, const nn::Module& model);

/// Puts the tensors of such a file, or of a state_dict that PyTorch has saved, into a model whose parameters
/// are FP32; f16 and bf16 are widened, which is exact. std::invalid_argument with every name that is missing,
/// is no parameter or buffer, or has another shape or dtype, and nothing is changed then; std::runtime_error
/// for a file that cannot be read. PyTorch's scalar NAME.num_batches_tracked is left out: nothing depends on
/// it here.
void load_weights(const std::filesystem::path& path, Backend& backend, nn::Module& model);

/// The same, each cast once to `dtype` (f16, bf16, f32 or f64; to nearest even; f64, and 16 bits to f32, are
/// exact), whatever it is kept in; tensors that hold no floating-point numbers stay as they are. For other
/// programs, not for resuming. Replaces the file atomically; `metadata` get the key dtype.
/// std::invalid_argument for another dtype.
void save_weights(const std::filesystem::path& path, Backend& backend, const nn::Module& model, DType dtype,
                  SafetensorsMetadata metadata);

/// What one iteration computed, for `train --dump-gradients`, into a path that the user named:
///   NAME                             the parameter's gradient, summed over the micro-batches, after unscale
///                                    and before clipping, in the dtype that unscale leaves. Left out where
///                                    the backward did not reach it
///   parameter.NAME                   its value in this iteration, before the update
///   batch.I.inputs, batch.I.targets  of micro-batch I, counted from 0
///   __metadata__                     step, loss (mean over the micro-batches), loss_scale, found_inf (0 or
///                                    1), scaled (1: the gradients still carry loss_scale, else 0), and
///                                    no_gradients: patterns, separated by commas, of the names of all
///                                    tensors that are not gradients
class GradientDump {
 public:
  static constexpr std::string_view no_gradients = "parameter.*,batch.*.inputs,batch.*.targets";
  /// Reads the metadata of any file: the patterns, also of an older dump, which did not say them; empty: not
  /// a dump.
  static std::string_view no_gradients_of(const SafetensorsMetadata& metadata);
  /// What its gradients carry: 1, or loss_scale.
  static double carried_scale(const SafetensorsMetadata& metadata);

  /// `step`: the iteration to dump, 1-based.
  GradientDump(std::uint64_t step, std::filesystem::path path) : step_(step), path_(std::move(path)) {}

  bool due(std::uint64_t step) const { return step == step_; }
  /// Keeps a copy of a micro-batch of that iteration. All batches come before any gradients.
  void add_batch(Backend& backend, const data::Batch& batch);
  /// Keeps a copy of an optimizer's parameters and gradients: after unscale, before anything changes them.
  void add_gradients(Backend& backend, std::span<Parameter* const> parameters);
  /// The backward pass is done again (engine/train/rescue.hpp).
  void forget_gradients() { sources_.resize(2 * batch_count_); }
  /// `state`: the iteration's, before the scaler's update.
  void write(double loss, const StepState& state, bool scaled);

 private:
  void keep(Backend& backend, std::string name, const Tensor& tensor);

  std::uint64_t step_;
  std::filesystem::path path_;
  std::vector<SafetensorsSource> sources_;
  std::size_t batch_count_ = 0;
};

}  // namespace fp16lab::engine
