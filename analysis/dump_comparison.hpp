// Two sets of tensors compared, tensor by tensor in order: dumps in files and folders, or arrays in memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/claim.hpp"
#include "analysis/value_difference.hpp"

namespace fp16lab::analysis {

/// A tensor of either side.
struct ComparedTensor {
  std::string name;       ///< printable and unique
  std::string a, b;       ///< "FP32 10x784"; empty: this side has no such tensor
  std::string trouble{};  ///< why both have it and it was not compared: other shapes, other types
  std::vector<std::uint64_t> shape{};
  ValueSide side_a{}, side_b{};  ///< if compared, the two sides of the difference
  ValueDifference difference{};

  bool compared() const { return !a.empty() && !b.empty() && trouble.empty(); }
  /// The same numbers on both sides?
  bool same() const { return compared() && difference.differing == 0; }
  /// Is what differs more than a cast alone explains? Also where it was not compared.
  bool beyond_cast() const { return !compared() || difference.beyond_cast > 0; }
};

struct DumpComparison {
  std::string name_a, name_b;
  std::string order{};                    ///< what "first" means: "in the order of A's file", "by name"
  double threshold = 0.01;                ///< a tensor with this relative L2 or more is reported as far
  std::vector<ComparedTensor> tensors{};  ///< in that order; what only B has comes last
  std::vector<std::string> notes{};       ///< what limits the comparison, in plain words

  /// Both have the same tensors, of the same types and numbers.
  bool equal() const;
};

/// The options of a comparison of two dumps.
struct DumpComparisonQuestion {
  std::optional<double> scale_a{}, scale_b{};  ///< what the values carry; none: what the file says, or 1
  std::vector<DType> as{};  ///< what arrays of bytes or words are; one a size (ArrayInfo::take_as)
  double threshold = 0.01;
  std::function<bool(std::string_view)> takes{};  ///< takes the tensor's own name; none: all
  /// What a tensor of this name carries in a file with these metadata, where scale_a or scale_b says `asked`;
  /// none: that, or 1.
  std::function<double(const std::map<std::string, std::string>&, std::string_view, std::optional<double>)>
      scale_of{};
};

/// The arrays of two files (.npy, .npz, .safetensors), or of all such files in two folders and the folders in
/// them, with one chunk of each in memory (ArrayFile::visit_both). Two files with one array each are compared
/// whatever its name is. Else tensors belong together by name, without what torch's wrappers add ("module."
/// at the beginning, "_orig_mod."); where a folder has a name in several files, by the file's name too, as
/// "step-10: fc1.weight". Order: that of an .npz file; files, and tensors of a .safetensors file, by name,
/// where 9 is before 10. std::invalid_argument for a folder without such files; errors of files as ArrayFile
/// has them.
DumpComparison compare_dumps(const std::filesystem::path& a, const std::filesystem::path& b,
                             const DumpComparisonQuestion& question = {});

/// A name, printable, without what torch's wrappers put in front of it and into it: "module." and
/// "_orig_mod.".
std::string plain_name(std::string name);

/// The .npy, .npz and .safetensors files in a folder and the folders in it, links left out, in the order of
/// before_by_number.
std::vector<std::filesystem::path> array_files_in(const std::filesystem::path& folder);

/// Is the first name before the second, digits read as numbers: "layer9" before "layer10"?
bool before_by_number(std::string_view a, std::string_view b);

/// "FP16", and "i64" of integers.
std::string type_text(DType type);
/// The answer in a few sentences: do they differ, what comes first, what a cast alone explains, what one side
/// lacks.
std::string headline_of(const DumpComparison& comparison);
/// "A and B have the same bits": not run where there is nothing to compare.
Claim claim_of(const DumpComparison& comparison);

/// The headline, then the tensors that differ, in order (the first `most`; the rest is counted), then notes.
/// Where a cast alone explains some and not all, those are counted only, unless `most` is all.
void print_comparison(std::ostream& out, const DumpComparison& comparison, std::size_t most = 30);
/// {"a", "b", "equal", "claims" (as in claims_json), "threshold", "order", "tensors": [a row's fields as in
/// CSV; "first" and "first_beyond_cast": null or {"index", "a", "b", "a_bits", "b_bits"}], "notes"}
void write_comparison_json(std::ostream& out, const DumpComparison& comparison);
/// One row a tensor: tensor, type_a, type_b, scale_a, scale_b, elements, differing, beyond_cast,
/// other_nonfinite, nonfinite_a, nonfinite_b, largest, largest_at, ulps, ulps_at, ulps_of, relative_l2,
/// norm_a, norm_b, cosine, trouble. Positions count elements from 0 in row-major order; -1 where nothing
/// differs.
void write_comparison_csv(std::ostream& out, const DumpComparison& comparison);

}  // namespace fp16lab::analysis
