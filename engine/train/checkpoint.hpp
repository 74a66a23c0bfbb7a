// Checkpoints: one safetensors file from which a run continues with the same bits at every later step.
//
// Its content:
//   NAME                  parameters (FP32 masters) and buffers under their own names, as in a state_dict
//   optimizer.NAME        the optimizer's state tensors: "optimizer.fc1.weight.velocity"
//   step.FIELD            StepState field by field: loss scale, counters, beta powers, found_inf, and the 64
//                         raw bytes of the policy (engine/amp/policy.hpp)
//   scaler.lossN          with scaler.per_loss: the bytes of loss N's StepState, its scale and policy among
//                         them
//   scaler.layer_scales, scaler.layer_counts   with scales of layers (engine/amp/scalers/layer_scaler.hpp)
//   run.FIELD             what Trainer::run counts: consecutive non-finite losses and skips, the last loss
//   __metadata__          format, version, iteration, policy, optimizer, state_hash and its version,
//                         "digest.TENSOR" of every tensor above, and what the caller adds (configuration, git
// hash)
//
// The order of the data and all random numbers are pure functions of (seed, iteration, micro-batch)
// (engine/data/batch_source.hpp, numerics/random/philox.hpp): the iteration *is* their state. A checkpoint is
// between two iterations; a run that was killed in the middle of one, or between its micro-batches, repeats
// that iteration from its beginning and gets the same bits.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/backend/backend.hpp"
#include "engine/optim/optimizer.hpp"
#include "numerics/files/arrays/safetensors.hpp"

namespace fp16lab::engine {

inline constexpr std::string_view checkpoint_format = "fp16lab-checkpoint";
/// Rises when an older reader would misread the file. 2: the counters of StepState are per optimizer.
inline constexpr int checkpoint_version = 2;
/// What Trainer::state_hash() covers. 2: only those of beta1^t and beta2^t that a rule of the run reads; 1,
/// before, had all of them.
inline constexpr int state_hash_version = 2;

/// The facts, besides StepState, that decide about the end of a run.
struct RunCounters {
  std::uint64_t nonfinite_losses = 0;  ///< in a row, up to now
  std::uint64_t skips_in_a_row = 0;
  double last_loss = 0;  ///< the last iteration's
};

/// Everything that later iterations depend on. The tensors share the trainer's memory.
struct TrainingState {
  Backend* backend = nullptr;
  std::uint64_t iteration = 0;
  Tensor step;                              ///< StepState in back-end memory
  std::vector<optim::NamedTensor> tensors;  ///< parameters, buffers, optimizer state, under their file names
  std::string policy;                       ///< "dynamic"
  std::string optimizer;                    ///< "adam"
  RunCounters counters;
  std::uint64_t state_hash = 0;  ///< Trainer::state_hash() of all this
};

/// Replaces `path` atomically; the file is durable on return. `extra` may not use the keys named above
/// (std::invalid_argument). The same state gives the same bytes. std::runtime_error if it cannot be written.
void save_checkpoint(const std::filesystem::path& path, const TrainingState& state,
                     const SafetensorsMetadata& extra);

/// A checkpoint on disk. Every error is a std::runtime_error "PATH: ..." that names the tensor or key, what
/// was expected and what is there.
class CheckpointFile {
 public:
  /// Checks that it is a well-formed safetensors file and a checkpoint of a version that this build reads.
  explicit CheckpointFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return reader_.path(); }
  std::uint64_t iteration() const { return iteration_; }
  std::uint64_t state_hash() const { return state_hash_; }
  /// What state_hash() covers: state_hash_version, or 1 in files of builds before there was a version.
  std::uint64_t state_hash_version() const { return state_hash_version_; }
  /// A metadata value; an error if it is missing.
  const std::string& metadata(const std::string& key) const;
  /// The same; nullptr if it is missing.
  const std::string* find_metadata(const std::string& key) const;

  /// Loads into the memory of `state`, which defines the expected content: every tensor with its shape and
  /// type, none besides, the same policy and optimizer, every digest. Sets state.counters. After an error
  /// `state` may be partly loaded and must not be trained on. The caller compares state_hash() at the end.
  void load(TrainingState& state) const;

 private:
  [[noreturn]] void fail(const std::string& what) const;
  void require_same(const std::string& key, const std::string& here, const std::string& config_key) const;
  std::vector<std::byte> read_checked(const std::string& name, DType type,
                                      const std::vector<std::uint64_t>& shape) const;

  SafetensorsReader reader_;
  std::uint64_t iteration_ = 0;
  std::uint64_t state_hash_ = 0;
  std::uint64_t state_hash_version_ = 1;
};

}  // namespace fp16lab::engine
