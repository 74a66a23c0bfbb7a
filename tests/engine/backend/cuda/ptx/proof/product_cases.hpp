// Products of tags through the verbs of the back end, and the chain of every output written from the contract
// (engine/backend/backend.hpp).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/backend/backend.hpp"
#include "tests/engine/backend/cuda/ptx/proof/symbolic_device.hpp"

namespace fp16lab::engine::ptx::test {

/// One call: `multiplied` f16, bf16, f32 (by fma) or tf32 (f32 in memory).
struct GemmCase {
  DType multiplied = DType::f16;
  bool transpose_a = false, transpose_b = false;
  std::int64_t m = 1, n = 1, k = 1, batch = 1;
  DType out = DType::f32;
  std::optional<DType> bias = std::nullopt, addend = std::nullopt;

  /// "gemm f16 -> f32 NT 65 x 129 x 137 (m x n x k), bias f16".
  std::string text() const;
};

enum class ConvolutionVerb : std::uint8_t { forward, input_gradient, weight_gradient };

/// x (images, inputs, height, width), weight (outputs, inputs / groups, taps); the verb decides which of the
/// three is the result.
struct ConvolutionCase {
  ConvolutionVerb verb = ConvolutionVerb::forward;
  DType multiplied = DType::f16;
  std::int64_t images = 1, inputs = 1, height = 1, width = 1, outputs = 1;
  std::array<std::int64_t, 2> taps{1, 1};
  Conv2dGeometry geometry = {};
  DType out = DType::f32;
  std::optional<DType> bias = std::nullopt;

  std::string text() const;
  /// Windows along an axis: 0 vertical, 1 horizontal.
  std::int64_t windows(int axis) const;
  /// Products of an output.
  std::int64_t depth() const;
};

/// What a call did: the kernels that made products, and the first output that is not the chain, with kernel,
/// shape, place and both terms; or the machine's fault. `difference` is empty if there is none.
struct Proof {
  std::string difference;
  std::vector<std::string> kernels;
  std::int64_t outputs = 0, products = 0;
};

/// The epilogue after a library's products (library/gemm.cu), whose accumulators are tags: no library runs
/// here, so the kernel is launched as CudaBackend::library_gemm does.
struct LibraryEpilogueCase {
  DType operands = DType::f16;
  std::int64_t m = 1, n = 1, batch = 1;
  DType out = DType::f32;
  std::optional<DType> bias = std::nullopt, addend = std::nullopt;

  std::string text() const;
};

Proof prove(SymbolicDevice& device, const GemmCase& call);
Proof prove(SymbolicDevice& device, const ConvolutionCase& call);
/// `texts`: those of the device's architecture.
Proof prove(int architecture, const Texts& texts, const LibraryEpilogueCase& call);

}  // namespace fp16lab::engine::ptx::test
