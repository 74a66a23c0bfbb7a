#include "experiments/bench/environment.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "numerics/platform/highway_targets.hpp"
#include "numerics/text/message.hpp"
// After highway_targets.hpp, which selects the targets.
#include "hwy/targets.h"

namespace fp16lab::bench {

bool without_avx512() { return std::getenv("FP16LAB_BENCH_AVX2") != nullptr; }

void start_again_with_environment(char** argv) {
  constexpr const char* marker = "FP16LAB_BENCH_ENVIRONMENT";
  if (std::getenv(marker) != nullptr) return;
  setenv(marker, "set", 1);
  setenv("OPENBLAS_THREAD_TIMEOUT", "4", 0);
  setenv("OMP_WAIT_POLICY", "passive", 0);
  const char* core = std::getenv("FP16LAB_BENCH_SGEMM_CORE");
#if defined(__x86_64__)
  if (core == nullptr && without_avx512()) core = "Haswell";
  if (core == nullptr && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
    core = "SkylakeX";
#endif
  if (core != nullptr) setenv("OPENBLAS_CORETYPE", core, 1);
  execv("/proc/self/exe", argv);
  say("benchmark: cannot start again with its environment: {}",
      std::strerror(errno));  // go on with what there is
}

void choose_targets() {
  if (without_avx512()) hwy::DisableTargets(HWY_AVX3 | HWY_AVX3_DL);
}

}  // namespace fp16lab::bench
