// The tutorials' tables beside runs of their own size, which stand in run folders: one run a column, so no
// verdicts.
#pragma once

#include <filesystem>
#include <string>

namespace fp16lab::experiments {

/// Markdown: a table for each tutorial, of runs in the folder of a sweep (configs/tutorials_full.toml), a row
/// for each of its results: loss, and distance from FP32, theirs and ours. A run that is not there or not
/// finished has no figures but how far it came. "Loss" is the tutorials' measure, that of the last batch
/// before its step; where ten batches are accumulated, our steps record the mean of the ten, and the distance
/// is from FP32's mean over the same ten batches. CommandError(usage) for a folder without any of these runs;
/// std::runtime_error for a damaged one.
std::string full_size_tables(const std::filesystem::path& folder);

}  // namespace fp16lab::experiments
