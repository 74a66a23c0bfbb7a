// Which machine the sources of this folder are compiled for.
//
// Every source under engine/backend/cuda/ is compiled up to twice: by nvcc for a GPU, and by the host's
// compiler for a machine that executes CUDA kernels thread by thread (engine/backend/cuda/cpu_simt/), so that
// index maps, barriers and launch plans are tested bit for bit where there is no GPU. Kernels are plain CUDA
// C++; what has no C++ spelling (tensor-core and asynchronous-copy instructions) is in
// engine/backend/cuda/runtime/instructions.hpp, and what the CUDA runtime does in
// engine/backend/cuda/runtime/runtime.hpp. Both builds have a namespace of their own and may live in one
// program:
//   namespace fp16lab::engine::FP16LAB_MACHINE { ... }
#pragma once

#if defined(FP16LAB_CPU_SIMT)
#define FP16LAB_MACHINE cpu_simt
#else
#define FP16LAB_MACHINE gpu
#endif
