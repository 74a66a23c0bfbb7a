// A child process that is killed at one of its system calls, or to which one is refused: what a power switch, the
// OOM killer and a full disk do, at every place where they can.
#pragma once

#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <functional>
#include <stdexcept>

namespace fp16lab::testing_support {

struct Strike {
  int at = 0;                 ///< the call, counted from 1; 0: none
  int error = 0;              ///< what it fails with, and does not do; 0: the process is killed before it
  bool from_then_on = false;  ///< every later call of the kind fails with it too
  bool no_exchange = false;   ///< the file system does not know the flags of renameat2
};

struct Struck {
  int calls = 0;  ///< that were counted; fewer than Strike::at: nothing was struck
  bool killed = false;
  bool succeeded = false;  ///< `act` returned
};

#ifdef __x86_64__
inline constexpr bool can_strike = true;

/// Does `act` in a child process. Counted are its calls that look at, make, write, move or delete files.
inline Struck struck(const Strike& strike, const std::function<void()>& act) {
  constexpr std::array<unsigned long long, 24> counted{
      SYS_open,     SYS_openat,   SYS_mkdir,    SYS_mkdirat,    SYS_rmdir,     SYS_unlink,
      SYS_unlinkat, SYS_rename,   SYS_renameat, SYS_renameat2,  SYS_link,      SYS_linkat,
      SYS_write,    SYS_pwrite64, SYS_fsync,    SYS_fdatasync,  SYS_ftruncate, SYS_flock,
      SYS_stat,     SYS_lstat,    SYS_fstat,    SYS_newfstatat, SYS_statx,     SYS_getdents64};
  constexpr std::array<unsigned long long, 3> renames{SYS_rename, SYS_renameat, SYS_renameat2};
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("fork");
  if (child == 0) {
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(3);
    raise(SIGSTOP);
    try {
      act();
    } catch (const std::exception&) {
      _exit(1);
    }
    _exit(0);
  }
  Struck result;
  int status = 0;
  waitpid(child, &status, 0);
  if (!WIFSTOPPED(status)) throw std::runtime_error("a child process may not be traced here");
  ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
  bool entering = true;
  int refused_with = 0, signal = 0;
  unsigned long long kind = 0;
  for (;;) {
    ptrace(PTRACE_SYSCALL, child, nullptr, signal);
    waitpid(child, &status, 0);
    if (!WIFSTOPPED(status)) break;
    signal = WSTOPSIG(status) == (SIGTRAP | 0x80) ? 0 : WSTOPSIG(status);
    if (signal != 0) continue;
    user_regs_struct registers{};
    ptrace(PTRACE_GETREGS, child, nullptr, &registers);
    const auto is = [&](const auto& calls) {
      return std::find(calls.begin(), calls.end(), registers.orig_rax) != calls.end();
    };
    if (entering) {
      const bool hit = is(counted) && ++result.calls == strike.at;
      if (hit && strike.error == 0) {
        kill(child, SIGKILL);
        waitpid(child, &status, 0);
        result.killed = true;
        return result;
      }
      if (hit) kind = registers.orig_rax;
      const bool later = strike.from_then_on && kind != 0 && result.calls > strike.at &&
                         (registers.orig_rax == kind ||
                          (is(renames) && std::find(renames.begin(), renames.end(), kind) != renames.end()));
      refused_with = hit || later ? strike.error
                     : strike.no_exchange && registers.orig_rax == SYS_renameat2 && registers.r8 != 0 ? EINVAL
                                                                                                      : 0;
      if (refused_with != 0) {
        registers.orig_rax = static_cast<unsigned long long>(-1);
        ptrace(PTRACE_SETREGS, child, nullptr, &registers);
      }
    } else if (refused_with != 0) {
      registers.rax = static_cast<unsigned long long>(-refused_with);
      ptrace(PTRACE_SETREGS, child, nullptr, &registers);
    }
    entering = !entering;
  }
  result.succeeded = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  return result;
}
#else
inline constexpr bool can_strike = false;
inline Struck struck(const Strike&, const std::function<void()>&) {
  throw std::runtime_error("x86-64 alone");
}
#endif

}  // namespace fp16lab::testing_support
