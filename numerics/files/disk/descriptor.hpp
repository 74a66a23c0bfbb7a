// A file descriptor that closes itself, and the line that says why a path could not be used.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace fp16lab {

/// Closes what it holds; -1 is none.
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

/// std::runtime_error "cannot WHAT PATH: REASON".
[[noreturn]] inline void fail_on(std::string_view what, const std::filesystem::path& path,
                                 std::string_view reason) {
  throw std::runtime_error("cannot " + std::string(what) + " " + path.string() + ": " + std::string(reason));
}
/// The same with the system's reason, an errno.
[[noreturn]] inline void fail_on(std::string_view what, const std::filesystem::path& path, int error) {
  fail_on(what, path, std::strerror(error));
}

/// "a FIFO", "a symbolic link": what a mode of stat(2) is of; empty for a regular file.
inline std::string_view kind_of(mode_t mode) {
  return S_ISREG(mode)    ? ""
         : S_ISDIR(mode)  ? "a folder"
         : S_ISLNK(mode)  ? "a symbolic link"
         : S_ISFIFO(mode) ? "a FIFO"
         : S_ISSOCK(mode) ? "a socket"
         : S_ISBLK(mode)  ? "a block device"
                          : "a device";
}

}  // namespace fp16lab
