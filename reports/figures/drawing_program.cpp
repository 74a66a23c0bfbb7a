#include "reports/figures/drawing_program.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <stdlib.h>  // mkdtemp, which is POSIX
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <set>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "numerics/files/disk/folder.hpp"

namespace fp16lab::reports {
namespace {

constexpr int exit_not_found = 127;
constexpr std::string_view passing_prefix = ".drawing-";

/// A folder that is locked until the descriptor is closed, by its owner or by the system when that is killed.
int locked(const std::filesystem::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0 || ::flock(descriptor, LOCK_EX | LOCK_NB) == 0) return descriptor;
  ::close(descriptor);
  return -1;
}

/// Removes what killed drawings left. A folder of the last seconds may be one whose owner has not locked it yet.
void remove_left_folders(const std::filesystem::path& parent) {
  std::error_code error;
  for (const std::filesystem::path& entry : entries_of(parent)) {
    if (!entry.filename().string().starts_with(passing_prefix) || !is_folder(entry)) continue;
    const auto written = std::filesystem::last_write_time(entry, error);
    if (error || written > std::filesystem::file_time_type::clock::now() - std::chrono::seconds(10)) continue;
    if (const int descriptor = locked(entry); descriptor >= 0) {
      std::filesystem::remove_all(entry, error);
      ::close(descriptor);
    }
  }
}

/// In the child, after fork: only async-signal-safe calls.
[[noreturn]] void become(char* const* arguments, const char* folder, const char* log) {
  if (::chdir(folder) != 0) ::_exit(126);
  const int descriptor = ::open(log, O_WRONLY | O_CREAT | O_TRUNC, 0666);
  const int nothing = ::open("/dev/null", O_RDONLY);
  if (descriptor < 0 || nothing < 0) ::_exit(126);
  ::dup2(nothing, 0);
  ::dup2(descriptor, 1);
  ::dup2(descriptor, 2);
  ::execvp(arguments[0], arguments);
  ::_exit(exit_not_found);
}

}  // namespace

PassingFolder::PassingFolder(const std::filesystem::path& inside) {
  std::error_code error;
  const std::filesystem::path parent = inside.empty() ? std::filesystem::temp_directory_path(error) : inside;
  if (error) throw std::runtime_error("there is no folder for temporary files: " + error.message());
  if (!inside.empty()) remove_left_folders(inside);
  std::string name = (parent / fmt::format("{}XXXXXX", passing_prefix)).string();
  if (::mkdtemp(name.data()) == nullptr)
    throw std::runtime_error(
        fmt::format("cannot make a folder in {}: {}", parent.string(), std::strerror(errno)));
  path_ = std::move(name);
  lock_ = locked(path_);
}

PassingFolder::~PassingFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
  if (lock_ >= 0) ::close(lock_);
}

Drawing draw(const std::vector<std::string>& command, const std::vector<std::filesystem::path>& inputs,
             const std::filesystem::path& folder, const std::string& log, std::vector<std::string>* made) {
  const std::filesystem::path where = folder.empty() ? "." : folder;
  const PassingFolder passing(where);
  std::set<std::filesystem::path> known{log};
  for (const std::filesystem::path& input : inputs) {
    std::error_code missing;  // which the program says
    std::filesystem::copy_file(input, passing.path() / input.filename(), missing);
    known.insert(input.filename());
  }
  std::vector<std::string> words = command;
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const pid_t child = ::fork();
  if (child < 0)
    throw std::runtime_error(fmt::format("cannot start {}: {}", command.front(), std::strerror(errno)));
  if (child == 0) become(arguments.data(), passing.path().c_str(), log.c_str());
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  const auto move = [&](const std::filesystem::path& name) {
    require_replaceable(where / name);
    std::error_code error;
    std::filesystem::rename(passing.path() / name, where / name, error);
    if (error)
      throw std::runtime_error(fmt::format("cannot write {}: {}", (where / name).string(), error.message()));
  };
  if (code == exit_not_found) return Drawing::not_installed;
  if (code != 0) {
    if (is_file(passing.path() / log)) move(log);
    return Drawing::failed;
  }
  for (const std::filesystem::path& file : entries_of(passing.path())) {
    if (!is_file(file) || known.contains(file.filename())) continue;
    move(file.filename());
    if (made != nullptr) made->push_back(file.filename().string());
  }
  if (is_file(where / log)) remove_file(where / log);  // left by an earlier failure
  return Drawing::done;
}

}  // namespace fp16lab::reports
