// Continuing a run folder: what is there, and which configuration may continue it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "engine/data/dataset.hpp"
#include "engine/train/checkpoint.hpp"
#include "experiments/app/config/config.hpp"
#include "numerics/files/run/run_schema.hpp"

namespace fp16lab::experiments {

/// A run folder that was begun.
struct Continuation {
  Manifest manifest;
  RunConfig folder_config;  ///< of config.toml (of the manifest, where a kill came before that file)
  RunConfig begun_with;     ///< of the newest checkpoint, or else of the manifest
  std::unique_ptr<engine::CheckpointFile> checkpoint;  ///< the newest; null: none yet
  std::optional<RunRows> rows;  ///< written before it was; absent in checkpoints of older builds

  std::uint64_t step() const { return checkpoint ? checkpoint->iteration() : 0; }
};

/// Nothing if the folder holds no run. A damaged newest checkpoint and an altered manifest are a
/// CommandError(run_failed) that says what to do.
std::optional<Continuation> find_continuation(const std::filesystem::path& folder);

/// The checkpoint's metadata under which the rows written before it are
/// (numerics/files/run/run_resume.hpp).
inline constexpr const char* rows_key = "rows";

/// Do the two differ in the length of the run?
bool other_length(const RunConfig& begun_with, const RunConfig& now);

/// CommandError(usage) naming the key if `now` would have given the steps so far other bits than
/// `begun_with`. Free to change are
///   observe.*, checkpoint.*, train.evaluate_every, amp.save_dtype   what is looked at and saved changes no
///                                                                   bit
///   data.path                                       the data are compared by SHA-256 instead
///   train.graph, backend.ordinal                    the same bits in other ways
///   backend.device, backend.tensor_core, backend.gemm   where they mean the same arithmetic
///                                                       (require_same_arithmetic)
///   train.steps, train.epochs                       unless a cosine schedule ends with the run
///                                                   (schedule.total_steps = 0)
/// Everything else decides about bits, or (train.skip_limit) about where the run so far would have ended.
void require_resumable(const RunConfig& begun_with, const RunConfig& now,
                       const std::filesystem::path& folder);

/// CommandError(usage) naming the key if the back end that is to continue a run follows other tensor cores
/// than the one that began it, or another order of additions.
void require_same_arithmetic(const Manifest& manifest, const RunConfig& begun_with, const BackendRecord& now,
                             const std::filesystem::path& folder);

/// Where gradients are added in MPI's own order (parallel.order = mpi): CommandError(usage) unless as many
/// ranks of the same library continue a run as have trained it. `now` is null for one process.
void require_same_ranks(const Manifest& manifest, const RunConfig& begun_with,
                        const std::optional<RankRecord>& now, const std::filesystem::path& folder);

/// CommandError(usage) naming the file if the data are not those that the run was begun with.
void require_same_data(const Manifest& manifest, std::span<const engine::data::SourceFile> files);

/// Runs `load`; a std::runtime_error becomes a CommandError(run_failed) that also says which checkpoint of
/// the folder to go back to, by deleting the newest.
void with_advice(const std::filesystem::path& folder, const std::function<void()>& load);

}  // namespace fp16lab::experiments
