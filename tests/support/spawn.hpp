// Running a program as a user would, with its output caught.
#pragma once

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace fp16lab::testing_support {

struct Finished {
  int exit_code = -1;  ///< 128 + signal where one killed it
  std::string out;
  std::string err;
  long peak_kb = 0;    ///< greatest resident set
  double seconds = 0;  ///< processor time, its own and that of the children that it waited for
};

inline std::string slurp(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// A program under way; `folder` takes its output files, which tests that run at the same time may share.
class Spawned {
 public:
  Spawned(const std::string& program, const std::vector<std::string>& arguments,
          const std::filesystem::path& folder, const std::map<std::string, std::string>& environment = {})
      : out_(folder / ("out." + std::to_string(getpid()) + "." + std::to_string(next_number()))),
        err_(out_.string() + ".err") {
    std::vector<std::string> text{program};
    text.insert(text.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    argv.reserve(text.size() + 1);
    for (std::string& argument : text) argv.push_back(argument.data());
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ < 0) throw std::runtime_error("fork");
    if (pid_ == 0) {
      // A shell that starts the tests in the background may have these signals ignored.
      for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) std::signal(number, SIG_DFL);
      for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
      const int out = open(out_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      const int err = open(err_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      dup2(out, STDOUT_FILENO);
      dup2(err, STDERR_FILENO);
      execv(argv[0], argv.data());
      _exit(127);
    }
  }
  Spawned(const Spawned&) = delete;
  Spawned& operator=(const Spawned&) = delete;
  ~Spawned() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
  }

  /// Does nothing where the program was already seen to have ended: its process id is gone, and kill(-1, ...)
  /// would reach every process of the user.
  void signal(int number) const {
    if (pid_ > 0) kill(pid_, number);
  }
  bool running() {
    if (pid_ <= 0) return false;
    if (wait4(pid_, &status_, WNOHANG, &used_) != pid_) return true;
    pid_ = -1;
    return false;
  }
  Finished wait() {
    while (running()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    Finished finished{WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_), slurp(out_),
                      slurp(err_), used_.ru_maxrss, seconds_of(used_.ru_utime) + seconds_of(used_.ru_stime)};
    std::error_code ignored;
    std::filesystem::remove(out_, ignored);
    std::filesystem::remove(err_, ignored);
    return finished;
  }

 private:
  static double seconds_of(const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  }
  static int next_number() {
    static int number = 0;
    return number++;
  }

  std::filesystem::path out_, err_;
  pid_t pid_ = -1;
  int status_ = 0;
  rusage used_{};
};

inline Finished run_program(const std::string& program, const std::vector<std::string>& arguments,
                            const std::filesystem::path& folder,
                            const std::map<std::string, std::string>& environment = {}) {
  return Spawned(program, arguments, folder, environment).wait();
}

}  // namespace fp16lab::testing_support
