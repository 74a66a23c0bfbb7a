// The user's own gradient dumps, counted.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "numerics/files/array_counts.hpp"

namespace fp16lab::experiments {

struct CountedArray {
  std::string label;  ///< printable and unique: the array's name, with several files "FILE:NAME"
  std::filesystem::path file;
  ArrayFormat format = ArrayFormat::npy;
  ArrayInfo info;
  ArrayCounts counts;
};

struct SkippedArray {
  std::filesystem::path file;
  std::string name;
  std::string reason;  ///< "<i8 (3,): integers"
};

struct CountedDumps {
  std::vector<CountedArray> arrays;
  std::vector<SkippedArray> skipped;
  std::size_t empty = 0;  ///< arrays without elements, of which nothing else is kept
};

/// Streams every array of every file (numerics/files/array_stream.hpp), one chunk at a time. Errors of files as thrown
/// there; CommandError(run_failed) naming the reasons if a file has nothing that can be counted.
CountedDumps count_dumps(std::span<const std::filesystem::path> files, int threads);

}  // namespace fp16lab::experiments
