#include "reports/figures/gnuplot.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "numerics/files/disk/atomic_file.hpp"

namespace fp16lab::reports {
namespace {

constexpr int exit_not_found = 127;

/// In the child, after fork: only async-signal-safe calls.
[[noreturn]] void become_gnuplot(const char* program, const char* folder, const char* script,
                                 const char* log) {
  if (::chdir(folder) != 0) ::_exit(126);
  const int descriptor = ::open(log, O_WRONLY | O_CREAT | O_TRUNC, 0666);
  const int nothing = ::open("/dev/null", O_RDONLY);
  if (descriptor < 0 || nothing < 0) ::_exit(126);
  ::dup2(nothing, 0);
  ::dup2(descriptor, 1);
  ::dup2(descriptor, 2);
  ::execlp(program, program, script, static_cast<char*>(nullptr));
  ::_exit(exit_not_found);
}

}  // namespace

std::string run_gnuplot(const std::string& program, const std::filesystem::path& script) {
  const std::string folder = script.parent_path().empty() ? "." : script.parent_path().string();
  const std::string name = script.filename().string();
  const std::string log = name + ".log";
  const pid_t child = ::fork();
  if (child < 0) return fmt::format("cannot start {}: {}", program, std::strerror(errno));
  if (child == 0) become_gnuplot(program.c_str(), folder.c_str(), name.c_str(), log.c_str());
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  const std::filesystem::path log_path = std::filesystem::path(folder) / log;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
    std::filesystem::remove(log_path);
    return {};
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == exit_not_found) {
    std::filesystem::remove(log_path);
    return fmt::format("{} is not installed (Debian: gnuplot-nox); the figures' scripts and data are in {}",
                       program, folder);
  }
  return fmt::format("gnuplot failed on {}; its messages are in {}", script.string(), log_path.string());
}

void write_pair(const std::filesystem::path& folder, const std::string& stem, const std::string& data,
                const std::string& script) {
  write_file_atomically(folder / (stem + ".dat"), data);
  write_file_atomically(folder / (stem + ".gp"), script);
}

std::string draw_pair(const std::filesystem::path& folder, const std::string& stem, const std::string& data,
                      const std::string& script, const std::string& program) {
  std::filesystem::create_directories(folder);
  write_pair(folder, stem, data, script);
  return run_gnuplot(program, folder / (stem + ".gp"));
}

std::string gnuplot_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\' || c == '`') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out + "\"";
}

std::string gnuplot_lines(const std::vector<std::string>& lines) {
  std::string out;
  for (const std::string& line : lines) out += (out.empty() ? "" : ".\"\\n\".") + gnuplot_string(line);
  return out;
}

std::string gnuplot_bold(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (std::string_view("{}^_@&~").find(c) != std::string_view::npos) escaped += '\\';
    escaped += c;
  }
  return gnuplot_string("{/:Bold " + escaped + "}");
}

}  // namespace fp16lab::reports
