// Allocation, byte copies and fills.
#include "engine/backend/cuda/runtime/device_errors.hpp"
#include "engine/backend/cuda/runtime/element_types.hpp"
#include "engine/backend/cuda/runtime/launch.hpp"
#include "engine/backend/cuda/verbs/backend_impl.hpp"

namespace fp16lab::engine::gpu {

namespace {

template <class Word>
__global__ void fill_words(Word* out, std::int64_t count, Word pattern) {
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride)
    out[i] = pattern;
}

template <class Word>
void fill_with(Runtime& runtime, const Tensor& out, std::uint64_t pattern) {
  const std::int64_t count = out.element_count();
  const LaunchShape shape{.x = blocks_for(count, 256), .threads = 256};
  launch(runtime, "fill", &fill_words<Word>, shape, elements<Word>(out), count, static_cast<Word>(pattern));
}

__global__ void present() {}

}  // namespace

bool has_code_for_current_device() {
  cudaFuncAttributes attributes;
  if (cudaFuncGetAttributes(&attributes, present) == cudaSuccess) return true;
  cudaGetLastError();  // the runtime keeps the error until it is read
  return false;
}

void CudaBackend::do_upload(std::string_view verb, std::span<const std::byte> host, Tensor& out) {
  require_not_recording(verb);
  if (!host.empty()) runtime_.copy_to_device(out.data(), host.data(), host.size());
}

void CudaBackend::do_download(std::string_view verb, const Tensor& x, std::span<std::byte> host) {
  require_not_recording(verb);
  if (!host.empty()) runtime_.copy_to_host(host.data(), x.data(), host.size());
  raise_noted_fault();
}

void CudaBackend::do_copy(const Tensor& x, Tensor& out) {
  if (x.data() != out.data() && x.byte_count() > 0)
    runtime_.copy_on_device(out.data(), x.data(), x.byte_count());
}

void CudaBackend::do_fill(Tensor& out, double, std::uint64_t pattern) {
  switch (size_of(out.dtype())) {
    case 1:
      return fill_with<std::uint8_t>(runtime_, out, pattern);
    case 2:
      return fill_with<std::uint16_t>(runtime_, out, pattern);
    case 4:
      return fill_with<std::uint32_t>(runtime_, out, pattern);
    default:
      return fill_with<std::uint64_t>(runtime_, out, pattern);
  }
}

}  // namespace fp16lab::engine::gpu
