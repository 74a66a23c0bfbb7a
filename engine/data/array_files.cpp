#include "engine/data/array_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <span>
#include <stdexcept>

#include "engine/data/idx.hpp"
#include "numerics/files/disk/sha256.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab::engine::data {
namespace {

NamedArray idx_array(const std::filesystem::path& path) {
  const IdxArray idx = read_idx(path, 0);
  const auto bytes = std::as_bytes(std::span(idx.values));
  return {ExampleArray(DType::u8, {idx.extents.begin() + 1, idx.extents.end()},
                       std::vector<std::byte>(bytes.begin(), bytes.end())),
          path.string()};
}

NamedArray read_array(const ArrayFile& file, const ArrayInfo& info) {
  NamedArray found{.values = {},
                   .name = fmt::format("{}: array '{}'", file.path().string(), shown(info.name))};
  if (!info.element) found.fail(fmt::format("{} ({}); expected numbers", info.describe(), info.refusal));
  if (info.shape.empty()) found.fail("a single number; expected examples along a first axis");
  if (info.fortran_order && info.shape.size() > 1)
    found.fail(info.describe() + ": the numbers of an example lie apart; save numpy.ascontiguousarray of it");
  const std::uint64_t elements = info.element_count(), count = info.shape.front();
  if (elements == 0 || count > std::numeric_limits<std::uint32_t>::max())
    found.fail(fmt::format("{}; expected 1 to 2^32 - 1 examples of one number or more", info.describe()));
  std::vector<std::int64_t> shape(info.shape.begin() + 1, info.shape.end());
  const std::uint64_t bytes = elements * size_of(*info.element);
  if (info.data_offset) {
    file.check(info);
    found.values = ExampleArray(*info.element, std::move(shape),
                                {FilePiece{.file = std::make_shared<const InputFile>(file.path()),
                                           .offset = *info.data_offset,
                                           .stride = bytes / count,
                                           .count = static_cast<std::int64_t>(count)}},
                                info.big_endian);
  } else {
    std::vector<std::byte> all(static_cast<std::size_t>(bytes));
    file.read(info, all);
    found.values = ExampleArray(*info.element, std::move(shape), std::move(all));
  }
  return found;
}

}  // namespace

void NamedArray::fail(const std::string& what) const { throw std::runtime_error(name + ": " + what); }

ArrayFiles::ArrayFiles(std::filesystem::path path) : path_(std::move(path)) {
  std::error_code ignored;
  if (!std::filesystem::exists(path_, ignored))
    throw std::runtime_error(
        fmt::format("{}: there is no such file or folder; point data.path at the file of the arrays, or at "
                    "the folder of their files",
                    path_.string()));
  folder_ = std::filesystem::is_directory(path_, ignored);
}
ArrayFiles::~ArrayFiles() = default;

NamedArray ArrayFiles::find(const std::string& entry, std::string_view key) {
  const auto [file, array] = place_of(entry);
  if (file.empty())
    throw std::runtime_error(
        fmt::format("{}: there is no file '{}' or '{}.npy' in this folder; name files, or FILE:ARRAY, in {}",
                    path_.string(), shown(entry), shown(entry), key));
  if (!is_idx_file(file)) return array_of(file, array, key);
  if (!array.empty())
    throw std::runtime_error(
        fmt::format("{}: an IDX file holds one array without a name, not '{}'; point data.path at its folder "
                    "and name the file in {}",
                    file.string(), shown(array), key));
  NamedArray found = idx_array(file);
  digest(file);
  return found;
}

/// The file of an entry, and its array there; no file where there is none, no array where the file has one.
std::pair<std::filesystem::path, std::string> ArrayFiles::place_of(const std::string& entry) const {
  if (!folder_) return {path_, entry};
  std::error_code ignored;
  for (const std::string_view ending : {std::string_view(), npy_ending})
    if (auto path = path_ / (entry + std::string(ending)); std::filesystem::is_regular_file(path, ignored))
      return {std::move(path), ""};
  const std::size_t colon = entry.rfind(':');
  if (colon == std::string::npos || colon == 0) return {};
  std::filesystem::path path = path_ / entry.substr(0, colon);
  if (!std::filesystem::is_regular_file(path, ignored)) return {};
  return {std::move(path), entry.substr(colon + 1)};
}

void ArrayFiles::digest(const std::filesystem::path& path) {
  const auto is_this = [&](const SourceFile& file) { return file.path == path; };
  if (std::none_of(digests_.begin(), digests_.end(), is_this))
    digests_.push_back({path, sha256_of_file(path)});
}

const ArrayFile& ArrayFiles::open(const std::filesystem::path& path) {
  std::unique_ptr<ArrayFile>& file = files_[path];
  if (file == nullptr) file = std::make_unique<ArrayFile>(path);
  return *file;
}

NamedArray ArrayFiles::array_of(const std::filesystem::path& path, const std::string& array,
                                std::string_view key) {
  const ArrayFile& file = open(path);
  const std::span<const ArrayInfo> all = file.arrays();
  const ArrayInfo* info = nullptr;
  if (array.empty() && all.size() == 1) info = &all.front();
  std::string names;
  for (const ArrayInfo& one : all) {
    if (one.name == array) info = &one;
    names += fmt::format("{}'{}'", names.empty() ? "" : ", ", shown(one.name));
  }
  if (info == nullptr)
    throw std::runtime_error(fmt::format("{}: {}; it holds {}; name one in {}", path.string(),
                                         array.empty() ? "which of its arrays? (FILE:ARRAY)"
                                                       : fmt::format("there is no array '{}'", shown(array)),
                                         names.empty() ? "none" : shown(names), key));
  NamedArray found = read_array(file, *info);
  digest(path);
  return found;
}

}  // namespace fp16lab::engine::data
