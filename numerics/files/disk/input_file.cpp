#include "numerics/files/disk/input_file.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace fp16lab {

InputFile::InputFile(std::filesystem::path path) : path_(std::move(path)) {
  // O_NONBLOCK: a pipe without a writer is refused below instead of waited for.
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) fail(fmt::format("cannot read: {}", std::strerror(errno)));
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(descriptor_);
    fail("not a regular file");
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
}

InputFile::~InputFile() { ::close(descriptor_); }

void InputFile::read(std::uint64_t offset, std::span<std::byte> out) const {
  if (offset > size_ || out.size() > size_ - offset)
    fail_at(size_,
            fmt::format("the file ends here; {} bytes from byte {} on were expected", out.size(), offset));
  while (!out.empty()) {
    const ssize_t count = ::pread(descriptor_, out.data(), out.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_at(offset, fmt::format("cannot read: {}", std::strerror(errno)));
    if (count == 0) fail_at(offset, "the file has become shorter while it was read");
    offset += static_cast<std::uint64_t>(count);
    out = out.subspan(static_cast<std::size_t>(count));
  }
}

void InputFile::fail(std::string_view what) const {
  throw std::runtime_error(fmt::format("{}: {}", path_.string(), what));
}

void InputFile::fail_at(std::uint64_t offset, std::string_view what) const {
  throw std::runtime_error(fmt::format("{}: byte {}: {}", path_.string(), offset, what));
}

}  // namespace fp16lab
