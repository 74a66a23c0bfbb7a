// Matrices as codes of few bits with a scale for each block: MX, NVFP4, and FP8 with scales in FP32.
//
// A quantizer is a row: formats, the shape of a block, and the rule by which the greatest magnitude of a block
// becomes its scale. Libraries that write the same formats differ in these rules and in the order of the
// roundings, all of which are FP32 operations to nearest even; a rule names whose they are. Sources: OCP
// Microscaling Formats (MX) 1.0, 6.3; torchao 0.18 (prototype/mx_formats, float8); Transformer Engine
// (common/recipe/recipe_common.cuh, pytorch/custom_recipes/quantization_ref_nvfp4.py, util/ptx.cuh); DeepSeek-V3
// (inference/kernel.py) and DeepGEMM (utils/math.py).
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "numerics/formats/dtype.hpp"
#include "numerics/random/philox.hpp"
#include "numerics/text/named_enum.hpp"

namespace fp16lab {

/// How a block's greatest magnitude `amax` becomes its scale, and elements become multiples of it. `top` is the
/// element format's largest number, 2^e its power of two.
enum class ScaleRule : std::uint8_t {
  // Powers of two (E8M0); an element x is x / scale.
  floor,  ///< 2^floor(log2 amax) / 2^e: OCP MX; up to the last binade of amax saturates
  ceil,   ///< 2^ceil(log2 amax) / 2^e: torchao
  even,   ///< amax rounded to the element's precision, ties away from zero, then floor: torchao
  rceil,  ///< amax / top, rounded up to a power of two: cuBLAS, Transformer Engine; x is x * (1 / scale)
  // UE4M3 under one scale of the tensor (NVFP4), or FP32: amax / top, in the order of operations of the library.
  te,            ///< Transformer Engine
  te_pow2,       ///< the same with FP32 scales cut to powers of two, as its block scaling does
  torchao,       ///< torchao; its FP32 scales are made in FP64 and rounded once
  deepseek,      ///< amax / top; x / scale, so that a block of zeros is NaN, as in its first kernel
  deepgemm,      ///< max(amax, 1e-4) / top; x * (1 / scale)
  deepgemm_pow2  ///< the same, the scale rounded up to a power of two (UE8M0)
};
constexpr std::array<std::string_view, 10> names_of(ScaleRule) {
  return {"floor",   "ceil",    "even",     "rceil",    "te",
          "te_pow2", "torchao", "deepseek", "deepgemm", "deepgemm_pow2"};
}

/// A part of a matrix that has one scale; 0: as many as the matrix has.
struct BlockShape {
  std::int64_t rows = 1, columns = 0;
  friend constexpr bool operator==(const BlockShape&, const BlockShape&) = default;
};

/// Rows and columns of a row-major matrix without gaps.
struct MatrixSize {
  std::int64_t rows = 0, columns = 0;
};

/// One row of the table. Copies with other numbers are quantizers too; `check` says which are none.
struct Quantizer {
  std::string_view name;
  DType element;
  DType scale;  ///< e8m0, ue4m3 or f32
  BlockShape block;
  ScaleRule rule;
  std::string_view source;

  /// std::invalid_argument where the scale's format has no such rule, or the element is none of E4M3, E5M2,
  /// E3M2, E2M3 and E2M1.
  void check() const;
  /// Blocks down and across: how scales are laid out. std::invalid_argument where blocks do not fit.
  MatrixSize scales_of(MatrixSize size) const;
};

/// mxfp8, mxfp8-e5m2, mxfp6-e3m2, mxfp6-e2m3, mxfp4 (blocks of 1 x 32), nvfp4 (1 x 16), nvfp4-2d (16 x 16), fp8-1x128,
/// fp8-128x128, fp8-row (a row), fp8-tensor and fp8-tensor-e5m2 (all).
std::span<const Quantizer> quantizers();
/// The one of this name; std::invalid_argument with the known names otherwise.
const Quantizer& quantizer(std::string_view name);
/// The rules that a format of scales has.
std::span<const ScaleRule> rules_of(DType scale);

/// What one block lost.
struct BlockLoss {
  std::uint32_t made_zero = 0;  ///< non-zero numbers whose code is a zero
  std::uint32_t saturated = 0;  ///< finite numbers that round beyond the largest code (not to it), which they became
  /// log2 of (largest code * scale of the block * scale of the tensor / amax): how far amax is below the top. Negative
  /// where it is above it, and rounds down to it or saturates. NaN for a block of zeros, or with Inf or NaN.
  float headroom = 0;
};

/// What the blocks of tensors lost together.
struct QuantizerLoss {
  std::uint64_t values = 0, made_zero = 0, saturated = 0;  ///< of `values` elements
  std::uint64_t blocks = 0;            ///< with a headroom: neither zeros alone, nor with Inf or NaN
  std::uint64_t saturated_blocks = 0;  ///< in which a number saturated
  double least_headroom = std::numeric_limits<double>::infinity(), headroom_sum = 0;  ///< of `blocks`
  float amax = 0;  ///< the greatest magnitude, infinities included; NaN is left out

  void add(const BlockLoss& loss);  ///< all but `values` and `amax`, which the caller knows
  QuantizerLoss& operator+=(const QuantizerLoss& other);
};

struct QuantizeOptions {
  /// NVFP4: the tensor's greatest magnitude if it is known already, as of an earlier step or of a whole that
  /// this is a part of.
  std::optional<float> tensor_amax = {};
  /// NVFP4: a scale of the tensor above those of blocks. Without one it is 1 (torchao's one level).
  bool tensor_scale = true;
  /// FP32 scales: all blocks have this one, in place of that of their amax (delayed scaling).
  std::optional<float> scale = {};
  /// Stochastic rounding of elements by half word i of this stream for element i in row-major order, as
  /// narrow_stochastic does; null: to nearest even. Scales round as their rule says.
  const PhiloxStream* random = nullptr;
  int threads = 1;
};

/// codes[i] is the code of values[i], one in a byte; scales has one number for each block, row-major, which
/// the scale's format holds. Returns the scale of the tensor, 1 where there is none. Element i stands for
/// dequantize's product. What is beyond the largest code becomes it; NaN is NaN where the format has one, else
/// the largest number; a NaN in a block makes its scale NaN, but for `te` with FP32 scales, which is 1 there,
/// as with an infinite amax.
/// std::invalid_argument: sizes of arrays or blocks that do not fit; an option that the quantizer has not.
float quantize(const Quantizer& quantizer, MatrixSize size, std::span<const float> values,
               std::span<std::uint8_t> codes, std::span<float> scales, const QuantizeOptions& options = {},
               std::span<BlockLoss> losses = {});

/// values[i] = number(codes[i]) * (scale of its block * tensor_scale), each product rounded to nearest even.
void dequantize(const Quantizer& quantizer, MatrixSize size, std::span<const std::uint8_t> codes,
                std::span<const float> scales, float tensor_scale, std::span<float> values, int threads = 1);

/// Delayed scaling: the scale of the next tensor from the greatest magnitudes of those before. Source:
/// Transformer Engine's DelayedScaling with amax_compute_algo "max" or "most_recent".
class AmaxHistory {
 public:
  enum class Choice : std::uint8_t { max, most_recent };
  /// std::invalid_argument unless length is positive.
  AmaxHistory(DType element, int length = 1024, Choice choice = Choice::max, int margin = 0);

  /// What quantizes the next tensor: QuantizeOptions::scale. 1 before anything was seen.
  float scale() const { return 1.0F / encode_; }
  /// After a tensor: its amax enters the history, and the oldest one leaves it. The scale stays as it is while
  /// the history holds zeros alone, or an infinity; a NaN counts as 0.
  void see(float amax);

  /// All that the next scale depends on, for a checkpoint: 2 + length numbers.
  std::vector<float> state() const;
  /// std::invalid_argument unless it is the state of a history of this length.
  void restore(std::span<const float> state);

 private:
  float top_;
  Choice choice_;
  int margin_;
  float encode_ = 1;
  std::vector<float> history_;
  std::size_t next_ = 0;
};

/// Random Hadamard transforms: every `length` neighbours v of a row become (v * signs) H / sqrt(length), H being
/// Sylvester's matrix and bit i of `signs` a minus for element i. An output is a chain of FP32 additions over
/// ascending i, from the first term, then one product. Two operands that are transformed along their common
/// dimension keep their product, but for rounding.
/// std::invalid_argument unless length is a power of two of at most 32 that divides the number of values.
void random_hadamard(std::span<float> values, int length, std::uint32_t signs);
/// The signs of Transformer Engine's NVFP4 recipe.
inline constexpr std::uint32_t te_hadamard_signs = 0xd7e8;

}  // namespace fp16lab
