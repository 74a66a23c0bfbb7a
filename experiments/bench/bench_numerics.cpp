// bench_numerics: rates of the numerics kernels as ratios to yardsticks timed in the same process.
//
// Options are Google Benchmark's, for example --benchmark_filter=hopper --benchmark_min_time=0.2
// With FP16LAB_BENCH_AVX2=1 in the environment everything runs as on a CPU without AVX-512, sgemm too.
#include "experiments/bench/bench_numerics.hpp"

#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <thread>

#include "experiments/bench/ratio.hpp"
#include "experiments/bench/yardsticks.hpp"
#include "numerics/gemm.hpp"
#include "numerics/highway_targets.hpp"
// After highway_targets.hpp, which selects the targets.
#include "hwy/targets.h"

namespace {

/// Measure as on a CPU without AVX-512?
bool without_avx512() { return std::getenv("FP16LAB_BENCH_AVX2") != nullptr; }

/// The thread pools of OpenBLAS and OpenMP read their environment before main: set it and start again. Both
/// pools spin after work by default and starve each other. OpenBLAS chooses its kernels by CPU model, and an
/// old one takes an AVX2 set on CPUs that it does not know, which would flatter us: on AVX-512 ask for that
/// set, whatever the environment says. FP16LAB_BENCH_SGEMM_CORE names another one.
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
  std::perror("bench_numerics: cannot start again with its environment");  // go on with what there is
}

}  // namespace

int main(int argc, char** argv) {
  start_again_with_environment(argv);
  if (without_avx512()) hwy::DisableTargets(HWY_AVX3 | HWY_AVX3_DL);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::AddCustomContext("gemm_target", fp16lab::gemm_target_name());
  benchmark::AddCustomContext("sgemm_core", fp16lab::bench::sgemm_core());
  for (const int threads : {1, 2}) {
    if (threads > static_cast<int>(std::thread::hardware_concurrency())) continue;
    fp16lab::bench::register_gemm_benchmarks(threads);
    fp16lab::bench::register_stream_benchmarks(threads);
  }
  fp16lab::bench::register_elementary_benchmarks();
  benchmark::RunSpecifiedBenchmarks();
  fmt::print("\n{}", fp16lab::bench::summary());
  benchmark::Shutdown();
  return 0;
}
