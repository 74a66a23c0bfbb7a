// The CUDA back end on the host machine: the kernels that a GPU would run, executed thread by thread on the
// CPU. For tests, and for rehearsing what a GPU is to do; slow, and no evidence about any GPU.
// It stays beside the PTX machine because machines without nvcc, and sanitizers, test kernels too.
#pragma once

#include <cstddef>
#include <memory>

#include "engine/backend/backend.hpp"
#include "engine/backend/cuda/cpu_simt/executor.hpp"
#include "engine/backend/cuda/cuda_backend.hpp"
#include "engine/backend/cuda/library/product_library.hpp"
#include "engine/tensor/storage.hpp"

namespace fp16lab::engine::cpu_simt {

/// `options` as for make_cuda_backend; options.tensor_core names the generation that the machine pretends to
/// be ("auto": hopper): its tensor cores, capability and shared memory, and of turing its instructions. The
/// schedule holds for this thread of the host. `make_library`: what to put in cuBLASLt's place; empty: our
/// own kernels only.
std::unique_ptr<Backend> make_cuda_backend_on_cpu(const CudaOptions& options = {},
                                                  Schedule schedule = Schedule::ascending,
                                                  const ProductLibraryFactory& make_library = {});
/// Launches of this thread of the host opt in to shared memory by this rule from now on; null: by their own
/// (Launch::opts_in).
void replace_opt_in(bool (*opts_in)(std::size_t static_bytes, std::size_t dynamic_bytes));
/// Memory that tensors of that back end may lie in: host memory that says it is not, and that begins as
/// garbage.
std::unique_ptr<MemoryResource> make_pretended_device_memory();

}  // namespace fp16lab::engine::cpu_simt
