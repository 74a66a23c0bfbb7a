#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/engine/backend/cuda/ptx/proof/product_cases.hpp"

namespace fp16lab::engine::ptx::test {
namespace {

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  if (value == nullptr) throw std::runtime_error(std::string(name) + " is not set; ctest sets it");
  return value;
}

TEST(ProductOrder, First) {
  const int architecture = std::stoi(environment("FP16LAB_PTX_ARCH"));
  const Texts texts = ptx_texts(environment("FP16LAB_PTX"));
  SymbolicDevice device(architecture, texts);
  for (DType d : {DType::f16, DType::bf16, DType::tf32, DType::f32}) {
    const Proof proof = prove(device, GemmCase{.multiplied = d, .transpose_b = true, .m = 65, .n = 70, .k = 137});
    EXPECT_EQ(proof.difference, "");
    for (const auto& k : proof.kernels) std::printf("%s\n", short_name(k).c_str());
  }
}

}  // namespace
}  // namespace fp16lab::engine::ptx::test
