// A library's use of an instruction: plans as data.
//
// A row of the table (tensor_core_model.hpp) says what one instruction computes. A library call takes many of
// them, and decides where a chain over K begins again from +0, whether K is split, and in which order the
// partial sums are added. That decision is a ProductOrder; a LibraryPlan is the rule that gives it for a
// call. The library refuses, by name, a class of calls whose rule is not published.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "numerics/gemm/strided_gemm.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"

namespace fp16lab {

/// How partial sums of the parts of a split K are added, each addition in FP32 to nearest even.
enum class Join : std::uint8_t {
  serial,  ///< ((p0 + p1) + p2) + ...
  /// cuBLASLt's other scheme, of S parts and h = ceil(S / 2): slot i is p_i + p_(i+h) where i + h < S - 1,
  /// else p_i; then ((p_(S-1) + slot 0) + slot 1) + ... (mmaemu 0.1.0)
  pairwise,
  halves,          ///< of 2^n lanes: lane i + lane (i + half), until one is left
  halves_to_four,  ///< the same until four are left: (l0 + l1) + (l2 + l3)
};
constexpr std::array<std::string_view, 4> names_of(Join) {
  return {"serial", "pairwise", "halves", "halves_to_four"};
}

/// The order of one product's sums over a range of K.
struct ProductOrder {
  std::int64_t restart = 0;  ///< after so many elements of a part's K a chain begins again; 0: never
  int parts = 1;             ///< parts of the range
  std::int64_t tile = 0;     ///< if parts > 1: elements of K that stay together, a multiple of an instruction
  bool interleaved =
      false;  ///< tile t is in part t mod parts; else each part has ceil(tiles / parts) neighbours
  bool rest_in_first =
      false;  ///< for interleaved single elements: those after the last whole round are in part 0
  Join join = Join::serial;
  /// The range ends here, or where K ends (0); another one, with an order of its own, follows.
  std::int64_t end = 0;
  DType partials = DType::f32;  ///< f16, bf16: the format of each of several parts before it is added

  friend bool operator==(const ProductOrder&, const ProductOrder&) = default;
};

/// A library's plan for one call: the instruction, and the orders of neighbouring ranges of K, whose sums are
/// added in order. With `terms_follow`, the elements after the last range are added one by one.
struct PlannedProduct {
  const TensorCoreModel* row = nullptr;
  std::vector<ProductOrder> ranges{{}};
  bool terms_follow = false;
};
/// In words: "avx512_bf16: chains of 512, added in order".
std::string order_text(const PlannedProduct& product);

/// d = a b where each output is made of chains of the row's instructions in this order. d: m x n, FP32,
/// row-major, `ldd` apart; the row accumulates in FP32. Bits do not depend on `threads`.
/// std::invalid_argument as emulated_gemm, and for orders with negative numbers or, in parts, without tiles.
void planned_gemm(const PlannedProduct& product, GemmShape shape, const StridedMatrix& a,
                  const StridedMatrix& b, float* d, std::int64_t ldd, int threads = 1);

/// What PyTorch calls: mm, addmm and linear are one; bmm, also of one matrix; mv (n = 1); dot (m = n = 1).
enum class ProductKind : std::uint8_t { mm, bmm, mv, dot };
constexpr std::array<std::string_view, 4> names_of(ProductKind) { return {"mm", "bmm", "mv", "dot"}; }

/// A call as the library sees it.
struct ProductCall {
  GemmShape shape;
  std::int64_t batch = 1;
  ProductKind kind = ProductKind::mm;
  bool a_transposed = false, b_transposed = false;  ///< in memory, row-major
  DType a = DType::f16, b = DType::f16;
  int threads = 1;                 ///< the library's, not ours
  bool fast_accumulation = false;  ///< cuBLASLt: torch._scaled_mm's use_fast_accum
  int parts = 1;                   ///< cuBLASLt's split-K, and how it joins them, which its heuristics choose
  Join join = Join::serial;
  DType partials = DType::f32;  ///< what the parts of a split K are rounded to before they are added
};

struct ConvolutionCall;     // planned_convolution.hpp
struct PlannedConvolution;  // planned_convolution.hpp

/// A row of the table of plans.
struct LibraryPlan {
  std::string_view name;  ///< what users type: "onednn"
  std::string_view library;
  std::string_view rows;  ///< whose instructions it takes
  std::string_view rule;  ///< in words
  Evidence evidence;
  std::string_view unknown;  ///< which calls are refused
  std::string_view source;
  /// std::invalid_argument naming the class of the call where the plan has no rule for it.
  PlannedProduct (*product)(const TensorCoreModel& row, const ProductCall& call);
  /// Parameters of a call, besides formats and K, that the rule reads, as fp16lab mma's options name them.
  std::string_view parameters{};
  /// The order of a convolution; null where the plan knows none.
  PlannedConvolution (*convolution)(const TensorCoreModel& row, const ConvolutionCall& call) = nullptr;
  /// For FP16 products, if the instruction takes none of them; or null.
  const TensorCoreModel* fp16_row = nullptr;

  bool asks(std::string_view parameter) const;
};

/// "instruction" first: one chain over ascending k, for any row.
std::span<const LibraryPlan> library_plans();
/// std::invalid_argument with the known names otherwise.
const LibraryPlan& library_plan(std::string_view name);
/// The row that a plan's products of these formats take: that of the table (tensor_core_model, with its
/// errors), or the plan's own for FP16.
const TensorCoreModel& planned_row(const LibraryPlan& plan, std::string_view name, DType a, DType b,
                                   DType accumulator);

}  // namespace fp16lab
