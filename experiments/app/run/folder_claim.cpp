#include "experiments/app/run/folder_claim.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>

#include "experiments/app/exit_code.hpp"
#include "numerics/files/disk/read_file.hpp"
#include "numerics/files/run/record_json.hpp"
#include "numerics/files/run/run_schema.hpp"
#include "numerics/text/message.hpp"
#include "numerics/text/nesting.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab::experiments {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return printable(name.data());
}

std::string reason(int error) { return std::generic_category().message(error); }

/// "host node7, process 4711, since 2026-11-23T09:00:00Z".
std::string described(const Claimant& claimant) {
  return fmt::format("host {}, process {}, since {}", printable(claimant.host), claimant.process,
                     printable(claimant.since));
}

}  // namespace

Claimant this_claimant() { return {.host = host_name(), .process = getpid(), .since = utc_now()}; }

std::string to_json(const Claimant& claimant) { return run_json::to_json_line(claimant) + "\n"; }

std::optional<Claimant> parse_claimant(std::string_view text) {
  try {
    Claimant claimant;
    run_json::read_members(parse_json(text), claimant);
    return claimant;
  } catch (const std::runtime_error&) {
    return std::nullopt;
  }
}

std::optional<Claimant> claimant_of(const std::filesystem::path& folder) {
  try {
    return parse_claimant(read_file(folder / run_file::claim));
  } catch (const std::runtime_error&) {
    return std::nullopt;
  }
}

FolderClaim::FolderClaim(std::filesystem::path folder)
    : folder_(std::move(folder)), path_(folder_ / run_file::claim) {}

FolderClaim::FolderClaim(const std::filesystem::path& folder, std::string_view other) : FolderClaim(folder) {
  std::optional<Claimant> owner;
  // The file of an owner that is ending may go away, and one that has just begun may not yet be written.
  constexpr int most = 1000;
  for (int tries = 0; !lock(); ++tries) {
    owner = claimant_of(folder_);
    if (owner || tries == most)
      throw CommandError(ExitCode::usage,
                         fmt::format("--out: {}: {} ({})", folder_.string(), other,
                                     owner ? described(*owner) : "claim.json does not say which"));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const Claimant self = this_claimant();
  if (owner = claimant_of(folder_); owner && owner->host != self.host)
    say("fp16lab: {}: taken over from a process that no longer holds its lock ({})", folder_.string(),
        described(*owner));
  const std::string text = to_json(self);
  if (ftruncate(descriptor_, 0) != 0 ||
      write(descriptor_, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    fail(fmt::format("cannot write {}: {}", run_file::claim, reason(errno)));
}

FolderClaim::~FolderClaim() {
  if (descriptor_ >= 0 && is_in_folder()) unlink(path_.c_str());
  if (descriptor_ >= 0) close(descriptor_);
  if (made_folder_) rmdir(folder_.c_str());  // only where it is empty
}

void FolderClaim::fail(const std::string& what) const {
  throw CommandError(ExitCode::run_failed, fmt::format("--out: {}: {}", folder_.string(), what));
}

void FolderClaim::make_folder() {
  std::error_code error;
  const std::filesystem::path plain = folder_.has_filename() ? folder_ : folder_.parent_path();
  made_folder_ = std::filesystem::create_directories(plain, error) || made_folder_;
  if (error) fail("cannot make this folder: " + error.message());
  if (access(folder_.c_str(), W_OK | X_OK) != 0 && errno != ENOENT) fail("is not writable: " + reason(errno));
}

/// Does the name still mean the file that is open here?
bool FolderClaim::is_in_folder() const {
  struct stat named {
  }, ours{};
  return lstat(path_.c_str(), &named) == 0 && fstat(descriptor_, &ours) == 0 && named.st_dev == ours.st_dev &&
         named.st_ino == ours.st_ino;
}

bool FolderClaim::lock() {
  make_folder();
  constexpr mode_t everybody = 0666;  // as far as the umask allows
  descriptor_ = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, everybody);
  if (descriptor_ < 0 && errno == ENOENT) return false;  // the folder went away with its last owner
  struct stat file {};
  if (descriptor_ < 0 ? errno == ELOOP || errno == EISDIR || errno == ENXIO
                      : fstat(descriptor_, &file) == 0 && !S_ISREG(file.st_mode)) {
    if (descriptor_ >= 0) close(std::exchange(descriptor_, -1));
    throw CommandError(ExitCode::run_failed, fmt::format("--out: {}: not a regular file, so not written by "
                                                         "this program; remove it, or choose another folder",
                                                         path_.string()));
  }
  if (descriptor_ < 0) fail(fmt::format("cannot open {}: {}", run_file::claim, reason(errno)));
  int error = flock(descriptor_, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
  if (error == ENOSYS || error == EOPNOTSUPP || error == ENOLCK) {
    say("fp16lab: {}: warning: this file system does not support locks ({}), so a second process that writes "
        "there is not refused",
        folder_.string(), reason(error));
    error = 0;
  }
  if (error == 0 && is_in_folder()) return true;
  close(std::exchange(descriptor_, -1));
  if (error != 0 && error != EWOULDBLOCK && error != EINTR)
    fail(fmt::format("cannot lock {}: {}", run_file::claim, reason(error)));
  return false;
}

}  // namespace fp16lab::experiments
