// The shapes of the proof: for a device of one multiprocessor, so many outputs that the planner takes each of
// its tiles, with and without rest in m, n and k.
#pragma once

#include <vector>

#include "tests/engine/backend/cuda/ptx/proof/product_cases.hpp"

namespace fp16lab::engine::ptx::test {

/// `whole`: all shapes; else so few that each kernel is launched, beyond its pipeline.
std::vector<GemmCase> gemm_cases(int architecture, bool whole);
std::vector<ConvolutionCase> convolution_cases(int architecture, bool whole);
std::vector<LibraryEpilogueCase> library_epilogue_cases(int architecture, bool whole);

}  // namespace fp16lab::engine::ptx::test
