// What every product of the emulated back end is made of: a block of accumulators, and its end.
//
// The end is t = acc; t = add_rn(t, bias); t = add_rn(t, addend); one rounding to the output's type. It runs
// block by block, while the accumulators are in cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <type_traits>

#include "engine/backend/backend.hpp"
#include "numerics/gemm/gemm.hpp"

namespace fp16lab::engine {

/// d = c (+) a * b by the row, which accumulates in FP16: d gets the FP16 sums, widened. c holds such sums,
/// or is null.
void accumulate_in_f16(const TensorCoreModel& row, GemmShape shape, MatrixView<Float16> a,
                       MatrixView<Float16> b, const float* c, float* d, std::int64_t ldd, int threads,
                       std::byte* packed_b);

/// d = c (+) a * b by the tensor-core row, which must have these operands; c null: from +0. If the row
/// accumulates in FP16, c and d hold its sums widened, which is exact. With `packed_b`, what pack_operand
/// made of b, no element of b is read.
template <class A, class B>
void accumulate(const TensorCoreModel& row, GemmShape shape, MatrixView<A> a, MatrixView<B> b, const float* c,
                float* d, std::int64_t ldd, int threads, std::byte* packed_b = nullptr) {
  if constexpr (std::is_same_v<A, Float16> && std::is_same_v<B, Float16>)
    if (row.accumulator() == DType::f16)
      return accumulate_in_f16(row, shape, a, b, c, d, ldd, threads, packed_b);
  emulated_gemm(row, shape, a, b, c, d, ldd, threads, packed_b);
}
/// The same by a row that has TF32 operands, else by one fma chain.
inline void accumulate(const TensorCoreModel& row, GemmShape shape, MatrixView<float> a, MatrixView<float> b,
                       const float* c, float* d, std::int64_t ldd, int threads,
                       std::byte* packed_b = nullptr) {
  if (row.operands.contains(DType::tf32))
    return emulated_gemm(row, shape, a, b, c, d, ldd, threads, packed_b);
  fma_chain_gemm(shape, a, b, c, d, ldd, threads, reinterpret_cast<const float*>(packed_b));
}

/// Bytes of b packed for accumulate; 0 where nothing is to be saved.
template <class B>
std::size_t packed_operand_bytes(const TensorCoreModel& row, GemmShape shape, MatrixView<B> b) {
  if constexpr (std::is_same_v<B, float>)
    if (!row.operands.contains(DType::tf32)) return fma_chain_packed_b_bytes(shape);
  return packed_b_bytes(row, shape, b);
}
template <class B>
void pack_operand(const TensorCoreModel& row, GemmShape shape, MatrixView<B> b, std::byte* packed_b,
                  int threads) {
  if constexpr (std::is_same_v<B, float>)
    if (!row.operands.contains(DType::tf32))
      return fma_chain_pack_b(shape, b, reinterpret_cast<float*>(packed_b), threads);
  pack_b(row, shape, b, packed_b, threads);
}

/// Of operands with scales for blocks.
inline constexpr int hadamard_length = 16;
inline std::int64_t padded(std::int64_t extent, std::int64_t multiple) {
  return (extent + multiple - 1) / multiple * multiple;
}

/// t[i] = add_rn(t[i], addend[i])
void add_to(float* t, const float* addend, std::int64_t n);
/// t[i] = add_rn(t[i], addend)
void add_to(float* t, float addend, std::int64_t n);

/// Rounds blocks of a result and counts them; blocks may come from several threads at once, because the sums
/// of counts have no order.
class ProbedRounding {
 public:
  explicit ProbedRounding(CastProbe* probe) : probe_(probe) {}

  void operator()(const float* t, std::int64_t n, Float16* out);
  void operator()(const float* t, std::int64_t n, BFloat16* out);
  void operator()(const float* t, std::int64_t n, float* out);  ///< a copy, or nothing if out is t

 private:
  template <class Half>
  void narrow_block(const float* t, std::int64_t n, Half* out);

  CastProbe* probe_;
  std::mutex mutex_;
};

}  // namespace fp16lab::engine
