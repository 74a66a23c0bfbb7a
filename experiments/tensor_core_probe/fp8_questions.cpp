// P7 and P11: how FP8 products are added, by mma.sync and by wgmma.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "experiments/tensor_core_probe/question_parts.hpp"
#include "numerics/formats/bits.hpp"

namespace fp16lab::probe {

/// P7: in which order mma.sync adds 32 FP8 products where it is no FP8 unit, and where c joins. Big and tiny
/// differ by 2^24 (FP16 output: 2^11), so that one tiny term is lost beside the big one and two are not.
Question fp8_order(const Instruction& in, const TensorCoreModel& row, const Settings& settings) {
  Question question{"P7", "", in, {}, {}};
  const bool half = in.accumulator == DType::f16;
  const int big = half ? 11 : 16;
  const int tiny = half ? 0 : -8;
  const float c_big = std::ldexp(1.0f, big);
  const auto k = static_cast<std::size_t>(in.k);
  const auto add = [&](std::string id, std::initializer_list<std::pair<std::size_t, int>> powers,
                       float c = 0.0f) {
    Vector vector{std::move(id), {}, {}, encode(in.accumulator, c)};
    for (const auto& [place, exponent] : powers) put_power(vector, place, in.operands, exponent);
    question.vectors.push_back(std::move(vector));
  };
  // Three places, the big term at the first: the tiny ones add up if they meet before it, or with it in one
  // block.
  for (std::size_t j = 2; j < k; ++j) add(fmt::format("P7-k0-k1-k{}", j), {{0, big}, {1, tiny}, {j, tiny}});
  for (const std::size_t j : {1UL, 2UL, 16UL, 31UL})
    add(fmt::format("P7-k3-k0-k{}", j), {{3, big}, {0, tiny}, {j, tiny}});
  for (const std::size_t j : {1UL, 2UL, 16UL, 30UL})
    add(fmt::format("P7-k31-k0-k{}", j), {{31, big}, {0, tiny}, {j, tiny}});
  for (const std::size_t j : {1UL, 2UL, 16UL})
    add(fmt::format("P7-c-k0-k{}", j), {{0, tiny}, {j, tiny}}, c_big);
  add("P7-c-nearest", {{0, tiny}, {1, tiny - 1}}, c_big);
  // Narrow alignment: 14 bits, in blocks of 16 or 32.
  add("P7-narrow", {{0, 0}, {1, 0}, {2, -13}, {16, -13}});
  add("P7-narrow-lost", {{0, 0}, {1, -14}, {2, -14}});
  if (half) {
    add("V53", {{0, -11}, {1, -13}}, 1.0f);
    add("V53b", {{0, -11}, {1, -14}}, 1.0f);
  }

  struct Alternative {
    std::string name;
    TensorCoreModel row;
  };
  std::vector<Alternative> alternatives;
  const auto with = [&row](const Stages& stages, bool as_fp16) {
    TensorCoreModel other = row;
    other.stages = stages;
    other.as_fp16 = as_fp16;
    return other;
  };
  const int floor = row.block().exponent_floor;
  const BlockOutput wide = half ? BlockOutput::fp16_nearest_even : BlockOutput::fp32_toward_zero;
  const BlockOutput narrow = half ? wide : BlockOutput::fp32_toward_zero_14_bits;
  const TensorCoreModel halves = with(two_blocks_then_c(16, 25, wide, floor), true);
  const TensorCoreModel chain = with(fused_block(16, 25, wide, floor), false);  // two FP16 blocks from c
  alternatives.push_back({"FP16 pairs, c last", with(two_blocks_then_c(2, 25, wide, floor), true)});
  alternatives.push_back({"FP16 halves, c last", halves});
  alternatives.push_back({"native, L = 32, F = 25", with(fused_block(32, 25, wide, floor), false)});
  alternatives.push_back({"native, L = 32, F = 13", with(fused_block(32, 13, narrow, floor), false)});
  alternatives.push_back({"native, L = 16, F = 13", with(fused_block(16, 13, narrow, floor), false)});

  for (const Alternative& alternative : alternatives) {
    const bool claimed = same_function(alternative.row, row);
    question.hypotheses.insert(claimed ? question.hypotheses.begin() : question.hypotheses.end(),
                               hypothesis_of(alternative.name, in, row, claimed ? row : alternative.row));
  }
  question.claim = fmt::format("{}: {}", in.name, question.hypotheses.front().name);

  const std::string change = row_name(row, in) + ": other stages, ";
  const auto pairs = [](std::size_t i) { return i % 4 < 2; };
  const auto even = [](std::size_t i) { return i % 2 == 0; };
  const auto add_order = [&](const std::string& name, std::vector<std::size_t> order,
                             const TensorCoreModel& blocks) {
    question.hypotheses.push_back(
        {name, change + name, reordered(std::move(order), dot_product_of(blocks, in.operands))});
  };
  add_order("FP16, k mod 4 in {2,3} first, c last", split(k, std::not_fn(pairs)), halves);
  add_order("FP16, k >= 16 first, c last", split(k, [](std::size_t i) { return i >= 16; }), halves);
  add_order("FP16, even k first, c last", split(k, even), halves);
  add_order("FP16, odd k first, c last", split(k, std::not_fn(even)), halves);
  add_order("FP16 pairs, c first", split(k, pairs), chain);
  add_order("FP16 halves, c first", split(k, [](std::size_t i) { return i < 16; }), chain);
  question.random_outputs = std::max<std::uint64_t>(settings.random_outputs / 20, 1);
  return question;
}

/// P11: c among 13 fraction bits.
Question truncated_accumulator(const Instruction& in, const TensorCoreModel& row) {
  Question question{
      "P11",
      fmt::format("{}: c is aligned to {} fraction bits like a product", in.name, row.block().fraction_bits),
      in,
      {},
      {}};
  question.vectors = {{"V45", {}, {}, 0x3f800001},
                      {"V45b", {}, {}, 0x3fffffff},
                      {"V45c", {}, {}, 0xbfffffff},
                      {"P11-kept", {}, {}, 0x3f800400}};
  const auto add = [&](std::string id, std::initializer_list<int> powers, float c) {
    Vector vector{std::move(id), {}, {}, bits_of(c)};
    std::size_t place = 0;
    for (const int exponent : powers) put_power(vector, place++, in.operands, exponent);
    question.vectors.push_back(std::move(vector));
  };
  add("P11-products", {-14, -14}, 1.0f);   // each lost beside c, or both kept
  add("P11-c-small", {0, -14}, 0x1p-14f);  // c lost beside a product
  add("P11-output", {1, 0}, 0x1p-11f);     // 3 + 2^-11 has 14 bits
  add("P11-output-2", {0, -13}, 1.0f);     // 2 + 2^-13 has 15

  TensorCoreModel wide = row, long_output = row, short_output = row;
  wide.set(&Stage::fraction_bits, 25);
  wide.set(&Stage::output, BlockOutput::fp32_toward_zero);
  long_output.set(&Stage::output, BlockOutput::fp32_toward_zero);
  short_output.set(&Stage::fraction_bits, 25);
  const DotProduct model = dot_product_of(row, in.operands);
  question.hypotheses = {
      hypothesis_of("c aligned", in, row, row),
      {"c added last, RNE", row_name(row, in) + ": stages in which c is added last, in FP32",
       [model](std::span<const std::uint32_t> a, std::span<const std::uint32_t> b, std::uint32_t c) {
         return bits_of(canonicalize(float_from_bits(model(a, b, 0)) + float_from_bits(c)));
       }},
      hypothesis_of("F = 25, RZ-FP32", in, row, wide),
      hypothesis_of("F = 13, 24-bit result", in, row, long_output),
      hypothesis_of("F = 25, 14-bit result", in, row, short_output)};
  return question;
}

}  // namespace fp16lab::probe
