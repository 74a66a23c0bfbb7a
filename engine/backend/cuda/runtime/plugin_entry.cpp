// The one function that libfp16lab_cuda.so exports (plugin.hpp).
#include "engine/backend/cuda/runtime/plugin.hpp"
#include "engine/backend/cuda/verbs/programs.hpp"
#include "fp16lab_seam.h"

namespace fp16lab::engine {

namespace {

constexpr CudaPlugin offered{.seam = FP16LAB_SEAM,
                             .status = &cuda_status,
                             .has_code_for = &has_code_for,
                             .make_backend = &make_cuda_backend,
                             .make_memory = &make_cuda_memory,
                             .count_on_stream = &count_exponents_on_stream};

}  // namespace

extern "C" const CudaPlugin* fp16lab_cuda_plugin() {
  gpu::called_across_border = true;
  return &offered;
}

}  // namespace fp16lab::engine
