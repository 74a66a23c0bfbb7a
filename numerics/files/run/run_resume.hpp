// What a killed or interrupted run needs to be continued: its checkpoints, and line files cut back to one of
// them.
//
// A run folder's line files hold the steps in order, so cutting one back to a step is one truncation: a kill
// at any moment leaves either the longer file or the shorter one, and both continue alike. The checkpoint
// itself is never touched.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "numerics/files/run/run_schema.hpp"

namespace fp16lab {

struct StoredCheckpoint {
  std::uint64_t step = 0;  ///< the iteration before it
  std::filesystem::path path;
};

/// FOLDER/checkpoints/step-000100.safetensors; longer steps have more digits.
std::filesystem::path checkpoint_path(const std::filesystem::path& run_folder, std::uint64_t step);
/// All files of such names, oldest first; none if there is no such folder.
std::vector<StoredCheckpoint> stored_checkpoints(const std::filesystem::path& run_folder);
/// Makes FOLDER/checkpoints, durably (std::runtime_error).
void make_checkpoint_folder(const std::filesystem::path& run_folder);
/// Deletes all but the `keep` newest checkpoints; 0 keeps all.
void remove_old_checkpoints(const std::filesystem::path& run_folder, std::uint64_t keep);

/// Deletes what a killed writer of this run's whole files (manifest, configuration, checkpoints ...) left
/// half written ("manifest.json.tmp-host-4711"; "manifest.json.tmp-4711" by older builds). The caller holds
/// the folder: no other process writes there.
void remove_temporary_files(const std::filesystem::path& run_folder);

/// What a checkpoint says of the line files: how many rows were on disk when it was written, and their
/// digests. One line of JSON.
std::string to_json(const RunRows& rows);
/// std::runtime_error with the reason only.
RunRows parse_run_rows(std::string_view text);

/// What stays of a line file: so many bytes, and the rows in them. 0 bytes: it begins anew.
struct FileCut {
  std::uintmax_t bytes = 0;
  std::uint64_t rows = 0;
};
struct RunCut {
  FileCut steps{}, evaluations{}, histograms{}, overflows{};
  std::optional<FileCut> culprits{}, recipe{};  ///< nothing: there is no such file
  RunRows rows() const;
};

/// Where to cut a run back to `step` >= 1: steps.csv, histograms.jsonl and overflows.jsonl after it,
/// evaluations.csv *at* it, because a checkpoint comes before the evaluation of its step. Torn last lines go
/// too. Only looks. std::runtime_error "FILE:LINE: ..." if a row that stays cannot be read, if steps.csv
/// lacks a step up to `step` or has another state_hash there, or if a file keeps other rows than were
/// `written` when the checkpoint was (their number, their digest). Checkpoints of older builds do not say
/// that; beside them overflows.jsonl and culprits.jsonl may be missing.
RunCut find_cut(const std::filesystem::path& run_folder, std::uint64_t step, std::uint64_t state_hash,
                const std::optional<RunRows>& written = {});

}  // namespace fp16lab
