// A file of unknown origin that is read at offsets, and how errors about its bytes read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace fp16lab {

/// The fault of some bytes, and its position. `offset` counts from the beginning of whatever the thrower was
/// given: a file, or the content of a member of an archive.
class DamagedBytes : public std::runtime_error {
 public:
  DamagedBytes(std::uint64_t offset, const std::string& what) : std::runtime_error(what), offset_(offset) {}
  std::uint64_t offset() const { return offset_; }

 private:
  std::uint64_t offset_;
};

/// An open regular file; anything else (a FIFO, a device, a folder) is refused at once. Its length is taken
/// once, at the beginning; a file that shrinks meanwhile is an error of read.
class InputFile {
 public:
  /// std::runtime_error "PATH: cannot read: REASON" or "PATH: not a regular file".
  explicit InputFile(std::filesystem::path path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::uint64_t size() const { return size_; }
  /// Exactly out.size() bytes from `offset` on; std::runtime_error "PATH: byte N: ..." if the file does not
  /// have them.
  void read(std::uint64_t offset, std::span<std::byte> out) const;

  /// Throws std::runtime_error "PATH: WHAT".
  [[noreturn]] void fail(std::string_view what) const;
  /// Throws std::runtime_error "PATH: byte N: WHAT".
  [[noreturn]] void fail_at(std::uint64_t offset, std::string_view what) const;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

}  // namespace fp16lab
