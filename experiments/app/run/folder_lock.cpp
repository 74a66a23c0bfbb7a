#include "experiments/app/run/folder_lock.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include "experiments/app/exit_code.hpp"

namespace fp16lab::experiments {
namespace {

/// Does the open folder still have this name? Whoever held the lock before may have removed the folder, and
/// somebody else may have made another one: a lock on what nobody can find keeps nobody out.
bool still_named(int descriptor, const std::filesystem::path& folder) {
  struct stat open_one {
  }, named{};
  return fstat(descriptor, &open_one) == 0 && stat(folder.c_str(), &named) == 0 &&
         open_one.st_dev == named.st_dev && open_one.st_ino == named.st_ino;
}

}  // namespace

FolderLock::FolderLock(const std::filesystem::path& folder, std::string_view other, Flock flock) {
  if (flock == nullptr) flock = ::flock;
  const auto fail = [&](ExitCode code, std::string_view what) {
    release();
    throw CommandError(code, fmt::format("--out: {}: {}", folder.string(), what));
  };
  const auto fail_with = [&](std::string_view what, int error) {
    fail(ExitCode::run_failed, fmt::format("{}: {}", what, std::generic_category().message(error)));
  };
  constexpr int attempts = 100;
  for (int attempt = 0; attempt < attempts; ++attempt) {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error) fail_with("cannot make this folder", error.value());
    descriptor_ = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor_ < 0 && errno == ENOENT) continue;  // removed again by whoever held it
    if (descriptor_ < 0) fail_with("cannot open this folder", errno);
    if (flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK) fail(ExitCode::usage, other);
      fail_with("cannot lock this folder", errno);
    }
    if (still_named(descriptor_, folder)) {
      if (access(folder.c_str(), W_OK | X_OK) != 0) fail_with("is not writable", errno);
      return;
    }
    release();
  }
  fail(ExitCode::run_failed, "other processes remove this folder again and again");
}

void FolderLock::release() {
  if (descriptor_ >= 0) close(std::exchange(descriptor_, -1));
}

}  // namespace fp16lab::experiments
