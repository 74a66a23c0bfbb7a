// A cluster of Slurm for a test: three nodes of two processors each, all on this machine, with its own munge.
// As root, without systemd (Debian: slurm-wlm, munge). The destructor ends every process of it by its id.
#pragma once

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/spawn.hpp"

namespace fp16lab::testing_support {

class SlurmCluster {
 public:
  /// Empty where a cluster can be made; else what is missing.
  static std::string missing() {
    if (geteuid() != 0) return "a cluster of its own needs root";
    for (const char* const program :
         {"/usr/sbin/slurmctld", "/usr/sbin/slurmd", "/usr/bin/sbatch", "/usr/sbin/munged"})
      if (!std::filesystem::exists(program))
        return std::string(program) + " is not here (Debian: slurm-wlm, munge)";
    return "";
  }

  /// `more`: lines of slurm.conf.
  SlurmCluster(std::filesystem::path folder, const std::string& more) : folder_(std::move(folder)) {
    for (const char* const name : {"munge", "state", "spool", "spool/s1", "spool/s2", "spool/s3"})
      std::filesystem::create_directories(folder_ / name);
    std::filesystem::permissions(folder_ / "munge", std::filesystem::perms(0755));
    std::string key;
    std::random_device random;
    for (int i = 0; i < 1024; ++i) key += static_cast<char>(random());
    write(folder_ / "munge/key", key);
    std::filesystem::permissions(folder_ / "munge/key", std::filesystem::perms(0600));
    write(folder_ / "slurm.conf", configuration(more));
    const std::string munge = (folder_ / "munge").string();
    munged_ = start("/usr/sbin/munged", {"--foreground", "--force", "--key-file=" + munge + "/key",
                                         "--socket=" + munge + "/socket", "--pid-file=" + munge + "/pid",
                                         "--log-file=" + munge + "/log", "--seed-file=" + munge + "/seed"});
    for (int i = 0; i < 200 && !std::filesystem::exists(munge + "/socket"); ++i) sleep_ms(20);
    controller_ = start("/usr/sbin/slurmctld", {"-D", "-c", "-f", (folder_ / "slurm.conf").string()});
    for (const char* const node : {"s1", "s2", "s3"}) start_node(node);
  }
  ~SlurmCluster() {
    nodes_.clear();
    controller_.reset();
    for (const pid_t process : processes()) kill(process, SIGKILL);
    munged_.reset();
  }

  std::map<std::string, std::string> environment() const {
    return {{"SLURM_CONF", (folder_ / "slurm.conf").string()}};
  }
  /// One of Slurm's programs, which must not block for ever.
  std::string ask(std::vector<std::string> words, int seconds = 30) const {
    words.insert(words.begin(), std::to_string(seconds));
    return run_program("/usr/bin/timeout", words, folder_, environment()).out;
  }
  /// Are all three nodes there within a minute?
  bool is_up() const {
    for (int i = 0; i < 300; ++i, sleep_ms(200))
      if (ask({"sinfo", "--noheader", "--format=%D %t"}) == "3 idle\n") return true;
    return false;
  }

  void start_node(const std::string& name) {
    nodes_[name] = start("/usr/sbin/slurmd", {"-D", "-N", name, "-f", (folder_ / "slurm.conf").string()});
  }
  /// All processes of the node at once, as if its power went.
  void kill_node(const std::string& name) {
    nodes_.at(name)->signal(SIGKILL);
    nodes_.at(name)->wait();
    std::set<pid_t> of_node = processes(name), all = of_node;
    for (const pid_t process : of_node) {
      std::ifstream stat("/proc/" + std::to_string(process) + "/stat");
      std::string id, program, state;
      pid_t parent = 0;
      if (stat >> id >> program >> state >> parent && command_of(parent).starts_with("slurmstepd"))
        all.insert(parent);
    }
    for (const pid_t process : all) kill(process, SIGKILL);
  }
  std::string controller_log() const { return slurp(folder_ / "slurmctld.log"); }

 private:
  static void sleep_ms(int count) { std::this_thread::sleep_for(std::chrono::milliseconds(count)); }
  static void write(const std::filesystem::path& path, const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
  }
  static std::string command_of(pid_t process) {
    return slurp("/proc/" + std::to_string(process) + "/cmdline");
  }

  std::unique_ptr<Spawned> start(const std::string& program,
                                 const std::vector<std::string>& arguments) const {
    return std::make_unique<Spawned>(program, arguments, folder_, environment());
  }

  /// What runs with this cluster's slurm.conf in its environment; of one node where it is given: of its jobs.
  std::set<pid_t> processes(const std::string& node = "") const {
    std::set<pid_t> found;
    const std::string mark = "SLURM_CONF=" + (folder_ / "slurm.conf").string();
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const std::string name = entry.path().filename().string();
      if (name.find_first_not_of("0123456789") != std::string::npos || name == std::to_string(getpid()))
        continue;
      const std::string text = '\0' + slurp(entry.path() / "environ");
      const auto has = [&](const std::string& variable) {
        return text.find('\0' + variable + '\0') != std::string::npos;
      };
      if (has(mark) && (node.empty() || has("SLURMD_NODENAME=" + node))) found.insert(std::stoi(name));
    }
    return found;
  }

  std::string configuration(const std::string& more) const {
    std::string host(256, '\0');
    gethostname(host.data(), host.size() - 1);
    host.resize(host.find('\0'));
    const int port = 20000 + static_cast<int>(getpid() % 4000) * 10;
    std::ostringstream text;
    const std::string d = folder_.string();
    text << "ClusterName=t\nSlurmctldHost=" << host << "(127.0.0.1)\nSlurmctldPort=" << port
         << "\nSlurmUser=root\nSlurmdUser=root\nAuthType=auth/munge\nCredType=cred/munge\nAuthInfo=socket="
         << d << "/munge/socket,cred_expire=5\nStateSaveLocation=" << d << "/state\nSlurmdSpoolDir=" << d
         << "/spool/%n\nSlurmctldPidFile=" << d << "/slurmctld.pid\nSlurmdPidFile=" << d
         << "/spool/%n.pid\nSlurmctldLogFile=" << d << "/slurmctld.log\nSlurmdLogFile=" << d
         << "/spool/%n.log\nProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\n"
            "JobAcctGatherType=jobacct_gather/none\nAccountingStorageType=accounting_storage/none\n"
            "MpiDefault=none\nSwitchType=switch/none\n"
            "SchedulerParameters=sched_interval=2,bf_interval=2,batch_sched_delay=0,sched_min_interval=0\n"
            "SelectType=select/cons_tres\nSelectTypeParameters=CR_CPU\nSlurmdParameters=config_overrides\n"
            "ReturnToService=2\nSlurmdTimeout=4\nMessageTimeout=5\nKillWait=5\n"
         << more;
    for (int i = 1; i <= 3; ++i)
      text << "NodeName=s" << i << " NodeHostname=" << host << " NodeAddr=127.0.0.1 Port=" << port + i
           << " CPUs=2 RealMemory=1000 State=UNKNOWN\n";
    text << "PartitionName=p Nodes=s[1-3] Default=YES MaxTime=INFINITE State=UP\n";
    return text.str();
  }

  std::filesystem::path folder_;
  std::unique_ptr<Spawned> munged_, controller_;
  std::map<std::string, std::unique_ptr<Spawned>> nodes_;
};

}  // namespace fp16lab::testing_support
