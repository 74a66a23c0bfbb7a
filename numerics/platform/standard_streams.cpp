#include "numerics/platform/standard_streams.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>

namespace fp16lab {
namespace {

std::atomic<bool> output_was_closed = false;

/// How long, in milliseconds, text may wait for space on descriptors that do not block.
std::atomic<int> patience = 900;

/// Waits until there is space. False: there is none, or will be none.
bool wait_for_room(int descriptor) noexcept {
  constexpr int slice = 100;
  while (patience > 0) {
    pollfd room{.fd = descriptor, .events = POLLOUT, .revents = 0};
    const int ready = poll(&room, 1, slice);
    if (ready > 0) return (room.revents & POLLOUT) != 0;
    if (ready < 0 && errno != EINTR) return false;
    patience -= slice;
  }
  return false;
}

bool write_all(int descriptor, std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t written = write(descriptor, text.data(), text.size());
    if (written > 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (written == 0) {
      return errno = EIO, false;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_for_room(descriptor)) return errno = EAGAIN, false;
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

}  // namespace

void open_standard_descriptors() noexcept {
  for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; ++descriptor) {
    if (fcntl(descriptor, F_GETFD) >= 0 || errno != EBADF) continue;
    if (descriptor == STDOUT_FILENO) output_was_closed = true;
    // The lowest free one is what open gives.
    if (open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0) [[maybe_unused]]
      const int root = open("/", O_RDONLY | O_DIRECTORY);
  }
}

bool standard_output_was_closed() noexcept { return output_was_closed; }

bool write_text(int descriptor, std::string_view text) noexcept {
  sigset_t stop, before;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTTOU);
  const bool masked = pthread_sigmask(SIG_BLOCK, &stop, &before) == 0;
  const bool good = write_all(descriptor, text);
  const int reason = errno;
  if (masked) pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = reason;
  return good;
}

}  // namespace fp16lab
