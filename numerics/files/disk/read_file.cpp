#include "numerics/files/disk/read_file.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>

#include "numerics/files/disk/descriptor.hpp"
#include "numerics/files/disk/folder.hpp"
#include "numerics/files/disk/input_file.hpp"
#include "numerics/files/disk/sha256.hpp"

namespace fp16lab {
namespace {

/// Everything up to the end, from a descriptor that is called `name`.
std::string read_all(int descriptor, std::string_view name, std::uint64_t most) {
  constexpr std::size_t block = std::size_t{1} << 16;
  std::string content;
  std::size_t length = 0;
  for (;;) {
    content.resize(std::max(content.size(), length + block));
    const ssize_t count = ::read(descriptor, content.data() + length, content.size() - length);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_on("read", name, errno);
    length += static_cast<std::size_t>(count);
    if (length > most) fail_on("read", name, fmt::format("it is longer than {} bytes", most));
    if (count == 0) break;
    if (length == content.size()) content.resize(2 * length);
  }
  content.resize(length);
  return content;
}

}  // namespace

std::string read_file(const std::filesystem::path& path, std::uint64_t most, NamedHow named) {
  const bool found = named == NamedHow::found;
  const Descriptor descriptor(
      ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | (found ? O_NONBLOCK : 0)));
  if (descriptor.get() < 0) fail_on("read", path, errno);
  struct stat status {};
  if (::fstat(descriptor.get(), &status) != 0) fail_on("read", path, errno);
  const bool streams = S_ISFIFO(status.st_mode) || S_ISCHR(status.st_mode) || S_ISSOCK(status.st_mode);
  if (!S_ISREG(status.st_mode) && (found || !streams))
    throw std::runtime_error(
        fmt::format("{}: not a regular file (it is {})", path.string(), kind_of(status.st_mode)));
  if (S_ISREG(status.st_mode) && static_cast<std::uint64_t>(status.st_size) > most)
    fail_on("read", path, fmt::format("it has {} bytes, more than {}", status.st_size, most));
  return read_all(descriptor.get(), path.string(), most);
}

std::string read_standard_input(std::string_view what, std::uint64_t most) {
  return read_all(STDIN_FILENO, what, most);
}

struct LineReader::State {
  InputFile file;
  std::uint64_t position;    ///< position of the bytes after the buffer
  std::string buffer{};      ///< a whole number of blocks was read into it
  std::size_t begin = 0;     ///< begin of the bytes not yet returned
  std::uint64_t number = 0;  ///< number of the line returned last
};

LineReader::LineReader(const std::filesystem::path& path, std::uint64_t begin) {
  if (::access(path.c_str(), R_OK) != 0) fail_on("read", path, errno);
  state_.reset(new State{.file = InputFile(path), .position = begin});
  state_->position = std::min(begin, state_->file.size());
}

LineReader::~LineReader() = default;

bool LineReader::next(std::string_view& line) {
  State& s = *state_;
  constexpr std::size_t block = std::size_t{1} << 18;
  std::size_t unseen = s.begin;
  for (;;) {
    if (const std::size_t end = s.buffer.find('\n', unseen); end != std::string::npos) {
      line = std::string_view(s.buffer).substr(s.begin, end - s.begin);
      s.begin = end + 1;
      ++s.number;
      return true;
    }
    const std::size_t held = s.buffer.size() - s.begin;
    if (held > longest::line)
      throw std::runtime_error(fmt::format("{}:{}: a line of more than {} bytes", s.file.path().string(),
                                           s.number + 1, longest::line));
    const auto more = static_cast<std::size_t>(std::min<std::uint64_t>(block, s.file.size() - s.position));
    if (more == 0) return false;
    s.buffer.erase(0, std::exchange(s.begin, 0));
    s.buffer.resize(held + more);
    s.file.read(s.position, std::as_writable_bytes(std::span(s.buffer).subspan(held)));
    s.position += more;
    unseen = held;
  }
}

std::uint64_t LineReader::torn_bytes() const { return state_->buffer.size() - state_->begin; }

Lines read_lines(const std::filesystem::path& path) {
  const std::string content = read_file(path, longest::document);
  Lines lines;
  std::size_t begin = 0;
  for (std::size_t end = content.find('\n'); end != std::string::npos; end = content.find('\n', begin)) {
    lines.complete.push_back(content.substr(begin, end - begin));
    begin = end + 1;
  }
  lines.torn_bytes = content.size() - begin;
  return lines;
}

std::optional<LinesDigest> digest_lines(const std::filesystem::path& path) {
  if (!is_there(path)) return std::nullopt;
  LinesDigest found;
  Sha256 digest;
  LineReader lines(path);
  for (std::string_view line; lines.next(line); ++found.lines) {
    digest.update(line);
    digest.update("\n");
  }
  found.sha256 = digest.hex_digest();
  return found;
}

}  // namespace fp16lab
