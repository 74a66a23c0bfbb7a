// Op statistics: how often each op was called in which dtype, where casts happen, and what a peer would
// advise.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/autograd/cast_policy.hpp"
#include "engine/autograd/op.hpp"
#include "numerics/files/run/op_count.hpp"
#include "numerics/formats/dtype.hpp"

namespace fp16lab::engine::amp {

/// What m, n and k of a 16-bit product have to be multiples of to fill tensor cores (NVIDIA, "Train With
/// Mixed Precision"; on an A100 the guides quote 16).
inline constexpr std::int64_t channel_multiple = 8;
/// The same of a TF32 product: 16 bytes of operands as well.
inline constexpr std::int64_t tf32_multiple = 4;

/// A warning from the frameworks' guides, with its subject.
struct Advice {
  std::string layer;
  std::string
      text;  ///< "N = 10 is not a multiple of 8: FP16 products of such shapes do not run on tensor cores"
};

class OpStatistics {
 public:
  void on_op(std::string_view layer, Op op, DType dtype);
  void on_cast(std::string_view layer, Op op, DType to);
  void on_product(std::string_view layer, Op op, const ProductShape& shape, DType dtype);

  /// In order of first call; one row for every (layer, op).
  std::span<const OpCount> by_layer() const { return counts_; }
  /// Summed over layers, in order of first call; `layer` is empty.
  std::vector<OpCount> by_op() const;
  /// Each once, in order of first call. Sources: "Mixed precision" guides of Paddle (dims multiples of 8, 16
  /// on A100; conv C and K multiples of 8; 4 channels for a first convolution; NHWC) and NVIDIA.
  std::vector<Advice> advice() const;
  void clear();

 private:
  OpCount& count_of(std::string_view layer, Op op);

  struct Product {
    std::string layer;
    Op op;
    ProductShape shape;
    DType dtype;
  };
  std::vector<OpCount> counts_;
  std::vector<Product> products_;  ///< each (layer, op, shape) once
};

/// The table as text, aligned, with a line of totals: "op  layer  FP16  BF16  FP32  casts to 16 bits  casts
/// to FP32"; then "TF32", where an op computed in it.
std::string to_text(const OpStatistics& statistics);
/// The rows of by_layer() as op_stats.csv has them.
std::string to_csv(const OpStatistics& statistics);

}  // namespace fp16lab::engine::amp
