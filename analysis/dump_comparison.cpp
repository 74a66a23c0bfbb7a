#include "analysis/dump_comparison.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <stdexcept>

#include "numerics/files/arrays/array_stream.hpp"
#include "numerics/files/disk/folder.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab::analysis {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_array_file(const std::filesystem::path& path) {
  const std::string ending = path.extension().string();
  return ending == npy_ending || ending == npz_ending || ending == safetensors_ending;
}

void add_files(const std::filesystem::path& folder, std::vector<std::filesystem::path>& files) {
  for (const std::filesystem::path& entry : entries_of(folder)) {
    if (std::filesystem::is_symlink(entry)) continue;
    if (is_folder(entry))
      add_files(entry, files);
    else if (is_file(entry) && is_array_file(entry))
      files.push_back(entry);
  }
}

/// An array of one side, as its header describes it.
struct Listed {
  std::size_t file = 0;
  std::string own;  ///< its name in the file
  ArrayInfo info;
  double scale = 1;
};

/// One side: what is in its files, from their headers.
class Side {
 public:
  Side(const std::filesystem::path& path, const DumpComparisonQuestion& question,
       const std::optional<double>& scale) {
    if (is_folder(path)) {
      files_ = array_files_in(path);
      if (files_.empty())
        throw std::invalid_argument(fmt::format("{}: this folder holds no .npy, .npz or .safetensors file",
                                                printable(path.string())));
    } else {
      files_.push_back(path);
    }
    std::set<std::string, std::less<>> names;
    for (std::size_t i = 0; i < files_.size(); ++i) {
      std::string stem = files_[i].lexically_relative(path).replace_extension().generic_string();
      if (files_.size() == 1) stem = files_[i].stem().string();
      add_file(i, std::move(stem), question, scale, names);
    }
  }

  /// Names are unique without the files' names.
  bool unique() const { return unique_; }
  bool by_name() const { return by_name_; }
  bool renamed() const { return renamed_; }
  bool is_one_array() const {
    return files_.size() == 1 && arrays_.size() == 1 && format_ == ArrayFormat::npy;
  }
  const std::vector<Listed>& arrays() const { return arrays_; }
  std::string key_of(const Listed& array, bool with_file) const {
    return printable(with_file && !array.own.empty() ? stems_[array.file] + ": " + array.own
                     : array.own.empty()             ? stems_[array.file]
                                                     : array.own);
  }
  const ArrayFile& file_of(const Listed& array) {
    if (!open_ || index_ != array.file) open_.emplace(files_[index_ = array.file]);
    return *open_;
  }

 private:
  void add_file(std::size_t index, std::string stem, const DumpComparisonQuestion& question,
                const std::optional<double>& scale, std::set<std::string, std::less<>>& names) {
    const ArrayFile file(files_[index]);
    format_ = file.format();
    stems_.push_back(std::move(stem));
    const std::size_t begin = arrays_.size();
    for (ArrayInfo info : file.arrays()) {
      std::string name = format_ == ArrayFormat::npy ? stems_.back() : info.name;
      if (question.takes && !question.takes(name)) continue;
      for (const DType format : question.as) info.take_as(format);
      const double carried =
          question.scale_of ? question.scale_of(file.metadata(), name, scale) : scale.value_or(1);
      std::string own = plain_name(name);
      renamed_ = renamed_ || own != printable(name);
      if (format_ == ArrayFormat::npy) own.clear();  // its file's name is its name
      unique_ = names.insert(own.empty() ? stems_.back() : own).second && unique_;
      arrays_.push_back({index, std::move(own), std::move(info), carried});
    }
    if (format_ != ArrayFormat::safetensors) return;
    by_name_ = true;
    std::stable_sort(arrays_.begin() + static_cast<std::ptrdiff_t>(begin), arrays_.end(),
                     [](const Listed& x, const Listed& y) { return before_by_number(x.own, y.own); });
  }

  std::vector<std::filesystem::path> files_;
  std::vector<std::string> stems_;
  std::vector<Listed> arrays_;
  ArrayFormat format_ = ArrayFormat::npy;
  bool unique_ = true, by_name_ = false, renamed_ = false;
  std::optional<ArrayFile> open_;
  std::size_t index_ = 0;
};

/// "FP32 10x784", whatever the file's format calls the type.
std::string described(const ArrayInfo& info) {
  if (!info.element) return printable(info.describe());
  std::string shape;
  for (const std::uint64_t extent : info.shape) shape += (shape.empty() ? " " : "x") + std::to_string(extent);
  return type_text(*info.element) + shape;
}

void compare_both(ComparedTensor& tensor, Side& side_a, const Listed& a, Side& side_b, const Listed& b) {
  for (const ArrayInfo* info : {&a.info, &b.info})
    if (!info->element) {
      tensor.trouble = info->refusal.empty() ? "its type cannot be read" : info->refusal;
      if (info->element_bytes == 1) tensor.trouble += "; are they FP8? --as e4m3 or --as e5m2 compares them";
      if (info->element_bytes == 2)
        tensor.trouble += "; are they BF16 or FP16? --as bf16 or --as f16 compares them";
      return;
    }
  const DType type_a = *a.info.element, type_b = *b.info.element;
  if (a.info.shape != b.info.shape)
    tensor.trouble = "other shapes";
  else if (type_a != type_b && !(is_floating(type_a) && is_floating(type_b)))
    tensor.trouble = "other types";
  if (!tensor.trouble.empty()) return;
  tensor.shape = a.info.shape;
  tensor.side_a = {type_a, is_floating(type_a) ? a.scale : 1};
  tensor.side_b = {type_b, is_floating(type_b) ? b.scale : 1};
  ValueComparer comparer(tensor.side_a, tensor.side_b);
  ArrayFile::visit_both(side_a.file_of(a), a.info, side_b.file_of(b), b.info,
                        [&](auto chunk_a, auto chunk_b) { comparer.add(chunk_a, chunk_b); });
  tensor.difference = comparer.result();
}

}  // namespace

std::string plain_name(std::string name) {
  name = printable(name);
  constexpr std::string_view module = "module.", compiled = "_orig_mod.";
  if (name.starts_with(module)) name.erase(0, module.size());
  for (std::size_t at; (at = name.find(compiled)) != std::string::npos;) name.erase(at, compiled.size());
  return name;
}

std::string type_text(DType type) { return is_floating(type) ? title_of(type) : std::string(name_of(type)); }

bool before_by_number(std::string_view a, std::string_view b) {
  std::size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (!is_digit(a[i]) || !is_digit(b[j])) {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i;
      ++j;
      continue;
    }
    const auto number = [](std::string_view text, std::size_t& at) {
      while (at < text.size() && text[at] == '0') ++at;
      const std::size_t begin = at;
      while (at < text.size() && is_digit(text[at])) ++at;
      return text.substr(begin, at - begin);
    };
    const std::string_view x = number(a, i), y = number(b, j);
    if (x.size() != y.size()) return x.size() < y.size();
    if (x != y) return x < y;
  }
  return a.size() - i != b.size() - j ? a.size() - i < b.size() - j : a < b;
}

std::vector<std::filesystem::path> array_files_in(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  add_files(folder, files);
  std::ranges::sort(files, [&](const auto& x, const auto& y) {
    return before_by_number(x.lexically_relative(folder).string(), y.lexically_relative(folder).string());
  });
  return files;
}

bool DumpComparison::equal() const {
  return std::ranges::all_of(tensors, [](const ComparedTensor& tensor) {
    return tensor.same() && tensor.side_a.type == tensor.side_b.type;
  });
}

DumpComparison compare_dumps(const std::filesystem::path& a, const std::filesystem::path& b,
                             const DumpComparisonQuestion& question) {
  Side side_a(a, question, question.scale_a), side_b(b, question, question.scale_b);
  DumpComparison comparison{.name_a = printable(a.string()),
                            .name_b = printable(b.string()),
                            .order = side_a.by_name() ? "by name" : "in the order of A",
                            .threshold = question.threshold};
  const bool with_file = !side_a.unique() || !side_b.unique();
  const bool one_pair = side_a.is_one_array() && side_b.is_one_array();
  std::map<std::string, const Listed*, std::less<>> in_b;
  for (const Listed& array : side_b.arrays())
    in_b.emplace(one_pair ? "" : side_b.key_of(array, with_file), &array);
  std::set<const Listed*> met;
  std::set<std::string, std::less<>> names;
  for (const Listed& array : side_a.arrays()) {
    const std::string key = side_a.key_of(array, with_file);
    ComparedTensor tensor{.name = key, .a = described(array.info), .b = {}};
    const auto found = in_b.find(one_pair ? "" : key);
    if (names.insert(key).second && found != in_b.end()) {
      met.insert(found->second);
      tensor.b = described(found->second->info);
      compare_both(tensor, side_a, array, side_b, *found->second);
    }
    comparison.tensors.push_back(std::move(tensor));
  }
  for (const Listed& array : side_b.arrays())
    if (!met.contains(&array))
      comparison.tensors.push_back(
          {.name = side_b.key_of(array, with_file), .a = {}, .b = described(array.info)});
  if (side_a.renamed() != side_b.renamed())
    comparison.notes.push_back(
        "\"module.\" and \"_orig_mod.\", which torch's wrappers add, were left out of names");
  return comparison;
}

}  // namespace fp16lab::analysis
