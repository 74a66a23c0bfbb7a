// Tensor-core generations as data, and the one algorithm that reads that data.
//
// Every published finite-precision model of NVIDIA matrix units (Fasi et al., PeerJ CS 330, 2021; Khattak &
// Mikaitis, arXiv 2512.07004; MMA-Sim, arXiv 2511.10909) is the same fixed-point sum with four numbers
// changed. For one output element a *fused block* takes at most `block_size` products and one accumulator:
//   1. products are exact and not normalised (significand in [0,4), exponent ea + eb; subnormals keep the
//      emin of their own format and are never flushed);
//   2. emax = the largest exponent among the non-zero terms, at least `exponent_floor`;
//   3. every term becomes an integer multiple of 2^(emax - fraction_bits); lower bits of the magnitude are
//      dropped;
//   4. the integers are added exactly, then rounded once by `output`.
// Longer dot products chain blocks over ascending k; the rounded result of a block is the accumulator of the
// next. There is no test on the architecture anywhere in arithmetic code: a generation is a few rows of
// `tensor_core_models()`, one for each kind of operands and accumulator that it has.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "numerics/formats/dtype.hpp"
#include "numerics/text/named_enum.hpp"

namespace fp16lab {

// Formats of A and B are those narrower than FP32 (is_low_precision). TF32 operands are FP32 registers whose
// low 13 bits the hardware ignores: they are truncated, not rounded, and a NaN with payload only there
// becomes an infinity (MMA-Sim, asserted on chips).

/// Low bits of an operand's word that are no part of the number: 13 for TF32, 0 for all others.
template <class F>
inline constexpr int ignored_bits = 8 * static_cast<int>(sizeof(typename F::Bits)) - F::width;

/// Formats of C and D.
inline constexpr DType accumulator_formats[] = {DType::f32, DType::f16};

/// The format of this name; std::invalid_argument with the known names otherwise.
DType operand_format(std::string_view name);
DType accumulator_format(std::string_view name);

/// The operand format whose memory holds elements of type T: float stands for a TF32 register.
template <class T>
inline constexpr DType operand_format_of = DTypeOf<T>::value;
template <>
inline constexpr DType operand_format_of<float> = DType::tf32;

/// A set of operand formats.
class OperandFormats {
 public:
  template <class... Formats>
  constexpr explicit OperandFormats(Formats... formats)
      : mask_(((1U << static_cast<unsigned>(formats)) | ...)) {}
  constexpr bool contains(DType format) const { return ((mask_ >> static_cast<unsigned>(format)) & 1U) != 0; }

 private:
  std::uint32_t mask_;
};

/// No hardware row has more products in a fused block.
inline constexpr int max_block_size = 64;

/// How a block's exact fixed-point sum becomes the output element, subnormal results included.
enum class BlockOutput : std::uint8_t {
  fp32_toward_zero,          ///< truncate to 24 significant bits; |sum| >= 2^128 gives infinity
  fp32_toward_zero_14_bits,  ///< truncate to 14 significant bits (E8M13), stored in FP32; infinity as above
  fp16_nearest_even,         ///< round to FP16 directly from the sum; |sum| >= 65520 gives infinity
};

/// How a long dot product is cut into blocks.
enum class Dataflow : std::uint8_t {
  fused_chain,  ///< c enters the first block; k ascends
  /// FP8 by mma.sync on H100, H200, B200: operands become FP16, one instruction of 32 products is two FP16
  /// blocks, first those with k mod 4 in {0,1}, then the others, chained from +0; c joins each instruction at
  /// its end by one ordinary round-to-nearest-even addition.
  fp8_as_fp16_pairs,
  /// The same with k < 16 in the first block: what the one FP32-output capture (B200) leaves possible.
  fp8_as_fp16_halves,
};

/// The exponent with which a subnormal FP16 accumulator enters the alignment. Open: MMA-Sim says emin, the
/// code of Khattak & Mikaitis takes the exponent of the value. Decided by c = 0001 with products +2^-25 and
/// -2^-41: 0002 with emin, 0001 with the value's own.
enum class SubnormalAccumulator : std::uint8_t { emin, own_exponent };

/// The sign of a negative non-zero sum that rounds to zero. +0 in MMA-Sim since 2.1.0 (2026) and in a model
/// that reports 65,536 comparisons a format with an RTX 5090; -0 in the code of Khattak & Mikaitis, in TC-EFT
/// and cicuvc. No published capture of a data-centre chip shows it.
enum class UnderflowZero : std::uint8_t { keeps_sign, positive };

/// How well the row is known (see each row's `source`).
enum class Evidence : std::uint8_t {
  hardware,       ///< equals published hardware captures bit for bit
  hardware_test,  ///< asserted on hardware by a public test suite
  model,          ///< stated by a published model, not independently checked
};

// The enumerators' names.
constexpr std::array<std::string_view, 3> names_of(BlockOutput) {
  return {"fp32_toward_zero", "fp32_toward_zero_14_bits", "fp16_nearest_even"};
}
constexpr std::array<std::string_view, 3> names_of(Dataflow) {
  return {"fused_chain", "fp8_as_fp16_pairs", "fp8_as_fp16_halves"};
}
constexpr std::array<std::string_view, 2> names_of(SubnormalAccumulator) { return {"emin", "own_exponent"}; }
constexpr std::array<std::string_view, 2> names_of(UnderflowZero) { return {"keeps_sign", "positive"}; }
constexpr std::array<std::string_view, 3> names_of(Evidence) {
  return {"hardware", "hardware_test", "model"};
}

/// One row of the table. Change a copy to ask what other hardware would do.
struct TensorCoreModel {
  std::string_view name;      ///< the name users type: "hopper"
  std::string_view hardware;  ///< what it stands for: "sm_90 mma.sync"
  OperandFormats operands;
  /// L: products per fused block. Open: TF32 through wmma on Hopper may be 4 where mma and wgmma are 8.
  int block_size;
  int fraction_bits;  ///< F: bits kept below 2^emax in alignment
  BlockOutput output;
  /// E0: the exponent that a zero term contributes. It cannot be seen with FP8 operands, nor with FP16
  /// operands and FP32 output. With FP16 output MMA-Sim and Khattak & Mikaitis have 4 - F0; no published
  /// capture shows it.
  int exponent_floor;
  Evidence evidence;
  std::string_view source;
  Dataflow dataflow = Dataflow::fused_chain;
  SubnormalAccumulator subnormal_accumulator = SubnormalAccumulator::emin;
  UnderflowZero underflow_zero = UnderflowZero::positive;

  constexpr DType accumulator() const {
    return output == BlockOutput::fp16_nearest_even ? DType::f16 : DType::f32;
  }
};

/// All rows, oldest generation first; the rows of one generation are neighbours.
std::span<const TensorCoreModel> tensor_core_models();
/// The generations, oldest first: volta, turing, ampere, ada, hopper, hopper-wgmma, blackwell,
/// blackwell-tcgen05.
std::span<const std::string_view> tensor_core_names();

/// The chips that a name may stand for in the place of a generation: v100, t4, a100, ...
std::span<const std::string_view> tensor_core_chips();
/// The generations on this chip, that of mma.sync first; of a generation only itself. Both are found in any
/// case. Empty where nothing has this name.
std::span<const std::string_view> generations_of(std::string_view name);

/// Do two rows give the same bits for the same operands? Names, evidence and sources do not count.
bool same_function(const TensorCoreModel& a, const TensorCoreModel& b);

/// The row of this generation or chip, named in any case, for these formats. A chip with several rows for
/// them has one where they are the same function: that of mma.sync. std::invalid_argument otherwise, with
/// these rows; with the known names and the nearest one; or with the formats that the generation has.
const TensorCoreModel& tensor_core_model(std::string_view name, DType operands = DType::f16,
                                         DType accumulator = DType::f32);
/// The row that multiplies `a` by `b`.
const TensorCoreModel& tensor_core_model(std::string_view name, DType a, DType b, DType accumulator);

/// d = c (+) sum_k a[k] * b[k] exactly as the hardware row computes it: the scalar reference.
///
/// Elements are bit patterns in the low bits of a word (tf32: FP32 registers), c and the result in the row's
/// accumulator format. a and b have equal length K (any K >= 0) and formats that the row has, possibly
/// different ones (E4M3 x E5M2); std::invalid_argument otherwise. K == 0 goes through no block and returns c.
/// NaN and infinity: any NaN operand, 0 * infinity, or infinities of both signs give the canonical NaN
/// (7fffffff, 7fff); otherwise an infinity wins. All-zero sums and exact cancellation give +0, also from -0
/// terms.
std::uint32_t fused_dot_add(const TensorCoreModel& model, DType a_format, std::span<const std::uint32_t> a,
                            DType b_format, std::span<const std::uint32_t> b, std::uint32_t c);

/// The same for FP16 operands and FP32 accumulation.
float fused_dot_add(const TensorCoreModel& model, std::span<const Float16> a, std::span<const Float16> b,
                    float c);

/// The generation whose rows describe mma.sync and wmma of a compute capability: "volta" for 7.0, "turing"
/// for 7.5, "ampere" for 8.0 to 8.7, "ada" for 8.9, "hopper" for 9.0, "blackwell" for 10.0 to 12.1. Empty
/// where the table has none.
std::string_view tensor_core_of(int capability_major, int capability_minor);

}  // namespace fp16lab
