// The groups of cases in bench_numerics.
#pragma once

namespace fp16lab::bench {

void register_gemm_benchmarks(int threads);
void register_stream_benchmarks(int threads);

}  // namespace fp16lab::bench
