// Tensor-core generations as data, and the one algorithm that reads that data.
//
// Every published finite-precision model of NVIDIA matrix units (Fasi et al., PeerJ CS 330, 2021; Khattak &
// Mikaitis, arXiv 2512.07004; MMA-Sim, arXiv 2511.10909) is the same fixed-point sum with four numbers
// changed. For one output element a *fused block* takes at most `block_size` products and one accumulator:
//   1. products are exact and not normalised (significand in [0,4), exponent ea + eb; subnormals keep emin);
//   2. emax = the largest exponent among the non-zero terms, at least `exponent_floor`;
//   3. every term becomes an integer multiple of 2^(emax - fraction_bits); lower bits of the magnitude are
//   dropped;
//   4. the integers are added exactly, then rounded once by `output`.
// Longer dot products chain blocks over ascending k; the rounded result of a block is the accumulator of the
// next. There is no test on the architecture anywhere in arithmetic code: a generation is one row of
// `tensor_core_models()`.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "numerics/small_float.hpp"

namespace fp16lab {

/// No hardware row has more products in a fused block.
inline constexpr int max_block_size = 64;

/// How a block's exact fixed-point sum becomes the output element.
enum class BlockOutput {
  fp32_toward_zero,  ///< truncate to 24 significant bits; |sum| >= 2^128 gives infinity
};

/// How well the row is known (see each row's `source`).
enum class Evidence {
  hardware,       ///< equals published hardware captures bit for bit
  hardware_test,  ///< asserted on hardware by a public test suite
  model,          ///< stated by a published model, not independently checked
};

struct TensorCoreModel {
  std::string_view name;      ///< the name users type: "hopper"
  std::string_view hardware;  ///< what it stands for: "sm_90 mma.sync"
  int block_size;             ///< L: products per fused block (FP16 inputs)
  int fraction_bits;          ///< F: bits kept below 2^emax in alignment
  BlockOutput output;
  int exponent_floor;  ///< E0: the exponent that a zero term contributes
  Evidence evidence;
  std::string_view source;
};

/// All generations, oldest first. FP16 inputs, FP32 accumulation.
std::span<const TensorCoreModel> tensor_core_models();

/// The row called `name`; std::invalid_argument with the known names and the nearest one otherwise.
const TensorCoreModel& tensor_core_model(std::string_view name);

/// d = c (+) sum_k a[k] * b[k] exactly as the hardware row computes it: the scalar reference.
/// `a` and `b` have equal length K (any K >= 0; std::invalid_argument if they differ); K is cut into blocks
/// over ascending k. `c` and the result are FP32. K == 0 returns c through no block, i.e. unchanged. NaN and
/// infinity: any NaN operand, 0 * infinity, or infinities of both signs give the canonical NaN 0x7fffffff;
/// otherwise an infinity wins. All-zero sums give +0, also from -0 terms.
float fused_dot_add(const TensorCoreModel& model, std::span<const Float16> a, std::span<const Float16> b,
                    float c);

}  // namespace fp16lab
