// What an output of a product must be, in words of the contract, and whether a term is that. Nothing here
// knows how a tensor core's instruction is executed or how a kernel cuts its work.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/tensor/tensor.hpp"
#include "tests/engine/backend/cuda/ptx/symbolic.hpp"

namespace fp16lab::engine::ptx::test {

/// Backend::gemm: an accumulator begins with +0 and takes its products in ascending k. A tensor core adds
/// `block` of them by one rounding, and what is missing of the last `run` of k (16 bytes) is +0 of both
/// operands; nothing is added beyond. FP32 is one fma a product, and nothing is added for k that is not
/// there.
struct ChainRule {
  int block = 1;
  int run = 1;
};
/// f16, bf16 and tf32 on the tensor cores of that architecture (block sizes: Khattak & Mikaitis, arXiv
/// 2512.07004, and MMA-Sim, arXiv 2511.10909); f32 by fma. std::invalid_argument for what they do not
/// multiply.
ChainRule chain_rule(int architecture, DType multiplied);

/// A tensor whose elements are tags, each unlike any other element of the tensors of its Tags.
struct Tagged {
  std::string name;
  Shape shape;
  DType dtype = DType::f32;
  std::vector<std::uint32_t> patterns;

  /// As memory holds them.
  std::vector<std::byte> bytes() const;
};

class Tags {
 public:
  /// `tf32`: tags survive the rounding of f32 elements to TF32. std::length_error where patterns of 16 bits
  /// run out: 57,342 of them serve all 16-bit tensors.
  const Tagged& make(const std::string& name, const Shape& shape, DType dtype, bool tf32 = false);
  /// "a(3, 17)", or the pattern in hex.
  std::string name(std::uint32_t pattern) const;

 private:
  std::vector<std::unique_ptr<Tagged>> tensors_;
  std::uint32_t count_ = 0;
};

/// An output: what its chain begins with, the chain's products in ascending k (a hole is +0, tag 0), then
/// what is added, one after the other.
struct ExpectedOutput {
  struct Addend {
    std::uint32_t tag;
    DType dtype;
  };
  std::uint32_t begin = 0;  ///< +0; the tag of an accumulator that a library has made
  std::vector<Symbolic::Product> products;
  std::vector<Addend> addends;
};

/// Compares what a kernel has stored with what was expected.
class OutputJudge {
 public:
  OutputJudge(const Symbolic& terms, const Tags& tags, ChainRule rule, DType stored)
      : terms_(terms), tags_(tags), rule_(rule), stored_(stored) {}
  /// Empty if the stored pattern is the expected term; else both of them, shortened, and where they differ.
  std::string difference(std::uint32_t pattern, const ExpectedOutput& expected) const;

 private:
  bool is(std::uint64_t operand, const ExpectedOutput::Addend& addend) const;
  std::string chain_difference(std::uint32_t sum, const ExpectedOutput& expected) const;
  std::string text_of(std::uint32_t pattern) const;
  std::string text_of(const Symbolic::Product& product) const;

  const Symbolic& terms_;
  const Tags& tags_;
  ChainRule rule_;
  DType stored_;
};

}  // namespace fp16lab::engine::ptx::test
