// Every output of every product kernel of the CUDA back end is *the* chain of Backend::gemm and of the
// convolutions: the PTX of nvcc, launched by the back end's host code with tags for operands, makes the terms
// that the contract says. The order of a shape is shown for all data at once, because no kernel of products
// branches on an element. What terms do not show: how an instruction rounds (the conformance suite on the PTX
// machine does), what a probe counts, and what ptxas makes of the PTX.
//
// ctest sets FP16LAB_PTX (where the texts are), FP16LAB_PTX_ARCH and FP16LAB_CUDA_PLUGIN.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include "tests/engine/backend/cuda/ptx/proof/coverage.hpp"
#include "tests/engine/backend/cuda/ptx/proof/product_cases.hpp"
#include "tests/engine/backend/cuda/ptx/proof/product_sweep.hpp"
#include "tests/engine/backend/cuda/ptx/proof/proof_environment.hpp"

namespace fp16lab::engine::ptx::test {
namespace {

class ProductOrder : public testing::Test {
 protected:
  void prove_all(bool whole) {
    const int architecture = proof_architecture();
    const Texts& texts = proof_texts();
    Coverage coverage(architecture, texts);
    std::size_t shapes = 0;
    std::int64_t outputs = 0, products = 0;
    const auto take = [&](const Proof& proof, const std::string& shape, std::int64_t k) {
      ++shapes;
      outputs += proof.outputs;
      products += proof.products;
      if (!proof.difference.empty())
        ADD_FAILURE() << proof.difference;
      else
        coverage.add(proof.kernels, shape, k);
      return !HasFailure();
    };
    {
      SymbolicDevice device(architecture, texts);
      for (const GemmCase& c : gemm_cases(architecture, whole))
        if (!take(prove(device, c), c.text(), c.k)) return;
      for (const ConvolutionCase& c : convolution_cases(architecture, whole))
        if (!take(prove(device, c), c.text(), c.depth())) return;
    }
    for (const LibraryEpilogueCase& c : library_epilogue_cases(architecture, whole))
      if (!take(prove(architecture, texts, c), c.text(), 0)) return;
    EXPECT_THAT(coverage.gaps(), testing::IsEmpty());
    fmt::print(
        "compute_{}: {} kernels of products, {} launched, {} out of reach; {} shapes, {} outputs, {} "
        "products\n",
        architecture, coverage.kernels(), coverage.launched(), coverage.out_of_reach(), shapes, outputs,
        products);
    if (whole) fmt::print("{}", coverage.table());
  }
};

TEST_F(ProductOrder, OfEveryKernel) { prove_all(false); }
TEST_F(ProductOrder, OfEveryShape) { prove_all(true); }

TEST_F(ProductOrder, AKernelThatWasNotLaunchedIsNamed) {
  const Coverage nothing(proof_architecture(), proof_texts());
  const std::vector<std::string> gaps = nothing.gaps();
  EXPECT_EQ(gaps.size(), nothing.kernels() - nothing.out_of_reach());
  EXPECT_THAT(gaps,
              testing::Contains("kernel MmaTile<f16, 64, 64, 32, 32, 4>, MatrixSource<f16, along_k, "
                                "anywhere>, MatrixSource<f16, along_outer, anywhere>, RowMajorPlacement was "
                                "never launched by the proof"));
}

}  // namespace
}  // namespace fp16lab::engine::ptx::test
