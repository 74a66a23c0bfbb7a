// Tensor-core generations as data, and the one algorithm that reads that data.
//
// A row is a list of stages. For one output element an instruction does them one after the other, each with
// some of its products and one number that enters; the last one's result is the accumulator of the next
// instruction, over ascending k. Every published finite-precision model of NVIDIA matrix units (Fasi et al.,
// PeerJ CS 330, 2021; Khattak & Mikaitis, arXiv 2512.07004; MMA-Sim, arXiv 2511.10909) is made of the same
// fixed-point sum with other numbers, Sum::aligned, which they call a *fused block*:
//   1. products are exact and not normalised (significand in [0,4), exponent ea + eb; subnormals keep the
//      emin of their own format and are never flushed);
//   2. emax = the largest exponent among the non-zero terms, at least `exponent_floor`;
//   3. every term becomes an integer multiple of 2^(emax - fraction_bits); lower bits of the magnitude are
//      dropped;
//   4. the integers are added exactly, then rounded once by `output`.
// There is no test on the architecture anywhere in arithmetic code: a generation is a few rows of
// `tensor_core_models()`, one for each kind of operands and accumulator that it has.
//
// A row may have block scales (Blackwell's mxf8f6f4 and mxf4nvf4): one power of two, or one small number, for
// a block of neighbouring elements of K in a row of A and in a column of B. Their exponents join those of the
// products; or, where a stage adds groups of products exactly, they alone align the groups.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "numerics/formats/dtype.hpp"
#include "numerics/text/named_enum.hpp"

namespace fp16lab {

// Formats of A and B are those of is_operand. TF32 operands are FP32 registers whose
// low 13 bits the hardware ignores: they are truncated, not rounded, and a NaN with payload only there
// becomes an infinity (MMA-Sim, asserted on chips).

/// Low bits of an operand's word that are no part of the number: 13 for TF32, 0 for all others.
template <class F>
inline constexpr int ignored_bits = sizeof(typename F::Bits) == 4 ? 32 - F::width : 0;

/// Formats of C and D.
inline constexpr DType accumulator_formats[] = {DType::f32, DType::f16};

/// The format of this name; std::invalid_argument with the known names otherwise.
DType operand_format(std::string_view name);
DType accumulator_format(std::string_view name);

/// The operand format whose memory holds elements of type T: float means a TF32 register.
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

/// No stage takes more products.
inline constexpr int max_block_size = 64;

/// How a stage's exact sum becomes a number, subnormal results included.
enum class BlockOutput : std::uint8_t {
  fp32_toward_zero,           ///< truncate to 24 significant bits; |sum| >= 2^128 gives infinity
  fp32_toward_zero_14_bits,   ///< truncate to 14 significant bits (E8M13), stored in FP32; infinity as above
  fp16_nearest_even,          ///< round to FP16 directly from the sum; |sum| >= 65520 gives infinity
  fp32_nearest_even,          ///< IEEE 754's own rounding; what follows is of FP32 too
  fp32_nearest_even_flushed,  ///< then a subnormal becomes a zero of its sign: x86's FTZ, tiny after rounding
  fp64_nearest_even,          ///< of an fma of FP64 numbers
};
constexpr DType format_of(BlockOutput output) {
  return output == BlockOutput::fp16_nearest_even   ? DType::f16
         : output == BlockOutput::fp64_nearest_even ? DType::f64
                                                    : DType::f32;
}

/// How a stage adds its terms: its products, by ascending k, and the number that enters.
enum class Sum : std::uint8_t {
  aligned,  ///< in fixed point (above)
  /// acc = a * b + acc, one product after the other, each rounded by `output`. With a flushed output
  /// subnormal operands and accumulators are zeros too. What an instruction lacks at the end of K is +0 * +0.
  fma,
  addition,  ///< what the stages before it made, plus c: one ordinary addition
};

/// The inputs of a stage besides its products.
enum class Entry : std::uint8_t {
  accumulator,  ///< c: what the instruction before made
  zero,         ///< +0
  previous,     ///< what the stage before made
};

/// Which products of an instruction a stage takes: those with (k / run) mod groups == group.
struct Share {
  int run = 1, groups = 1, group = 0;

  constexpr bool contains(int k) const { return k / run % groups == group; }
  friend constexpr bool operator==(const Share&, const Share&) = default;
};

/// One step of an instruction.
struct Stage {
  Sum sum = Sum::aligned;
  int products = 0;  ///< L: as many as `share` has of an instruction; 0 for an addition
  Share share = {};
  Entry entry = Entry::accumulator;
  int fraction_bits = 0;   ///< F: in an aligned sum, bits kept below 2^emax
  int exponent_floor = 0;  ///< E0: in an aligned sum, the exponent that a zero term contributes
  BlockOutput output = BlockOutput::fp32_toward_zero;
  /// In an aligned sum with block scales: neighbouring products that are added exactly and become one term,
  /// their sum times both scales, aligned by the scales' exponents alone. It counts as zero only if all of
  /// its products, or a scale, are zero. 1: each product is a term, and so aligned by all four exponents.
  int exact_group = 1;

  friend constexpr bool operator==(const Stage&, const Stage&) = default;
};

/// Block scales: numbers of `format` (e8m0 or ue4m3), one for each `block` neighbouring elements of K.
struct ScaleKind {
  DType format = DType::e8m0;
  int block = 0;  ///< 0: none

  friend constexpr bool operator==(const ScaleKind&, const ScaleKind&) = default;
};

/// One to four stages, in the order in which they are done.
class Stages {
 public:
  static constexpr std::size_t most = 4;

  constexpr Stages(std::initializer_list<Stage> stages) : count_(stages.size()) {
    std::copy(stages.begin(), stages.end(),
              stages_.begin());  // more than `most` do not compile in a constant
  }
  /// std::out_of_range where there are `most` already.
  constexpr void push_back(const Stage& stage) { stages_.at(count_++) = stage; }
  constexpr std::size_t size() const { return count_; }
  constexpr const Stage* begin() const { return stages_.data(); }
  constexpr const Stage* end() const { return stages_.data() + count_; }
  constexpr Stage* begin() { return stages_.data(); }
  constexpr Stage* end() { return stages_.data() + count_; }
  constexpr const Stage& front() const { return stages_.front(); }
  constexpr const Stage& back() const { return stages_[count_ - 1]; }
  friend constexpr bool operator==(const Stages& a, const Stages& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  std::array<Stage, most> stages_{};
  std::size_t count_;
};

/// The stages of most rows: one fused block, which c enters.
constexpr Stages fused_block(int products, int fraction_bits, BlockOutput output, int exponent_floor) {
  return {{.products = products,
           .fraction_bits = fraction_bits,
           .exponent_floor = exponent_floor,
           .output = output}};
}
/// x86's vdpbf16ps takes in each pair of products the one with the higher k first, each an fma to nearest
/// even; subnormal inputs and results are zeros of their sign.
constexpr Stages fma_pairs() {
  Stage high{
      .sum = Sum::fma, .products = 1, .share = {1, 2, 1}, .output = BlockOutput::fp32_nearest_even_flushed};
  Stage low = high;
  low.share.group = 0;
  low.entry = Entry::previous;
  return {high, low};
}
/// FP8 by mma.sync on H100, H200 and B200: an instruction of 32 products is two FP16 blocks of 16 that begin
/// at +0, and c joins at its end by one ordinary addition, to nearest even. The first block has the k with
/// k / run even: runs of 2 (k mod 4 in {0, 1}), or of 16, which the one capture of FP32 output (B200) leaves
/// possible too.
constexpr Stages two_blocks_then_c(int run, int fraction_bits, BlockOutput output, int exponent_floor) {
  Stage first{.products = 16,
              .share = {run, 2, 0},
              .entry = Entry::zero,
              .fraction_bits = fraction_bits,
              .exponent_floor = exponent_floor,
              .output = output};
  Stage second = first;
  second.share.group = 1;
  second.entry = Entry::previous;
  const bool halves = output == BlockOutput::fp16_nearest_even;
  return {first,
          second,
          {.sum = Sum::addition,
           .output = halves ? BlockOutput::fp16_nearest_even : BlockOutput::fp32_nearest_even}};
}

/// The exponent with which a subnormal FP16 accumulator enters the alignment. Open: MMA-Sim says emin, the
/// code of Khattak & Mikaitis takes the exponent of the value. Decided by c = 0001 with products +2^-25 and
/// -2^-41: 0002 with emin, 0001 with the value's own. An FP32 accumulator that an FP16 register holds (c of
/// mma.m8n8k4.f32.f16.f16.f16 on Volta and Turing) has no smaller exponent than FP16's emin.
enum class SubnormalAccumulator : std::uint8_t { emin, own_exponent, fp16_emin };

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
constexpr std::array<std::string_view, 6> names_of(BlockOutput) {
  return {"fp32_toward_zero",  "fp32_toward_zero_14_bits",  "fp16_nearest_even",
          "fp32_nearest_even", "fp32_nearest_even_flushed", "fp64_nearest_even"};
}
constexpr std::array<std::string_view, 3> names_of(Sum) { return {"aligned", "fma", "addition"}; }
constexpr std::array<std::string_view, 3> names_of(Entry) { return {"accumulator", "zero", "previous"}; }
constexpr std::array<std::string_view, 3> names_of(SubnormalAccumulator) {
  return {"emin", "own_exponent", "fp16_emin"};
}
constexpr std::array<std::string_view, 2> names_of(UnderflowZero) { return {"keeps_sign", "positive"}; }
constexpr std::array<std::string_view, 3> names_of(Evidence) {
  return {"hardware", "hardware_test", "model"};
}

/// One row of the table. Change a copy to see what other hardware would do.
struct TensorCoreModel {
  std::string_view name;      ///< the name users type: "hopper"
  std::string_view hardware;  ///< the hardware it models: "sm_90 mma.sync"
  OperandFormats operands;
  /// Open: TF32 through wmma on Hopper may have 4 products where mma and wgmma have 8. E0 cannot be seen with
  /// FP8 operands, nor with FP16 operands and FP32 output. With FP16 output MMA-Sim and Khattak & Mikaitis
  /// have 4 - F0; no published capture shows it.
  Stages stages;
  Evidence evidence;
  std::string_view source;
  /// FP8 operands become FP16 numbers first: they keep their values, but the subnormals of E4M3 are normal.
  bool as_fp16 = false;
  SubnormalAccumulator subnormal_accumulator = SubnormalAccumulator::emin;
  UnderflowZero underflow_zero = UnderflowZero::positive;
  std::array<ScaleKind, 3> scales = {};  ///< what its operands may have; the first one's block is 0: none

  /// Must operands have block scales?
  constexpr bool is_scaled() const { return scales.front().block > 0; }
  constexpr DType accumulator() const { return format_of(stages.back().output); }
  /// The first stage, which has the numbers of the row: further aligned stages have the same.
  constexpr const Stage& block() const { return stages.front(); }
  /// Products of an instruction.
  constexpr int products() const {
    int sum = 0;
    for (const Stage& stage : stages) sum += stage.products;
    return sum;
  }
  /// A row with another number in every stage that has products.
  template <class Value>
  constexpr void set(Value Stage::*number, std::type_identity_t<Value> value) {
    for (Stage& stage : stages)
      if (stage.sum != Sum::addition) stage.*number = value;
  }
};

/// The rows without block scales whose words have 32 bits or fewer: what training multiplies by. Oldest
/// generation first; the rows of one generation are neighbours.
std::span<const TensorCoreModel> tensor_core_models();
/// All rows: those, then those with block scales, then FP64's.
std::span<const TensorCoreModel> all_tensor_core_models();
/// The generations, oldest first: volta, turing, ampere, ada, hopper, hopper-wgmma, blackwell,
/// blackwell-tcgen05, and avx512_bf16.
std::span<const std::string_view> tensor_core_names();
/// The names of rows with block scales: blackwell-mxf8f6f4, blackwell-mxf4nvf4, after PTX's kinds.
std::span<const std::string_view> block_scaled_names();

/// The chips whose names may replace that of a generation: v100, t4, a100, ...
std::span<const std::string_view> tensor_core_chips();
/// The generations on this chip, that of mma.sync first; for a generation only itself. Both are found in any
/// case. Empty where nothing has this name.
std::span<const std::string_view> generations_of(std::string_view name);

/// What an instruction does, for people: "16 products and c, F 25, E0 -133, fp32_toward_zero"; stages have
/// "; " between them.
std::string stages_text(const TensorCoreModel& row);

/// Do two rows give the same bits for the same operands? Names, evidence and sources do not count.
bool same_function(const TensorCoreModel& a, const TensorCoreModel& b);

/// The row of this generation or chip, named in any case, for these formats. A chip with several rows for
/// them has one where they are the same function: that of mma.sync. std::invalid_argument otherwise, with
/// these rows; with the known names and the nearest one; or with the formats that the generation has.
const TensorCoreModel& tensor_core_model(std::string_view name, DType operands = DType::f16,
                                         DType accumulator = DType::f32);
/// What a command multiplies if it names no format: f16, or where the generation or chip has no row with
/// these sums for it, its first format that has one. f16 too where nothing has this name.
DType usual_operands(std::string_view name, DType accumulator = DType::f32);
/// The row that multiplies `a` by `b`.
const TensorCoreModel& tensor_core_model(std::string_view name, DType a, DType b, DType accumulator);

/// The scales of a dot product's operands: number i is that of the elements [i * block, (i + 1) * block).
struct DotScales {
  ScaleKind kind = {};
  std::span<const std::uint32_t> a = {}, b = {};
};

/// "e8m0 for 32 elements, ue4m3 for 16 elements": the scales that a row takes; empty: none.
std::string scales_text(const TensorCoreModel& row);
/// std::invalid_argument, with what would be right, unless operands of `k` elements may have scales of this
/// kind, `a` and `b` of them for a row of A and a column of B. k == 0 needs none.
void check_scales(const TensorCoreModel& row, const ScaleKind& kind, std::size_t k, std::size_t a,
                  std::size_t b);

/// d = c (+) sum_k a[k] * b[k] exactly as the hardware row computes it: the scalar reference.
///
/// Elements are bit patterns in the low bits of a word (tf32: FP32 registers), c and the result in the row's
/// accumulator format. a and b have equal length K (any K >= 0) and formats that the row has, possibly
/// different ones (E4M3 x E5M2); std::invalid_argument otherwise. K == 0 goes through no block and returns c.
/// NaN and infinity: any NaN operand, 0 * infinity, or infinities of both signs give the canonical NaN
/// (7fffffff, 7fff), and so does a NaN scale, whatever it scales; otherwise an infinity wins. All-zero sums
/// and exact cancellation give +0, also from -0 terms. `scales`: those of rows that have block scales.
std::uint32_t fused_dot_add(const TensorCoreModel& model, DType a_format, std::span<const std::uint32_t> a,
                            DType b_format, std::span<const std::uint32_t> b, std::uint32_t c,
                            const DotScales& scales = {});

/// The same for FP64 words and a row of theirs: fmas by ascending k. A NaN result is 7fffffffffffffff.
std::uint64_t fused_dot_add(const TensorCoreModel& model, std::span<const std::uint64_t> a,
                            std::span<const std::uint64_t> b, std::uint64_t c);

/// The same for FP16 operands and FP32 accumulation.
float fused_dot_add(const TensorCoreModel& model, std::span<const Float16> a, std::span<const Float16> b,
                    float c);

/// The generation whose rows describe mma.sync and wmma of a compute capability: "volta" for 7.0, "turing"
/// for 7.5, "ampere" for 8.0 to 8.7, "ada" for 8.9, "hopper" for 9.0, "blackwell" for 10.0 to 12.1. Empty
/// where the table has none.
std::string_view tensor_core_of(int capability_major, int capability_minor);

}  // namespace fp16lab
