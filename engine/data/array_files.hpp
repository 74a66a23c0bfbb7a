// The files of engine/data/arrays.hpp, found by the entries of data.train and data.test. Internal to
// engine/data.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/data/dataset.hpp"
#include "numerics/files/arrays/array_stream.hpp"

namespace fp16lab::engine::data {

/// One array of a file.
struct NamedArray {
  ExampleArray values;
  std::string name;  ///< as messages call it: "PATH: array 'x'"

  /// std::runtime_error "NAME: WHAT".
  [[noreturn]] void fail(const std::string& what) const;
};

/// Opens files once, and digests them in the order in which they were asked for.
class ArrayFiles {
 public:
  /// std::runtime_error if there is nothing at `path`.
  explicit ArrayFiles(std::filesystem::path path);
  ~ArrayFiles();

  /// The array of an entry (ArraysOptions::path), with one example or more. `key` is who asked for it, for
  /// messages. std::runtime_error "PATH: ..." if there is none, or if it is no array of numbers in C order.
  NamedArray find(const std::string& entry, std::string_view key);

  const std::vector<SourceFile>& digests() const { return digests_; }

 private:
  std::pair<std::filesystem::path, std::string> place_of(const std::string& entry) const;
  const ArrayFile& open(const std::filesystem::path& path);
  void digest(const std::filesystem::path& path);
  NamedArray array_of(const std::filesystem::path& path, const std::string& array, std::string_view key);

  std::filesystem::path path_;
  bool folder_ = false;
  std::map<std::filesystem::path, std::unique_ptr<ArrayFile>> files_;
  std::vector<SourceFile> digests_;
};

}  // namespace fp16lab::engine::data
