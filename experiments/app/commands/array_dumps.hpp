// The user's own gradient dumps, counted value by value.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/app/commands/name_selection.hpp"
#include "numerics/files/arrays/array_stream.hpp"
#include "numerics/formats/format_range.hpp"
#include "numerics/histogram/value_histogram.hpp"

namespace fp16lab::experiments {

struct CountedArray {
  std::string label;  ///< printable and unique: the array's name, with several files "FILE:NAME"
  std::filesystem::path file;
  ArrayFormat format = ArrayFormat::npy;
  ArrayInfo info;
  std::optional<DType> taken_as{};  ///< of bytes or words: what DumpQuestion::as says that they are
  double recorded_scale = 1;        ///< what its values carry
  ValueHistogram values;
};

struct SkippedArray {
  std::filesystem::path file;
  std::string name;
  std::string reason;        ///< "<i8 (3,): integers"
  bool no_gradient = false;  ///< a dump of our own says so
};

struct CountedDumps {
  std::vector<CountedArray> arrays;
  std::vector<SkippedArray> skipped;
  std::size_t empty = 0;  ///< arrays without elements, of which nothing else is kept
};

/// What is asked of dumps.
struct DumpQuestion {
  std::vector<FormatRange> ranges;
  std::optional<double> scale{};           ///< to judge at, beside the scales of reports; none: as recorded
  std::optional<double> recorded_scale{};  ///< what the values carry; none: what the file says, or 1
  std::vector<DType>
      as{};  ///< what arrays of bytes or words are that have no floating-point type; one a size
};

/// Streams the arrays of every file that are asked for (numerics/files/arrays/array_stream.hpp), one chunk at
/// a time. What a dump of our own (engine/train/tensor_dump.hpp) calls no gradient is left out unless it is
/// included by name. Errors of files as thrown there; CommandError(run_failed) naming the reasons if a file
/// has nothing that can be counted; CommandError(usage) for a file of PyTorch's, saying how to convert it,
/// for patterns that match nothing, for an `as` that no array needs, and if nothing is left.
CountedDumps count_dumps(std::span<const std::filesystem::path> files, const DumpQuestion& question,
                         NameSelection& selection, int threads);

/// CommandError(usage) for a file of torch.save, which says how to convert it.
void refuse_pytorch(const std::filesystem::path& path);

/// "a,b": "a", "b".
std::vector<std::string> split_at_commas(std::string_view text);

}  // namespace fp16lab::experiments
