// The groups of cases in bench_numerics.
#pragma once

namespace fp16lab::bench {

void register_elementary_benchmarks();  ///< one thread
void register_gemm_benchmarks(int threads);
void register_stream_benchmarks(int threads);

}  // namespace fp16lab::bench
