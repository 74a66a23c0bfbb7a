// The open points of the published models, as questions to a tensor core. Numbers of vectors (V37) and probes
// (P1) are those of tests/golden/tensor_core_*.tsv.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "experiments/tensor_core_probe/question_parts.hpp"

namespace fp16lab::probe {
namespace {

/// The rows with every exponent floor that vectors seen down to 2^-seen_last can tell apart: a term 2^-m
/// survives exactly if m <= F - E0, and E0 itself is above every product. The claimed one comes first.
std::vector<Hypothesis> floors(const Instruction& in, const TensorCoreModel& claim, int seen_first,
                               int seen_last) {
  std::vector<Hypothesis> list;
  for (int last_kept = seen_first; last_kept <= seen_last; ++last_kept) {
    TensorCoreModel row = claim;
    row.set(&Stage::exponent_floor, claim.block().fraction_bits - last_kept);
    const bool lowest = last_kept == seen_last;  // no vector reaches below
    const bool claimed = lowest ? claim.block().exponent_floor <= row.block().exponent_floor
                                : claim.block().exponent_floor == row.block().exponent_floor;
    std::string name = fmt::format("E0 {} {}", lowest ? "<=" : "=", row.block().exponent_floor);
    if (claimed) row = claim;
    list.insert(claimed ? list.begin() : list.end(), hypothesis_of(std::move(name), in, claim, row));
  }
  return list;
}

/// P12: m16n8k8 is what products end with whose K leaves 8 or fewer, also where the tensor core takes 16 at
/// once. The table has it as one block of 8 with the bits of the generation.
Question tail_of_eight(const Instruction& in, const TensorCoreModel& row) {
  Question question{"P12",
                    fmt::format("{}: one fused block of {} products with {} fraction bits", in.name,
                                std::min(row.block().products, in.k), row.block().fraction_bits),
                    in,
                    {},
                    {}};
  const bool half = in.accumulator == DType::f16;
  const auto k = static_cast<std::size_t>(in.k);
  const std::uint32_t one = encode(in.accumulator, 1.0f);
  // Two terms that only together change c = 1: they share a block.
  for (std::size_t i = 0; i < (half ? 1 : k); ++i)
    for (std::size_t j = i + 1; j < k; ++j) {
      Vector vector{half ? fmt::format("P12-k0-k{}", j) : fmt::format("P5-k{}-k{}", i, j), Words(k), Words(k),
                    one};
      for (const std::size_t place : {i, j}) put_power(vector, place, in.operands, half ? -11 : -24);
      question.vectors.push_back(std::move(vector));
    }
  // How small a term counts beside c: it is taken from 1, or breaks the tie of 1 + 2^-11.
  for (int m = 21; m <= 27; ++m) {
    Vector vector{fmt::format("P12-2^-{}", m), Words(k), Words(k), one};
    if (half) put_power(vector, 0, in.operands, -11);
    put_power(vector, 1, in.operands, -m, half ? 1.0f : -1.0f);
    question.vectors.push_back(std::move(vector));
  }
  const auto other = [&](int block, int bits) {
    TensorCoreModel changed = row;
    changed.set(&Stage::products, block);
    changed.set(&Stage::fraction_bits, bits);
    return hypothesis_of(fmt::format("L = {}, F = {}", block, bits), in, row, changed);
  };
  const int block = std::min(row.block().products, in.k);
  question.hypotheses.push_back(
      hypothesis_of(fmt::format("L = {}, F = {}", block, row.block().fraction_bits), in, row, row));
  for (const int other_block : {8, 4, 2})
    for (const int bits : {24, 25})
      if (other_block != block || bits != row.block().fraction_bits)
        question.hypotheses.push_back(other(other_block, bits));
  return question;
}

/// P1: 2^-25 is half of FP16's least number, a tie that only a visible tiny term breaks.
Question exponent_floor_of_half(const Instruction& in, const TensorCoreModel& row) {
  Question question{
      "P1",
      fmt::format("{}: exponent floor E0 = {} (MMA-Sim 2.1.1)", in.name, row.block().exponent_floor),
      in,
      {},
      {}};
  for (int m = 40; m <= 48; ++m) {
    Vector vector{m == 45 ? "V37" : m == 47 ? "V38" : fmt::format("P1-2^-{}", m), {}, {}};
    vector.a = {power(in.operands, -12)};
    vector.b = {power(in.operands, -13)};
    put_power(vector, 1, in.operands, -m);
    question.vectors.push_back(std::move(vector));
  }
  question.hypotheses = floors(in, row, 40, 48);
  return question;
}

/// P2: c = 2^-24 with +2^-25, a tie, and -2^-41, which only a fine alignment sees.
Question subnormal_accumulator(const Instruction& in, const TensorCoreModel& row) {
  Question question{"P2", fmt::format("{}: a subnormal c has exponent -14 (MMA-Sim)", in.name), in, {}, {}};
  for (const auto& [id, c, sign] : {std::tuple{"P2", 0x0001U, 1.0f}, std::tuple{"P2-minus", 0x8001U, -1.0f},
                                    std::tuple{"P2-3", 0x0003U, 1.0f}}) {
    Vector vector{id,
                  {power(in.operands, -12), power(in.operands, -20)},
                  {power(in.operands, -13, sign), power(in.operands, -21, -sign)},
                  c};
    question.vectors.push_back(std::move(vector));
  }
  TensorCoreModel own = row;
  own.subnormal_accumulator = SubnormalAccumulator::own_exponent;
  question.hypotheses = {hypothesis_of("emin", in, row, row),
                         hypothesis_of("own exponent (Khattak & Mikaitis)", in, row, own)};
  return question;
}

/// P3: negative sums below the least number, in the instruction's last block: a later one would make +0 of -0.
Question underflow_zero(const Instruction& in, const TensorCoreModel& row) {
  Question question{"P3",
                    fmt::format("{}: a negative sum that rounds to zero gives +0 (MMA-Sim 2.1.1)", in.name),
                    in,
                    {},
                    {}};
  const std::size_t place = in.k > row.block().products ? static_cast<std::size_t>(in.k) - 1 : 0;
  const auto add = [&](std::string id, float a, float b) {
    Vector vector{std::move(id), Words(place + 1), Words(place + 1)};
    vector.a[place] = encode(in.operands, a);
    vector.b[place] = encode(in.operands, b);
    question.vectors.push_back(std::move(vector));
  };
  if (in.accumulator == DType::f16) {
    add("P3", 0x1p-13f, -0x1p-13f);
    add("P3-tie", 0x1p-12f, -0x1p-13f);
  } else {
    add(in.operands == DType::bf16 ? "P3b" : "P3c", 0x1p-75f, -0x1p-75f);
    add("P3-3/4", 0x3p-76f, -0x1p-75f);
    // Dropped whole before the addition: no sum that could have a sign.
    add("P3-dropped", 0x1p-85f, -0x1p-85f);
  }
  TensorCoreModel signed_zero = row;
  signed_zero.underflow_zero = UnderflowZero::keeps_sign;
  question.hypotheses = {hypothesis_of("+0", in, row, row),
                         hypothesis_of("-0 (Khattak & Mikaitis)", in, row, signed_zero)};
  return question;
}

/// P4: exact zeros. IEEE 754 gives -0 where all terms are -0; the SMT model of Valpey et al. also for
/// cancellation.
Question zero_signs(const Instruction& in, const TensorCoreModel& row) {
  Question question{
      "P4", fmt::format("{}: zero sums are +0, also from -0 terms and cancellation", in.name), in, {}, {}};
  const auto k = static_cast<std::size_t>(in.k);
  const std::uint32_t one = power(in.operands, 0), minus_one = power(in.operands, 0, -1);
  const std::uint32_t minus_zero = encode(in.operands, -0.0f), c_minus_zero = encode(in.accumulator, -0.0f);
  Vector all_minus_zero{"V29", Words(k, minus_zero), Words(k, one), c_minus_zero};
  Vector one_plus_zero = all_minus_zero;
  one_plus_zero.id = "V29-one+0";
  one_plus_zero.a[k - 1] = 0;
  Vector c_plus_zero = all_minus_zero;
  c_plus_zero.id = "V29-c+0";
  c_plus_zero.c = 0;
  question.vectors = {all_minus_zero,
                      one_plus_zero,
                      c_plus_zero,
                      {"P4-c-0", Words(k, 0), Words(k, 0), c_minus_zero},
                      {"V30", {one}, {one}, encode(in.accumulator, -1.0f)},
                      {"P4-products", {one, minus_one}, {one, one}, 0}};

  const DotProduct model = dot_product_of(row, in.operands);
  // Signs and zeros of the terms, of finite operands.
  struct Terms {
    bool any_minus_zero = false, all_minus_zero = true, any_number = false;
    void add(bool negative, bool zero) {
      any_minus_zero = any_minus_zero || (negative && zero);
      all_minus_zero = all_minus_zero && negative && zero;
      any_number = any_number || !zero;
    }
  };
  const auto terms = [minus_zero, c_minus_zero](std::span<const std::uint32_t> a,
                                                std::span<const std::uint32_t> b, std::uint32_t c) {
    Terms all;
    for (std::size_t i = 0; i < a.size(); ++i)
      all.add(((a[i] ^ b[i]) & minus_zero) != 0, (a[i] & ~minus_zero) == 0 || (b[i] & ~minus_zero) == 0);
    all.add((c & c_minus_zero) != 0, (c & ~c_minus_zero) == 0);
    return all;
  };
  const std::string change = row_name(row, in) + ": the model needs a sign for exact zeros";
  question.hypotheses = {
      {"always +0", "", model},
      {"IEEE", change + " (-0 where all terms are -0)",
       [=](std::span<const std::uint32_t> a, std::span<const std::uint32_t> b, std::uint32_t c) {
         const std::uint32_t word = model(a, b, c);
         return word == 0 && terms(a, b, c).all_minus_zero ? c_minus_zero : word;
       }},
      {"SMT", change + " (-0 from cancellation and from any -0 term)",
       [=](std::span<const std::uint32_t> a, std::span<const std::uint32_t> b, std::uint32_t c) {
         const std::uint32_t word = model(a, b, c);
         const Terms all = terms(a, b, c);
         return word == 0 && (all.any_minus_zero || all.any_number) ? c_minus_zero : word;
       }}};
  return question;
}

/// P5: c = 1 and 2^-24 at two places: 1 + 2^-23 exactly if the two are in one block.
Question block_of_tf32(const Instruction& in, const TensorCoreModel& row) {
  Question question{
      "P5", fmt::format("{}: {} products in a fused block", in.name, row.block().products), in, {}, {}};
  const auto k = static_cast<std::size_t>(in.k);
  for (std::size_t i = 0; i < k; ++i)
    for (std::size_t j = i + 1; j < k; ++j) {
      Vector vector{i == 0 && j == 4 ? "V35" : fmt::format("P5-k{}-k{}", i, j), Words(j + 1), Words(j + 1),
                    encode(in.accumulator, 1.0f)};
      for (const std::size_t place : {i, j}) vector.a[place] = vector.b[place] = power(in.operands, -12);
      question.vectors.push_back(std::move(vector));
    }
  question.hypotheses.push_back(hypothesis_of(fmt::format("L = {}", row.block().products), in, row, row));
  for (const int block : {8, 4, 2, 1}) {
    if (block == row.block().products) continue;
    TensorCoreModel other = row;
    other.set(&Stage::products, block);
    question.hypotheses.push_back(hypothesis_of(fmt::format("L = {}", block), in, row, other));
  }
  TensorCoreModel four = row;
  four.set(&Stage::products, 4);
  const DotProduct blocks_of_four = dot_product_of(four, in.operands);
  const std::string change = row_name(row, in) + ": stages with blocks of 4, ";
  question.hypotheses.push_back(
      {"L = 4, even k first", change + "even k first",
       reordered(split(k, [](std::size_t i) { return i % 2 == 0; }), blocks_of_four)});
  question.hypotheses.push_back(
      {"L = 4, k mod 4 in {0,1} first", change + "k mod 4 in {0,1} first",
       reordered(split(k, [](std::size_t i) { return i % 4 < 2; }), blocks_of_four)});
  return question;
}

/// P6: 2^-149 less a tiny term: the least number, or just below it and truncated to zero.
Question exponent_floor_of_single(const Instruction& in, const TensorCoreModel& row) {
  Question question{
      "P6", fmt::format("{}: exponent floor E0 = {}", in.name, row.block().exponent_floor), in, {}, {}};
  for (int m = 154; m <= 160; ++m) {
    Vector vector{m == 156   ? "V34"
                  : m == 157 ? "V34b"
                  : m == 159 ? "V34c"
                             : fmt::format("P6-2^-{}", m),
                  {},
                  {}};
    vector.a = {power(in.operands, -75)};
    vector.b = {power(in.operands, -74)};
    put_power(vector, 1, in.operands, -m, -1);
    question.vectors.push_back(std::move(vector));
  }
  question.hypotheses = floors(in, row, 154, 160);
  return question;
}

/// P10: what wgmma makes of the accumulator that it was told not to read.
Question scale_d_zero(const Instruction& in, const TensorCoreModel& row) {
  Question question{"P10", fmt::format("{}: scale-d = 0 ignores NaN and infinity in D", in.name), in, {}, {}};
  const std::uint32_t one = power(in.operands, 0);
  for (const auto& [id, c] :
       {std::pair{"P10-nan", std::numeric_limits<float>::quiet_NaN()},
        std::pair{"P10-inf", std::numeric_limits<float>::infinity()},
        std::pair{"P10-minus-inf", -std::numeric_limits<float>::infinity()}, std::pair{"P10-one", 1.0f}})
    question.vectors.push_back({id, {one, one}, {one, one}, encode(in.accumulator, c)});
  question.vectors.push_back(
      {"P10-zeros", {encode(in.operands, -0.0f)}, {one}, encode(in.accumulator, -0.0f)});
  question.scale_d = false;

  const DotProduct model = dot_product_of(row, in.operands);
  const std::uint32_t infinity = encode(in.accumulator, std::numeric_limits<float>::infinity());
  const std::uint32_t nan =
      in.accumulator == DType::f16 ? std::uint32_t{Binary16::canonical_nan} : Binary32::canonical_nan;
  question.hypotheses = {
      {"C ignored", "",
       [=](std::span<const std::uint32_t> a, std::span<const std::uint32_t> b, std::uint32_t) {
         return model(a, b, 0);
       }},
      {"0 * C", "a loop that starts with scale-d = 0 must be emulated from 0 * C, not from +0",
       [=](std::span<const std::uint32_t> a, std::span<const std::uint32_t> b, std::uint32_t c) {
         return (c & infinity) == infinity ? nan : model(a, b, 0);
       }},
      {"C counts", "scale-d = 0 must be emulated like scale-d = 1", model}};
  return question;
}

}  // namespace

std::vector<Question> tensor_core_questions(Capability capability, const Settings& settings) {
  std::vector<Question> questions;
  const auto each = [&](std::initializer_list<Opcode> opcodes, auto make) {
    for (const Opcode opcode : opcodes) {
      const Instruction& in = instruction(opcode);
      if (const std::optional<TensorCoreModel> row = row_for(in, capability, settings.generation))
        questions.push_back(make(in, *row));
    }
  };
  using enum Opcode;
  // First what training on a device rests on and no published row shows.
  each({mma_m16n8k8_f16_f32, mma_m16n8k8_bf16_f32, mma_m16n8k8_f16_f16}, tail_of_eight);
  each({mma_m16n8k8_bf16_f32, mma_m16n8k16_bf16_f32, wgmma_m64n8k16_bf16_f32}, underflow_zero);
  each({mma_m8n8k4_f16_f16, mma_m16n8k8_f16_f16, mma_m16n8k16_f16_f16, wgmma_m64n8k16_f16_f16},
       exponent_floor_of_half);
  each({mma_m8n8k4_f16_f16, mma_m16n8k8_f16_f16, mma_m16n8k16_f16_f16, wgmma_m64n8k16_f16_f16},
       subnormal_accumulator);
  each({mma_m8n8k4_f16_f16, mma_m16n8k8_f16_f16, mma_m16n8k16_f16_f16, mma_m16n8k8_tf32_f32,
        wgmma_m64n8k16_f16_f16, wgmma_m64n8k8_tf32_f32},
       underflow_zero);
  each(
      {mma_m8n8k4_f16_f32, mma_m8n8k4_f16_f16, mma_m16n8k8_f16_f32, mma_m16n8k8_f16_f16, mma_m16n8k16_f16_f32,
       mma_m16n8k16_f16_f16, mma_m16n8k16_bf16_f32, mma_m16n8k8_tf32_f32, wgmma_m64n8k16_f16_f32,
       wgmma_m64n8k16_f16_f16, wgmma_m64n8k16_bf16_f32, wgmma_m64n8k8_tf32_f32, wgmma_m64n8k32_e4m3_f32},
      zero_signs);
  each({mma_m16n8k8_tf32_f32, wmma_m16n16k8_tf32_f32, wgmma_m64n8k8_tf32_f32}, block_of_tf32);
  each({mma_m16n8k16_bf16_f32, mma_m16n8k8_tf32_f32, wgmma_m64n8k16_bf16_f32, wgmma_m64n8k8_tf32_f32},
       exponent_floor_of_single);
  each({mma_m16n8k32_e4m3_f32, mma_m16n8k32_e5m2_f32, mma_m16n8k32_e4m3_f16, mma_m16n8k32_e5m2_f16},
       [&](const Instruction& in, const TensorCoreModel& row) { return fp8_order(in, row, settings); });
  each({wgmma_m64n8k16_f16_f32, wgmma_m64n8k16_f16_f16, wgmma_m64n8k32_e4m3_f32}, scale_d_zero);
  each({wgmma_m64n8k32_e4m3_f32, wgmma_m64n8k32_e5m2_f32}, truncated_accumulator);
  return questions;
}

}  // namespace fp16lab::probe
