#include "experiments/app/build_info.hpp"

#include <sched.h>

#include <fstream>

#include "engine/parallel/communicator.hpp"
#include "numerics/files/run/run_folder.hpp"

#include "fp16lab_build_info.h"  // generated at build time: FP16LAB_GIT_HASH, FP16LAB_CXX_FLAGS

namespace fp16lab::experiments {

std::string git_hash() { return FP16LAB_GIT_HASH; }

std::string compiler_name() {
#if defined(__clang__)
  return std::string("Clang ") + __clang_version__;
#else
  return std::string("GCC ") + __VERSION__;
#endif
}

std::string version_line(const std::string& program) {
  return program + " " + FP16LAB_VERSION + " (" + git_hash() + ", " + compiler_name() + ")";
}

std::string compiler_flags() { return FP16LAB_CXX_FLAGS; }

std::string build_name() { return fp16lab::build_name(git_hash(), compiler_name(), compiler_flags()); }

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name"))
      if (const std::size_t colon = line.find(": "); colon != std::string::npos)
        return line.substr(colon + 2);
  return "unknown";
}

int default_threads() {
  if (engine::parallel::launch_of_environment().ranks > 1) return 1;  // a rank a processor
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

}  // namespace fp16lab::experiments
