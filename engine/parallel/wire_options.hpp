// How a mean over shards is formed: the format of messages, the divisor before the sum, and the order of the
// sum.
//
// The defaults are the promise: FP32 and the binary tree of shards.hpp. The others are experiments on what
// frameworks do, with shards in the place of their ranks: an all-reduce in FP16 or BF16 rounds at every hop.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "numerics/formats/dtype.hpp"
#include "numerics/text/named_enum.hpp"

namespace fp16lab::engine::parallel {

/// d of the mean (sum over v / d) / (V / d) of V values, FP32 divisions: horovod's and apex's
/// gradient_predivide_factor. `one` divides after the sum: the most overflow, the least underflow of a
/// 16-bit wire; `all` (d = V) before, as torch's DistributedDataParallel does: the other way round; `root`
/// half of it on each side, as FSDP does.
enum class Predivide : std::uint8_t { one, root, all };
constexpr std::array<std::string_view, 3> names_of(Predivide) { return {"1", "sqrt", "n"}; }

/// The order of additions. The bits of all but `library` are those of V shards, on any number of ranks. In
/// training a call of NCCL is a bucket of gradients (engine/train/sharding.hpp).
enum class SumOrder : std::uint8_t {
  tree,       ///< the binary tree of shards.hpp
  nccl_ring,  ///< NCCL's ring over V ranks (nccl_order.hpp)
  nccl_tree,  ///< NCCL's double binary tree over V ranks
  library,    ///< a rank adds its shards by the tree, then MPI_Allreduce: the library's order, not promised.
  ///< 16-bit formats travel as MPI_UINT16_T with an operation that rounds every addition to nearest
};
constexpr std::array<std::string_view, 4> names_of(SumOrder) {
  return {"tree", "nccl-ring", "nccl-tree", "mpi"};
}

struct WireOptions {
  DType wire = DType::f32;  ///< f32, f16 or bf16: what each shard's part is rounded to, and every partial sum
  Predivide predivide = Predivide::all;
  SumOrder order = SumOrder::tree;

  friend bool operator==(const WireOptions&, const WireOptions&) = default;
};

inline constexpr std::array wire_formats{DType::f32, DType::f16, DType::bf16};

/// The two divisors around the sum of `count` >= 1 values, as FP32 has them: v / before, and sum / after. A
/// divisor of 1 divides nothing.
struct Divisors {
  float before = 1, after = 1;
};
Divisors divisors_of(Predivide predivide, std::int64_t count);

}  // namespace fp16lab::engine::parallel
