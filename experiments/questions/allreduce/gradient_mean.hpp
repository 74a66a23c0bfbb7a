// The mean of R ranks' scaled gradients, as data-parallel training computes it, and what it costs.
//
// A gradient travels as FP16, BF16 or FP32. Around the sum there are two scalings, each before or after it:
// the division by the loss scale S, and the division by R. All of them are FP32 operations, rounded once more
// where the value then travels in 16 bits:
//   v = g  [x float(1/S)]  [/ d]   -> wire -> sum over ranks -> FP32 ->   [/ (R/d)]  [x float(1/S)]
//   pre   d = R         sums stay as small as one gradient: the least overflow, the most underflow
//   post  d = 1         the other way round
//   split d = sqrt(R)   half of it on each side (apex's gradient_predivide_factor)
// torch's DistributedDataParallel divides before, as fp16_compress_hook does; apex can do all three.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/parallel/nccl_order.hpp"
#include "numerics/formats/dtype.hpp"

namespace fp16lab::experiments::allreduce {

using engine::parallel::Predivide;
using engine::parallel::SumOrder;
using engine::parallel::Traffic;

enum class Unscale { before, after };

struct Variant {
  engine::parallel::WireOptions mean{.order = SumOrder::nccl_ring};
  Unscale unscale = Unscale::after;

  friend bool operator==(const Variant&, const Variant&) = default;
};
/// All 24 of f32 and f16 in orders of NCCL: f32 first, ring before tree.
std::vector<Variant> all_variants();
/// "f16 ring, unscale after, predivide"
std::string describe(const Variant& variant);
/// "ring", "tree"; "pre", "post", "split"
std::string_view title_of(SumOrder order);
std::string_view title_of(Predivide predivide);

/// Scaled FP32 gradients, one vector a rank, all of one size.
using Gradients = std::span<const std::vector<float>>;

struct Mean {
  std::vector<float> values;  ///< unscaled; the same on every rank
  Traffic traffic;
  /// Elements that came out of the sum infinite or NaN although no rank's were.
  std::uint64_t born = 0;
};
/// Mean of `gradients`, unscaled by `scale` (finite, > 0). std::invalid_argument for a wire dtype that is not
/// in wire_formats, for the library's order, and for the tree of shards where they are no power of two.
Mean reduce_mean(const Variant& variant, Gradients gradients, double scale);
/// What remains after the sum and its division, `scaled_mean`: to unscale it (Unscale::after), and to count.
/// Its traffic is empty.
Mean unscaled_mean(std::vector<float> scaled_mean, Gradients gradients, double scale);

/// The bytes that `rank` of `ranks` sends for one mean of `elements` over `shards` values in an order that is
/// not the library's, by the formula of engine/parallel/shard_tree.hpp to the last element: each of its k
/// parts goes to the owners of the other slices, and the sum of its own slice to all others.
std::uint64_t formula_bytes(const engine::parallel::WireOptions& mean, std::size_t elements,
                            std::int64_t shards, int ranks, int rank);

/// Sum over ranks and division by R * S in FP64. Exact up to the last division for gradients that FP16 holds:
/// multiples of 2^-24 below 2^16, so that sums of up to 2^12 of them fit 53 bits.
struct ExactMean {
  std::vector<double> values;
  double norm = 0;           ///< L2, of the elements that are finite on every rank
  double absolute_norm = 0;  ///< of the mean of |g| / S: what rounding errors are relative to
  std::vector<bool> finite;  ///< was the element finite on every rank?
};
ExactMean exact_mean(Gradients gradients, double scale);
/// In FP32, to step by.
std::vector<float> rounded(const std::vector<double>& values);

struct MeanError {
  double absolute = 0;     ///< L2 of the difference over elements that are finite in both
  std::uint64_t lost = 0;  ///< elements that are zero although the exact mean is not
};
MeanError compare(const Mean& mean, const ExactMean& exact);

/// What `absolute` of MeanError cannot exceed where nothing overflowed, with u, eta the unit roundoff and
/// half the smallest subnormal of the wire, u32 of FP32 (eta of FP32 is neglected: 2^-150; the order of the
/// additions, and so the library's, does not matter). A term passes the
/// rounding to the wire and at most R - 1 additions, R roundings of at most u relative each (sums of
/// subnormals are exact, the rounding to the wire costs at most eta more), and at most six FP32 roundings:
/// two by 1/S, itself rounded, three by d and R/d, sqrt(R) rounded, one to spare. So
///   |error_i| <= ((1 + u)^R (1 + u32)^6 - 1) mean|g_i| / S  +  R eta (1 + u)^R / k
/// where k is the factor between the wire's sum and the unscaled mean: (unscale before ? 1 : S) * (R / d); L2
/// norms by the triangle inequality.
double error_bound(const Variant& variant, const ExactMean& exact, int ranks, double scale);

/// Means of one kind, over all steps: squares of L2 norms, and MeanError's and Mean's counts.
struct MeanErrors {
  double error_squares = 0, norm_squares = 0, bound_squares = 0;
  std::uint64_t lost = 0, born = 0;

  void add(const Variant& variant, const Mean& mean, const ExactMean& exact, int ranks, double scale);
  double relative(double squares) const;  ///< their root, as a share of the norm
};

}  // namespace fp16lab::experiments::allreduce
