#include "tests/machines/ptx/cudart/errors.hpp"

#include <cstdio>

namespace fp16lab::engine::ptx::cudart {

namespace {

struct Words {
  cudaError_t error;
  const char* name;
  const char* words;
};

#define FP16LAB_ERROR(name, words) \
  { name, #name, words }
constexpr Words all_words[] = {
    FP16LAB_ERROR(cudaSuccess, "no error"),
    FP16LAB_ERROR(cudaErrorInvalidValue, "invalid argument"),
    FP16LAB_ERROR(cudaErrorMemoryAllocation, "out of memory"),
    FP16LAB_ERROR(cudaErrorInitializationError, "initialization error"),
    FP16LAB_ERROR(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    FP16LAB_ERROR(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    FP16LAB_ERROR(cudaErrorMissingConfiguration, "__global__ function call is not configured"),
    FP16LAB_ERROR(cudaErrorInvalidDeviceFunction, "invalid device function"),
    FP16LAB_ERROR(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    FP16LAB_ERROR(cudaErrorInvalidDevice, "invalid device ordinal"),
    FP16LAB_ERROR(cudaErrorInvalidKernelImage, "device kernel image is invalid"),
    FP16LAB_ERROR(cudaErrorNoKernelImageForDevice,
                  "no kernel image is available for execution on the device"),
    FP16LAB_ERROR(cudaErrorInvalidPtx, "a PTX JIT compilation failed"),
    FP16LAB_ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    FP16LAB_ERROR(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
    FP16LAB_ERROR(cudaErrorNotReady, "device not ready"),
    FP16LAB_ERROR(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    FP16LAB_ERROR(cudaErrorIllegalInstruction, "an illegal instruction was encountered"),
    FP16LAB_ERROR(cudaErrorMisalignedAddress, "misaligned address"),
    FP16LAB_ERROR(cudaErrorLaunchFailure, "unspecified launch failure"),
    FP16LAB_ERROR(cudaErrorNotSupported, "operation not supported"),
    FP16LAB_ERROR(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    FP16LAB_ERROR(cudaErrorStreamCaptureInvalidated,
                  "operation failed due to a previous error during capture"),
    FP16LAB_ERROR(cudaErrorCapturedEvent,
                  "operation not permitted on an event last recorded in a capturing stream"),
    FP16LAB_ERROR(cudaErrorUnknown, "unknown error"),
};
#undef FP16LAB_ERROR

const Words* find(cudaError_t error) {
  for (const Words& words : all_words)
    if (words.error == error) return &words;
  return nullptr;
}

}  // namespace

const char* name_of(cudaError_t error) {
  const Words* const found = find(error);
  return found == nullptr ? "unrecognized error code" : found->name;
}

const char* words_of(cudaError_t error) {
  const Words* const found = find(error);
  return found == nullptr ? "unrecognized error code" : found->words;
}

cudaError_t error_of_fault(FaultKind kind) {
  if (kind == FaultKind::alignment) return cudaErrorMisalignedAddress;
  if (kind == FaultKind::bounds) return cudaErrorIllegalAddress;
  if (kind == FaultKind::instruction) return cudaErrorIllegalInstruction;
  return cudaErrorLaunchFailure;
}

void say(const std::string& message) {
  std::fprintf(stderr, "fp16lab, the PTX machine: %s\n", message.c_str());
}

}  // namespace fp16lab::engine::ptx::cudart
