// What every fuzz target does: put the input where a reader finds it, and judge how the reader took it.
//
// A reader may accept or refuse; refusing means one std::runtime_error whose message is one printable line
// that begins with the file's path. Anything else (another exception, a second line, control characters from
// the file) ends the process, as what the sanitizers find does.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace fp16lab::fuzz {

[[noreturn]] inline void refuse(std::string_view why, std::string_view text) {
  std::fprintf(stderr, "fuzz: %.*s: %.*s\n", static_cast<int>(why.size()), why.data(),
               static_cast<int>(text.size()), text.data());
  std::abort();
}

/// A file in memory that has a path.
class MemoryFile {
 public:
  MemoryFile() : descriptor_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    if (descriptor_ < 0) refuse("memfd_create", "failed");
    path_ = "/proc/self/fd/" + std::to_string(descriptor_);
  }
  ~MemoryFile() { ::close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  void replace(std::span<const std::uint8_t> bytes) const {
    if (::ftruncate(descriptor_, 0) != 0 ||
        ::pwrite(descriptor_, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
      refuse("memfd", "cannot write");
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  int descriptor_;
  std::filesystem::path path_;
};

/// A folder of this process, in memory where there is /dev/shm, deleted at its end.
class Folder {
 public:
  Folder() {
    const std::filesystem::path base =
        std::filesystem::exists("/dev/shm") ? "/dev/shm" : std::filesystem::temp_directory_path();
    path_ = base / ("fp16lab-fuzz-" + std::to_string(::getpid()));
    std::filesystem::create_directories(path_);
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  void write(std::string_view name, std::string_view content) const {
    std::ofstream(path_ / name, std::ios::binary | std::ios::trunc) << content;
  }

 private:
  std::filesystem::path path_;
};

/// Runs `read`, which may refuse with an `Error` whose message begins with `beginning`.
template <class Error = std::runtime_error, class Read>
void expect_clean(std::string_view beginning, const Read& read) {
  try {
    read();
  } catch (const Error& error) {
    const std::string_view message = error.what();
    if (!message.starts_with(beginning)) refuse("the message does not name the file", message);
    if (message.size() == beginning.size()) refuse("the message says nothing", message);
    if (message.size() > 4000) refuse("the message is too long", message.substr(0, 4000));
    for (const char c : message)
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
        refuse("the message is not one printable line", message);
  }
}

inline std::string_view text_of(std::span<const std::uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace fp16lab::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
