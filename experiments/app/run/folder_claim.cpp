#include "experiments/app/run/folder_claim.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <random>
#include <sstream>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "experiments/app/exit_code.hpp"
#include "experiments/app/process.hpp"
#include "numerics/files/disk/atomic_file.hpp"
#include "numerics/files/disk/folder.hpp"
#include "numerics/files/disk/read_file.hpp"
#include "numerics/files/run/record_json.hpp"
#include "numerics/files/run/run_schema.hpp"
#include "numerics/text/message.hpp"
#include "numerics/text/nesting.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab::experiments {
namespace {

using Clock = std::chrono::steady_clock;

/// The start of a process in clock ticks since boot; nothing if it is not there, or ended and is not reaped.
std::optional<std::uint64_t> start_of(std::int64_t process) {
  std::string stat;
  try {
    stat = read_file(fmt::format("/proc/{}/stat", process));
  } catch (const std::runtime_error&) {
    return std::nullopt;
  }
  // "PID (name) state ...": the start is field 22, and a name may hold anything.
  const std::size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(stat.substr(name_end + 1));
  std::string state, skipped;
  fields >> state;
  if (state == "Z" || state == "X") return std::nullopt;
  constexpr int between = 22 - 3 - 1;  // behind the state, which is field 3
  for (int i = 0; i < between; ++i) fields >> skipped;
  std::uint64_t start = 0;
  if (!(fields >> start)) return std::nullopt;
  return start;
}

/// This boot and this name space of process ids; empty where the system does not say.
std::string this_machine() {
  std::error_code error;
  const std::filesystem::path space = std::filesystem::read_symlink("/proc/self/ns/pid", error);
  try {
    std::string boot = read_file("/proc/sys/kernel/random/boot_id");
    boot.erase(boot.find_last_not_of('\n') + 1);
    return error ? "" : boot + " " + space.string();
  } catch (const std::runtime_error&) {
    return "";
  }
}

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return printable(name.data());
}

/// "host node7, process 4711, since 2026-11-23T09:00:00Z", or what is there instead.
std::string described(const std::string& text) {
  const std::optional<Claimant> claimant = parse_claimant(text);
  if (!claimant) return fmt::format("{} is no claim of this program", run_file::claim);
  return fmt::format("host {}, process {}, since {}", printable(claimant->host), claimant->process,
                     printable(claimant->since));
}

/// Whoever replaces or removes the claim of this name makes one of that name first.
std::filesystem::path next_of(const std::filesystem::path& path) { return path.string() + ".next"; }

/// Waits, unless a signal asks the program to end.
void pause(std::chrono::milliseconds time, const std::filesystem::path& folder) {
  if (interrupted())
    throw CommandError(
        ExitCode::interrupted,
        fmt::format("--out: {}: interrupted while another's claim was watched", folder.string()));
  std::this_thread::sleep_for(time);
}

}  // namespace

Claimant this_claimant() {
  std::random_device random;
  Claimant self{.host = host_name(),
                .machine = this_machine(),
                .process = getpid(),
                .process_start = start_of(getpid()).value_or(0),
                .since = utc_now()};
  for (int i = 0; i < 4; ++i) self.token += fmt::format("{:08x}", random());
  return self;
}

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

/// A claim's file at one moment.
struct FolderClaim::Sight {
  std::string text;
  timespec renewed{};
  bool operator==(const Sight& other) const {
    return text == other.text && renewed.tv_sec == other.renewed.tv_sec &&
           renewed.tv_nsec == other.renewed.tv_nsec;
  }

  /// Opened anew each time: that is when a network file system asks its server. Nothing where there is none.
  /// What is no regular file is no claim of anybody: it is refused.
  static std::optional<Sight> of(const std::filesystem::path& path) {
    const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (descriptor < 0 && (errno == ENOENT || errno == ESTALE)) return std::nullopt;
    if (descriptor < 0 && errno == ELOOP) refuse(path);
    if (descriptor < 0)
      throw CommandError(ExitCode::run_failed, fmt::format("cannot read {}: {}", path.string(),
                                                           std::generic_category().message(errno)));
    Sight sight;
    struct stat now {};
    std::array<char, 4096> block;
    bool good = fstat(descriptor, &now) == 0;
    if (good && !S_ISREG(now.st_mode)) {
      close(descriptor);
      refuse(path);
    }
    for (ssize_t count = 1; good && count > 0;) {
      count = read(descriptor, block.data(), block.size());
      good = count >= 0;
      if (count > 0) sight.text.append(block.data(), static_cast<std::size_t>(count));
      if (sight.text.size() > block.size()) break;  // no claim is so long
    }
    close(descriptor);
    if (!good) return std::nullopt;  // removed on the server meanwhile
    sight.renewed = now.st_mtim;
    return sight;
  }

  [[noreturn]] static void refuse(const std::filesystem::path& path) {
    throw CommandError(
        ExitCode::run_failed,
        fmt::format("--out: {}: not a regular file, so no claim of this program; remove it, or "
                    "choose another folder",
                    path.string()));
  }
};

std::optional<Claimant> claimant_of(const std::filesystem::path& folder) {
  try {
    return parse_claimant(read_file(folder / run_file::claim));
  } catch (const std::runtime_error&) {
    return std::nullopt;
  }
}

FolderClaim::FolderClaim(std::filesystem::path folder, std::string_view other, const Claimant& self,
                         Timing timing, Renewal renewal)
    : folder_(std::move(folder)),
      path_(folder_ / run_file::claim),
      self_(self),
      text_(to_json(self)),
      timing_(timing) {
  acquire(other);
  descriptor_ = open(path_.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (!held()) {  // between two lines of this function somebody waited for longer than the patience
    if (descriptor_ >= 0) close(std::exchange(descriptor_, -1));
    require_held();
  }
  if (renewal == Renewal::by_thread) begin_renewal();
}

FolderClaim::~FolderClaim() {
  if (renewal_.joinable()) {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    wake_.notify_all();
    renewal_.join();
  }
  release();
  close(descriptor_);
  if (made_folder_) rmdir(folder_.c_str());  // only where it is empty
}

void FolderClaim::make_folder() {
  const auto fail = [&](std::string_view what, int error) {
    throw CommandError(ExitCode::run_failed, fmt::format("--out: {}: {}: {}", folder_.string(), what,
                                                         std::generic_category().message(error)));
  };
  std::error_code error;
  const std::filesystem::path plain = folder_.has_filename() ? folder_ : folder_.parent_path();
  made_folder_ = std::filesystem::create_directories(plain, error) || made_folder_;
  if (error) fail("cannot make this folder", error.value());
  if (access(folder_.c_str(), W_OK | X_OK) != 0 && errno != ENOENT) fail("is not writable", errno);
}

/// False if there is one already, or if the folder went away with its last owner.
bool FolderClaim::make(const std::filesystem::path& path) const {
  try {
    AtomicFile file(path);
    file.append(text_);
    return file.commit_new();
  } catch (const std::runtime_error& error) {
    if (is_there(folder_)) throw CommandError(ExitCode::run_failed, fmt::format("--out: {}", error.what()));
    return false;
  }
}

FolderClaim::Verdict FolderClaim::judge(const std::filesystem::path& path, const Sight& now,
                                        Watch& watch) const {
  const std::optional<Claimant> owner = parse_claimant(now.text);
  if (owner && !self_.machine.empty() && owner->machine == self_.machine)
    return start_of(owner->process) == owner->process_start ? Verdict::alive : Verdict::dead;
  const auto& [first, since] = watch.try_emplace(path, now, Clock::now()).first->second;
  if (now != first) return Verdict::alive;
  return Clock::now() - since < timing_.patience ? Verdict::unknown : Verdict::unseen;
}

/// Puts this claim in the place of a stale one. False if somebody else was faster, or is about to.
bool FolderClaim::replace(const std::filesystem::path& path, const Sight& stale, Watch& watch) const {
  const std::filesystem::path next = next_of(path);
  if (!make(next)) {
    const std::optional<Sight> follower = Sight::of(next);
    if (!follower || !is_stale(judge(next, *follower, watch)) || !replace(next, *follower, watch))
      return false;
  }
  const bool still = Sight::of(path) == stale;
  if (still) {
    AtomicFile file(path);
    file.append(text_);
    file.commit();
  }
  unlink(next.c_str());
  return still;
}

void FolderClaim::acquire(std::string_view other) {
  const auto poll = std::max(timing_.renewal / 20, std::chrono::milliseconds(1));
  Watch watch;
  bool told = false;
  for (int vanished = 0;; pause(poll, folder_)) {
    make_folder();
    if (make(path_)) return;
    const std::optional<Sight> now = Sight::of(path_);
    if (!now) {  // its owner has just ended
      constexpr int most = 1000;
      if (++vanished == most)
        throw CommandError(ExitCode::run_failed, fmt::format("--out: {}: {} comes and goes again and again",
                                                             folder_.string(), path_.filename().string()));
      continue;
    }
    const Verdict verdict = judge(path_, *now, watch);
    if (verdict == Verdict::alive)
      throw CommandError(ExitCode::usage,
                         fmt::format("--out: {}: {} ({})", folder_.string(), other, described(now->text)));
    if (is_stale(verdict) && replace(path_, *now, watch)) {
      took_over_unseen_ = verdict == Verdict::unseen;
      return;
    }
    if (verdict == Verdict::unknown && !std::exchange(told, true))
      say("fp16lab: {}: claimed ({}); for up to {} s it is watched for a sign of life", folder_.string(),
          described(now->text), std::chrono::duration_cast<std::chrono::seconds>(timing_.patience).count());
  }
}

bool FolderClaim::held() const {
  const std::optional<Sight> now = Sight::of(path_);
  return now && now->text == text_;
}

void FolderClaim::require_held() const {
  const std::optional<Sight> now = Sight::of(path_);
  if (now && now->text == text_) return;
  throw CommandError(
      ExitCode::run_failed,
      fmt::format("{}: this process was overtaken ({}) and writes nothing more there", folder_.string(),
                  now ? described(now->text) : fmt::format("{} is gone", run_file::claim)));
}

void FolderClaim::renew() {
  if (Clock::now() - renewed_ < timing_.renewal) return;
  renewed_ = Clock::now();
  futimens(descriptor_, nullptr);  // where that fails, the claim ages, and held() finds out
}

void FolderClaim::begin_renewal() {
  // Signals are for the thread that works: it is its waiting that they end.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  renewal_ = std::thread([this] {
    std::unique_lock lock(mutex_);
    while (!wake_.wait_for(lock, timing_.renewal, [this] { return ended_; })) renew();
  });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void FolderClaim::release() noexcept {
  try {
    const std::filesystem::path next = next_of(path_);
    if (!make(next)) return;  // somebody is taking it over
    if (held()) unlink(path_.c_str());
    unlink(next.c_str());
  } catch (const std::exception&) {
    // It ages.
  }
}

}  // namespace fp16lab::experiments
