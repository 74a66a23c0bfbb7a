#include "reports/figures/drawing_program.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace fp16lab::reports {
namespace {

constexpr int exit_not_found = 127;

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

Drawing draw(const std::vector<std::string>& command, const std::filesystem::path& folder,
             const std::string& log) {
  std::vector<std::string> words = command;
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const std::string where = folder.empty() ? "." : folder.string();
  const pid_t child = ::fork();
  if (child < 0)
    throw std::runtime_error(fmt::format("cannot start {}: {}", command.front(), std::strerror(errno)));
  if (child == 0) become(arguments.data(), where.c_str(), log.c_str());
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  if (code == 0 || code == exit_not_found) std::filesystem::remove(std::filesystem::path(where) / log);
  return code == 0 ? Drawing::done : code == exit_not_found ? Drawing::not_installed : Drawing::failed;
}

}  // namespace fp16lab::reports
