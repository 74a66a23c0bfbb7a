// bench_numerics: rates of the numerics kernels as ratios to yardsticks timed in the same process.
//
// Options are Google Benchmark's, for example --benchmark_filter=hopper --benchmark_min_time=0.2
// With FP16LAB_BENCH_AVX2=1 in the environment everything runs as on a CPU without AVX-512, sgemm too.
#include "experiments/bench/bench_numerics.hpp"

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <thread>

#include "experiments/bench/environment.hpp"
#include "experiments/bench/ratio.hpp"
#include "experiments/bench/yardsticks.hpp"
#include "numerics/gemm/gemm.hpp"

int main(int argc, char** argv) {
  fp16lab::bench::start_again_with_environment(argv);
  fp16lab::bench::choose_targets();
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
