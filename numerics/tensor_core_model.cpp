#include "numerics/tensor_core_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>
#include <vector>

#include "numerics/bits.hpp"
#include "numerics/nearest_name.hpp"
#include "numerics/round_pack.hpp"
#include "numerics/rounding.hpp"

namespace fp16lab {
namespace {

using enum Evidence;
constexpr BlockOutput fp32_truncated = BlockOutput::fp32_toward_zero;

// The captures of Khattak & Mikaitis (arXiv 2512.07004) are the ones in github.com/north-numerical-computing/
// MATLAB-tensor-core: 5000 outputs of one instruction for each device. The exponent floors come from MMA-Sim
// (arXiv 2511.10909); with FP16 inputs and FP32 accumulation no result depends on them, because the smallest
// product of two non-zero FP16 numbers has exponent -28.
constexpr std::array models{
    TensorCoreModel{"volta", "sm_70 mma, wmma (V100)", 4, 23, fp32_truncated, -131, hardware,
                    "Khattak & Mikaitis, arXiv 2512.07004, V100 captures; Fasi et al., PeerJ CS 330"},
    TensorCoreModel{"turing", "sm_75 mma, wmma (T4)", 8, 24, fp32_truncated, -132, hardware_test,
                    "MMA-Sim, arXiv 2511.10909, assertions run on T4 (block of 8; Fasi et al. read 4)"},
    TensorCoreModel{"ampere", "sm_80, sm_86 mma, wmma (A100, A2)", 8, 24, fp32_truncated, -132, hardware,
                    "Khattak & Mikaitis, arXiv 2512.07004, A100 and A2 captures; MMA-Sim, arXiv 2511.10909"},
    TensorCoreModel{"ada", "sm_89 mma, wmma (L40S, RTX 1000 Ada)", 8, 24, fp32_truncated, -132, hardware,
                    "Khattak & Mikaitis, arXiv 2512.07004, L40S and RTX 1000 Ada captures"},
    TensorCoreModel{
        "hopper", "sm_90 mma.sync, wmma (H100, H200)", 16, 25, fp32_truncated, -133, hardware,
        "Khattak & Mikaitis, arXiv 2512.07004, H100 and H200 captures; MMA-Sim, arXiv 2511.10909"},
    TensorCoreModel{"hopper-wgmma", "sm_90a wgmma (H100, H200)", 16, 25, fp32_truncated, -133, hardware_test,
                    "MMA-Sim, arXiv 2511.10909, equivalence tests: for FP16 the same function as mma.sync"},
    TensorCoreModel{"blackwell", "sm_100 mma.sync, sm_120 mma (B200)", 16, 25, fp32_truncated, -133, hardware,
                    "Khattak & Mikaitis, arXiv 2512.07004, B200 captures"},
    TensorCoreModel{"blackwell-tcgen05", "sm_100a tcgen05 (B200)", 16, 25, fp32_truncated, -133, model,
                    "MMA-Sim, arXiv 2511.10909"},
};

/// A finite term of a block: (-1)^sign * significand * 2^last_place. Its place in the alignment is
/// `exponent`, the sum of the operands' exponent fields, wherever the leading one of the significand may be.
struct Term {
  bool sign = false;
  std::uint64_t significand = 0;
  int last_place = 0;
  int exponent = 0;
};

/// The terms of one block, with its special values gathered apart.
class Block {
 public:
  void add_product(Float16 a, Float16 b) {
    const Exact x = decode(a);
    const Exact y = decode(b);
    const bool sign = x.sign != y.sign;
    if (x.kind == Exact::Kind::nan || y.kind == Exact::Kind::nan) {
      nan_ = true;
    } else if (x.kind == Exact::Kind::infinite || y.kind == Exact::Kind::infinite) {
      if (x.kind == Exact::Kind::zero || y.kind == Exact::Kind::zero)
        nan_ = true;
      else
        add_infinity(sign);
    } else if (x.kind == Exact::Kind::finite && y.kind == Exact::Kind::finite) {
      add({sign, x.significand * y.significand, x.exponent + y.exponent,
           x.exponent + y.exponent + 2 * Binary16::fraction_bits});
    }
  }

  void add_accumulator(float c) {
    const Exact x = decode(SmallFloat<Binary32>::from_bits(bits_of(c)));
    if (x.kind == Exact::Kind::nan) nan_ = true;
    if (x.kind == Exact::Kind::infinite) add_infinity(x.sign);
    if (x.kind == Exact::Kind::finite)
      add({x.sign, x.significand, x.exponent, x.exponent + Binary32::fraction_bits});
  }

  float result(const TensorCoreModel& row) const {
    if (nan_ || (positive_infinity_ && negative_infinity_)) return float_from_bits(Binary32::canonical_nan);
    if (positive_infinity_) return float_from_bits(Binary32::infinity);
    if (negative_infinity_) return float_from_bits(Binary32::sign_mask | Binary32::infinity);

    int max_exponent = row.exponent_floor;
    for (const Term& term : terms()) max_exponent = std::max(max_exponent, term.exponent);

    const int unit = max_exponent - row.fraction_bits;  // everything is a multiple of 2^unit from here
    std::int64_t sum = 0;
    for (const Term& term : terms()) {
      const auto magnitude = static_cast<std::int64_t>(aligned(term, unit));
      sum += term.sign ? -magnitude : magnitude;
    }
    return output(sum, unit, row.output);
  }

 private:
  void add(const Term& term) { terms_[count_++] = term; }
  void add_infinity(bool sign) { (sign ? negative_infinity_ : positive_infinity_) = true; }
  std::span<const Term> terms() const { return {terms_.data(), count_}; }

  /// The magnitude in units of 2^unit, lower bits dropped.
  static std::uint64_t aligned(const Term& term, int unit) {
    const int shift = term.last_place - unit;
    if (shift >= 0) return term.significand << shift;
    return shift > -64 ? term.significand >> -shift : 0;
  }

  static float output(std::int64_t sum, int unit, BlockOutput output) {
    Exact exact;  // a sum of zero is +0, whatever the signs of the terms were
    if (sum != 0) {
      exact.kind = Exact::Kind::finite;
      exact.sign = sum < 0;
      exact.significand = static_cast<std::uint64_t>(sum < 0 ? -sum : sum);
      exact.exponent = unit;
    }
    switch (output) {
      case BlockOutput::fp32_toward_zero:
        // Unlike IEEE truncation the hardware does not saturate: from 2^128 on the result is infinite.
        if (sum != 0 && unit + bit_width(exact.significand) - 1 > Binary32::emax)
          exact.kind = Exact::Kind::infinite;
        return float_from_bits(round_pack<Binary32>(exact, Rounding::toward_zero).bits());
    }
    return 0.0f;
  }

  std::array<Term, max_block_size + 1> terms_;
  std::size_t count_ = 0;
  bool nan_ = false;
  bool positive_infinity_ = false;
  bool negative_infinity_ = false;
};

constexpr bool blocks_fit() {
  return std::ranges::all_of(models,
                             [](const TensorCoreModel& row) { return row.block_size <= max_block_size; });
}
static_assert(blocks_fit());

}  // namespace

std::span<const TensorCoreModel> tensor_core_models() { return models; }

const TensorCoreModel& tensor_core_model(std::string_view name) {
  const auto* const row = std::ranges::find(models, name, &TensorCoreModel::name);
  if (row != models.end()) return *row;
  std::vector<std::string_view> names;
  names.reserve(models.size());
  for (const TensorCoreModel& known : models) names.push_back(known.name);
  throw std::invalid_argument(
      fmt::format("unknown tensor-core model '{}': {}", name, known_are(name, names)));
}

float fused_dot_add(const TensorCoreModel& model, std::span<const Float16> a, std::span<const Float16> b,
                    float c) {
  if (a.size() != b.size())
    throw std::invalid_argument(
        fmt::format("fused_dot_add: a has {} elements and b has {}; they must agree", a.size(), b.size()));
  if (model.block_size < 1 || model.block_size > max_block_size)
    throw std::invalid_argument(
        fmt::format("fused_dot_add: model '{}' has a block of {} products; 1 to {} are possible", model.name,
                    model.block_size, max_block_size));
  const auto block_size = static_cast<std::size_t>(model.block_size);
  for (std::size_t first = 0; first < a.size(); first += block_size) {
    Block block;
    block.add_accumulator(c);
    for (std::size_t k = first; k < std::min(first + block_size, a.size()); ++k)
      block.add_product(a[k], b[k]);
    c = block.result(model);
  }
  return c;
}

}  // namespace fp16lab
