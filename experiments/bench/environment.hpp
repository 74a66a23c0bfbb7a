// What a benchmark needs of its process before anything is timed.
#pragma once

namespace fp16lab::bench {

/// Measure as on a CPU without AVX-512 (FP16LAB_BENCH_AVX2 is set)?
bool without_avx512();

/// The thread pools of OpenBLAS and OpenMP read their environment before main: set it and start again. Both
/// pools spin after work by default and starve each other. OpenBLAS chooses its kernels by CPU model, and an
/// old one takes an AVX2 set on CPUs that it does not know, which would flatter us: on AVX-512 ask for that
/// set, whatever the environment says. FP16LAB_BENCH_SGEMM_CORE names another one. Call first in main.
void start_again_with_environment(char** argv);

/// Keeps our own kernels to the same instruction sets. Call before the first kernel.
void choose_targets();

}  // namespace fp16lab::bench
