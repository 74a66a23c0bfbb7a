#include "numerics/files/disk/atomic_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <utility>

namespace fp16lab {
namespace {

[[noreturn]] void fail(std::string_view what, const std::filesystem::path& path, int error) {
  throw std::runtime_error("cannot " + std::string(what) + " " + path.string() + ": " + std::strerror(error));
}

/// A file descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return value_; }
  int release() { return std::exchange(value_, -1); }

 private:
  int value_;
};

int write_all(int descriptor, std::string_view data) {
  while (!data.empty()) {
    const ssize_t written = ::write(descriptor, data.data(), data.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    data.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

/// Letters, digits, '.' and '_' of this machine's name.
std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  std::string plain;
  for (const char c : std::string_view(name.data()))
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_') plain += c;
  return plain.empty() ? "host" : plain.substr(0, 64);
}

}  // namespace

void sync_folder_of(const std::filesystem::path& file) {
  const std::filesystem::path folder =
      file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
  const Descriptor descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (descriptor.get() < 0) fail("open folder", folder, errno);
  // Some file systems cannot sync a folder and say EINVAL; the rename is atomic all the same.
  if (::fsync(descriptor.get()) != 0 && errno != EINVAL) fail("sync folder", folder, errno);
}

// Two writers of one file never share a temporary one: the later rename wins, and each content is whole.
AtomicFile::AtomicFile(std::filesystem::path path) : path_(std::move(path)) {
  const std::string name =
      path_.string() + std::string(temporary_mark) + host_name() + "-" + std::to_string(::getpid());
  constexpr int most = 1000;
  for (int number = 0; descriptor_ < 0 && number < most; ++number) {
    temporary_ = number == 0 ? name : name + "-" + std::to_string(number);
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor_ < 0 && errno != EEXIST) fail("write", path_, errno);
  }
  if (descriptor_ < 0) fail("make a temporary file for", path_, EEXIST);
}

bool AtomicFile::is_temporary(std::string_view name, std::string_view& whole) {
  const std::size_t mark = name.rfind(temporary_mark);
  if (mark == std::string_view::npos) return false;
  whole = name.substr(0, mark);
  const std::string_view id = name.substr(mark + temporary_mark.size());
  const std::string_view last = id.substr(id.rfind('-') + 1);  // npos + 1 is 0
  return !last.empty() && last.find_first_not_of("0123456789") == std::string_view::npos;
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::fail_and_discard(std::string_view what, int error) {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
  ::unlink(temporary_.c_str());
  fail(what, path_, error);
}

void AtomicFile::append(std::string_view piece) {
  if (descriptor_ < 0) throw std::logic_error("AtomicFile::append to " + path_.string() + " after its end");
  if (const int error = write_all(descriptor_, piece); error != 0) fail_and_discard("write", error);
}

void AtomicFile::sync_and_close() {
  if (descriptor_ < 0) throw std::logic_error("AtomicFile::commit of " + path_.string() + " after its end");
  if (::fsync(descriptor_) != 0) fail_and_discard("sync", errno);
  if (::close(std::exchange(descriptor_, -1)) != 0) fail_and_discard("close", errno);
}

void AtomicFile::commit() {
  sync_and_close();
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail_and_discard("rename a complete file to", errno);
  sync_folder_of(path_);
}

bool AtomicFile::commit_new() {
  sync_and_close();
  int error = ::link(temporary_.c_str(), path_.c_str()) == 0 ? 0 : errno;
  if (error == EPERM || error == EOPNOTSUPP || error == ENOSYS) {  // a file system without links
    error =
        ::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, path_.c_str(), RENAME_NOREPLACE) == 0 ? 0 : errno;
  } else if (error != 0) {
    // A server whose answer was lost has made the link all the same, and was asked again.
    struct stat made {};
    if (::stat(temporary_.c_str(), &made) == 0 && made.st_nlink == 2) error = 0;
  }
  if (error != 0 && error != EEXIST) fail_and_discard("link a complete file to", error);
  ::unlink(temporary_.c_str());
  if (error == 0) sync_folder_of(path_);
  return error == 0;
}

void write_file_atomically(const std::filesystem::path& path, std::string_view content) {
  AtomicFile file(path);
  file.append(content);
  file.commit();
}

void make_folder_durably(const std::filesystem::path& folder) {
  if (::mkdir(folder.c_str(), 0777) == 0)
    sync_folder_of(folder);  // syncs the parent, which holds its name
  else if (errno != EEXIST)
    fail("make folder", folder, errno);
}

std::string read_file(const std::filesystem::path& path) {
  const Descriptor descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (descriptor.get() < 0) fail("read", path, errno);
  std::string content;
  std::array<char, 65536> block;
  for (;;) {
    const ssize_t count = ::read(descriptor.get(), block.data(), block.size());
    if (count < 0) {
      if (errno == EINTR) continue;
      fail("read", path, errno);
    }
    if (count == 0) return content;
    content.append(block.data(), static_cast<std::size_t>(count));
  }
}

namespace {

/// Length of a file's terminated lines.
std::uintmax_t terminated_length(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) return 0;
  const std::string content = read_file(path);
  const std::size_t last_newline = content.rfind('\n');
  return last_newline == std::string::npos ? 0 : last_newline + 1;
}

}  // namespace

LineFile::LineFile(const std::filesystem::path& path, Mode mode)
    : LineFile(path, mode == Mode::append ? terminated_length(path) : 0) {}

LineFile::LineFile(std::filesystem::path path, std::uintmax_t keep) : path_(std::move(path)) {
  Descriptor descriptor(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (descriptor.get() < 0) fail("write", path_, errno);
  if (::ftruncate(descriptor.get(), static_cast<off_t>(keep)) != 0) fail("truncate", path_, errno);
  if (keep > 0) digest_.update(read_file(path_));
  descriptor_ = descriptor.release();
}

LineFile::~LineFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

LineFile::LineFile(LineFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      digest_(other.digest_) {}

LineFile& LineFile::operator=(LineFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(digest_, other.digest_);
  return *this;
}

void LineFile::append(std::string_view line) {
  if (line.find('\n') != std::string_view::npos)
    throw std::invalid_argument("a line for " + path_.string() + " holds a line break");
  buffer_.assign(line);
  buffer_ += '\n';
  if (const int error = write_all(descriptor_, buffer_); error != 0) fail("append to", path_, error);
  digest_.update(buffer_);
}

std::string LineFile::sha256() const {
  Sha256 so_far = digest_;
  return so_far.hex_digest();
}

void LineFile::sync() {
  if (::fsync(descriptor_) != 0) fail("sync", path_, errno);
}

Lines read_lines(const std::filesystem::path& path) {
  const std::string content = read_file(path);
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
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  LinesDigest found;
  Sha256 all, terminated;  // `all` may be in the middle of a line
  std::array<char, 65536> block;
  do {
    file.read(block.data(), block.size());
    const std::string_view piece(block.data(), static_cast<std::size_t>(file.gcount()));
    found.lines += static_cast<std::uint64_t>(std::count(piece.begin(), piece.end(), '\n'));
    const std::size_t end = piece.rfind('\n') + 1;  // npos + 1 is 0
    all.update(piece.substr(0, end));
    if (end > 0) terminated = all;
    all.update(piece.substr(end));
  } while (file);
  found.sha256 = terminated.hex_digest();
  return found;
}

}  // namespace fp16lab
