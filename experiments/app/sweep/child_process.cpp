#include "experiments/app/sweep/child_process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <thread>

#include "experiments/app/exit_code.hpp"
#include "numerics/files/disk/folder.hpp"

namespace fp16lab::experiments {

std::filesystem::path fp16lab_program() {
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
  std::filesystem::path program = self.filename() == "fp16lab" ? self : self.parent_path() / "fp16lab";
  if (access(program.c_str(), X_OK) != 0)
    throw std::runtime_error(
        fmt::format("{}: not there or not executable; it is needed to run training", program.string()));
  return program;
}

std::filesystem::path program_called(const std::string& name) {
  const char* const set = std::getenv("PATH");
  std::string_view rest = set == nullptr ? "" : set;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find(':'), rest.size());
    const std::filesystem::path program = std::filesystem::path(rest.substr(0, end)) / name;
    if (is_file(program) && access(program.c_str(), X_OK) == 0) return program;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return {};
}

namespace {

/// In the child: what is caught has its default again, as after exec, SIGTERM even where it was ignored, and
/// nothing is blocked.
void uncatch_signals() {
  for (int number = 1; number < NSIG; ++number) {
    struct sigaction action {};
    if (sigaction(number, nullptr, &action) != 0) continue;
    if (action.sa_handler != SIG_IGN || number == SIGTERM) std::signal(number, SIG_DFL);
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

}  // namespace

ChildProcess::ChildProcess(const std::filesystem::path& program, const std::vector<std::string>& arguments,
                           int output) {
  // Everything is prepared before fork: between fork and exec only async-signal-safe calls are allowed.
  std::vector<std::string> text{program.string()};
  text.insert(text.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  argv.reserve(text.size() + 1);
  for (std::string& argument : text) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const pid_t parent = getpid();

  // A signal between fork and exec would set this program's flag in the child, and be lost.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  pid_ = fork();
  if (pid_ != 0) pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid_ < 0) throw std::runtime_error("cannot start a process: " + std::generic_category().message(errno));
  if (pid_ == 0) {
    uncatch_signals();
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(127);  // it died before prctl
    const int null = open("/dev/null", O_RDWR);
    if (null >= 0) {
      dup2(null, STDIN_FILENO);
      if (output < 0) dup2(null, STDOUT_FILENO);
    }
    if (output >= 0) {
      dup2(output, STDOUT_FILENO);
      dup2(output, STDERR_FILENO);
    }
    execv(argv[0], argv.data());
    _exit(127);
  }
}

ChildProcess::~ChildProcess() {
  if (pid_ <= 0 || status_) return;
  stop();
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
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
  ::kill(pid_, SIGTERM);
}

void ChildProcess::kill() {
  if (!status_) ::kill(-pid_, SIGKILL);
}

ProgramAnswer ask(const std::filesystem::path& program, const std::vector<std::string>& arguments) {
  using Clock = std::chrono::steady_clock;
  constexpr auto patience = std::chrono::minutes(2);
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0)
    throw std::runtime_error("cannot make a pipe: " + std::generic_category().message(errno));
  ChildProcess child(program, arguments, ends[1]);
  close(ends[1]);
  const auto start = Clock::now();
  ProgramAnswer answer;
  for (bool open = true; open && Clock::now() - start < patience;) {
    pollfd ready{.fd = ends[0], .events = POLLIN, .revents = 0};
    constexpr int milliseconds = 100;
    if (::poll(&ready, 1, milliseconds) <= 0) continue;
    std::array<char, 4096> block;
    const ssize_t count = read(ends[0], block.data(), block.size());
    if (count > 0) answer.text.append(block.data(), static_cast<std::size_t>(count));
    open = count > 0 || (count < 0 && errno == EINTR);
  }
  close(ends[0]);
  std::optional<int> status = child.poll();
  while (!status && Clock::now() - start < patience) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    status = child.poll();
  }
  if (!status)
    throw CommandError(ExitCode::run_failed,
                       fmt::format("{} gave no answer within two minutes", program.filename().string()));
  answer.status = *status;
  return answer;
}

}  // namespace fp16lab::experiments
