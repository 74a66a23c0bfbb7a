#include "experiments/app/sweep/child_process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <stdexcept>
#include <system_error>

namespace fp16lab::experiments {

std::filesystem::path fp16lab_program() {
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
  std::filesystem::path program = self.filename() == "fp16lab" ? self : self.parent_path() / "fp16lab";
  if (access(program.c_str(), X_OK) != 0)
    throw std::runtime_error(
        fmt::format("{}: not there or not executable; it is needed to run training", program.string()));
  return program;
}

ChildProcess::ChildProcess(const std::filesystem::path& program, const std::vector<std::string>& arguments) {
  // Everything is prepared before fork: between fork and exec only async-signal-safe calls are allowed.
  std::vector<std::string> text{program.string()};
  text.insert(text.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  argv.reserve(text.size() + 1);
  for (std::string& argument : text) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const pid_t parent = getpid();

  pid_ = fork();
  if (pid_ < 0) throw std::runtime_error("cannot start a process: " + std::generic_category().message(errno));
  if (pid_ == 0) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(127);  // it died before prctl
    const int null = open("/dev/null", O_RDWR);
    if (null >= 0) {
      dup2(null, STDIN_FILENO);
      dup2(null, STDOUT_FILENO);
    }
    execv(argv[0], argv.data());
    _exit(127);
  }
  descriptor_ = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
}

ChildProcess::~ChildProcess() {
  if (descriptor_ >= 0) close(descriptor_);
  if (pid_ <= 0 || status_) return;
  stop();
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void ChildProcess::wait_any(const std::vector<const ChildProcess*>& children,
                            std::chrono::milliseconds most) {
  std::vector<pollfd> ends;
  ends.reserve(children.size());
  for (const ChildProcess* const child : children)
    ends.push_back({.fd = child->descriptor_, .events = POLLIN, .revents = 0});
  ::poll(ends.data(), ends.size(), static_cast<int>(most.count()));
}

std::optional<int> ChildProcess::poll() {
  if (status_) return status_;
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) != pid_) return std::nullopt;
  status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return status_;
}

void ChildProcess::stop() {
  if (asked_to_stop_ || status_) return;
  asked_to_stop_ = true;
  kill(pid_, SIGTERM);
}

}  // namespace fp16lab::experiments
