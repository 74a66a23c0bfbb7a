// Writing files so that a killed process never leaves a lie behind.
//
// A file that must be whole is written under a temporary name in the same folder, synced and renamed over the
// old one (rename is atomic, POSIX.1-2017); then the folder is synced, so that the new name survives a power
// cut too. A file that grows line by line is written with one write(2) a line: what was appended before a
// SIGKILL is in the kernel and stays. Only the last line can be torn, and readers drop exactly that one.
// Failures throw std::runtime_error with the path and the system's reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "numerics/files/disk/sha256.hpp"

namespace fp16lab {

/// A new content for `path`, written piece by piece: at every moment `path` holds either the old content or,
/// after commit(), the new one, complete. Without commit() the destructor discards what was written.
class AtomicFile {
 public:
  /// The temporary file is `path` + this + the host's name + "-" + the process id, and "-1", "-2" ... where
  /// there is such a file already: hosts share file systems, and process ids come again. It is never one that
  /// somebody else made.
  static constexpr std::string_view temporary_mark = ".tmp-";
  /// Is `name` the name of such a file? Those of older builds have no host. `whole`: what it was to replace.
  static bool is_temporary(std::string_view name, std::string_view& whole);

  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void append(std::string_view piece);
  /// Syncs and renames; nothing may be appended afterwards.
  void commit();
  /// The same where `path` is not there yet. False, and nothing is left behind, if it is: of several writers,
  /// on any machine that shares the file system, exactly one succeeds (link(2), which NFS keeps atomic).
  [[nodiscard]] bool commit_new();

 private:
  [[noreturn]] void fail_and_discard(std::string_view what, int error);
  void sync_and_close();

  std::filesystem::path path_, temporary_;
  int descriptor_ = -1;
};

/// AtomicFile in one go.
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

/// Waits until the disk has the name of `file` in its folder.
void sync_folder_of(const std::filesystem::path& file);

/// Makes a folder (its parent must be there) so that it survives a power cut; an existing one is fine.
void make_folder_durably(const std::filesystem::path& folder);

/// The whole file. A missing or unreadable one throws.
std::string read_file(const std::filesystem::path& path);

/// A text file that only grows, one flushed line at a time.
class LineFile {
 public:
  enum class Mode {
    create,  ///< a new file; an existing one is emptied
    append,  ///< continue an existing file (or begin one); a torn last line is cut off first
  };

  LineFile(const std::filesystem::path& path, Mode mode);
  /// Continues a file behind its first `keep` bytes, which end with a newline; the rest is cut off. 0: as
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
  /// Of all lines, those that the file began with included; of a last one that could not be written wholly
  /// nothing.
  std::string sha256() const;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::string buffer_;
  Sha256 digest_;
};

struct Lines {
  std::vector<std::string> complete;  ///< without their newlines
  std::size_t torn_bytes = 0;         ///< length of an unterminated last line, which is not in `complete`
};

/// All terminated lines of a text file.
Lines read_lines(const std::filesystem::path& path);

/// The same without holding them: how many, and the digest of all of them with their newlines.
struct LinesDigest {
  std::uint64_t lines = 0;
  std::string sha256{};
};
/// Nothing where there is no such file, or none that can be read.
std::optional<LinesDigest> digest_lines(const std::filesystem::path& path);

}  // namespace fp16lab
