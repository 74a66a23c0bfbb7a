// Reading ZIP archives, as numpy's .npz files are (PKWARE APPNOTE 6.3: 4.3.6 layout, 4.3.9 data descriptors,
// 4.3.14 ZIP64, 4.4.5 methods).
//
// The central directory is what counts; every local header must agree with it, and no two members may share
// bytes (which is how an archive of kilobytes claims terabytes). Stored and deflated members are read; zlib
// inflates. All numbers are checked against the length of the file before anything follows them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "numerics/files/disk/input_file.hpp"

namespace fp16lab {

struct ZipMember {
  std::string name;
  std::uint16_t method = 0;  ///< 0: stored, 8: deflated; others can be listed, not read
  bool encrypted = false;
  std::uint32_t crc32 = 0;            ///< the content's
  std::uint64_t compressed_size = 0;  ///< in the archive
  std::uint64_t size = 0;             ///< the content's
  std::uint64_t header_offset = 0;    ///< the local header's
  std::uint64_t data_offset = 0;
};

/// Lists the members of an archive in the order of its central directory. Everything that is wrong is a
/// std::runtime_error "PATH: byte N: ..."; a name that occurs twice is wrong too. `file` must outlive the
/// list's readers.
std::vector<ZipMember> read_zip_directory(const InputFile& file);

/// Reads the content of one member from its beginning to its end.
class ZipMemberReader {
 public:
  /// std::runtime_error for an encrypted member or an unknown method.
  ZipMemberReader(const InputFile& file, const ZipMember& member);
  ~ZipMemberReader();
  ZipMemberReader(const ZipMemberReader&) = delete;
  ZipMemberReader& operator=(const ZipMemberReader&) = delete;

  /// Fills `out`; returns less than its size only at the end. The call that delivers the last byte has also
  /// checked length and CRC-32 of everything delivered: std::runtime_error "PATH: byte N: member 'NAME': ..."
  /// if they are wrong.
  std::size_t read(std::span<std::byte> out);

 private:
  struct Inflater;
  [[noreturn]] void fail(const std::string& what) const;
  std::size_t read_stored(std::span<std::byte> out);
  std::size_t read_deflated(std::span<std::byte> out);
  void feed();
  void check_end();

  const InputFile& file_;
  const ZipMember& member_;
  std::uint64_t consumed_ = 0;   ///< part of compressed_size; zlib may hold some of it unread
  std::uint64_t delivered_ = 0;  ///< part of size
  std::uint32_t crc32_ = 0;
  bool checked_ = false;
  std::unique_ptr<Inflater> inflater_;
};

}  // namespace fp16lab
