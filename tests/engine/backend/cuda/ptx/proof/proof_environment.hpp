// The settings that ctest passes to the proof.
#pragma once

#include <cstdlib>
#include <stdexcept>
#include <string>

#include "tests/engine/backend/cuda/ptx/proof/symbolic_device.hpp"

namespace fp16lab::engine::ptx::test {

inline std::string proof_environment(const char* variable) {
  const char* const value = std::getenv(variable);
  if (value == nullptr)
    throw std::runtime_error(std::string(variable) + " is not set; run this test by ctest");
  return value;
}
/// 75, 80 or 90.
inline int proof_architecture() { return std::stoi(proof_environment("FP16LAB_PTX_ARCH")); }
/// Read once.
inline const Texts& proof_texts() {
  static const Texts texts = ptx_texts(proof_environment("FP16LAB_PTX"));
  return texts;
}

}  // namespace fp16lab::engine::ptx::test
