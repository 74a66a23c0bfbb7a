#include "numerics/files/disk/atomic_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <optional>
#include <span>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "numerics/files/disk/descriptor.hpp"
#include "numerics/files/disk/folder.hpp"
#include "numerics/files/disk/input_file.hpp"

namespace fp16lab {
namespace {

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

bool is_same(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/// The place of an output that the user named.
struct Destination {
  std::filesystem::path path;  ///< without links
  int descriptor = -1;         ///< the process's own; -1: none, it is a file
  bool is_stream = false;      ///< a FIFO or a device, to be written into
  std::optional<mode_t> mode;  ///< mode of the regular file that is to be replaced
};

/// The number of a descriptor of this process that a path names: /dev/fd/3, /proc/self/fd/3; -1: none.
int descriptor_named(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  int number = -1;
  const auto [end, wrong] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (wrong != std::errc{} || end != name.data() + name.size() || number < 0) return -1;
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::canonical(path.parent_path(), error);
  if (error) return -1;
  for (const char* const own : {"/proc/self/fd", "/proc/thread-self/fd"})
    if (std::filesystem::canonical(own, error) == folder && !error) return number;
  return -1;
}

Destination destination_of(const std::filesystem::path& named) {
  std::filesystem::path path = named;
  constexpr int most_links = 40;  // as the kernel follows
  for (int link = 0; link <= most_links; ++link) {
    if (const int number = descriptor_named(path); number >= 0) {
      const int flags = ::fcntl(number, F_GETFL);
      if (flags < 0) fail_on("write to", named, "descriptor " + std::to_string(number) + " is not open");
      if ((flags & O_ACCMODE) == O_RDONLY)
        fail_on("write to", named, "descriptor " + std::to_string(number) + " is open for reading only");
      return {.path = path, .descriptor = number, .is_stream = true, .mode = {}};
    }
    struct stat status {};
    if (::lstat(path.c_str(), &status) != 0) {
      if (errno != ENOENT) fail_on("write", named, errno);
      return {.path = path, .descriptor = -1, .is_stream = false, .mode = {}};
    }
    if (S_ISREG(status.st_mode)) {
      for (const int own : {STDOUT_FILENO, STDERR_FILENO})
        if (struct stat other{}; ::fstat(own, &other) == 0 && is_same(status, other))
          fail_on("replace", named,
                  std::string("the standard ") + (own == STDOUT_FILENO ? "output" : "error") +
                      " of this program goes there, and would be lost");
      return {.path = path, .descriptor = -1, .is_stream = false, .mode = status.st_mode & mode_t{0777}};
    }
    if (S_ISFIFO(status.st_mode) || S_ISCHR(status.st_mode))
      return {.path = path, .descriptor = -1, .is_stream = true, .mode = {}};
    if (!S_ISLNK(status.st_mode))
      fail_on("write", named,
              "it is " + std::string(kind_of(status.st_mode)) +
                  "; expected a file, a pipe or a character device");
    std::error_code error;
    const std::filesystem::path target = std::filesystem::read_symlink(path, error);
    if (error) fail_on("write", named, error.value());
    path = path.parent_path() / target;
  }
  fail_on("write", named, ELOOP);
}

/// Opened for writing, and not emptied: what a user named is no file of ours.
int open_stream(const Destination& to, const std::filesystem::path& named) {
  const int descriptor = to.descriptor >= 0 ? ::fcntl(to.descriptor, F_DUPFD_CLOEXEC, 3)
                                            : ::open(to.path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY);
  if (descriptor < 0 && errno == EINTR)  // a signal came while a FIFO had no reader
    throw std::system_error(EINTR, std::generic_category(), "cannot write to " + named.string());
  if (descriptor < 0) fail_on("write to", named, errno);
  return descriptor;
}

/// The length of a file's terminated lines; 0 where there is no file.
std::uintmax_t terminated_length(const std::filesystem::path& path) {
  if (!is_there(path)) return 0;
  const InputFile file(path);
  std::string block(std::size_t{1} << 16, '\0');
  for (std::uint64_t end = file.size(); end > 0;) {
    block.resize(static_cast<std::size_t>(std::min<std::uint64_t>(end, block.size())));
    file.read(end - block.size(), std::as_writable_bytes(std::span(block)));
    if (const std::size_t newline = block.rfind('\n'); newline != std::string::npos)
      return end - block.size() + newline + 1;
    end -= block.size();
  }
  return 0;
}

/// Gives `take` the first `keep` bytes of a file, a piece at a time.
template <class Take>
void read_beginning(const std::filesystem::path& path, std::uintmax_t keep, Take take) {
  if (keep == 0) return;
  const InputFile file(path);
  std::string block(std::size_t{1} << 20, '\0');
  for (std::uint64_t done = 0; done < keep; done += block.size()) {
    block.resize(static_cast<std::size_t>(std::min<std::uint64_t>(keep - done, block.size())));
    file.read(done, std::as_writable_bytes(std::span(block)));
    take(block);
  }
}

/// Gives `path` a file of its own, with the first `keep` bytes of the one that it shares with other names.
void part_from_links(const std::filesystem::path& path, std::uintmax_t keep) {
  AtomicFile own(path);
  read_beginning(path, keep, [&own](std::string_view block) { own.append(block); });
  own.commit();
}

}  // namespace

// Two writers of one file never share a temporary one: the later rename wins, and each content is whole.
AtomicFile::AtomicFile(std::filesystem::path path, NamedBy named_by) : path_(std::move(path)) {
  std::optional<mode_t> mode;
  const std::filesystem::path named = path_;
  if (named_by == NamedBy::user) {
    Destination to = destination_of(path_);
    if (to.is_stream) {
      descriptor_ = open_stream(to, path_);
      return;
    }
    path_ = std::move(to.path);
    mode = to.mode;
  }
  const std::string name =
      path_.string() + std::string(temporary_mark) + host_name() + "-" + std::to_string(::getpid());
  constexpr int most = 1000;
  for (int number = 0; descriptor_ < 0 && number < most; ++number) {
    temporary_ = number == 0 ? name : name + "-" + std::to_string(number);
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor_ < 0 && errno != EEXIST) fail_on("write", named, errno);
  }
  if (descriptor_ < 0) fail_on("make a temporary file for", named, EEXIST);
  if (mode && ::fchmod(descriptor_, *mode) != 0) fail_and_discard("write", errno);
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
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::fail_and_discard(std::string_view what, int error) {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  fail_on(what, path_, error);
}

void AtomicFile::append(std::string_view piece) {
  if (descriptor_ < 0) throw std::logic_error("AtomicFile::append to " + path_.string() + " after its end");
  if (const int error = write_all(descriptor_, piece); error != 0) fail_and_discard("write", error);
}

void AtomicFile::sync_and_close() {
  if (descriptor_ < 0) throw std::logic_error("AtomicFile::commit of " + path_.string() + " after its end");
  if (!temporary_.empty() && ::fsync(descriptor_) != 0) fail_and_discard("sync", errno);
  if (::close(std::exchange(descriptor_, -1)) != 0) fail_and_discard("close", errno);
}

void AtomicFile::commit() {
  if (!temporary_.empty()) require_replaceable(path_);  // else the destructor discards
  sync_and_close();
  if (temporary_.empty()) return;
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail_and_discard("rename a complete file to", errno);
  sync_folder_of(path_);
}

void write_file_atomically(const std::filesystem::path& path, std::string_view content, NamedBy named_by) {
  AtomicFile file(path, named_by);
  file.append(content);
  file.commit();
}

void require_output(const std::filesystem::path& path) {
  const Destination to = destination_of(path);
  if (!to.is_stream)
    const AtomicFile made_and_discarded(path, NamedBy::user);
  else if (to.descriptor < 0 && ::access(to.path.c_str(), W_OK) != 0)
    fail_on("write to", path, errno);
}

bool writes_to_descriptor(const std::filesystem::path& path, int descriptor) {
  const Destination to = destination_of(path);
  if (to.descriptor == descriptor) return true;
  struct stat ours {
  }, other{};
  if (!to.is_stream || ::fstat(descriptor, &other) != 0) return false;
  if ((to.descriptor >= 0 ? ::fstat(to.descriptor, &ours) : ::lstat(to.path.c_str(), &ours)) != 0)
    return false;
  return is_same(ours, other) && !S_ISCHR(ours.st_mode);  // a terminal or /dev/null may serve several outputs
}

LineFile::LineFile(const std::filesystem::path& path, Mode mode)
    : LineFile(path, mode == Mode::append ? terminated_length(path) : 0) {}

LineFile::LineFile(std::filesystem::path path, std::uintmax_t keep) : path_(std::move(path)) {
  // O_NOFOLLOW, O_NONBLOCK: for what comes between the first look and the second.
  constexpr int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  for (;;) {
    require_replaceable(path_);
    Descriptor descriptor(::open(path_.c_str(), flags, 0666));
    if (descriptor.get() < 0) fail_on("write", path_, errno);
    struct stat status {};
    if (::fstat(descriptor.get(), &status) != 0) fail_on("write", path_, errno);
    if (!S_ISREG(status.st_mode)) fail_on("write", path_, "it is " + std::string(kind_of(status.st_mode)));
    if (status.st_nlink > 1) {
      part_from_links(path_, keep);
      continue;
    }
    if (::ftruncate(descriptor.get(), static_cast<off_t>(keep)) != 0) fail_on("truncate", path_, errno);
    read_beginning(path_, keep, [this](std::string_view block) { digest_.update(block); });
    descriptor_ = descriptor.release();
    return;
  }
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
  if (const int error = write_all(descriptor_, buffer_); error != 0) fail_on("append to", path_, error);
  digest_.update(buffer_);
}

std::string LineFile::sha256() const {
  Sha256 so_far = digest_;
  return so_far.hex_digest();
}

void LineFile::sync() {
  if (::fsync(descriptor_) != 0) fail_on("sync", path_, errno);
}

}  // namespace fp16lab
