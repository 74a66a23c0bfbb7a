// Writing files so that a killed process never leaves half a file for a whole one, and replaces nothing but a file.
//
// A file that must be whole is written under a temporary name in the same folder, synced and renamed over the
// old one (rename is atomic, POSIX.1-2017); then the folder is synced, so that the new name survives a power
// cut too. A file that grows line by line is written with one write(2) a line: what was appended before a
// SIGKILL is in the kernel and stays. Only the last line can be torn, and readers drop exactly that one.
// Failures throw std::runtime_error with the path and the system's reason.
//
// What may be replaced depends on who chose the name:
// - The program (NamedBy::program): a file of a folder of results, which may come from anyone. Only a regular
//   file is replaced or continued. A symbolic link, a FIFO, a device or a folder of that name is refused, and
//   nothing is written through it. Folders inside a folder of results are held to the same (folder.hpp); the
//   folder that the user named may be a link.
// - The user (NamedBy::user): an output option of a command line means what a shell's ">" means. A regular file
//   is replaced as a whole. A symbolic link stays: the file that it names is replaced, or made where the link
//   dangles and the folder of its target is there. A FIFO or a character device (">(...)", /dev/null) is
//   opened and written into, and waits for a reader as the shell does; /dev/stdout, /dev/fd/N and whatever
//   else leads to a descriptor of this process is that descriptor, so ">> log" keeps its log. Block devices,
//   sockets and folders are refused, and so is the name of the file that this process's own words go to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "numerics/files/disk/sha256.hpp"

namespace fp16lab {

/// Who chose the name of an output (above).
enum class NamedBy { program, user };

/// A new content for `path`, written piece by piece: at every moment `path` holds either the old content or,
/// after commit(), the new one, complete. Without commit() the destructor discards what was written. Where a
/// user named a pipe, a device or a descriptor, pieces go there at once, and commit() only ends the writing; a
/// reader that has gone away is an error of append(), if the process does not die of SIGPIPE, as none of ours does.
class AtomicFile {
 public:
  /// The temporary file is `path` + this + the host's name + "-" + the process id, and "-1", "-2" ... where
  /// there is such a file already: hosts share file systems, and process ids come again. It is never one that
  /// another process made.
  static constexpr std::string_view temporary_mark = ".tmp-";
  /// Is `name` the name of such a file? Those of older builds have no host. `whole`: what it was to replace.
  static bool is_temporary(std::string_view name, std::string_view& whole);

  /// An output of NamedBy::user that cannot be replaced or written into is refused here; one of
  /// NamedBy::program by commit().
  explicit AtomicFile(std::filesystem::path path, NamedBy named_by = NamedBy::program);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void append(std::string_view piece);
  /// Syncs and renames; nothing may be appended afterwards. std::runtime_error where something else than a
  /// regular file has that name.
  void commit();

 private:
  [[noreturn]] void fail_and_discard(std::string_view what, int error);
  void sync_and_close();

  std::filesystem::path path_;       ///< where the user's links lead
  std::filesystem::path temporary_;  ///< empty: pieces go to path_ at once
  int descriptor_ = -1;
};

/// AtomicFile in one go.
void write_file_atomically(const std::filesystem::path& path, std::string_view content,
                           NamedBy named_by = NamedBy::program);

/// Throws now what AtomicFile(path, NamedBy::user) would throw later: where a file comes at the end of long
/// work. Opens no pipe or device.
void require_output(const std::filesystem::path& path);

/// Does an output that the user named go into the stream that `descriptor` (1: the standard output) is, whose
/// other words would then be mixed with it?
bool writes_to_descriptor(const std::filesystem::path& path, int descriptor);

/// A text file that only grows, one flushed line at a time (NamedBy::program). A file that has another name,
/// too (a hard link), gets a copy of its own first.
class LineFile {
 public:
  enum class Mode {
    create,  ///< a new file; an existing one is emptied
    append,  ///< continue an existing file (or begin one); a torn last line is cut off first
  };

  LineFile(const std::filesystem::path& path, Mode mode);
  /// Continues a file after its first `keep` bytes, which end with a newline; the rest is cut off. 0: as
  /// create.
  LineFile(std::filesystem::path path, std::uintmax_t keep);
  ~LineFile();
  LineFile(LineFile&& other) noexcept;
  LineFile& operator=(LineFile&& other) noexcept;
  LineFile(const LineFile&) = delete;
  LineFile& operator=(const LineFile&) = delete;

  /// Writes `line` and a newline. A line break inside `line` throws std::invalid_argument: it would forge a
  /// second line.
  void append(std::string_view line);
  /// Waits until the disk has everything (fsync).
  void sync();
  const std::filesystem::path& path() const { return path_; }
  /// Covers all lines, also those that the file began with; a last line that could not be written wholly does
  /// not count.
  std::string sha256() const;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::string buffer_;
  Sha256 digest_;
};

}  // namespace fp16lab
