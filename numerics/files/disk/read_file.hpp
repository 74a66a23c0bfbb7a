// Reading files of unknown origin as text, whole or line by line: a bound for everything, and no waiting.
//
// A file that was found (in a folder, or by a name that a file gives) must be a regular one: a FIFO would wait
// for a writer, and a device may never end. What a user named on a command line may be a pipe or a terminal,
// as in "-c <(...)" or /dev/stdin, and is waited for; the bound on its length holds all the same, so that
// /dev/zero is an error and not all memory. Errors are std::runtime_error with the path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fp16lab {

/// How long a file of a kind may be, in bytes: far more than any that is of use. In memory JSON takes some
/// ten times its length.
namespace longest {
/// What people write and what describes one run or one machine: configurations, manifests, claims, lists of
/// tasks, tables of a device. A network of 100,000 layers has a manifest of 40 MB.
inline constexpr std::uint64_t document = std::uint64_t{64} << 20;
/// What grows with the steps of a run and is read at once: a replay, a page, a drawing.
inline constexpr std::uint64_t table = std::uint64_t{512} << 20;
/// Training data: a text, IDX files.
inline constexpr std::uint64_t data = std::uint64_t{8} << 30;
/// One line of a file that is read line by line, however long the file is.
inline constexpr std::uint64_t line = std::uint64_t{16} << 20;
}  // namespace longest

/// How a reader came to a name.
enum class NamedHow {
  found,    ///< only a regular file
  by_user,  ///< a pipe or a character device, too
};

/// The whole file. Throws where it is missing, unreadable, no file of the kind that `named` allows, or longer
/// than `most` bytes.
std::string read_file(const std::filesystem::path& path, std::uint64_t most = longest::document,
                      NamedHow named = NamedHow::found);

/// Everything that the standard input gives; messages show `what` as its path.
std::string read_standard_input(std::string_view what, std::uint64_t most);

/// The terminated lines of a regular file, one after the other.
class LineReader {
 public:
  /// Begins at byte `begin`.
  explicit LineReader(const std::filesystem::path& path, std::uint64_t begin = 0);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  /// Is there another line? `line`: without its newline, and valid until the next call. A line longer than
  /// longest::line throws "PATH:N: ...", N counted from where it began.
  bool next(std::string_view& line);
  /// After the last line: length of an unterminated one.
  std::uint64_t torn_bytes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

struct Lines {
  std::vector<std::string> complete;  ///< without their newlines
  std::size_t torn_bytes = 0;         ///< length of an unterminated last line, which is not in `complete`
};

/// All terminated lines of a text file, which is a document as above.
Lines read_lines(const std::filesystem::path& path);

/// The number of terminated lines in a file, and the digest of all of them with their newlines.
struct LinesDigest {
  std::uint64_t lines = 0;
  std::string sha256{};
};
/// Nothing if there is no such file.
std::optional<LinesDigest> digest_lines(const std::filesystem::path& path);

}  // namespace fp16lab
